package fakedynamo_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge/internal/fakedynamo"
)

// bill writes a ConsumedCapacity as "total table index=units".
func bill(c *types.ConsumedCapacity) string {
	if c == nil {
		return "nothing"
	}
	out := fmt.Sprint(aws.ToFloat64(c.CapacityUnits))
	if c.Table != nil {
		out += fmt.Sprint(" ", aws.ToFloat64(c.Table.CapacityUnits))
	}
	for _, name := range slices.Sorted(maps.Keys(c.GlobalSecondaryIndexes)) {
		out += fmt.Sprintf(" %s=%g", name, aws.ToFloat64(c.GlobalSecondaryIndexes[name].CapacityUnits))
	}
	return out
}

// sized is an item of exactly size bytes, in BySort if sort is not empty.
func sized(sk, sort string, size int) attrs {
	it := attrs{"PK": str("p"), "SK": str(sk)}
	used := 2 + 1 + 2 + len(sk) + 1
	if sort != "" {
		it["sort"] = str(sort)
		used += 4 + len(sort)
	}
	it["v"] = str(strings.Repeat("x", size-used))
	return it
}

func TestWriteUnits(t *testing.T) {
	w := newWorld(t)
	put := func(it attrs) string {
		out, err := w.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: w.table, Item: it, ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes})
		w.must(err)
		return bill(out.ConsumedCapacity)
	}
	update := func(sk, expression string, values attrs) string {
		out, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", sk), ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes,
			UpdateExpression: aws.String(expression), ExpressionAttributeValues: values})
		w.must(err)
		return bill(out.ConsumedCapacity)
	}
	remove := func(sk string) string {
		out, err := w.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: w.table, Key: key("p", sk), ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes})
		w.must(err)
		return bill(out.ConsumedCapacity)
	}
	for _, c := range []struct{ what, got, want string }{
		{"put of 1,024 bytes", put(sized("1", "", 1024)), "1 1"},
		{"put of 1,025 bytes", put(sized("2", "", 1025)), "2 2"},
		{"put over a larger item", put(sized("2", "", 100)), "2 2"},
		{"put into the index", put(sized("3", "s", 2048)), "3 2 BySort=1"},
		{"the same again", put(sized("3", "s", 2048)), "2 2"},
		{"update of what the index doesn't show", update("3", "SET b = :b", attrs{":b": num(1)}), "3 3"},
		{"update of what the index shows", update("3", "SET a = :a", attrs{":a": num(1)}), "4 3 BySort=1"},
		{"update of the index key", update("3", "SET sort = :s", attrs{":s": str("t")}), "5 3 BySort=2"},
		{"update that leaves the index", update("3", "REMOVE sort", nil), "4 3 BySort=1"},
		{"update that shrinks the item", update("3", "REMOVE v", nil), "3 3"},
		{"update of nothing", update("4", "SET b = :b", attrs{":b": num(1)}), "1 1"},
		{"delete", remove("2"), "1 1"},
		{"delete of nothing", remove("2"), "1 1"},
	} {
		if c.got != c.want {
			t.Errorf("%s costs %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestReadUnits(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		w.must(w.put(sized(fmt.Sprint(i), "s", 1000)))
	}
	get := func(sk string, consistent bool) string {
		out, err := w.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: w.table, Key: key("p", sk), ConsistentRead: &consistent, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
		w.must(err)
		return bill(out.ConsumedCapacity)
	}
	query := func(index string, consistent bool, pk string, change func(*dynamodb.QueryInput)) string {
		in := w.queryInput("PK = :p", attrs{":p": str(pk)})
		in.ConsistentRead, in.ReturnConsumedCapacity = &consistent, types.ReturnConsumedCapacityIndexes
		if index != "" {
			in.IndexName = &index
		}
		if change != nil {
			change(in)
		}
		out, err := w.client.Query(t.Context(), in)
		w.must(err)
		return bill(out.ConsumedCapacity)
	}
	batch, err := w.client.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		RequestItems: map[string]types.KeysAndAttributes{*w.table: {Keys: []attrs{key("p", "1"), key("p", "2"), key("p", "none")}, ConsistentRead: aws.Bool(true)}}})
	w.must(err)
	for _, c := range []struct{ what, got, want string }{
		{"consistent get", get("1", true), "1"},
		{"eventual get", get("1", false), "0.5"},
		{"get of nothing", get("none", true), "1"},
		{"query of 10,000 bytes", query("", true, "p", nil), "3 3"},
		{"eventual query", query("", false, "p", nil), "1.5 1.5"},
		{"query that only counts", query("", true, "p", func(in *dynamodb.QueryInput) { in.Select = types.SelectCount }), "3 3"},
		{"query that filters", query("", true, "p", func(in *dynamodb.QueryInput) { in.FilterExpression = aws.String("attribute_exists(nothing)") }), "3 3"},
		{"query of the index", query("BySort", false, "p", nil), "0.5 0 BySort=0.5"},
		{"query of nothing", query("", true, "none", nil), "1 1"},
		{"batch get rounds each", bill(&batch.ConsumedCapacity[0]), "3"},
	} {
		if c.got != c.want {
			t.Errorf("%s costs %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestTransactionUnits(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	for i := range 3 {
		w.must(w.put(sized(fmt.Sprint(i), "s", 1500)))
	}
	check := types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: w.table, Key: key("p", "0"), ConditionExpression: aws.String("attribute_exists(PK)")}}
	missing := types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: w.table, Key: key("p", "none"), ConditionExpression: aws.String("attribute_exists(PK)")}}
	transact := func(token string, items ...types.TransactWriteItem) string {
		w.server.ResetStats()
		out, err := w.client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items, ClientRequestToken: aws.String(token), ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes})
		if err != nil {
			stats := w.server.Stats()["TransactWriteItems"]
			return fmt.Sprintf("%s, %g read, %g written", reasons(err), stats.ReadUnits, stats.WriteUnits)
		}
		return fmt.Sprintf("%s, of it %g read, %g written", bill(&out.ConsumedCapacity[0]), aws.ToFloat64(out.ConsumedCapacity[0].ReadCapacityUnits), aws.ToFloat64(out.ConsumedCapacity[0].WriteCapacityUnits))
	}
	claim := func(sk string) types.TransactWriteItem { return w.txAdd("p", sk, 1) }
	move := types.TransactWriteItem{Update: &types.Update{TableName: w.table, Key: key("p", "2"), UpdateExpression: aws.String("SET sort = :s"), ExpressionAttributeValues: attrs{":s": str("t")}}}
	for _, c := range []struct{ what, got, want string }{
		{"twice on the table", transact("t1", check, claim("1")), "8 8, of it 0 read, 8 written"},
		{"once on the index", transact("t2", move), "6 4 BySort=2, of it 0 read, 6 written"},
		{"a repetition is read", transact("t2", move), "2 2, of it 2 read, 0 written"},
		{"a cancelled one", transact("t3", missing, claim("1"), move), "ConditionalCheckFailed None None, 0 read, 10 written"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestFailedConditionsCostByTheItemThere(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	w.must(w.put(sized("1", "", 3000)))
	w.server.ResetStats()
	for _, sk := range []string{"1", "none"} {
		_, err := w.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: w.table, Item: key("p", sk), ConditionExpression: aws.String("v = :v"), ExpressionAttributeValues: attrs{":v": num(1)}})
		w.wantCode(err, "ConditionalCheckFailedException", "")
	}
	stats := w.server.Stats()["PutItem"]
	if stats.WriteUnits != 4 || stats.Calls != 2 || stats.Errors["ConditionalCheckFailedException"] != 2 {
		t.Errorf("stats %+v, want 3 + 1 write units", stats)
	}
}
