package fakedynamo_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge/internal/fakedynamo"
)

func (w *world) putSorted(sk, sort string) {
	w.t.Helper()
	w.must(w.put(attrs{"PK": str("p"), "SK": str(sk), "sort": str(sort)}))
}

func TestHeldIndexShowsItemByItem(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	w.putSorted("0", "0")
	w.server.HoldIndex(*w.table, "BySort")
	w.putSorted("1", "1")
	w.putSorted("2", "2")
	w.putSorted("1", "9")
	_, err := w.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: w.table, Key: key("p", "0")})
	w.must(err)
	if got := fmt.Sprint(w.list(""), " | ", w.list("BySort"), " | ", w.server.PendingItems(*w.table, "BySort")); got != "1 2 | 0 | [{p 1} {p 2} {p 0}]" {
		t.Error(got)
	}
	// The younger one overtakes; then the older one appears as it was first.
	show := func(f func(string, string, fakedynamo.Key) bool, sk, want string) {
		t.Helper()
		if !f(*w.table, "BySort", fakedynamo.Key{Partition: "p", Sort: sk}) {
			t.Errorf("nothing waits for %s", sk)
		}
		if got := w.list("BySort"); got != want {
			t.Errorf("the index shows %s, want %s", got, want)
		}
	}
	show(w.server.ShowItem, "2", "0 2")
	show(w.server.ShowNext, "1", "0 1 2")
	show(w.server.ShowNext, "1", "0 2 1")
	w.server.ReleaseIndex(*w.table, "BySort")
	w.putSorted("3", "3")
	if got := w.list("BySort"); got != "2 3 1" {
		t.Errorf("the released index shows %s", got)
	}
	if w.server.ShowItem(*w.table, "BySort", fakedynamo.Key{Partition: "p", Sort: "3"}) {
		t.Error("something waits in a released index")
	}
}

func TestLaggingIndexLosesNothing(t *testing.T) {
	overtaken := 0
	for seed := range uint64(20) {
		w := newFake(t, fakedynamo.Options{})
		w.server.LagIndex(*w.table, "BySort", seed, 10)
		for i := range 20 {
			w.putSorted(fmt.Sprintf("%02d", i), fmt.Sprintf("%02d", i))
			shown := strings.Fields(w.list("BySort"))
			for at, sk := range shown {
				if sk != fmt.Sprintf("%02d", at) {
					overtaken++
					break
				}
			}
		}
		for range 10 {
			w.get("none") // every call brings the index further
		}
		if got := len(strings.Fields(w.list("BySort"))); got != 20 {
			t.Errorf("seed %d: the index shows %d of 20 items", seed, got)
		}
	}
	if overtaken == 0 {
		t.Error("no item ever overtook another")
	}
}

func TestEventuallyConsistentReadsMayBeStale(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	w.putSorted("1", "old")
	w.server.HoldIndex(*w.table, fakedynamo.Replicas)
	w.putSorted("1", "new")
	w.putSorted("2", "new")
	read := func(consistent bool) string {
		one, err := w.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: w.table, Key: key("p", "1"), ConsistentRead: &consistent})
		w.must(err)
		in := w.queryInput("PK = :p", attrs{":p": str("p")})
		in.ConsistentRead = &consistent
		sorts := w.pages(in)
		return text(one.Item["sort"]) + " " + strings.Join(sorts, ",")
	}
	if stale, fresh := read(false), read(true); stale != "old 1" || fresh != "new 1,2" {
		t.Errorf("stale %s, fresh %s", stale, fresh)
	}
	w.server.ReleaseIndex(*w.table, fakedynamo.Replicas)
	if got := read(false); got != "new 1,2" {
		t.Errorf("after the release: %s", got)
	}
}

func TestOverlappingTransactionsConflict(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	w.must(w.put(attrs{"PK": str("p"), "SK": str("a"), "n": num(0)}))
	inside := false
	w.server.SetHooks(fakedynamo.Hooks{Prepared: func(*fakedynamo.Call) {
		if inside {
			return
		}
		inside = true
		_, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", "a"), UpdateExpression: aws.String("SET n = :n"), ExpressionAttributeValues: attrs{":n": num(7)}})
		w.wantCode(err, "TransactionConflictException", "")
		if got := reasons(w.transact("", w.txAdd("p", "c", 1), w.txAdd("p", "a", 1))); got != "None TransactionConflict" {
			t.Errorf("transaction in a transaction: %s", got)
		}
		check := types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: w.table, Key: key("p", "a"), ConditionExpression: aws.String("attribute_exists(PK)")}}
		if got := reasons(w.transact("", check)); got != "TransactionConflict" {
			t.Errorf("condition check in a transaction: %s", got)
		}
		w.wantCode(w.transact("same", w.txAdd("p", "a", 1), w.txAdd("p", "b", 1)), "TransactionInProgressException", "")
		_, err = w.client.TransactGetItems(t.Context(), &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{{Get: &types.Get{TableName: w.table, Key: key("p", "a")}}}})
		if got := reasons(err); got != "TransactionConflict" {
			t.Errorf("transactional read in a transaction: %s", got)
		}
		if got := text(w.get("a")["n"]); got != "0" {
			t.Errorf("a read sees uncommitted data: %s", got)
		}
		w.must(w.put(key("p", "free")))
	}})
	w.must(w.transact("same", w.txAdd("p", "a", 1), w.txAdd("p", "b", 1)))
	if got := text(w.get("a")["n"]) + text(w.get("b")["n"]); got != "11" {
		t.Errorf("after the transaction: %s", got)
	}
}

func TestHalfATransactionIsVisible(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	var seen []string
	w.server.SetHooks(fakedynamo.Hooks{
		Order: func(_ *fakedynamo.Call, n int) []int { return []int{2, 0, 1} },
		Applied: func(_ *fakedynamo.Call, items int) {
			read := w.get("1") // serializable: the transaction is decided
			seen = append(seen, fmt.Sprintf("%d:%s/%s/%v", items, w.list(""), w.list("BySort"), read != nil))
		},
	})
	var items []types.TransactWriteItem
	for _, sk := range []string{"0", "1", "2"} {
		item := w.txPut("p", sk, "v", "")
		item.Put.Item["sort"] = str(sk)
		items = append(items, item)
	}
	w.must(w.transact("", items...))
	if got := strings.Join(seen, " "); got != "1:2/2/true 2:0 2/0 2/true" {
		t.Errorf("seen on the way: %s", got)
	}
	if got := w.list(""); got != "0 1 2" {
		t.Errorf("at the end: %s", got)
	}
}

func TestOverlapKeepsTheSum(t *testing.T) {
	w := newFake(t, fakedynamo.Options{Overlap: true})
	for _, sk := range []string{"a", "b"} {
		w.must(w.put(attrs{"PK": str("p"), "SK": str(sk), "n": num(1000)}))
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				for {
					err := w.transact("", w.txAdd("p", "a", 1), w.txAdd("p", "b", -1))
					if err == nil {
						break
					}
					if !strings.Contains(reasons(err), "TransactionConflict") {
						t.Errorf("transaction: %v", err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	if got := text(w.get("a")["n"]) + " " + text(w.get("b")["n"]); got != "1200 800" {
		t.Errorf("at the end: %s", got)
	}
}

func TestInjectedFaults(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	var fault *fakedynamo.Fault
	w.server.SetHooks(fakedynamo.Hooks{Before: func(*fakedynamo.Call) *fakedynamo.Fault { return fault }})
	inject := func(f fakedynamo.Fault) { fault = &f }
	calm := func() { fault = nil }

	inject(fakedynamo.Fault{Kind: fakedynamo.CutBefore})
	if err := w.put(key("p", "before")); err == nil || code(err) == "" {
		t.Errorf("cut before: %v", err)
	}
	inject(fakedynamo.Fault{Kind: fakedynamo.CutAfter})
	if err := w.put(key("p", "after")); err == nil {
		t.Error("cut after: the answer came")
	}
	inject(fakedynamo.Fault{Kind: fakedynamo.Conflict})
	w.wantCode(w.put(key("p", "1")), "TransactionConflictException", "")
	inject(fakedynamo.Fault{Kind: fakedynamo.Conflict, Item: 4})
	if got := reasons(w.transact("", w.txPut("p", "1", "v", ""), w.txPut("p", "2", "v", ""), w.txPut("p", "3", "v", ""))); got != "None TransactionConflict None" {
		t.Errorf("conflict: %s", got)
	}
	inject(fakedynamo.Fault{Kind: fakedynamo.Throttle})
	if got := reasons(w.transact("", w.txPut("p", "1", "v", ""), w.txPut("p", "2", "v", ""))); got != "ThrottlingError None" {
		t.Errorf("throttle: %s", got)
	}
	inject(fakedynamo.Fault{Kind: fakedynamo.Throttle, Index: "BySort"})
	err := w.put(key("p", "1"))
	var throttled *types.ThrottlingException
	if !errors.As(err, &throttled) || len(throttled.ThrottlingReasons) != 1 || !strings.HasSuffix(aws.ToString(throttled.ThrottlingReasons[0].Resource), "/index/BySort") {
		t.Errorf("throttled index: %v, %+v", err, throttled)
	}
	inject(fakedynamo.Fault{Kind: fakedynamo.InternalError})
	w.wantCode(w.put(key("p", "1")), "InternalServerError", "")
	inject(fakedynamo.Fault{Kind: fakedynamo.Unavailable})
	w.wantCode(w.put(key("p", "1")), "ServiceUnavailable", "")
	calm()
	if got := w.list(""); got != "after" {
		t.Errorf("the table holds %q; only the put cut afterwards was done", got)
	}
}

func TestScheduleIsSeeded(t *testing.T) {
	run := func(seed uint64) string {
		w := newFake(t, fakedynamo.Options{})
		w.server.SetHooks(fakedynamo.Hooks{Before: fakedynamo.Schedule(seed, fakedynamo.Rates{
			CutBefore: .1, CutAfter: .1, Conflict: .1, Throttle: .1, ThrottleIndex: .1, Index: "BySort", InternalError: .1, Unavailable: .1})})
		var out []string
		for i := range 100 {
			out = append(out, code(w.put(key("p", fmt.Sprint(i)))))
		}
		return strings.Join(out, "\n")
	}
	one, again, other := run(1), run(1), run(2)
	if one != again {
		t.Error("the same seed gives different faults")
	}
	if one == other {
		t.Error("two seeds give the same faults")
	}
	for _, want := range []string{"TransactionConflictException", "ThrottlingException", "InternalServerError", "ServiceUnavailable", "connection reset"} {
		if !strings.Contains(one, want) {
			t.Errorf("100 calls never failed with %s", want)
		}
	}
}

func TestThroughput(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newFake(t, fakedynamo.Options{Now: func() time.Time { return now }})
	w.server.SetThroughput(*w.table, "", fakedynamo.Throughput{PartitionWrite: 10, Write: 15})
	many := func(n int) []types.TransactWriteItem {
		var items []types.TransactWriteItem
		for i := range n {
			items = append(items, w.txPut("p", fmt.Sprint(i), "v", ""))
		}
		return items
	}
	w.must(w.transact("", many(5)...))
	if got := reasons(w.transact("", many(1)...)); got != "ThrottlingError" {
		t.Errorf("over the partition's share: %s", got)
	}
	for i := range 5 {
		w.must(w.put(key(fmt.Sprint("other", i), "1")))
	}
	w.wantCode(w.put(key("another", "1")), "ThrottlingException", "")
	w.server.Advance(time.Second)
	// A chunk above a second's share never passes.
	for range 3 {
		if got := reasons(w.transact("", many(6)...)); !strings.Contains(got, "ThrottlingError") {
			t.Errorf("12 units of 10: %s", got)
		}
	}
	w.must(w.transact("", many(5)...))
	w.server.Advance(time.Second)
	// An index that is behind throttles the writes of the table.
	w.server.SetThroughput(*w.table, "BySort", fakedynamo.Throughput{Write: 1})
	w.putSorted("x", "1")
	err := w.put(attrs{"PK": str("p"), "SK": str("y"), "sort": str("2")})
	w.wantCode(err, "ThrottlingException", "global secondary indexes")
	w.must(w.put(key("p", "y")))
	w.server.SetThroughput(*w.table, "", fakedynamo.Throughput{PartitionRead: 1})
	w.get("y")
	_, err = w.client.Query(t.Context(), w.queryInput("PK = :p", attrs{":p": str("p")}))
	w.wantCode(err, "ThrottlingException", "")
}

func TestTinyPagesWithWritesBetween(t *testing.T) {
	w := newFake(t, fakedynamo.Options{PageItems: 2})
	for i := range 6 {
		w.must(w.put(key("p", fmt.Sprint(i))))
	}
	pages := 0
	w.server.SetHooks(fakedynamo.Hooks{Page: func(c *fakedynamo.Call, items int, more bool) {
		if pages++; pages == 1 {
			w.must(w.put(key("p", "0behind")))
			w.must(w.put(key("p", "4ahead")))
		}
	}})
	if got := w.list(""); got != "0 1 2 3 4 4ahead 5" {
		t.Errorf("torn read: %s", got)
	}
	if pages != 4 {
		t.Errorf("%d pages of 2", pages)
	}
}

func TestSnapshotAndRestore(t *testing.T) {
	w := newFake(t, fakedynamo.Options{})
	w.putSorted("1", "1")
	w.must(w.transact("name", w.txAdd("p", "n", 1)))
	older := w.server.Snapshot(*w.table)
	w.putSorted("1", "2")
	w.putSorted("2", "3")
	w.must(w.transact("name", w.txAdd("p", "n", 1)))
	w.server.Restore(older)
	if got := w.list("") + " | " + w.list("BySort") + " " + text(w.get("1")["sort"]); got != "1 n | 1 1" {
		t.Errorf("restored: %s", got)
	}
	if w.server.Len(*w.table) != 2 {
		t.Errorf("%d items", w.server.Len(*w.table))
	}
}

func TestExpiredItemsStayUntilTheyAreSwept(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newFake(t, fakedynamo.Options{Now: func() time.Time { return now }})
	_, err := w.client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: w.table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("expires"), Enabled: aws.Bool(true)}})
	w.must(err)
	w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "sort": str("1"), "expires": num(1100)}))
	w.must(w.put(attrs{"PK": str("p"), "SK": str("2"), "sort": str("2"), "expires": str("1100")})) // not a number: no TTL
	w.server.Advance(time.Hour)
	if got := w.list(""); got != "1 2" {
		t.Errorf("before the sweep: %s", got)
	}
	if n := w.server.ExpireItems(*w.table); n != 1 {
		t.Errorf("swept %d", n)
	}
	if got := w.list("") + " | " + w.list("BySort"); got != "2 | 2" {
		t.Errorf("after the sweep: %s", got)
	}
}

func TestCallLog(t *testing.T) {
	w := newFake(t, fakedynamo.Options{Log: true})
	w.server.ResetStats()
	w.must(w.put(key("p", "1")))
	_ = w.transact("name", w.txPut("p", "1", "v", "attribute_not_exists(PK)"), w.txPut("q", "2", "v", ""))
	w.list("BySort")
	var got []string
	for _, c := range w.server.Calls() {
		got = append(got, fmt.Sprintf("%s %s%v %s %s %v %v %g/%g", c.Operation, c.Index, c.Keys, c.Token, c.Error, c.Reasons, c.Applied, c.ReadUnits, c.WriteUnits))
	}
	want := []string{"PutItem [{p 1}]   [] true 0/1",
		"TransactWriteItems [{p 1} {q 2}] name TransactionCanceledException [ConditionalCheckFailed None] false 0/4",
		"Query BySort[]   [] false 0.5/0"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("log:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	total := w.server.Total()
	if total.Calls != 3 || total.WriteUnits != 5 || total.ReadUnits != 0.5 || total.Reasons["ConditionalCheckFailed"] != 1 || total.IndexReadUnits["BySort"] != 0.5 {
		t.Errorf("total: %+v", total)
	}
}

func TestGlobalTableIsDescribed(t *testing.T) {
	w := newFake(t, fakedynamo.Options{DescribeMisses: 1})
	_, err := w.client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: w.table})
	w.wantCode(err, "ResourceNotFoundException", "")
	w.server.SetReplicas(*w.table, "EVENTUAL", "eu-west-1", "us-west-2")
	d := w.describe()
	if len(d.Replicas) != 2 || aws.ToString(d.Replicas[1].RegionName) != "us-west-2" || aws.ToString(d.GlobalTableVersion) == "" || d.MultiRegionConsistency != types.MultiRegionConsistencyEventual {
		t.Errorf("described as %+v", d.Replicas)
	}
}
