package fakedynamo_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge/internal/fakedynamo"
)

func TestTransactionIsAllOrNothing(t *testing.T) {
	w := newWorld(t, fakedynamo.Options{})
	w.must(w.put(attrs{"PK": str("p"), "SK": str("old"), "v": str("have")}))
	err := w.transact("", txPut("p", "1", "x", ""), txPut("p", "old", "x", "attribute_not_exists(PK)"), txPut("p", "2", "x", ""))
	if got := reasons(err); got != "None ConditionalCheckFailed None" {
		t.Errorf("reasons: %s", got)
	}
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) && text(cancelled.CancellationReasons[1].Item["v"]) != "have" {
		t.Errorf("the reason has no old item: %v", cancelled.CancellationReasons[1])
	}
	if got := w.list("", "p"); got != "old" {
		t.Errorf("a cancelled transaction left %q", got)
	}
	w.must(w.transact("", txPut("p", "1", "x", ""), txAdd("p", "n", 5),
		types.TransactWriteItem{Delete: &types.Delete{TableName: aws.String(table), Key: key("p", "old"), ConditionExpression: aws.String("attribute_exists(PK)")}},
		types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: aws.String(table), Key: key("p", "none"), ConditionExpression: aws.String("attribute_not_exists(PK)")}}))
	if got := w.list("", "p"); got != "1 n" {
		t.Errorf("after the transaction: %q", got)
	}
}

func TestTransactionToken(t *testing.T) {
	w := newWorld(t, fakedynamo.Options{})
	for range 3 {
		w.must(w.transact("token", txAdd("p", "1", 1), txPut("p", "2", "x", "")))
	}
	if got := text(w.get("p", "1")["n"]); got != "1" {
		t.Errorf("applied %s times", got)
	}
	w.wantCode(w.transact("token", txAdd("p", "1", 2), txPut("p", "2", "x", "")), "IdempotentParameterMismatchException", "")
	w.server.Advance(10*time.Minute + time.Second)
	w.must(w.transact("token", txAdd("p", "1", 1)))
	if got := text(w.get("p", "1")["n"]); got != "2" {
		t.Errorf("after ten minutes the token should be new; n is %s", got)
	}
	// A cancelled transaction leaves its token free.
	if err := w.transact("other", txPut("p", "2", "x", "attribute_not_exists(PK)")); reasons(err) != "ConditionalCheckFailed" {
		t.Error(err)
	}
	w.must(w.transact("other", txPut("p", "3", "x", "")))
}

func TestTransactionLimits(t *testing.T) {
	w := newWorld(t, fakedynamo.Options{})
	many := make([]types.TransactWriteItem, 101)
	for i := range many {
		many[i] = txPut("p", strings.Repeat("s", i+1), "v", "")
	}
	w.wantCode(w.transact("", many...), "ValidationException", "less than or equal to 100")
	w.must(w.transact("", many[:100]...))
	w.wantCode(w.transact("", txPut("p", "1", "a", ""), txPut("p", "1", "b", "")), "ValidationException", "multiple operations on one item")
	// The items count, not the request: small updates of large items are too much.
	var updates []types.TransactWriteItem
	for i := range 11 {
		sk := strings.Repeat("b", i+1)
		w.must(w.put(attrs{"PK": str("big"), "SK": str(sk), "v": str(strings.Repeat("x", 390_000))}))
		updates = append(updates, txAdd("big", sk, 1))
	}
	w.wantCode(w.transact("", updates...), "ValidationException", "4 MB")
	w.must(w.transact("", updates[:10]...))
}

func TestTransactGet(t *testing.T) {
	w := newWorld(t, fakedynamo.Options{})
	w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "v": str("have"), "w": str("hidden")}))
	get := func(sk string) types.TransactGetItem {
		return types.TransactGetItem{Get: &types.Get{TableName: aws.String(table), Key: key("p", sk), ProjectionExpression: aws.String("v")}}
	}
	out, err := w.client.TransactGetItems(t.Context(), &dynamodb.TransactGetItemsInput{
		TransactItems: []types.TransactGetItem{get("1"), get("2")}, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
	w.must(err)
	if len(out.Responses) != 2 || text(out.Responses[0].Item["v"]) != "have" || out.Responses[0].Item["w"] != nil || out.Responses[1].Item != nil {
		t.Errorf("responses: %v", out.Responses)
	}
	if got := *out.ConsumedCapacity[0].CapacityUnits; got != 4 {
		t.Errorf("two transactional reads cost %g, want 4", got)
	}
}
