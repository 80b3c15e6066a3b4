package storetest

import (
	"fmt"
	"time"

	"gobridge"
)

func holdCases() []testCase {
	return []testCase{
		{name: "OlderVersionsClaimIsTakenOver", run: olderVersionsClaimIsTakenOver,
			why: "What a dead owner had claimed goes out under the next one, at once."},
		{name: "StrandedClaimIsClaimableAtOnce", run: strandedClaimIsClaimableAtOnce,
			why: "A claim whose answer was lost belongs to nobody; told what is held, the store frees it without a wait."},
		{name: "HeldClaimStays", run: heldClaimStays,
			why: "A record that is being sent must not be handed out a second time."},
		{name: "HeldUnderOlderVersionStays", run: heldUnderOlderVersionStays,
			why: "A process that lost its lease for a moment and got it back is still sending what it claimed before."},
		{name: "HeldRecordIsNotHandedOutAgain", run: heldRecordIsNotHandedOutAgain,
			why: "A process whose record was taken over and put back by another may still be sending it; it must not get it a second time meanwhile."},
		{name: "UntoldClaimWaitsForTheStaleWindow", run: untoldClaimWaitsForTheStaleWindow,
			why: "Without knowing what is held, the store frees a claim of the same version only when no send can be running any more."},
		{name: "UntoldClaimTakesOverOlderVersions", run: untoldClaimTakesOverOlderVersions,
			why: "A newer version says by itself that the older owner is gone."},
		{name: "TakeoverOfManyStaleRecords", run: takeoverOfManyStaleRecords,
			why: "An owner that died with thousands of records claimed leaves nothing behind and nothing out of order."},
	}
}

func olderVersionsClaimIsTakenOver(f *fixture) {
	f.persist(record("a", key("k")), record("b", key("k")), record("c"))
	f.claimExactly(1, 10, "a", "b", "c")
	f.clock.Advance(time.Second)
	got := f.claimExactly(2, 10, "a", "b", "c")
	for _, r := range got {
		if r.ClaimedBy != token(2) || r.State != gobridge.StateClaimed {
			f.Fatalf("record %q is %s by %s, want claimed by %s", r.Envelope.ID, r.State, r.ClaimedBy, token(2))
		}
		f.wantTime("ClaimedAt after the takeover", r.ClaimedAt, start.Add(time.Second))
	}
	f.wantSettleFailures(f.store.Complete(f.Context(), token(1), completions("a")), "a")
	f.complete(2, "a", "b", "c")
}

func strandedClaimIsClaimableAtOnce(f *fixture) {
	f.persist(record("a"), record("b", key("k")), record("c", key("k")))
	f.claimExactly(3, 10, "a", "b", "c")
	f.wantIDs(f.claim(3, 10, "a"), "b", "c")
	f.wantIDs(f.claim(3, 10, "b"), "a")
	f.wantIDs(f.claim(3, 10), "a", "b", "c")
}

func heldClaimStays(f *fixture) {
	f.persist(record("a"), record("b", key("k")))
	f.claimExactly(3, 10, "a", "b")
	f.clock.Advance(10 * f.options.StaleWindow)
	f.wantIDs(f.claim(3, 10, "a", "b"))
	f.wantCounters("held through a claim", "a", counters{1, 0, 0})
	if by := f.get("a").ClaimedBy; by != token(3) {
		f.Fatalf("the held record is claimed by %s, want %s", by, token(3))
	}
	f.complete(3, "a", "b")
}

func heldUnderOlderVersionStays(f *fixture) {
	f.persist(record("a", key("k")), record("b"))
	f.claimExactly(1, 10, "a", "b")
	f.persist(record("tail", key("k")))
	f.wantIDs(f.claim(2, 10, "a"), "b")
	if r := f.get("a"); r.ClaimedBy != token(1) || r.Unsettled != 0 {
		f.Fatalf("the held record is claimed by %s with Unsettled %d, want %s and 0", r.ClaimedBy, r.Unsettled, token(1))
	}
	f.complete(1, "a")
	f.wantIDs(f.claim(2, 10, "b"), "tail")
}

func heldRecordIsNotHandedOutAgain(f *fixture) {
	f.persist(record("first", key("k")), record("second", key("k")), record("third", key("k")), record("a"))
	f.claimExactly(1, 10, "first", "second", "third", "a")
	f.claimExactly(2, 10, "first", "second", "third", "a")
	for _, id := range []string{"first", "second", "third", "a"} {
		f.release(2, id, gobridge.Untried, time.Time{})
	}
	f.wantIDs(f.claim(3, 10, "second", "a"), "first")
	f.wantIDs(f.claim(3, 10, "first", "second", "a"))
	f.complete(3, "first")
	f.wantIDs(f.claim(3, 10, "second"), "a")
	f.wantIDs(f.claim(3, 10, "a"), "second", "third")
}

func untoldClaimWaitsForTheStaleWindow(f *fixture) {
	f.persist(record("a"), record("b", key("k")), record("tail", key("k")))
	f.wantIDs(f.claimUntold(1, 2), "a", "b")
	f.clock.Advance(f.options.StaleWindow - time.Second)
	f.wantIDs(f.claimUntold(1, 10))
	f.clock.Advance(2 * time.Second)
	f.wantIDs(f.claimUntold(1, 10), "a", "b", "tail")
	f.wantCounters("freed by the stale window", "a", counters{2, 0, 1})
	f.wantIDs(f.claimUntold(1, 10))
}

func untoldClaimTakesOverOlderVersions(f *fixture) {
	f.persist(record("a", key("k")), record("b"))
	f.wantIDs(f.claimUntold(1, 10), "a", "b")
	f.wantIDs(f.claimUntold(2, 1), "a")
	f.wantIDs(f.claimUntold(2, 10), "b")
	f.wantIDs(f.claimUntold(2, 10))
}

func takeoverOfManyStaleRecords(f *fixture) {
	const total = 3000
	want := make([]string, total)
	for from := 0; from < total; from += 500 {
		call := make([]gobridge.Record, 500)
		for i := range call {
			id := fmt.Sprintf("r-%d", from+i)
			want[from+i] = id
			call[i] = record(id)
			if i%3 != 0 {
				call[i].Envelope.OrderingKey = fmt.Sprintf("k%d", i%50)
			}
		}
		f.persist(call...)
	}
	f.wantIDs(f.claim(1, total), want...)
	var got []string
	for len(got) < total {
		batch := f.claim(2, 250)
		if len(batch) == 0 {
			f.Fatalf("nothing more to take over after %d of %d records", len(got), total)
		}
		got = append(got, ids(batch)...)
		f.complete(2, ids(batch)...)
	}
	for i := range want {
		if got[i] != want[i] {
			f.Fatalf("record %d of the takeover is %q, want %q", i, got[i], want[i])
		}
	}
	f.wantIDs(f.claim(2, 10))
}
