package storetest

import (
	"fmt"
	"time"

	"gobridge"
)

func inspectCases() []testCase {
	return []testCase{
		{name: "QueryPendingShowsPendingRecords", run: queryPendingShowsPendingRecords,
			why: "A preview shows what waits, payloads included, and changes nothing."},
		{name: "CountPendingStopsAtTheLimit", run: countPendingStopsAtTheLimit,
			why: "Backpressure asks whether there are so many, not how many; claimed records are not waiting."},
		{name: "StatsAreRight", run: statsAreRight,
			why: "Alarms, depth limits and new leases go by these figures."},
		{name: "StatsFollowEveryChange", run: statsFollowEveryChange,
			why: "Figures that are kept beside the records must not drift away from them."},
		{name: "StatsListEveryPartition", run: statsListEveryPartition,
			why: "A partition whose route has gone is found by this list only."},
		{name: "GetFindsEveryState", run: getFindsEveryState,
			why: "What became of a message can be looked up while the store remembers it."},
	}
}

func queryPendingShowsPendingRecords(f *fixture) {
	f.persist(record("claimed"), record("done"))
	f.claimExactly(1, 10, "claimed", "done")
	f.complete(1, "done")
	f.persist(record("a"), record("b", key("k")), record("c", notBefore(start.Add(time.Hour))))
	f.persist(record("elsewhere", in("orders/crm/0")))
	query := func(limit int) []gobridge.Record {
		f.Helper()
		records, err := f.store.QueryPending(f.Context(), part, limit)
		if err != nil {
			f.Fatalf("QueryPending of %d: %v", limit, err)
		}
		return records
	}
	all := query(10)
	f.wantSet(all, "a", "b", "c")
	for _, r := range all {
		if r.State != gobridge.StatePending || string(r.Envelope.Payload) != "payload of "+r.Envelope.ID {
			f.Fatalf("record %q is %s with payload %q", r.Envelope.ID, r.State, r.Envelope.Payload)
		}
	}
	for limit, want := range map[int]int{-1: 0, 0: 0, 1: 1, 2: 2, 3: 3} {
		if got := query(limit); len(got) != want {
			f.Fatalf("QueryPending of %d returned %d records, want %d", limit, len(got), want)
		}
	}
	f.wantState(gobridge.StatePending, "a", "b", "c")
}

func countPendingStopsAtTheLimit(f *fixture) {
	f.persist(record("claimed"), record("done"))
	f.claimExactly(1, 10, "claimed", "done")
	f.complete(1, "done")
	f.persistEach("k", numbered("r", 7)...)
	f.persist(record("elsewhere", in("orders/crm/0")), record("delayed", notBefore(start.Add(time.Hour))))
	for limit, want := range map[int]int{-1: 0, 0: 0, 1: 1, 7: 7, 8: 8, 9: 8, 1 << 30: 8} {
		got, err := f.store.CountPending(f.Context(), part, limit)
		if err != nil || got != want {
			f.Fatalf("CountPending up to %d returned %d and error %v, want %d", limit, got, err, want)
		}
	}
	if got, err := f.store.CountPending(f.Context(), "never/seen/0", 10); err != nil || got != 0 {
		f.Fatalf("CountPending of an unknown partition returned %d and error %v, want 0", got, err)
	}
}

func statsAreRight(f *fixture) {
	ahead := start.Add(f.options.MaxSkew / 2)
	f.persist(record("claimed"), record("dead", payload("12345"), headers("12", "345")), record("done"))
	f.claimExactly(3, 10, "claimed", "dead", "done")
	f.complete(3, "done")
	f.bury(3, "dead")
	f.clock.Advance(time.Second)
	f.persist(record("oldest", createdAt(start.Add(-time.Hour))))
	f.clock.Advance(time.Second)
	f.persist(record("newest", createdAt(ahead)))
	want := gobridge.Stats{
		Partition: part, Pending: 2, Claimed: 1, Dead: 1, DeadBytes: 10,
		OldestPending: start.Add(time.Second), Fence: token(3),
		LastSeq: f.get("newest").Seq, NewestStamp: ahead,
	}
	if got := f.stats(part); got != want {
		f.Fatalf("Stats is\n%+v, want\n%+v", got, want)
	}
	second, _ := f.another(0)
	if got := f.on(second).stats(part); got != want {
		f.Fatalf("through another handle Stats is\n%+v, want\n%+v", got, want)
	}
	if got := f.stats("never/seen/0"); got != (gobridge.Stats{Partition: "never/seen/0"}) {
		f.Fatalf("Stats of a partition that was never seen is %+v", got)
	}
}

func statsFollowEveryChange(f *fixture) {
	want := func(when string, pending, claimed, dead int64) {
		f.Helper()
		s := f.stats(part)
		if got := [3]int64{s.Pending, s.Claimed, s.Dead}; got != [3]int64{pending, claimed, dead} {
			f.Fatalf("%s: pending, claimed and dead are %v, want %v", when, got, [3]int64{pending, claimed, dead})
		}
		if s.OldestPending.IsZero() != (pending == 0) {
			f.Fatalf("%s: with %d pending, the oldest is of %v", when, pending, s.OldestPending)
		}
		if (s.DeadBytes == 0) != (dead == 0) {
			f.Fatalf("%s: with %d dead, their bytes are %d", when, dead, s.DeadBytes)
		}
	}
	f.persist(record("a", key("k")), record("b", key("k")), record("c", expiresAt(start.Add(time.Minute))), record("d"))
	want("persisted", 4, 0, 0)
	f.claimExactly(1, 10, "a", "b", "c", "d")
	want("claimed", 0, 4, 0)
	f.claimExactly(2, 10, "a", "b", "c", "d")
	want("taken over", 0, 4, 0)
	f.release(2, "c", gobridge.Untried, time.Time{})
	f.release(2, "c", gobridge.Untried, time.Time{})
	want("released", 1, 3, 0)
	f.complete(2, "a")
	f.complete(2, "a")
	want("completed", 1, 2, 0)
	f.bury(2, "b", "d")
	f.bury(2, "b", "d")
	want("buried", 1, 0, 2)
	f.clock.Advance(time.Hour)
	f.sweep(2, 10)
	want("swept", 0, 0, 2)
	f.redrive(gobridge.Filter{EnvelopeID: "b"})
	want("redriven", 1, 0, 1)
	f.discard(gobridge.Filter{States: states(gobridge.StateDead, gobridge.StatePending)})
	want("discarded", 0, 0, 0)
	f.clock.Advance(f.options.Retention * 2)
	f.sweep(2, 10)
	want("purged", 0, 0, 0)
	f.persist(record("a", key("k")))
	want("persisted anew", 1, 0, 0)
}

func statsListEveryPartition(f *fixture) {
	f.persist(record("a", in("z/b/1")), record("b", in("a/b/0")))
	f.wantIDs(f.claim(1, 0))
	all, err := f.store.Stats(f.Context())
	if err != nil {
		f.Fatalf("Stats: %v", err)
	}
	var got []gobridge.Partition
	for _, s := range all {
		got = append(got, s.Partition)
	}
	if want := []gobridge.Partition{"a/b/0", part, "z/b/1"}; fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("Stats lists %q, want %q, in ascending order", got, want)
	}
	some, err := f.store.Stats(f.Context(), "z/b/1", "never/seen/0", "a/b/0")
	if err != nil || len(some) != 3 {
		f.Fatalf("Stats of three partitions returned %+v and error %v", some, err)
	}
	for i, want := range []gobridge.Stats{{Partition: "a/b/0", Pending: 1}, {Partition: "never/seen/0"}, {Partition: "z/b/1", Pending: 1}} {
		if some[i].Partition != want.Partition || some[i].Pending != want.Pending {
			f.Fatalf("Stats entry %d is %+v, want %s with %d pending", i, some[i], want.Partition, want.Pending)
		}
	}
}

func getFindsEveryState(f *fixture) {
	f.persist(record("claimed"), record("delivered"), record("expired"), record("discarded"), record("dead"))
	f.claim(1, 10)
	f.persist(record("pending"))
	for _, as := range []gobridge.State{gobridge.StateDelivered, gobridge.StateExpired, gobridge.StateDiscarded} {
		f.settleAs(as.String(), as)
	}
	f.bury(1, "dead")
	for state := gobridge.StatePending; state <= gobridge.StateDead; state++ {
		r := f.get(state.String())
		if r.State != state || r.Ref() != ref(state.String()) {
			f.Fatalf("Get of the %s record returned %s, %s", state, r.Ref(), r.State)
		}
		payload := "payload of " + state.String()
		if state.Ended() && state != gobridge.StateDead {
			payload = ""
		}
		if string(r.Envelope.Payload) != payload {
			f.Fatalf("Get of the %s record returned payload %q, want %q", state, r.Envelope.Payload, payload)
		}
	}
	for _, unknown := range []gobridge.Ref{ref("unknown"), {Partition: part, EnvelopeID: "dead", Binding: "crm"}, {}} {
		_, err := f.store.Get(f.Context(), unknown)
		f.wantErr(fmt.Sprintf("Get of %+v", unknown), err, gobridge.ErrNotFound)
	}
}
