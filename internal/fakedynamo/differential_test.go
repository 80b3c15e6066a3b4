package fakedynamo_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge/internal/fakedynamo"
)

// TestAgainstEndpoint does the same random operations in the fake and at another
// endpoint and compares results, error names, cancellation reasons and units.
func TestAgainstEndpoint(t *testing.T) {
	if os.Getenv("GOBRIDGE_DYNAMODB_ENDPOINT") == "" {
		t.Skip("compares with another endpoint: set GOBRIDGE_DYNAMODB_ENDPOINT, or use scripts/dynamodb-live.sh")
	}
	fake, other := newFake(t, fakedynamo.Options{}), newWorld(t)
	const seed = 7
	for i := range 3000 {
		draw := func() *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(i))) }
		what, got := fake.random(draw())
		_, want := other.random(draw())
		if got != want {
			t.Fatalf("seed %d, operation %d, %s\nfake  %s\nother %s", seed, i, what, got, want)
		}
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomValue(r *rand.Rand) types.AttributeValue {
	return pick[types.AttributeValue](r, num(r.IntN(20)-5), num(fmt.Sprint(r.IntN(100), ".", r.IntN(1000))), str(strings.Repeat("x", pick(r, 1, 10, 1500, 3000))), str(fmt.Sprint(r.IntN(5))),
		&types.AttributeValueMemberSS{Value: []string{"a", fmt.Sprint(r.IntN(3))}},
		&types.AttributeValueMemberL{Value: []types.AttributeValue{num(r.IntN(3))}},
		&types.AttributeValueMemberM{Value: attrs{"k": num(r.IntN(3))}}, &types.AttributeValueMemberBOOL{Value: r.IntN(2) == 0})
}

func randomKey(r *rand.Rand) attrs {
	return key(pick(r, "p", "q"), fmt.Sprint(r.IntN(12)))
}

// filled adds the values that the expressions name.
func filled(r *rand.Rand, expressions ...*string) attrs {
	var out attrs
	for _, name := range []string{":v", ":w", ":n", ":s", ":t", ":l"} {
		v := randomValue(r)
		switch name {
		case ":n":
			v = num(r.IntN(9))
		case ":s":
			v = str(fmt.Sprint(r.IntN(6)))
		case ":t":
			v = &types.AttributeValueMemberSS{Value: []string{"a", fmt.Sprint(r.IntN(3))}}
		case ":l":
			v = &types.AttributeValueMemberL{Value: []types.AttributeValue{v}}
		}
		for _, e := range expressions {
			if e != nil && strings.Contains(*e, name) {
				if out == nil {
					out = attrs{}
				}
				out[name] = v
			}
		}
	}
	return out
}

func randomCondition(r *rand.Rand) *string {
	if r.IntN(3) == 0 {
		return nil
	}
	return aws.String(pick(r, "attribute_exists(PK)", "attribute_not_exists(PK)", "a = :v", "a <> :v", "b > :n", "n < :n OR attribute_not_exists(n)",
		"NOT (a = :v AND b = :w)", "size(a) > :n", "contains(a, :s)", "begins_with(a, :s)", "n BETWEEN :n AND :n", "m.k = :n", "l[0] = :n", "a IN (:v, :w)"))
}

func randomUpdate(r *rand.Rand) *string {
	return aws.String(pick(r, "SET a = :v", "SET a = :v, b = :w", "SET n = n + :n", "SET n = if_not_exists(n, :n) - :n", "SET m.k = :v", "SET l[0] = :v", "SET l[3] = :v",
		"REMOVE a, l[0]", "REMOVE m.k", "ADD n :n", "ADD a :t", "DELETE a :t", "SET sort = :s", "SET #g = :s", "REMOVE sort, #g", "SET a = b, b = a", "SET l = list_append(l, :l)"))
}

func randomNames(expressions ...*string) map[string]string {
	for _, e := range expressions {
		if e != nil && strings.Contains(*e, "#g") {
			return map[string]string{"#g": "group"}
		}
	}
	return nil
}

// random does one operation and says what it was and what came of it.
func (w *world) random(r *rand.Rand) (what, outcome string) {
	ctx, units := w.t.Context(), types.ReturnConsumedCapacityIndexes
	switch r.IntN(6) {
	case 0:
		it := randomKey(r)
		it["n"] = num(r.IntN(5))
		for _, name := range []string{"a", "b", "m", "l"} {
			if r.IntN(2) == 0 {
				it[name] = randomValue(r)
			}
		}
		if r.IntN(2) == 0 {
			it["sort"] = str(fmt.Sprint(r.IntN(6)))
		}
		condition := randomCondition(r)
		in := &dynamodb.PutItemInput{TableName: w.table, Item: it, ConditionExpression: condition, ExpressionAttributeValues: filled(r, condition),
			ReturnValues: types.ReturnValueAllOld, ReturnConsumedCapacity: units}
		out, err := w.client.PutItem(ctx, in)
		if err != nil {
			return "put if " + aws.ToString(condition), code(err)
		}
		return "put if " + aws.ToString(condition), dumpAll(out.Attributes) + bill(out.ConsumedCapacity)
	case 1:
		condition, update := randomCondition(r), randomUpdate(r)
		out, err := w.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: w.table, Key: randomKey(r), UpdateExpression: update, ConditionExpression: condition,
			ExpressionAttributeValues: filled(r, update, condition), ExpressionAttributeNames: randomNames(update), ReturnValues: types.ReturnValueAllNew, ReturnConsumedCapacity: units})
		what = *update + " if " + aws.ToString(condition)
		if err != nil {
			return what, code(err)
		}
		return what, dumpAll(out.Attributes) + bill(out.ConsumedCapacity)
	case 2:
		condition := randomCondition(r)
		out, err := w.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: w.table, Key: randomKey(r), ConditionExpression: condition,
			ExpressionAttributeValues: filled(r, condition), ReturnValues: types.ReturnValueAllOld, ReturnConsumedCapacity: units})
		if err != nil {
			return "delete if " + aws.ToString(condition), code(err)
		}
		return "delete if " + aws.ToString(condition), dumpAll(out.Attributes) + bill(out.ConsumedCapacity)
	case 3:
		return w.randomTransaction(r)
	default:
		return w.randomQuery(r)
	}
}

func (w *world) randomTransaction(r *rand.Rand) (what, outcome string) {
	var items []types.TransactWriteItem
	seen := map[string]bool{}
	for range 1 + r.IntN(4) {
		k, condition, update := randomKey(r), randomCondition(r), randomUpdate(r)
		if seen[dumpAll(k)] {
			continue
		}
		seen[dumpAll(k)] = true
		var item types.TransactWriteItem
		if r.IntN(2) == 0 && condition != nil {
			item.ConditionCheck = &types.ConditionCheck{TableName: w.table, Key: k, ConditionExpression: condition, ExpressionAttributeValues: filled(r, condition)}
			what += "; check " + *condition
		} else {
			item.Update = &types.Update{TableName: w.table, Key: k, ConditionExpression: condition, UpdateExpression: update,
				ExpressionAttributeValues: filled(r, condition, update), ExpressionAttributeNames: randomNames(update)}
			what += "; " + *update + " if " + aws.ToString(condition)
		}
		items = append(items, item)
	}
	out, err := w.client.TransactWriteItems(w.t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items, ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes})
	if err != nil {
		return what, reasons(err)
	}
	return what, bill(&out.ConsumedCapacity[0])
}

func (w *world) randomQuery(r *rand.Rand) (what, outcome string) {
	condition := aws.String(pick(r, "PK = :p", "PK = :p AND SK >= :s", "PK = :p AND SK < :s", "PK = :p AND begins_with(SK, :s)"))
	in := &dynamodb.QueryInput{TableName: w.table, KeyConditionExpression: condition, ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes,
		ScanIndexForward: aws.Bool(r.IntN(2) == 0), ExpressionAttributeValues: filled(r, condition)}
	if r.IntN(3) == 0 {
		in.IndexName = aws.String("BySort")
		in.KeyConditionExpression = aws.String(strings.ReplaceAll(*condition, "SK", "sort"))
	} else if r.IntN(2) == 0 {
		in.FilterExpression = randomCondition(r)
		if in.FilterExpression != nil && strings.Contains(*in.FilterExpression, "PK") {
			in.FilterExpression = nil
		}
		in.ExpressionAttributeValues = filled(r, condition, in.FilterExpression)
	}
	if in.ExpressionAttributeValues == nil {
		in.ExpressionAttributeValues = attrs{}
	}
	in.ExpressionAttributeValues[":p"] = str("p")
	if r.IntN(2) == 0 {
		in.Limit = aws.Int32(int32(1 + r.IntN(4)))
	}
	what = fmt.Sprint("query ", aws.ToString(in.IndexName), " ", *in.KeyConditionExpression, " where ", aws.ToString(in.FilterExpression))
	for page := 0; ; page++ {
		out, err := w.client.Query(w.t.Context(), in)
		if err != nil {
			return what, outcome + code(err)
		}
		for _, it := range out.Items {
			outcome += dumpAll(it)
		}
		outcome += fmt.Sprint(" | ", out.Count, out.ScannedCount, " ", dumpAll(out.LastEvaluatedKey), bill(out.ConsumedCapacity), "\n")
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil || page > 50 {
			return what, outcome
		}
	}
}
