package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"gobridge"
)

func orderCases() []testCase {
	return []testCase{
		{name: "ClaimBlocksYoungerSiblingOfStrandedHead", run: claimBlocksYoungerSiblingOfStrandedHead,
			why: "A head left claimed by an earlier cycle still waits; its younger sibling must not be delivered before it."},
		{name: "ClaimBlocksYoungerSiblingOfHeldHead", run: claimBlocksYoungerSiblingOfHeldHead,
			why: "While a record is being sent, no younger one of its key may be."},
		{name: "ClaimBlocksYoungerSiblingOfReleasedHead", run: claimBlocksYoungerSiblingOfReleasedHead,
			why: "A head that waits for its retry keeps its place."},
		{name: "ClaimBlocksYoungerSiblingOfDelayedHead", run: claimBlocksYoungerSiblingOfDelayedHead,
			why: "A head with a not-before of its own keeps its place."},
		{name: "ClaimBlocksYoungerSiblingOfHaltedHead", run: claimBlocksYoungerSiblingOfHaltedHead,
			why: "A halted key waits for a person, all of it and nothing else."},
		{name: "ClaimBlocksYoungerSiblingOfHeadBeyondLimit", run: claimBlocksYoungerSiblingOfHeadBeyondLimit,
			why: "A batch that is full ends before a head, not between it and its siblings."},
		{name: "ClaimBlocksYoungerSiblingOfHeadBeyondBytes", run: claimBlocksYoungerSiblingOfHeadBeyondBytes,
			why: "A small message must not overtake a large one of its key because the large one didn't fit."},
		{name: "ClaimBlocksYoungerSiblingOfExpiredHead", run: claimBlocksYoungerSiblingOfExpiredHead,
			why: "Until it is ended, an expired head holds its key's place."},
		{name: "BlockedKeyBlocksOnlyItself", run: blockedKeyBlocksOnlyItself,
			why: "One stuck key must not hold up another, nor the records without a key."},
		{name: "KeylessRecordsAreNeverBlocked", run: keylessRecordsAreNeverBlocked,
			why: "Records without a key have no order between them and keep their full concurrency."},
		{name: "SiblingsComeAlongUpToTheLimit", run: siblingsComeAlongUpToTheLimit,
			why: "A key with many records drains in batches, not one record a claim."},
		{name: "DelayedSiblingEndsItsKey", run: delayedSiblingEndsItsKey,
			why: "A record that cannot be claimed holds up the younger ones of its key, wherever in the key it stands."},
		{name: "HeadThatEndsFreesItsKey", run: headThatEndsFreesItsKey,
			why: "Whichever way a head ends, its key goes on, or the tail waits for ever."},
		{name: "ClaimIsCompletePerKey", run: claimIsCompletePerKey,
			why: "Whatever else happens, the records of a key in a claim are its oldest ones, in order, without a gap."},
	}
}

func claimBlocksYoungerSiblingOfStrandedHead(f *fixture) {
	f.persist(record("head", key("k")))
	f.wantIDs(f.claimUntold(1, 10), "head")
	f.persist(record("young", key("k")), record("other", key("l")), record("keyless"))
	f.wantIDs(f.claimUntold(1, 10), "other", "keyless")
	f.wantState(gobridge.StatePending, "young")
	// The next owner gets both, in order.
	f.wantIDs(f.claim(2, 10, "other", "keyless"), "head", "young")
}

func claimBlocksYoungerSiblingOfHeldHead(f *fixture) {
	f.persist(record("head", key("k")))
	f.claimExactly(1, 10, "head")
	f.persist(record("young", key("k")), record("younger", key("k")), record("other", key("l")))
	f.wantIDs(f.claim(1, 10, "head"), "other")
	f.complete(1, "head")
	f.wantIDs(f.claim(1, 10, "other"), "young", "younger")
}

func claimBlocksYoungerSiblingOfReleasedHead(f *fixture) {
	f.persist(record("head", key("k")), record("young", key("k")), record("other", key("l")))
	f.claimExactly(1, 1, "head")
	f.release(1, "head", gobridge.Failed, start.Add(time.Minute))
	f.claimExactly(1, 10, "other")
	f.clock.Advance(time.Minute - 1)
	f.wantIDs(f.claim(1, 10, "other"))
	f.clock.Advance(1)
	f.wantIDs(f.claim(1, 10, "other"), "head", "young")
}

func claimBlocksYoungerSiblingOfDelayedHead(f *fixture) {
	f.persist(record("head", key("k"), notBefore(start.Add(time.Hour))))
	f.persist(record("young", key("k")), record("other", key("l")))
	f.claimExactly(1, 10, "other")
	f.persist(record("younger", key("k")))
	f.wantIDs(f.claim(1, 10, "other"))
	f.clock.Advance(time.Hour)
	f.wantIDs(f.claim(1, 10, "other"), "head", "young", "younger")
}

func claimBlocksYoungerSiblingOfHaltedHead(f *fixture) {
	f.persist(record("head", key("k")), record("young", key("k")), record("other", key("l")))
	halt := gobridge.Control{Kind: gobridge.Halt, Route: route, Binding: binding, OrderingKey: "k", By: "test"}
	f.setControl(halt)
	f.claimExactly(1, 10, "other")
	f.clearControl(halt)
	f.wantIDs(f.claim(1, 10, "other"), "head", "young")
	// A halt that comes while the head is being sent holds up the rest.
	f.setControl(halt)
	f.persist(record("younger", key("k")))
	f.wantIDs(f.claim(1, 10, "other", "head", "young"))
	f.complete(1, "head", "young")
	f.wantIDs(f.claim(1, 10, "other"))
	// The next owner takes over nothing of a halted key either.
	f.clearControl(halt)
	f.wantIDs(f.claim(1, 10, "other"), "younger")
	f.setControl(halt)
	f.wantIDs(f.claim(2, 10), "other")
}

func claimBlocksYoungerSiblingOfHeadBeyondLimit(f *fixture) {
	f.persistEach("k", "k1", "k2")
	f.persistEach("l", "l1", "l2")
	f.persistEach("k", "k3")
	f.claimExactly(1, 1, "k1")
	f.wantIDs(f.claim(1, 2, "k1"), "l1", "l2")
	f.complete(1, "k1")
	f.wantIDs(f.claim(1, 1, "l1", "l2"), "k2")
	f.wantIDs(f.claim(1, 1, "l1", "l2", "k2"))
	f.wantIDs(f.claim(2, 3), "k2", "l1", "l2")
	f.wantState(gobridge.StatePending, "k3")
}

func claimBlocksYoungerSiblingOfHeadBeyondBytes(f *fixture) {
	large := payload(string(make([]byte, 1000)))
	f.persist(record("small", payload("12345")))
	f.persist(record("head", key("k"), large), record("young", key("k"), payload("1")), record("last", payload("1")))
	r := request(1, 10)
	r.MaxBytes = 100
	f.wantIDs(f.claimBy(r), "small")
	f.wantState(gobridge.StatePending, "head", "young", "last")
	r.Held = refs("small")
	f.wantIDs(f.claimBy(r), "head")
	r.Held = refs("small", "head")
	f.wantIDs(f.claimBy(r), "last")
	f.complete(1, "head")
	r.Held = refs("small", "last")
	f.wantIDs(f.claimBy(r), "young")
}

func claimBlocksYoungerSiblingOfExpiredHead(f *fixture) {
	f.persist(record("head", key("k"), expiresAt(start.Add(time.Second)), notBefore(start.Add(time.Hour))))
	f.persist(record("young", key("k")))
	f.clock.Advance(time.Minute)
	f.wantIDs(f.claim(1, 10))
	if result := f.sweep(1, 10); result.Expired != 1 {
		f.Fatalf("the sweep ended %d expired records, want 1", result.Expired)
	}
	f.claimExactly(1, 10, "young")
	f.complete(1, "young")

	f.persist(record("head-2", key("k"), expiresAt(start.Add(2*time.Minute))))
	f.claimExactly(1, 10, "head-2")
	f.persist(record("young-2", key("k")))
	f.clock.Advance(time.Hour)
	f.wantIDs(f.claim(1, 10, "head-2"))
	f.settleAs("head-2", gobridge.StateExpired)
	f.claimExactly(1, 10, "young-2")
}

func blockedKeyBlocksOnlyItself(f *fixture) {
	f.persistEach("stuck", "head")
	f.claimExactly(1, 1, "head")
	f.persistEach("stuck", numbered("stuck", 50)...)
	f.persistEach("free", "free-1", "free-2")
	f.persistEach("", "keyless-1", "keyless-2")
	f.persistEach("stuck", "stuck-51")
	f.persistEach("late", "late")
	f.wantIDs(f.claim(1, 10, "head"), "free-1", "free-2", "keyless-1", "keyless-2", "late")
}

func keylessRecordsAreNeverBlocked(f *fixture) {
	f.persistEach("", "a", "b", "c", "d", "e")
	f.claimExactly(1, 2, "a", "b")
	f.release(1, "a", gobridge.Failed, start.Add(time.Hour))
	f.wantIDs(f.claim(1, 10, "b"), "c", "d", "e")
}

func siblingsComeAlongUpToTheLimit(f *fixture) {
	f.persistEach("k", "k1", "k2", "k3")
	f.persistEach("l", "l1")
	f.persistEach("k", "k4", "k5")
	f.claimExactly(1, 5, "k1", "k2", "k3", "l1", "k4")
	f.complete(1, "k1", "k2", "k3", "l1", "k4")
	f.claimExactly(1, 5, "k5")
}

func delayedSiblingEndsItsKey(f *fixture) {
	f.persistEach("k", "k1")
	f.persist(record("k2", key("k"), notBefore(start.Add(time.Minute))))
	f.persistEach("k", "k3")
	f.claimExactly(1, 10, "k1")
	f.complete(1, "k1")
	f.wantIDs(f.claim(1, 10))
	f.clock.Advance(time.Minute)
	f.claimExactly(1, 10, "k2", "k3")
	// A held one in the middle does the same.
	f.release(1, "k2", gobridge.Untried, time.Time{})
	f.persistEach("k", "k4")
	f.wantIDs(f.claim(1, 10, "k3"), "k2")
	f.wantIDs(f.claim(1, 10, "k2", "k3"))
}

func headThatEndsFreesItsKey(f *fixture) {
	ends := map[string]func(id string){
		"delivered": func(id string) { f.complete(1, id) },
		"expired":   func(id string) { f.settleAs(id, gobridge.StateExpired) },
		"discarded": func(id string) { f.settleAs(id, gobridge.StateDiscarded) },
		"dead":      func(id string) { f.bury(1, id) },
		"pending and then discarded": func(id string) {
			f.release(1, id, gobridge.Failed, start.Add(time.Hour))
			f.discard(gobridge.Filter{EnvelopeID: id, States: []gobridge.State{gobridge.StatePending}})
		},
	}
	for how, end := range ends {
		head, tail := "head "+how, "tail "+how
		f.persistEach(how, head)
		f.claimExactly(1, 10, head)
		f.persistEach(how, tail)
		f.wantIDs(f.claim(1, 10, head))
		end(head)
		f.claimExactly(1, 10, tail)
		f.complete(1, tail)
	}
}

func claimIsCompletePerKey(f *fixture) {
	rng := rand.New(rand.NewPCG(1, 2))
	queues := map[string][]string{}
	held := map[string]bool{}
	persisted := 0
	for range 120 {
		call := make([]gobridge.Record, 1+rng.IntN(6))
		for i := range call {
			k := fmt.Sprintf("k%d", rng.IntN(9))
			persisted++
			call[i] = record(fmt.Sprintf("r-%d", persisted), key(k))
			queues[k] = append(queues[k], call[i].Envelope.ID)
		}
		f.persist(call...)
		var holding []string
		for id := range held {
			holding = append(holding, id)
		}
		batch := f.claim(1, 1+rng.IntN(8), holding...)
		next := map[string]int{}
		for _, r := range batch {
			k := r.Envelope.OrderingKey
			if want := queues[k][next[k]]; r.Envelope.ID != want {
				f.Fatalf("claim %s has %q of key %s where %q is the oldest left", idsOf(batch), r.Envelope.ID, k, want)
			}
			next[k]++
		}
		for _, r := range batch {
			id, k := r.Envelope.ID, r.Envelope.OrderingKey
			if rng.IntN(3) > 0 && queues[k][0] == id {
				f.complete(1, id)
				queues[k] = queues[k][1:]
			} else if rng.IntN(2) == 0 {
				f.release(1, id, gobridge.Untried, time.Time{})
			} else {
				held[id] = true
			}
		}
		if rng.IntN(4) == 0 { // forget what is held, as a restart does
			clear(held)
		}
	}
}
