package storetest

import (
	"context"
	"fmt"
	"time"

	"gobridge"
)

// bulkChange is Redrive or Discard.
type bulkChange func(context.Context, gobridge.BulkRequest) (gobridge.BulkResult, error)

func discardCases() []testCase {
	return []testCase{
		{name: "DiscardEndsWithTheReason", run: discardEndsWithTheReason,
			why: "What a person threw away is on record with the reason, and goes out no more."},
		{name: "DiscardTakesOnlyTheStatesNamed", run: discardTakesOnlyTheStatesNamed,
			why: "Clearing the dead letters must not touch what is still to be delivered, or the other way round."},
		{name: "DiscardTakesWhatIsStrandedBelowTheFence", run: discardTakesWhatIsStrandedBelowTheFence,
			why: "What a dead owner had claimed counts as waiting; what the present one is sending does not."},
		{name: "DiscardPages", run: discardPages,
			why: "A million records are discarded in bounded steps that can be taken up again."},
		{name: "DiscardDryRunChangesNothing", run: discardDryRunChangesNothing,
			why: "An operator sees what would be thrown away before it is."},
		{name: "DiscardedIsRemembered", run: discardedIsRemembered,
			why: "A redelivery of a discarded message must not bring it back."},
	}
}

// discard ends records, all pages, and returns what it changed.
func (f *fixture) discard(filter gobridge.Filter) []gobridge.BulkItem {
	f.Helper()
	return f.bulk("Discard", f.store.Discard, gobridge.BulkRequest{Filter: filter, By: "test", Reason: "unwanted"})
}

func states(s ...gobridge.State) []gobridge.State { return s }

func discardEndsWithTheReason(f *fixture) {
	f.kill("k", "dead")
	f.persistEach("k", "pending", "tail")
	f.clock.Advance(time.Second)
	items := f.discard(gobridge.Filter{EnvelopeID: "dead", States: states(gobridge.StateDead)})
	f.wantItems(items, "dead")
	f.wantItems(f.discard(gobridge.Filter{EnvelopeID: "pending", States: states(gobridge.StatePending)}), "pending")
	for _, id := range []string{"dead", "pending"} {
		r := f.get(id)
		if r.State != gobridge.StateDiscarded || r.Reason != "unwanted" || len(r.Envelope.Payload) != 0 {
			f.Fatalf("the discarded record is %s for %q with payload %q", r.State, r.Reason, r.Envelope.Payload)
		}
		f.wantTime("EndedAt", r.EndedAt, start.Add(time.Second))
	}
	f.wantDead(gobridge.Filter{})
	if s := f.stats(part); s.Pending != 1 || s.Dead != 0 || s.DeadBytes != 0 {
		f.Fatalf("after the discards Stats is %+v", s)
	}
	f.claimExactly(1, 10, "tail")
}

func discardTakesOnlyTheStatesNamed(f *fixture) {
	f.kill("k", "dead-1", "dead-2")
	f.persist(record("pending-1"), record("pending-2"))
	for _, bad := range [][]gobridge.State{nil, {gobridge.StateDelivered}, {gobridge.StateClaimed}} {
		request := gobridge.BulkRequest{Filter: gobridge.Filter{States: bad}, Reason: "unwanted"}
		if result, err := f.store.Discard(f.Context(), request); err == nil {
			f.Fatalf("Discard of the states %v took %d records, want an error", bad, len(result.Items))
		}
	}
	f.wantState(gobridge.StateDead, "dead-1", "dead-2")
	f.wantState(gobridge.StatePending, "pending-1", "pending-2")
	f.wantItemSet(f.discard(gobridge.Filter{States: states(gobridge.StateDead)}), "dead-1", "dead-2")
	f.wantState(gobridge.StatePending, "pending-1", "pending-2")
	f.persist(record("dead-3", dead()))
	f.wantItemSet(f.discard(gobridge.Filter{States: states(gobridge.StateDead, gobridge.StatePending)}),
		"dead-3", "pending-1", "pending-2")
	f.wantState(gobridge.StateDiscarded, "dead-3", "pending-1", "pending-2")
}

func discardTakesWhatIsStrandedBelowTheFence(f *fixture) {
	f.persist(record("stranded"), record("flying"), record("pending"))
	f.claimExactly(1, 1, "stranded")
	f.wantIDs(f.claim(2, 1, "stranded"), "flying")
	f.wantItems(f.discard(gobridge.Filter{States: states(gobridge.StateDead)}))
	f.wantItemSet(f.discard(gobridge.Filter{States: states(gobridge.StatePending)}), "stranded", "pending")
	f.wantState(gobridge.StateDiscarded, "stranded", "pending")
	f.wantState(gobridge.StateClaimed, "flying")
	f.wantSettleFailures(f.store.Complete(f.Context(), token(1), completions("stranded")), "stranded")
	f.complete(2, "flying")
}

func discardPages(f *fixture) {
	f.kill("k", numbered("dead", 12)...)
	for _, id := range numbered("pending", 13) {
		f.persist(record(id))
	}
	f.persist(record("stays", key("stays")))
	f.claimExactly(1, 1, "pending-1")
	f.wantIDs(f.claim(2, 0))
	both := states(gobridge.StateDead, gobridge.StatePending)
	request := gobridge.BulkRequest{Filter: gobridge.Filter{Route: route, States: both, HasKey: true}, Limit: 5, Reason: "unwanted"}
	first, err := f.store.Discard(f.Context(), request)
	if err != nil || len(first.Items) != 5 || first.Cursor == "" {
		f.Fatalf("Discard of 5 of 13 returned %d items, cursor %q and error %v", len(first.Items), first.Cursor, err)
	}
	if again, err := f.store.Discard(f.Context(), request); err != nil || len(again.Items) != 5 {
		f.Fatalf("the first page asked for again took %d more records, and error %v", len(again.Items), err)
	}
	rest := f.bulk("Discard", f.store.Discard, request)
	if len(rest) != 3 {
		f.Fatalf("the rest of 13 is %d records, want 3", len(rest))
	}
	request.Filter = gobridge.Filter{OrderingKey: "k", HasKey: true, States: both}
	seen := map[string]bool{}
	for _, item := range f.bulk("Discard", f.store.Discard, request) {
		seen[item.Ref.EnvelopeID] = true
	}
	if len(seen) != 12 {
		f.Fatalf("Discard by pages took %d of 12 dead letters", len(seen))
	}
	f.wantState(gobridge.StateDiscarded, append(numbered("dead", 12), numbered("pending", 13)...)...)
	f.claimExactly(2, 10, "stays")
}

func discardDryRunChangesNothing(f *fixture) {
	f.kill("k", "dead")
	f.persistEach("k", "gone")
	f.claimExactly(1, 10, "gone")
	f.complete(1, "gone")
	f.persistEach("k", "pending")
	request := gobridge.BulkRequest{
		Filter: gobridge.Filter{States: states(gobridge.StateDead, gobridge.StatePending)}, DryRun: true, Reason: "unwanted",
	}
	gone := map[string]int{}
	for _, item := range f.bulk("Discard", f.store.Discard, request) {
		gone[item.Ref.EnvelopeID] = item.NewerGone
	}
	if fmt.Sprint(gone) != fmt.Sprint(map[string]int{"dead": 1, "pending": 0}) {
		f.Fatalf("the dry run names the records and how many newer ones have gone as %v, want dead: 1, pending: 0", gone)
	}
	f.wantState(gobridge.StateDead, "dead")
	f.wantState(gobridge.StatePending, "pending")
}

func discardedIsRemembered(f *fixture) {
	f.kill("k", "dead")
	f.persist(record("pending"))
	f.discard(gobridge.Filter{States: states(gobridge.StateDead, gobridge.StatePending)})
	f.clock.Advance(f.options.Retention - time.Minute)
	f.sweep(1, 10)
	again := []gobridge.Record{record("dead", key("k")), record("pending")}
	f.wantErr("Persist of discarded records", f.store.Persist(f.Context(), again), gobridge.ErrDuplicateRecord)
	f.clock.Advance(2 * time.Minute)
	f.sweep(1, 10)
	f.wantGone("dead")
	f.wantGone("pending")
}
