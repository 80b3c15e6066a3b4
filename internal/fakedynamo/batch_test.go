package fakedynamo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge/internal/fakedynamo"
)

func (w *world) batchGet(keys ...attrs) (*dynamodb.BatchGetItemOutput, error) {
	return w.client.BatchGetItem(w.t.Context(), &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
		*w.table: {Keys: keys, ConsistentRead: aws.Bool(true)}}})
}

func numbered(pk string, n int) []attrs {
	keys := make([]attrs, n)
	for i := range keys {
		keys[i] = key(pk, fmt.Sprintf("%03d", i))
	}
	return keys
}

func (w *world) batchWrite(keys []attrs) (*dynamodb.BatchWriteItemOutput, error) {
	requests := make([]types.WriteRequest, len(keys))
	for i, k := range keys {
		requests[i] = types.WriteRequest{PutRequest: &types.PutRequest{Item: k}}
	}
	return w.client.BatchWriteItem(w.t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{*w.table: requests}})
}

func TestBatches(t *testing.T) {
	w := newWorld(t)
	all := numbered("p", 101)
	for from := 0; from < 100; from += 25 {
		_, err := w.batchWrite(all[from : from+25])
		w.must(err)
	}
	_, err := w.batchWrite(all[:26])
	w.wantCode(err, "ValidationException", "")
	_, err = w.batchWrite([]attrs{all[0], all[0]})
	w.wantCode(err, "ValidationException", "duplicates")
	out, err := w.batchGet(all[:100]...)
	w.must(err)
	if n := len(out.Responses[*w.table]); n != 100 {
		t.Errorf("got %d of 100", n)
	}
	_, err = w.batchGet(all...)
	w.wantCode(err, "ValidationException", "")
	_, err = w.batchGet(all[0], all[0])
	w.wantCode(err, "ValidationException", "duplicates")
	out, err = w.batchGet(all[0], key("none", "1"))
	w.must(err)
	if len(out.Responses[*w.table]) != 1 || len(out.UnprocessedKeys) != 0 {
		t.Errorf("got %v", out.Responses)
	}
}

func TestBatchGetLeavesOverWhatIsTooMuch(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	var keys []attrs
	for i := range 46 {
		k := key(fmt.Sprint("p", i/2), fmt.Sprint(i))
		keys = append(keys, k)
		w.must(w.put(attrs{"PK": k["PK"], "SK": k["SK"], "v": str(strings.Repeat("x", 390_000))}))
	}
	out, err := w.batchGet(keys...)
	w.must(err)
	if n, left := len(out.Responses[*w.table]), len(out.UnprocessedKeys[*w.table].Keys); n != 43 || left != 3 {
		t.Errorf("got %d, %d left; 16 MB hold 43 of these items", n, left)
	}
	// One partition gives about 1 MB.
	keys = nil
	for i := range 5 {
		keys = append(keys, key("one", fmt.Sprint(i)))
		w.must(w.put(attrs{"PK": str("one"), "SK": str(fmt.Sprint(i)), "v": str(strings.Repeat("x", 390_000))}))
	}
	out, err = w.batchGet(keys...)
	w.must(err)
	if n := len(out.Responses[*w.table]); n != 3 {
		t.Errorf("got %d items of 390 KB from one partition", n)
	}
	// What a fault leaves over is there on the next call.
	w.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
		return &fakedynamo.Fault{Kind: fakedynamo.Partial}
	}})
	out, err = w.batchGet(keys[:2]...)
	w.must(err)
	if len(out.Responses[*w.table]) != 1 || len(out.UnprocessedKeys[*w.table].Keys) != 1 {
		t.Errorf("a partial batch gave %d and left %d", len(out.Responses[*w.table]), len(out.UnprocessedKeys[*w.table].Keys))
	}
}

func TestItemLimits(t *testing.T) {
	w := newWorld(t)
	// The names and values of key and attribute count: 2+1 + 2+1 + 1 + n bytes.
	full := 400<<10 - 7
	w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "v": str(strings.Repeat("x", full))}))
	w.wantCode(w.put(attrs{"PK": str("p"), "SK": str("2"), "v": str(strings.Repeat("x", full+1))}), "ValidationException", "size")
	_, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", "1"),
		UpdateExpression: aws.String("SET w = :w"), ExpressionAttributeValues: attrs{":w": str("x")}})
	w.wantCode(err, "ValidationException", "size")
	w.must(w.put(key(strings.Repeat("p", 2048), strings.Repeat("s", 1024))))
	w.wantCode(w.put(key(strings.Repeat("p", 2049), "s")), "ValidationException", "")
	w.wantCode(w.put(key("p", strings.Repeat("s", 1025))), "ValidationException", "")
	w.wantCode(w.put(key("", "s")), "ValidationException", "empty string")
	w.wantCode(w.put(key("p", "")), "ValidationException", "empty string")
	w.wantCode(w.put(attrs{"PK": str("p")}), "ValidationException", "Missing the key SK")
	w.wantCode(w.put(attrs{"PK": str("p"), "SK": num(1)}), "ValidationException", "Type mismatch")
	_, err = w.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: w.table, Key: attrs{"PK": str("p")}})
	w.wantCode(err, "ValidationException", "does not match the schema")
	_, err = w.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: w.table, Key: attrs{"PK": str("p"), "SK": str("1"), "v": str("x")}})
	w.wantCode(err, "ValidationException", "does not match the schema")
}

func TestNumericAndBinaryKeys(t *testing.T) {
	w := newWorld(t)
	create := func(kind types.ScalarAttributeType) *world {
		other := *w
		other.table = aws.String(*w.table + "-" + string(kind))
		_, err := w.client.CreateTable(t.Context(), &dynamodb.CreateTableInput{TableName: other.table, BillingMode: types.BillingModePayPerRequest, KeySchema: schema("PK", "SK"),
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("PK"), AttributeType: "S"}, {AttributeName: aws.String("SK"), AttributeType: kind}}})
		w.must(err)
		t.Cleanup(func() {
			_, _ = w.client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: other.table}) // may be cancelled by now
		})
		return &other
	}
	numbers := create("N")
	for _, n := range []string{"10", "9", "-1", "-20", "100", "0.5", "0", "-0.5", "1e20", "-1e20", "1.0"} {
		w.must(numbers.put(attrs{"PK": str("p"), "SK": num(n)}))
	}
	w.must(numbers.put(attrs{"PK": str("p"), "SK": num("1")})) // the same item as 1.0
	if got := numbers.list(""); got != "-100000000000000000000 -20 -1 -0.5 0 0.5 1 9 10 100 100000000000000000000" {
		t.Errorf("numbers in order: %s", got)
	}
	binaries := create("B")
	for _, b := range [][]byte{{255}, {0}, {0, 0}, {128}, {127, 255}} {
		w.must(binaries.put(attrs{"PK": str("p"), "SK": &types.AttributeValueMemberB{Value: b}}))
	}
	out, err := w.client.Query(t.Context(), binaries.queryInput("PK = :p", attrs{":p": str("p")}))
	w.must(err)
	var got []string
	for _, it := range out.Items {
		got = append(got, dump(it["SK"]))
	}
	if joined := strings.Join(got, " "); joined != "B00 B0000 B7fff B80 Bff" {
		t.Errorf("binaries in order: %s", joined)
	}
}
