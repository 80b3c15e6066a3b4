package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gobridge"
)

func claimCases() []testCase {
	return []testCase{
		{name: "ClaimLimitReturnsOldestN", run: claimLimitReturnsOldestN,
			why: "A record whose ID sorts late must not starve behind younger ones."},
		{name: "ClaimBreaksTiesBySeq", run: claimBreaksTiesBySeq,
			why: "Records of one instant go in the order in which they were persisted."},
		{name: "ClaimTenThousandOfOneInstant", run: claimTenThousandOfOneInstant,
			why: "A burst within one tick of the clock keeps its order and loses nothing, whatever the size of the batches."},
		{name: "ClaimIsPerPartition", run: claimIsPerPartition,
			why: "A partition serves one destination; its neighbour's records and versions are not its own."},
		{name: "ClaimMarksItsRecords", run: claimMarksItsRecords,
			why: "Who claimed what and when is durable, or nobody could take over or explain."},
		{name: "ClaimLimitZeroOnlyRaisesTheMark", run: claimLimitZeroOnlyRaisesTheMark,
			why: "A new owner fences the old one before it has room for records."},
		{name: "EmptyClaimRaisesTheMark", run: emptyClaimRaisesTheMark,
			why: "An owner that found nothing has fenced its predecessor all the same."},
		{name: "InvalidTokenIsRefusedFirst", run: invalidTokenIsRefusedFirst,
			why: "A token without owner or version owns nothing; no other check may hide that."},
		{name: "StaleTokenGetsNothing", run: staleTokenGetsNothing,
			why: "An owner that has lost the partition must not send another message of it."},
		{name: "FenceIsDurable", run: fenceIsDurable,
			why: "The mark holds in every process and after the records are gone."},
		{name: "DueTimeDelaysTheClaim", run: dueTimeDelaysTheClaim,
			why: "A message with a not-before is neither early nor forgotten."},
		{name: "ExpiredIsClaimedLikeAnyOther", run: expiredIsClaimedLikeAnyOther,
			why: "Its claimer ends an expired record, so that it is on record; a store that hides it leaves its key stuck."},
		{name: "ClaimBytesEndTheBatch", run: claimBytesEndTheBatch,
			why: "A batch of large messages must not exhaust the memory, and one message larger than the bound must still get out."},
		{name: "CountersMeanWhatTheySay", run: countersMeanWhatTheySay,
			why: "Policy acts on failed attempts and on crashes; counting takeovers as failures would punish innocent records."},
		{name: "ClaimNeverFiltersByCounters", run: claimNeverFiltersByCounters,
			why: "How often a record was tried is for policy to judge; a store that leaves it out loses it without a trace."},
	}
}

func claimLimitReturnsOldestN(f *fixture) {
	// IDs sort against age, and the records come in an order of their own.
	for _, i := range []int{4, 0, 9, 2, 7, 5, 1, 8, 3, 6} {
		f.persist(record(fmt.Sprintf("%c", 'z'-i), createdAt(start.Add(time.Duration(i)*time.Second-time.Hour))))
	}
	f.claimExactly(1, 3, "z", "y", "x")
	f.persist(record("older", createdAt(start.Add(-2*time.Hour))))
	f.wantIDs(f.claim(1, 3, "z", "y", "x"), "older", "w", "v")
	f.release(1, "y", gobridge.Untried, time.Time{})
	f.wantIDs(f.claim(1, 100, "z", "x", "older", "w", "v"), "y", "u", "t", "s", "r", "q")
}

func claimBreaksTiesBySeq(f *fixture) {
	at := start.Add(-time.Minute)
	for _, id := range []string{"m", "z", "a", "q", "b"} {
		f.persist(record(id, createdAt(at)))
	}
	f.claimExactly(1, 2, "m", "z")
	f.wantIDs(f.claim(1, 2, "m", "z"), "a", "q")
	f.wantIDs(f.claim(2, 10), "m", "z", "a", "q", "b")
}

func claimTenThousandOfOneInstant(f *fixture) {
	const total, call, batch = 10_000, 500, 700
	want := make([]string, total)
	for i := range want {
		want[i] = fmt.Sprintf("%x-%d", (i*7919)%total, i)
	}
	for from := 0; from < total; from += call {
		records := make([]gobridge.Record, call)
		for i := range records {
			n := from + i
			records[i] = record(want[n])
			if n%2 == 0 { // keys and keyless records merge by age
				records[i].Envelope.OrderingKey = fmt.Sprintf("k%d", n%97)
			}
		}
		f.persist(records...)
	}
	for from := 0; from < total; {
		got := f.claim(1, batch)
		if len(got) == 0 {
			f.Fatalf("nothing more to claim after %d of %d records", from, total)
		}
		f.wantIDs(got, want[from:from+len(got)]...)
		f.complete(1, ids(got)...)
		from += len(got)
	}
}

func claimIsPerPartition(f *fixture) {
	other := gobridge.NewPartition(route, "crm", 0)
	f.persist(record("a", key("k")), record("a", key("k"), in(other)))
	f.claimExactly(9, 10, "a")
	got := f.claimBy(gobridge.ClaimRequest{Partition: other, Token: token(2), Limit: 10, HeldKnown: true, Held: refs("a")})
	f.wantIDs(got, "a")
	if got[0].Partition != other || got[0].Binding != "crm" {
		f.Fatalf("partition %s gave the record %s", other, got[0].Ref())
	}
	f.complete(9, "a")
	if state := f.getRef(got[0].Ref()).State; state != gobridge.StateClaimed {
		f.Fatalf("the other partition's record is %s, want claimed", state)
	}
}

func claimMarksItsRecords(f *fixture) {
	f.persist(record("a", key("k")), record("b"))
	f.clock.Advance(time.Second + 5)
	for _, got := range f.claimExactly(3, 10, "a", "b") {
		for _, r := range []gobridge.Record{got, f.get(got.Envelope.ID)} {
			if r.State != gobridge.StateClaimed || r.ClaimedBy != token(3) || r.ReplayCount != 1 {
				f.Fatalf("record %q is %s by %s after %d claims, want claimed by %s after 1",
					r.Envelope.ID, r.State, r.ClaimedBy, r.ReplayCount, token(3))
			}
			f.wantTime("ClaimedAt", r.ClaimedAt, start.Add(time.Second+5))
			f.wantTime("StoredAt", r.StoredAt, start)
		}
	}
}

func claimLimitZeroOnlyRaisesTheMark(f *fixture) {
	f.persist(record("a"))
	for i, limit := range []int{0, -1, -1 << 40} {
		version := int64(5 + i)
		f.wantIDs(f.claim(version, limit))
		f.wantState(gobridge.StatePending, "a")
		if fence := f.stats(part).Fence; fence != token(version) {
			f.Fatalf("after a claim of %d the fence is %s, want %s", limit, fence, token(version))
		}
		f.wantStaleClaim(version-1, 0)
		f.wantStaleClaim(version-1, 10)
	}
	f.claimExactly(7, 1, "a")
}

// wantStaleClaim requires that a claim is refused as stale.
func (f *fixture) wantStaleClaim(version int64, limit int) {
	f.Helper()
	got, err := f.store.Claim(f.Context(), request(version, limit))
	f.wantErr(fmt.Sprintf("Claim of %d by %s", limit, token(version)), err, gobridge.ErrStaleFencingToken)
	if len(got) != 0 {
		f.Fatalf("Claim by a stale token returned %s", idsOf(got))
	}
}

func emptyClaimRaisesTheMark(f *fixture) {
	f.wantIDs(f.claim(4, 10))
	f.wantStaleClaim(3, 10)
	f.persist(record("a"))
	f.wantStaleClaim(3, 10)
	f.wantState(gobridge.StatePending, "a")
	f.claimExactly(4, 10, "a")
}

func invalidTokenIsRefusedFirst(f *fixture) {
	f.persist(record("a"))
	f.claimExactly(1, 1, "a")
	cancelled, cancel := context.WithCancel(f.Context())
	cancel()
	for _, bad := range []gobridge.Token{{}, {Owner: "x"}, {Version: 9}, {Owner: "x", Version: -1}} {
		calls := map[string]func(ctx context.Context) error{
			"Claim": func(ctx context.Context) error {
				_, err := f.store.Claim(ctx, gobridge.ClaimRequest{Partition: part, Token: bad, Limit: 1})
				return err
			},
			"Claim of 0": func(ctx context.Context) error {
				_, err := f.store.Claim(ctx, gobridge.ClaimRequest{Partition: "never/seen/0", Token: bad})
				return err
			},
			"Sweep": func(ctx context.Context) error {
				_, err := f.store.Sweep(ctx, gobridge.SweepRequest{Partition: part, Token: bad, Limit: 1})
				return err
			},
			"Complete":       func(ctx context.Context) error { return f.store.Complete(ctx, bad, completions("a")) },
			"Release":        func(ctx context.Context) error { return f.store.Release(ctx, bad, []gobridge.Release{{Ref: ref("a")}}) },
			"DeadLetter":     func(ctx context.Context) error { return f.store.DeadLetter(ctx, bad, burials("a")) },
			"empty Complete": func(ctx context.Context) error { return f.store.Complete(ctx, bad, nil) },
		}
		for name, call := range calls {
			f.wantErr(fmt.Sprintf("%s with the token %+v", name, bad), call(f.Context()), gobridge.ErrInvalidToken)
			f.wantErr(fmt.Sprintf("%s with the token %+v, cancelled", name, bad), call(cancelled), gobridge.ErrInvalidToken)
		}
	}
	f.wantState(gobridge.StateClaimed, "a")
	if fence := f.stats(part).Fence; fence != token(1) {
		f.Fatalf("invalid tokens moved the fence to %s", fence)
	}
}

func staleTokenGetsNothing(f *fixture) {
	f.persist(record("a"), record("b", expiresAt(start.Add(time.Minute))))
	f.wantIDs(f.claim(5, 0))
	f.clock.Advance(time.Hour)
	_, err := f.store.Claim(f.Context(), request(4, 10))
	f.wantErr("Claim by a stale token", err, gobridge.ErrStaleFencingToken)
	var e *gobridge.Error
	if errors.As(err, &e); e.Partition != part {
		f.Fatalf("the error names the partition %q, want %q", e.Partition, part)
	}
	_, err = f.store.Sweep(f.Context(), gobridge.SweepRequest{Partition: part, Token: token(4), Limit: 10})
	f.wantErr("Sweep by a stale token", err, gobridge.ErrStaleFencingToken)
	f.wantState(gobridge.StatePending, "a", "b")
	f.claimExactly(5, 10, "a", "b")
	err = f.store.Complete(f.Context(), token(4), completions("a"))
	f.wantErr("Complete by a stale token", err, gobridge.ErrStaleFencingToken)
	f.wantState(gobridge.StateClaimed, "a")
}

func fenceIsDurable(f *fixture) {
	f.persist(record("a"))
	f.claimExactly(7, 10, "a")
	f.complete(7, "a")
	f.clock.Advance(f.options.Retention + time.Minute)
	f.sweep(7, 10)
	f.wantGone("a")
	second, _ := f.another(0)
	g := f.on(second)
	g.wantStaleClaim(6, 10)
	g.wantIDs(g.claim(9, 10))
	f.wantStaleClaim(8, 10)
	if fence := f.stats(part).Fence; fence != token(9) {
		f.Fatalf("the fence is %s, want %s", fence, token(9))
	}
}

func dueTimeDelaysTheClaim(f *fixture) {
	due := start.Add(time.Minute)
	f.persist(record("later", notBefore(due)), record("past", notBefore(start.Add(-time.Hour))), record("now"))
	f.claimExactly(1, 10, "past", "now")
	f.clock.Advance(time.Minute - 1)
	f.wantIDs(f.claim(1, 10, "past", "now"))
	f.clock.Advance(1)
	f.wantIDs(f.claim(1, 10, "past", "now"), "later")
	// Both times hold: the message's and the release's.
	f.release(1, "later", gobridge.Failed, due.Add(time.Minute))
	f.clock.Advance(time.Minute - 1)
	f.wantIDs(f.claim(1, 10, "past", "now"))
	f.clock.Advance(1)
	f.wantIDs(f.claim(1, 10, "past", "now"), "later")
}

func expiredIsClaimedLikeAnyOther(f *fixture) {
	f.persist(record("expired", key("k"), expiresAt(start.Add(time.Second))), record("tail", key("k")), record("free"))
	f.clock.Advance(time.Minute)
	f.claimExactly(1, 10, "expired", "tail", "free")
	f.settleAs("expired", gobridge.StateExpired)
	f.wantState(gobridge.StateExpired, "expired")
}

func claimBytesEndTheBatch(f *fixture) {
	sized := func(id string, n int, k string) gobridge.Record {
		return record(id, key(k), payload(string(make([]byte, n-4))), headers("ab", "cd"))
	}
	f.persist(sized("a", 100, ""), sized("b", 100, "k"), sized("c", 500, "k"), sized("d", 100, "k"), sized("e", 100, ""))
	claim := func(version, maxBytes int64, held ...string) []gobridge.Record {
		f.Helper()
		r := request(version, 10, held...)
		r.MaxBytes = maxBytes
		return f.claimBy(r)
	}
	f.wantIDs(claim(1, 1), "a")
	f.wantIDs(claim(2, 199), "a")
	f.wantIDs(claim(3, 200), "a", "b")
	f.wantIDs(claim(4, 699), "a", "b")
	f.wantIDs(claim(5, 700), "a", "b", "c")
	f.wantIDs(claim(5, 99, "a", "b", "c"), "e")
	f.wantIDs(claim(6, 0), "a", "b", "c", "d", "e")
}

// counters are ReplayCount, Attempts and Unsettled.
type counters [3]int

func (f *fixture) wantCounters(when, id string, want counters) {
	f.Helper()
	r := f.get(id)
	if got := (counters{r.ReplayCount, r.Attempts, r.Unsettled}); got != want {
		f.Fatalf("%s: ReplayCount, Attempts and Unsettled are %v, want %v", when, got, want)
	}
}

func countersMeanWhatTheySay(f *fixture) {
	f.persist(record("a"))
	f.wantCounters("persisted", "a", counters{0, 0, 0})
	f.claimExactly(1, 1, "a")
	f.wantCounters("claimed", "a", counters{1, 0, 0})
	if got := f.claimExactly(2, 1, "a")[0]; got.ReplayCount != 2 || got.Unsettled != 1 {
		f.Fatalf("a takeover returned ReplayCount %d and Unsettled %d, want 2 and 1", got.ReplayCount, got.Unsettled)
	}
	f.wantCounters("taken over", "a", counters{2, 0, 1})
	f.claimExactly(2, 1, "a")
	f.wantCounters("stranded under its version and claimed again", "a", counters{3, 0, 2})
	f.release(2, "a", gobridge.Untried, time.Time{})
	f.wantCounters("released untried", "a", counters{3, 0, 0})
	f.claimExactly(2, 1, "a")
	f.wantCounters("claimed after a release", "a", counters{4, 0, 0})
	f.release(2, "a", gobridge.Blameless, time.Time{})
	f.wantCounters("released blameless", "a", counters{4, 0, 0})
	f.claimExactly(2, 1, "a")
	f.release(2, "a", gobridge.Failed, time.Time{})
	f.wantCounters("released after a failure", "a", counters{5, 1, 0})
	f.claimExactly(2, 1, "a")
	f.claimExactly(3, 1, "a")
	f.wantCounters("taken over again", "a", counters{7, 1, 1})
	f.bury(3, "a")
	f.wantCounters("dead after a failure", "a", counters{7, 2, 0})
}

func claimNeverFiltersByCounters(f *fixture) {
	f.persist(record("poison", key("k")), record("tail", key("k")))
	for i := range 40 {
		f.claimExactly(int64(i+1), 10, "poison", "tail")
	}
	for range 40 {
		f.release(40, "poison", gobridge.Failed, time.Time{})
		f.wantIDs(f.claim(40, 10, "tail"), "poison")
	}
	if r := f.get("poison"); r.Attempts != 40 {
		f.Fatalf("Attempts is %d, want 40", r.Attempts)
	}
}
