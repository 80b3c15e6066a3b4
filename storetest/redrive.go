package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gobridge"
)

func redriveCases() []testCase {
	return []testCase{
		{name: "RedriveMakesTheYoungest", run: redriveMakesTheYoungest,
			why: "A redriven record comes after what its key already holds, or it would overtake what it has been overtaken by."},
		{name: "RedriveKeepsTheOrderAmongItsRecords", run: redriveKeepsTheOrderAmongItsRecords,
			why: "A key whose records died one after the other comes back in its order."},
		{name: "RedriveStartsAfresh", run: redriveStartsAfresh,
			why: "With its old counters a redriven record would be dead again at once; where it came from stays on record."},
		{name: "RedriveHappensOnce", run: redriveHappensOnce,
			why: "Two operators who press the button at once must not send every message twice."},
		{name: "RedriveLeavesExpiredDead", run: redriveLeavesExpiredDead,
			why: "A message that is no longer worth delivering is not worth redriving."},
		{name: "RedrivePages", run: redrivePages,
			why: "A hundred thousand dead letters come back in bounded steps that can be taken up again."},
		{name: "RedriveDryRunChangesNothing", run: redriveDryRunChangesNothing,
			why: "An operator sees what would happen, and what of the same keys has already gone, before it does."},
		{name: "RedrivenRecordIsNotPurged", run: redrivenRecordIsNotPurged,
			why: "A record that is back in the outbox must not be swept away as the dead letter that it was."},
		{name: "SettleDoesNotReachPastARedrive", run: settleDoesNotReachPastARedrive,
			why: "A repeated answer about the former life of a redriven record must not bury it again."},
	}
}

// redrive takes dead letters back, all pages, and returns what it changed.
func (f *fixture) redrive(filter gobridge.Filter) []gobridge.BulkItem {
	f.Helper()
	return f.bulk("Redrive", f.store.Redrive, gobridge.BulkRequest{Filter: filter, By: "test", Reason: "fixed"})
}

// bulk runs a bulk change to its last page.
func (f *fixture) bulk(name string, change bulkChange, request gobridge.BulkRequest) []gobridge.BulkItem {
	f.Helper()
	var out []gobridge.BulkItem
	for range 1000 {
		result, err := change(f.Context(), request)
		if err != nil {
			f.Fatalf("%s of %+v: %v", name, request, err)
		}
		if request.Limit > 0 && len(result.Items) > request.Limit {
			f.Fatalf("%s of %d changed %d records", name, request.Limit, len(result.Items))
		}
		out = append(out, result.Items...)
		if result.Cursor == "" {
			return out
		}
		request.Cursor = result.Cursor
	}
	f.Fatalf("%s of %+v does not come to an end", name, request)
	return nil
}

func (f *fixture) wantItems(items []gobridge.BulkItem, want ...string) {
	f.Helper()
	got := make([]string, len(items))
	for i, item := range items {
		got[i] = item.Ref.EnvelopeID
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("changed the records %q, want %q", got, want)
	}
}

// wantItemSet is wantItems in any order.
func (f *fixture) wantItemSet(items []gobridge.BulkItem, want ...string) {
	f.Helper()
	items, want = slices.Clone(items), slices.Sorted(slices.Values(want))
	slices.SortFunc(items, func(a, b gobridge.BulkItem) int { return strings.Compare(a.Ref.EnvelopeID, b.Ref.EnvelopeID) })
	f.wantItems(items, want...)
}

func redriveMakesTheYoungest(f *fixture) {
	f.kill("k", "dead")
	before := f.get("dead")
	f.persistEach("k", "waiting")
	f.clock.Advance(time.Minute)
	f.wantItems(f.redrive(gobridge.Filter{}), "dead")
	after, waiting := f.get("dead"), f.get("waiting")
	if after.State != gobridge.StatePending || after.Seq <= waiting.Seq || after.CreatedAt.Before(waiting.CreatedAt) {
		f.Fatalf("the redriven record is %s with age %v, %d, not younger than %v, %d",
			after.State, after.CreatedAt, after.Seq, waiting.CreatedAt, waiting.Seq)
	}
	if after.Seq == before.Seq || string(after.Envelope.Payload) != "payload of dead" {
		f.Fatalf("the redriven record has Seq %d (before: %d) and payload %q", after.Seq, before.Seq, after.Envelope.Payload)
	}
	f.persistEach("k", "later")
	f.claimExactly(1, 10, "waiting", "dead", "later")
	// A clock that went back makes no difference.
	f.bury(1, "waiting", "dead")
	f.clock.Advance(-time.Hour)
	f.redrive(gobridge.Filter{})
	f.wantIDs(f.claim(2, 10), "later", "waiting", "dead")
}

func redriveKeepsTheOrderAmongItsRecords(f *fixture) {
	// They die in another order than that of their age.
	f.persistEach("k", "z", "y", "x", "w")
	f.claimExactly(1, 10, "z", "y", "x", "w")
	for _, id := range []string{"x", "z", "w", "y"} {
		f.bury(1, id)
		f.clock.Advance(time.Second)
	}
	f.wantItems(f.redrive(gobridge.Filter{}), "z", "y", "x", "w")
	f.claimExactly(1, 10, "z", "y", "x", "w")
}

func redriveStartsAfresh(f *fixture) {
	f.persist(record("a"))
	f.claimExactly(1, 1, "a")
	f.release(1, "a", gobridge.Failed, start.Add(time.Hour))
	f.clock.Advance(time.Hour)
	f.claimExactly(1, 1, "a")
	f.claimExactly(2, 1, "a")
	f.bury(2, "a")
	f.redrive(gobridge.Filter{})
	f.wantCounters("redriven", "a", counters{0, 0, 0})
	r := f.get("a")
	if r.Redrives != 1 || !r.RetryAt.IsZero() && r.RetryAt.After(f.clock.Now()) {
		f.Fatalf("the redriven record has Redrives %d and RetryAt %v, want 1 and none", r.Redrives, r.RetryAt)
	}
	if got := f.claimExactly(2, 1, "a")[0]; got.Redrives != 1 || got.ReplayCount != 1 {
		f.Fatalf("claimed with Redrives %d and ReplayCount %d, want 1 and 1", got.Redrives, got.ReplayCount)
	}
	f.bury(2, "a")
	f.redrive(gobridge.Filter{})
	if r := f.get("a"); r.Redrives != 2 {
		f.Fatalf("Redrives is %d, want 2", r.Redrives)
	}
}

func redriveHappensOnce(f *fixture) {
	want := numbered("r", 50)
	f.kill("k", want...)
	second, _ := f.another(0)
	handles := []gobridge.Store{f.store, second}
	count := make([]map[string]int, 6)
	errs := make([]error, len(count))
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			count[i] = map[string]int{}
			request := gobridge.BulkRequest{Limit: 20, By: "test"}
			for range 100 {
				result, err := handles[i%2].Redrive(f.Context(), request)
				errs[i] = errors.Join(errs[i], err)
				for _, item := range result.Items {
					count[i][item.Ref.EnvelopeID]++
				}
				if request.Cursor = result.Cursor; request.Cursor == "" {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Fatalf("Redrive, many at a time: %v", err)
	}
	for _, id := range want {
		n := 0
		for _, c := range count {
			n += c[id]
		}
		if r := f.get(id); n != 1 || r.Redrives != 1 || r.State != gobridge.StatePending {
			f.Fatalf("record %q is %s, redriven %d times, and reported %d times, want once", id, r.State, r.Redrives, n)
		}
	}
	f.wantItems(f.redrive(gobridge.Filter{}))
}

func redriveLeavesExpiredDead(f *fixture) {
	f.persist(record("expired", expiresAt(start.Add(time.Minute))), record("good", expiresAt(start.Add(time.Hour))))
	f.claimExactly(1, 10, "expired", "good")
	f.bury(1, "expired", "good")
	f.clock.Advance(2 * time.Minute)
	f.wantItems(f.redrive(gobridge.Filter{}), "good")
	f.wantState(gobridge.StateDead, "expired")
}

func redrivePages(f *fixture) {
	want := numbered("r", 25)
	f.kill("k", want...)
	f.kill("l", "other")
	request := gobridge.BulkRequest{Filter: gobridge.Filter{OrderingKey: "k", HasKey: true}, Limit: 10}
	first, err := f.store.Redrive(f.Context(), request)
	if err != nil || len(first.Items) != 10 || first.Cursor == "" {
		f.Fatalf("Redrive of 10 of 25 returned %d items, cursor %q and error %v", len(first.Items), first.Cursor, err)
	}
	// A page can be asked for again: nothing is redriven twice.
	request.Cursor = first.Cursor
	second, err := f.store.Redrive(f.Context(), request)
	if err != nil {
		f.Fatalf("Redrive of the second page: %v", err)
	}
	again, err := f.store.Redrive(f.Context(), request)
	if err != nil {
		f.Fatalf("Redrive of the second page again: %v", err)
	}
	rest := f.redrive(request.Filter)
	if n := len(first.Items) + len(second.Items) + len(again.Items) + len(rest); n != len(want) {
		f.Fatalf("25 records were redriven %d times", n)
	}
	f.wantState(gobridge.StateDead, "other")
	f.claimExactly(1, 100, want...)
}

func redriveDryRunChangesNothing(f *fixture) {
	f.kill("k", "dead")
	f.kill("l", "lonely")
	f.persistEach("k", "gone-1", "gone-2", "left")
	f.persistEach("m", "gone-3")
	f.claimExactly(1, 10, "gone-1", "gone-2", "left", "gone-3")
	f.complete(1, "gone-1", "gone-2", "gone-3")
	f.settleAs("left", gobridge.StateDiscarded)
	before := f.get("dead")
	items := f.bulk("Redrive", f.store.Redrive, gobridge.BulkRequest{DryRun: true})
	f.wantItems(items, "dead", "lonely")
	for i, want := range []int{2, 0} {
		if items[i].NewerGone != want {
			f.Fatalf("%q: NewerGone is %d, want %d", items[i].Ref.EnvelopeID, items[i].NewerGone, want)
		}
	}
	item := items[0]
	if item.OrderingKey != "k" || item.Reason != before.Reason || item.Error != before.Error || !item.EndedAt.Equal(before.EndedAt) {
		f.Fatalf("the item is %+v, want what is on the record %+v", item, before)
	}
	if after := f.get("dead"); after.State != gobridge.StateDead || after.Seq != before.Seq || after.Redrives != 0 {
		f.Fatalf("the dry run made the record %s with Seq %d, redriven %d times", after.State, after.Seq, after.Redrives)
	}
	f.wantItems(f.redrive(gobridge.Filter{}), "dead", "lonely")
}

func redrivenRecordIsNotPurged(f *fixture) {
	f.kill("k", "a")
	f.clock.Advance(time.Hour)
	f.redrive(gobridge.Filter{})
	f.clock.Advance(2 * f.options.DeadRetention)
	f.sweep(1, 100)
	f.claimExactly(1, 10, "a")
	f.sweep(1, 100)
	f.wantState(gobridge.StateClaimed, "a")
	f.complete(1, "a")
	f.clock.Advance(f.options.Retention - time.Minute)
	f.sweep(1, 100)
	f.wantState(gobridge.StateDelivered, "a")
}

func settleDoesNotReachPastARedrive(f *fixture) {
	f.kill("k", "a")
	f.redrive(gobridge.Filter{})
	_ = f.store.DeadLetter(f.Context(), token(1), burials("a")) // success or stale: the record is what counts
	f.wantState(gobridge.StatePending, "a")
	f.wantCounters("after a late burial", "a", counters{0, 0, 0})
	f.claimExactly(2, 10, "a")
	f.wantSettleFailures(f.store.DeadLetter(f.Context(), token(1), burials("a")), "a")
	f.wantState(gobridge.StateClaimed, "a")
}
