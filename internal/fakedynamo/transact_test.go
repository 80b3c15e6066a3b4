package fakedynamo_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

func TestTransactionIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	w.must(w.put(attrs{"PK": str("p"), "SK": str("old"), "v": str("have")}))
	err := w.transact("", w.txPut("p", "1", "x", ""), w.txPut("p", "old", "x", "attribute_not_exists(PK)"), w.txPut("p", "2", "x", ""))
	if got := reasons(err); got != "None ConditionalCheckFailed None" {
		t.Errorf("reasons: %s", got)
	}
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) && text(cancelled.CancellationReasons[1].Item["v"]) != "have" {
		t.Errorf("the reason has no old item: %v", cancelled.CancellationReasons[1])
	}
	if got := w.list(""); got != "old" {
		t.Errorf("a cancelled transaction left %q", got)
	}
	w.must(w.transact("", w.txPut("p", "1", "x", ""), w.txAdd("p", "n", 5),
		types.TransactWriteItem{Delete: &types.Delete{TableName: w.table, Key: key("p", "old"), ConditionExpression: aws.String("attribute_exists(PK)")}},
		types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: w.table, Key: key("p", "none"), ConditionExpression: aws.String("attribute_not_exists(PK)")}}))
	if got := w.list(""); got != "1 n" {
		t.Errorf("after the transaction: %q", got)
	}
}

func TestTransactionToken(t *testing.T) {
	w := newWorld(t)
	name := (*w.table)[len(*w.table)-19:]
	for range 3 {
		w.must(w.transact(name, w.txAdd("p", "1", 1), w.txPut("p", "2", "x", "")))
	}
	if got := text(w.get("1")["n"]); got != "1" {
		t.Errorf("applied %s times", got)
	}
	w.wantCode(w.transact(name, w.txAdd("p", "1", 2), w.txPut("p", "2", "x", "")), "IdempotentParameterMismatchException", "")
	if w.server != nil {
		w.server.Advance(10*time.Minute + time.Second)
		w.must(w.transact(name, w.txAdd("p", "1", 1)))
		if got := text(w.get("1")["n"]); got != "2" {
			t.Errorf("after ten minutes the token should be new; n is %s", got)
		}
	}
	// A cancelled transaction leaves its token free.
	if err := w.transact("o"+name, w.txPut("p", "2", "x", "attribute_not_exists(PK)")); reasons(err) != "ConditionalCheckFailed" {
		t.Error(err)
	}
	w.must(w.transact("o"+name, w.txPut("p", "3", "x", "")))
}

func TestTransactionLimits(t *testing.T) {
	w := newWorld(t)
	many := make([]types.TransactWriteItem, 101)
	for i := range many {
		many[i] = w.txPut("p", strings.Repeat("s", i+1), "v", "")
	}
	w.wantCode(w.transact("", many...), "ValidationException", "less than or equal to 100")
	w.must(w.transact("", many[:100]...))
	w.wantCode(w.transact("", w.txPut("p", "1", "a", ""), w.txPut("p", "1", "b", "")), "ValidationException", "multiple operations on one item")
	// The items count, not the request: small updates of large items are too much.
	var updates []types.TransactWriteItem
	for i := range 11 {
		sk := strings.Repeat("b", i+1)
		w.must(w.put(attrs{"PK": str("big"), "SK": str(sk), "v": str(strings.Repeat("x", 390_000))}))
		updates = append(updates, w.txAdd("big", sk, 1))
	}
	if !w.elsewhere("only the request's own bytes count") {
		w.wantCode(w.transact("", updates...), "ValidationException", "4 MB")
	}
	w.must(w.transact("", updates[:10]...))
}

func TestTransactGet(t *testing.T) {
	w := newWorld(t)
	w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "v": str("have"), "w": str("hidden")}))
	get := func(sk string) types.TransactGetItem {
		return types.TransactGetItem{Get: &types.Get{TableName: w.table, Key: key("p", sk), ProjectionExpression: aws.String("v")}}
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
