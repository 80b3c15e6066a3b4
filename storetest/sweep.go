package storetest

import (
	"time"

	"gobridge"
)

func sweepCases() []testCase {
	return []testCase{
		{name: "SweepEndsExpiredRecords", run: sweepEndsExpiredRecords,
			why: "Expired records go even while the destination is down, whether due or not, so that they don't fill the outbox."},
		{name: "SweepWorksUnderPauseAndHalt", run: sweepWorksUnderPauseAndHalt,
			why: "A pause over a weekend must not leave a heap of expired records behind."},
		{name: "SweepLeavesClaimedRecordsAlone", run: sweepLeavesClaimedRecordsAlone,
			why: "A record that expires during its send completes as delivered; the sweep must not end it under the sender."},
		{name: "SweepMovesExpiredToTheDead", run: sweepMovesExpiredToTheDead,
			settings: func(o *Options) { o.MaxDead = 2 },
			why:      "Where the route wants expired messages kept they are dead letters, and where those are full they wait."},
		{name: "SweepIsFenced", run: sweepIsFenced,
			why: "Housekeeping of an owner that lost the partition must not end the records of the next."},
		{name: "SweepIsBounded", run: sweepIsBounded,
			why: "A purge of everything at once would stall every producer."},
		{name: "SweepClampsRetryTimes", run: sweepClampsRetryTimes,
			why: "A release by a clock that was a year ahead must not hold a record for a year."},
		{name: "SweepPurgesAfterTheRetention", run: sweepPurgesAfterTheRetention,
			why: "Ended records go when their dedupe window ends and not a moment before, counted from their end."},
		{name: "SweepKeepsWhatHasNotEnded", run: sweepKeepsWhatHasNotEnded,
			why: "Age alone removes nothing: what was acknowledged is delivered, however late."},
		{name: "SweepAgesDeadLetters", run: sweepAgesDeadLetters,
			why: "Dead letters are kept for as long as configured and then discarded on record, not dropped."},
		{name: "CompletesAsDeliveredAfterItsExpiry", run: completesAsDeliveredAfterItsExpiry,
			why: "A message that was delivered was delivered, also when its time ran out during the send."},
	}
}

func sweepEndsExpiredRecords(f *fixture) {
	soon, later := start.Add(time.Minute), start.Add(time.Hour)
	f.persist(record("head", key("k")), record("second", key("k"), expiresAt(soon)), record("third", key("k")))
	f.persist(record("late", expiresAt(later)), record("delayed", expiresAt(soon), notBefore(later)), record("released", expiresAt(soon)))
	f.wantIDs(f.claim(1, 10), "head", "second", "third", "late", "released")
	for _, id := range []string{"head", "second", "third", "late"} {
		f.release(1, id, gobridge.Untried, time.Time{})
	}
	f.release(1, "released", gobridge.Failed, later)
	f.clock.Advance(time.Minute - 1)
	if result := f.sweep(1, 10); result.Expired != 0 {
		f.Fatalf("a sweep before the expiry ended %d records", result.Expired)
	}
	f.clock.Advance(1)
	if result := f.sweep(1, 10); result.Expired != 3 || result.More {
		f.Fatalf("the sweep returned %+v, want 3 expired and no more to do", result)
	}
	for _, id := range []string{"second", "delayed", "released"} {
		r := f.get(id)
		if r.State != gobridge.StateExpired || r.Reason != gobridge.ReasonExpired || len(r.Envelope.Payload) != 0 {
			f.Fatalf("record %q is %s for %q with payload %q", id, r.State, r.Reason, r.Envelope.Payload)
		}
		f.wantTime("EndedAt of "+id, r.EndedAt, soon)
	}
	f.claimExactly(1, 10, "head", "third", "late")
}

func sweepWorksUnderPauseAndHalt(f *fixture) {
	f.persist(record("paused", expiresAt(start.Add(time.Second))), record("halted", key("k"), expiresAt(start.Add(time.Second))))
	f.setControl(gobridge.Control{Kind: gobridge.Pause, Route: route, By: "test"})
	f.setControl(gobridge.Control{Kind: gobridge.Halt, Route: route, Binding: binding, OrderingKey: "k", By: "test"})
	f.clock.Advance(time.Minute)
	f.wantIDs(f.claim(1, 10))
	if result := f.sweep(1, 10); result.Expired != 2 {
		f.Fatalf("the sweep ended %d records, want 2", result.Expired)
	}
	f.wantState(gobridge.StateExpired, "paused", "halted")
}

func sweepLeavesClaimedRecordsAlone(f *fixture) {
	f.persist(record("a", expiresAt(start.Add(time.Second))))
	f.claimExactly(1, 10, "a")
	f.clock.Advance(time.Hour)
	if result := f.sweep(1, 10); result.Expired != 0 {
		f.Fatalf("the sweep ended %d claimed records", result.Expired)
	}
	if result := f.sweep(2, 10); result.Expired != 0 {
		f.Fatalf("the sweep of a new owner ended %d claimed records", result.Expired)
	}
	f.wantState(gobridge.StateClaimed, "a")
}

func sweepMovesExpiredToTheDead(f *fixture) {
	for _, id := range []string{"a", "b", "c"} {
		f.persist(record(id, expiresAt(start.Add(time.Second))))
	}
	f.clock.Advance(time.Minute)
	request := gobridge.SweepRequest{Partition: part, Token: token(1), Limit: 10, ExpireTo: gobridge.StateDead}
	f.sweepBy(request)
	dead := f.deadIDs(gobridge.Filter{Reason: gobridge.ReasonExpired}, 0)
	s := f.stats(part)
	if len(dead) != 2 || s.Dead != 2 || s.Pending != 1 {
		f.Fatalf("with room for 2, the dead letters are %q and Stats is %+v, want 2 dead and 1 pending", dead, s)
	}
	r := f.get(dead[0])
	if string(r.Envelope.Payload) != "payload of "+dead[0] {
		f.Fatalf("an expired dead letter has payload %q", r.Envelope.Payload)
	}
	f.wantTime("EndedAt", r.EndedAt, start.Add(time.Minute))
	f.discard(gobridge.Filter{States: states(gobridge.StateDead)})
	f.sweepBy(request)
	if s := f.stats(part); s.Dead != 1 || s.Pending != 0 {
		f.Fatalf("with room again, Stats is %+v, want 1 dead and none pending", s)
	}
}

func sweepIsFenced(f *fixture) {
	f.persist(record("a", expiresAt(start.Add(time.Second))))
	f.persist(record("done"))
	f.wantIDs(f.claim(1, 1), "a")
	f.wantIDs(f.claim(1, 1, "a"), "done")
	f.complete(1, "done")
	f.release(1, "a", gobridge.Untried, time.Time{})
	f.clock.Advance(f.options.Retention + time.Hour)
	if result := f.sweep(5, 0); result != (gobridge.SweepResult{}) && result != (gobridge.SweepResult{More: true}) {
		f.Fatalf("a sweep of 0 returned %+v", result)
	}
	f.wantState(gobridge.StatePending, "a")
	f.wantState(gobridge.StateDelivered, "done")
	if fence := f.stats(part).Fence; fence != token(5) {
		f.Fatalf("after a sweep of 0 the fence is %s, want %s", fence, token(5))
	}
	_, err := f.store.Sweep(f.Context(), gobridge.SweepRequest{Partition: part, Token: token(4), Limit: 10})
	f.wantErr("Sweep by a stale token", err, gobridge.ErrStaleFencingToken)
	f.wantState(gobridge.StatePending, "a")
	f.wantState(gobridge.StateDelivered, "done")
	f.wantStaleClaim(4, 1)
	if result := f.sweep(6, 10); result.Expired != 1 || result.Purged != 1 {
		f.Fatalf("the sweep returned %+v, want 1 expired and 1 purged", result)
	}
	f.wantStaleClaim(5, 1)
}

func sweepIsBounded(f *fixture) {
	const total, limit = 23, 5
	f.persistEach("k", numbered("done", total)...)
	f.claimExactly(1, total, numbered("done", total)...)
	f.complete(1, numbered("done", total)...)
	for _, id := range numbered("old", total) {
		f.persist(record(id, expiresAt(start.Add(time.Second))))
	}
	f.clock.Advance(f.options.Retention + time.Second)
	expired, purged := 0, 0
	for step := 1; ; step++ {
		result := f.sweep(1, limit)
		if result.Expired > limit || result.Purged > limit {
			f.Fatalf("a sweep of %d returned %+v", limit, result)
		}
		expired += result.Expired
		purged += result.Purged
		if left := f.stats(part).Pending; left != int64(total-expired) {
			f.Fatalf("after sweeps that ended %d of %d expired records, %d are left", expired, total, left)
		}
		if (expired < total || purged < total) && !result.More {
			f.Fatalf("after %d expired and %d purged of %d each, the sweep says that there is no more to do", expired, purged, total)
		}
		if !result.More {
			break
		}
		if step > 3*total {
			f.Fatal("sweeps go on for ever")
		}
	}
	if expired != total || purged != total {
		f.Fatalf("the sweeps ended %d and purged %d records, want %d each", expired, purged, total)
	}
}

func sweepClampsRetryTimes(f *fixture) {
	f.persist(record("far"), record("near"), record("own", notBefore(start.Add(48*time.Hour))))
	f.claimExactly(1, 10, "far", "near")
	f.release(1, "far", gobridge.Failed, start.Add(365*24*time.Hour))
	f.release(1, "near", gobridge.Failed, start.Add(30*time.Minute))
	request := gobridge.SweepRequest{Partition: part, Token: token(1), Limit: 10}
	if result := f.sweepBy(request); result.Clamped != 0 {
		f.Fatalf("a sweep without MaxBackoff clamped %d retry times", result.Clamped)
	}
	request.MaxBackoff = time.Hour
	if result := f.sweepBy(request); result.Clamped != 1 {
		f.Fatalf("the sweep clamped %d retry times, want 1", result.Clamped)
	}
	f.wantTime("RetryAt of the record far ahead", f.get("far").RetryAt, start.Add(time.Hour))
	f.wantTime("RetryAt of the record within bounds", f.get("near").RetryAt, start.Add(30*time.Minute))
	f.clock.Advance(time.Hour)
	f.claimExactly(1, 10, "far", "near")
	f.clock.Advance(47 * time.Hour)
	f.wantIDs(f.claim(1, 10, "far", "near"), "own")
}

func sweepPurgesAfterTheRetention(f *fixture) {
	ends := []gobridge.State{gobridge.StateDelivered, gobridge.StateExpired, gobridge.StateDiscarded}
	for _, as := range ends {
		f.persist(record(as.String()))
	}
	f.claim(1, 10)
	f.clock.Advance(10 * f.options.Retention) // it is the end that counts, not the age
	for _, as := range ends {
		f.settleAs(as.String(), as)
	}
	f.clock.Advance(f.options.Retention - time.Second)
	if result := f.sweep(1, 10); result.Purged != 0 {
		f.Fatalf("a sweep within the retention purged %d records", result.Purged)
	}
	f.clock.Advance(2 * time.Second)
	if result := f.sweep(1, 10); result.Purged != len(ends) {
		f.Fatalf("a sweep after the retention purged %d records, want %d", result.Purged, len(ends))
	}
	for _, as := range ends {
		f.wantGone(as.String())
	}
	f.wantSettleFailures(f.store.Complete(f.Context(), token(1), completions("delivered")), "delivered")
}

func sweepKeepsWhatHasNotEnded(f *fixture) {
	f.persist(record("claimed"), record("pending", createdAt(start.Add(-1000*time.Hour))))
	f.persist(record("delayed", notBefore(start.Add(10000*time.Hour))))
	f.claimExactly(1, 10, "pending", "claimed")
	f.release(1, "pending", gobridge.Failed, start.Add(time.Hour))
	f.clock.Advance(5000 * time.Hour)
	if result := f.sweep(1, 10); result != (gobridge.SweepResult{}) {
		f.Fatalf("with nothing ended, a sweep returned %+v", result)
	}
	f.wantState(gobridge.StatePending, "pending", "delayed")
	f.wantState(gobridge.StateClaimed, "claimed")
}

func sweepAgesDeadLetters(f *fixture) {
	f.kill("k", "old")
	f.clock.Advance(time.Hour)
	f.kill("k", "young")
	f.clock.Advance(f.options.DeadRetention - time.Hour - time.Second)
	if result := f.sweep(1, 10); result.Aged != 0 || result.Purged != 0 {
		f.Fatalf("a sweep before their time returned %+v for dead letters", result)
	}
	f.clock.Advance(2 * time.Second)
	if result := f.sweep(1, 10); result.Aged != 1 || result.Purged != 0 {
		f.Fatalf("the sweep returned %+v, want 1 aged", result)
	}
	r := f.get("old")
	if r.State != gobridge.StateDiscarded || r.Reason != gobridge.ReasonAged {
		f.Fatalf("the old dead letter is %s for %q, want discarded for %q", r.State, r.Reason, gobridge.ReasonAged)
	}
	f.wantTime("EndedAt", r.EndedAt, f.clock.Now())
	f.wantState(gobridge.StateDead, "young")
	if s := f.stats(part); s.Dead != 1 {
		f.Fatalf("Stats counts %d dead letters, want 1", s.Dead)
	}
	// Its identity stays for the retention, like that of any ended record.
	f.clock.Advance(f.options.Retention - time.Second)
	f.wantErr("Persist of an aged dead letter again",
		f.store.Persist(f.Context(), []gobridge.Record{record("old", key("k"))}), gobridge.ErrDuplicateRecord)
	f.clock.Advance(2 * time.Second)
	f.sweep(1, 10)
	f.wantGone("old")
}

func completesAsDeliveredAfterItsExpiry(f *fixture) {
	f.persist(record("a", expiresAt(start.Add(time.Second))))
	f.claimExactly(1, 10, "a")
	f.clock.Advance(time.Hour)
	f.sweep(1, 10)
	f.complete(1, "a")
	r := f.get("a")
	if r.State != gobridge.StateDelivered {
		f.Fatalf("the record is %s, want delivered", r.State)
	}
	f.wantTime("EndedAt", r.EndedAt, f.clock.Now())
	if result := f.sweep(1, 10); result != (gobridge.SweepResult{}) {
		f.Fatalf("about a delivered record, a sweep returned %+v", result)
	}
}
