package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gobridge"
	"gobridge/messaging"
)

func settleCases() []testCase {
	return []testCase{
		{name: "CompleteEndsTheRecord", run: completeEndsTheRecord,
			why: "What was delivered is not delivered again, and how a record ended is on record."},
		{name: "EndedRecordKeepsIdentityNotPayload", run: endedRecordKeepsIdentityNotPayload,
			why: "Deduplication needs the identity, the hash and the times; the payloads of everything ever delivered would fill the disk."},
		{name: "SettleMismatchNamesTheRecordAndSettlesTheRest", run: settleMismatchNamesTheRecordAndSettlesTheRest,
			why: "One record that was lost must not undo what the others of the call have come to, nor pass in silence."},
		{name: "SettleNeedsTheVeryToken", run: settleNeedsTheVeryToken,
			why: "Only who has claimed the record, under that very version, knows what became of it."},
		{name: "RepeatedSettleIsSuccess", run: repeatedSettleIsSuccess,
			why: "When the answer was lost, the work was not: the caller asks again and must not stop its key for it."},
		{name: "RepeatedSettleChangesNothing", run: repeatedSettleChangesNothing,
			why: "A settle that comes twice must not count an attempt twice or shift a time."},
		{name: "SettleInAnotherWayIsStale", run: settleInAnotherWayIsStale,
			why: "A record that went back to pending must not be completed by the answer to an earlier send of it."},
		{name: "NothingToSettleIsNoOp", run: nothingToSettleIsNoOp,
			why: "A batch of which nothing is left to settle is no error."},
		{name: "ReleasePutsTheRecordBack", run: releasePutsTheRecordBack,
			why: "A record that was not sent is claimable again at once, by anyone."},
		{name: "ReleaseWaitsUntilItsTime", run: releaseWaitsUntilItsTime,
			why: "Backoff is kept in the store, so that it survives a restart, to the nanosecond."},
		{name: "ReleaseCountsOnlyFailures", run: releaseCountsOnlyFailures,
			why: "A destination that is down spends nobody's attempts."},
		{name: "ReleaseKeepsReasonAndError", run: releaseKeepsReasonAndError,
			why: "An operator sees why a record was put back last."},
	}
}

func completeEndsTheRecord(f *fixture) {
	f.persist(record("delivered"), record("zero"), record("expired"), record("discarded"))
	f.claim(1, 10)
	f.clock.Advance(time.Second + 3)
	f.settleAs("delivered", gobridge.StateDelivered)
	f.complete(1, "zero")
	f.settleAs("expired", gobridge.StateExpired)
	f.settleAs("discarded", gobridge.StateDiscarded)
	f.wantState(gobridge.StateDelivered, "delivered", "zero")
	f.wantState(gobridge.StateExpired, "expired")
	f.wantState(gobridge.StateDiscarded, "discarded")
	for _, id := range []string{"delivered", "expired", "discarded"} {
		r := f.get(id)
		f.wantTime("EndedAt of "+id, r.EndedAt, start.Add(time.Second+3))
		if want := "test of " + id; r.Reason != "test" || r.Error != want {
			f.Fatalf("record %q ended for %q: %q, want \"test\": %q", id, r.Reason, r.Error, want)
		}
	}
	f.wantIDs(f.claim(2, 10))
	if s := f.stats(part); s.Pending != 0 || s.Claimed != 0 || s.Dead != 0 {
		f.Fatalf("with every record ended, Stats is %+v", s)
	}
}

func endedRecordKeepsIdentityNotPayload(f *fixture) {
	whole := record("a", key("k"), headers("name", "value"))
	f.persist(whole)
	before := f.claimExactly(4, 1, "a")[0]
	f.clock.Advance(time.Second)
	f.complete(4, "a")
	r := f.get("a")
	if len(r.Envelope.Payload) != 0 {
		f.Fatalf("an ended record still has its payload %q", r.Envelope.Payload)
	}
	if r.Ref() != ref("a") || r.ContentHash != messaging.ContentHash(&whole.Envelope) {
		f.Fatalf("an ended record has identity %s and content hash %x", r.Ref(), r.ContentHash)
	}
	if r.Seq != before.Seq || !r.CreatedAt.Equal(before.CreatedAt) || r.ClaimedBy != token(4) {
		f.Fatalf("an ended record has age %v, %d and token %s, want %v, %d and %s",
			r.CreatedAt, r.Seq, r.ClaimedBy, before.CreatedAt, before.Seq, token(4))
	}
	f.wantTime("StoredAt", r.StoredAt, start)
	f.wantTime("ClaimedAt", r.ClaimedAt, start)
	f.wantTime("EndedAt", r.EndedAt, start.Add(time.Second))
}

// settles are the three ways to settle records of part.
func (f *fixture) settles() map[string]func(token gobridge.Token, ids ...string) error {
	return f.settlesUnder(f.Context())
}

func (f *fixture) settlesUnder(ctx context.Context) map[string]func(token gobridge.Token, ids ...string) error {
	return map[string]func(gobridge.Token, ...string) error{
		"Complete": func(t gobridge.Token, ids ...string) error {
			return f.store.Complete(ctx, t, completions(ids...))
		},
		"Release": func(t gobridge.Token, ids ...string) error {
			releases := make([]gobridge.Release, len(ids))
			for i, id := range ids {
				releases[i] = gobridge.Release{Ref: ref(id), Tried: gobridge.Failed}
			}
			return f.store.Release(ctx, t, releases)
		},
		"DeadLetter": func(t gobridge.Token, ids ...string) error {
			return f.store.DeadLetter(ctx, t, burials(ids...))
		},
	}
}

// settledState is the state that a way of settling leads to.
func settledState(how string) gobridge.State {
	switch how {
	case "Release":
		return gobridge.StatePending
	case "DeadLetter":
		return gobridge.StateDead
	}
	return gobridge.StateDelivered
}

// wantSettleFailures requires that err names these records as stale.
func (f *fixture) wantSettleFailures(err error, ids ...string) {
	f.Helper()
	f.wantSettleErrors(err, gobridge.ErrStaleFencingToken, ids...)
}

func (f *fixture) wantSettleErrors(err, target error, ids ...string) {
	f.Helper()
	var e *gobridge.SettleError
	if !errors.As(err, &e) || !errors.Is(err, target) {
		f.Fatalf("settling returned error %v, want a *gobridge.SettleError with %v", err, target)
	}
	var got []string
	for _, failed := range e.Failed {
		if !errors.Is(failed, target) {
			f.Fatalf("record %s failed with %v, want %v", failed.Ref, failed.Err, target)
		}
		got = append(got, failed.Ref.EnvelopeID)
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		f.Fatalf("the error names the records %q, want %q: %v", got, ids, err)
	}
}

func settleMismatchNamesTheRecordAndSettlesTheRest(f *fixture) {
	version := int64(1)
	for how, settle := range f.settles() {
		a, pending, lost, b := how+" a", how+" pending", how+" lost", how+" b"
		f.persist(record(a), record(lost), record(b))
		f.claimExactly(version, 10, a, lost, b)
		f.wantIDs(f.claim(version+1, 10, a, b), lost)
		f.persist(record(pending, notBefore(start.Add(time.Hour))))
		f.wantSettleFailures(settle(token(version), "unknown", a, pending, lost, b), "unknown", pending, lost)
		f.wantState(settledState(how), a, b)
		f.wantState(gobridge.StatePending, pending)
		f.wantState(gobridge.StateClaimed, lost)
		f.drain(version + 2)
		version += 3
	}
}

// drain claims and completes until nothing is claimable.
func (f *fixture) drain(version int64) {
	f.Helper()
	for {
		records := f.claim(version, 1000)
		if len(records) == 0 {
			return
		}
		f.complete(version, ids(records)...)
	}
}

func settleNeedsTheVeryToken(f *fixture) {
	version := int64(2)
	for how, settle := range f.settles() {
		f.persist(record(how))
		f.claimExactly(version, 10, how)
		for _, other := range []gobridge.Token{
			{Owner: "somebody else", Version: version},
			{Owner: token(version).Owner, Version: version - 1},
			{Owner: token(version).Owner, Version: version + 1},
			token(version + 1),
		} {
			f.wantSettleFailures(settle(other, how), how)
			f.wantState(gobridge.StateClaimed, how)
		}
		f.wantIDs(f.claim(version+1, 10), how)
		f.wantSettleFailures(settle(token(version), how), how)
		f.wantCounters("after settles by the wrong tokens", how, counters{2, 0, 1})
		f.complete(version+1, how)
		f.wantSettleFailures(settle(token(version), how), how)
		version += 5
	}
}

func repeatedSettleIsSuccess(f *fixture) {
	version := int64(1)
	for how, settle := range f.settles() {
		f.persist(record(how), record(how+" 2"))
		f.claimExactly(version, 10, how, how+" 2")
		for range 3 {
			if err := settle(token(version), how); err != nil {
				f.Fatalf("%s, again by the token that did it: %v, want nil", how, err)
			}
		}
		if err := settle(token(version), how, how+" 2"); err != nil {
			f.Fatalf("%s of a record that has been settled, beside one that has not: %v, want nil", how, err)
		}
		f.wantState(settledState(how), how, how+" 2")
		f.drain(version + 1)
		version += 2
	}
}

func repeatedSettleChangesNothing(f *fixture) {
	version := int64(1)
	for how, settle := range f.settles() {
		f.persist(record(how))
		f.claimExactly(version, 10, how)
		if err := settle(token(version), how); err != nil {
			f.Fatalf("%s: %v", how, err)
		}
		before := f.get(how)
		f.clock.Advance(time.Minute)
		if err := settle(token(version), how); err != nil {
			f.Fatalf("%s again: %v", how, err)
		}
		after := f.get(how)
		if after.Attempts != before.Attempts || !after.EndedAt.Equal(before.EndedAt) || after.State != before.State {
			f.Fatalf("%s again changed the record from %s with %d attempts at %v to %s with %d at %v", how,
				before.State, before.Attempts, before.EndedAt, after.State, after.Attempts, after.EndedAt)
		}
		f.drain(version + 1)
		version += 2
	}
}

func settleInAnotherWayIsStale(f *fixture) {
	version := int64(1)
	for first, settle := range f.settles() {
		for second, again := range f.settles() {
			if first == second {
				continue
			}
			id := first + ", then " + second
			f.persist(record(id))
			f.claimExactly(version, 10, id)
			if err := settle(token(version), id); err != nil {
				f.Fatalf("%s: %v", first, err)
			}
			f.wantSettleFailures(again(token(version), id), id)
			f.wantState(settledState(first), id)
			f.drain(version + 1)
			version += 2
		}
	}
}

func nothingToSettleIsNoOp(f *fixture) {
	f.wantIDs(f.claim(1, 1))
	for how, settle := range f.settles() {
		if err := settle(token(1)); err != nil {
			f.Fatalf("%s of nothing: %v, want nil", how, err)
		}
	}
}

func releasePutsTheRecordBack(f *fixture) {
	f.persist(record("a"), record("b"))
	f.claimExactly(1, 10, "a", "b")
	f.release(1, "a", gobridge.Untried, time.Time{})
	f.wantState(gobridge.StatePending, "a")
	if s := f.stats(part); s.Pending != 1 || s.Claimed != 1 {
		f.Fatalf("with one record put back, Stats counts %d pending and %d claimed, want 1 and 1", s.Pending, s.Claimed)
	}
	got := f.claimUntold(1, 10)
	f.wantIDs(got, "a")
	if string(got[0].Envelope.Payload) != "payload of a" {
		f.Fatalf("a released record came back with payload %q", got[0].Envelope.Payload)
	}
}

func releaseWaitsUntilItsTime(f *fixture) {
	due := start.Add(time.Minute + 1)
	f.persist(record("a"))
	f.claimExactly(1, 10, "a")
	f.release(1, "a", gobridge.Failed, due)
	f.wantTime("RetryAt", f.get("a").RetryAt, due)
	f.clock.Advance(time.Minute)
	f.wantIDs(f.claim(1, 10))
	second, _ := f.another(0)
	f.wantIDs(f.on(second).claim(2, 10))
	f.clock.Advance(1)
	f.claimExactly(2, 10, "a")
}

func releaseCountsOnlyFailures(f *fixture) {
	f.persist(record("a"))
	want := counters{}
	for _, tried := range []gobridge.Tried{
		gobridge.Untried, gobridge.Failed, gobridge.Blameless, gobridge.Failed, gobridge.Untried, gobridge.Blameless,
	} {
		f.claimExactly(1, 10, "a")
		f.release(1, "a", tried, time.Time{})
		want[0]++
		if tried == gobridge.Failed {
			want[1]++
		}
		f.wantCounters(fmt.Sprintf("released with Tried %d", tried), "a", want)
	}
}

func releaseKeepsReasonAndError(f *fixture) {
	f.persist(record("a"))
	release := func(reason, text string) {
		f.Helper()
		f.claimExactly(1, 10, "a")
		err := f.store.Release(f.Context(), token(1), []gobridge.Release{{Ref: ref("a"), Reason: reason, Error: text}})
		if err != nil {
			f.Fatalf("Release: %v", err)
		}
	}
	want := func(reason, text string) {
		f.Helper()
		if r := f.get("a"); r.Reason != reason || r.Error != text {
			f.Fatalf("the record was released for %q: %q, want %q: %q", r.Reason, r.Error, reason, text)
		}
	}
	release("first", "503 \x00 \xff")
	want("first", "503 \x00 \xff")
	release("", "")
	want("first", "503 \x00 \xff")
	release("second", "504")
	want("second", "504")
}
