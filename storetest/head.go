package storetest

import (
	"time"

	"gobridge"
)

func headCases() []testCase {
	return []testCase{
		{name: "OlderCreatedAtBecomesTheHead", run: olderCreatedAtBecomesTheHead,
			why: "A record persisted later with an older age goes first; a remembered head must give way."},
		{name: "OlderCreatedAtBeforeClaimedHead", run: olderCreatedAtBeforeClaimedHead,
			why: "An older record that comes while its key's former head is being sent is not blocked by it, and blocks the rest."},
		{name: "OlderCreatedAtBeforeDelayedHead", run: olderCreatedAtBeforeDelayedHead,
			why: "An older record need not wait for the younger one's due time, and the due time still holds up those after it."},
		{name: "DelayedOlderCreatedAtBlocksItsKey", run: delayedOlderCreatedAtBlocksItsKey,
			why: "A new head that may not go yet holds up a key that could go until then."},
		{name: "OlderCreatedAtBetweenSiblings", run: olderCreatedAtBetweenSiblings,
			why: "A record may come to stand in the middle of its key, too."},
		{name: "ReleasedHeadComesBeforeItsTail", run: releasedHeadComesBeforeItsTail,
			why: "A record that goes back keeps its age: its key resumes with it."},
	}
}

func olderCreatedAtBecomesTheHead(f *fixture) {
	f.persistEach("k", "head", "tail")
	f.persist(record("older", key("k"), createdAt(start.Add(-time.Hour))))
	f.claimExactly(1, 1, "older")
	f.wantIDs(f.claim(1, 10, "older"))
	f.complete(1, "older")
	f.claimExactly(1, 10, "head", "tail")
}

func olderCreatedAtBeforeClaimedHead(f *fixture) {
	f.persistEach("k", "head", "tail")
	f.claimExactly(1, 1, "head")
	f.persist(record("older", key("k"), createdAt(start.Add(-time.Hour))))
	f.wantIDs(f.claim(1, 10, "head"), "older")
	f.complete(1, "head")
	f.wantIDs(f.claim(1, 10, "older"))
	f.complete(1, "older")
	f.claimExactly(1, 10, "tail")
}

func olderCreatedAtBeforeDelayedHead(f *fixture) {
	f.persist(record("head", key("k"), notBefore(start.Add(time.Hour))), record("tail", key("k")))
	f.wantIDs(f.claim(1, 10))
	f.persist(record("older", key("k"), createdAt(start.Add(-time.Hour))))
	f.claimExactly(1, 10, "older")
	f.complete(1, "older")
	f.wantIDs(f.claim(1, 10))
	f.clock.Advance(time.Hour)
	f.claimExactly(1, 10, "head", "tail")
}

func delayedOlderCreatedAtBlocksItsKey(f *fixture) {
	f.persistEach("k", "head", "tail")
	f.persist(record("older", key("k"), createdAt(start.Add(-time.Hour)), notBefore(start.Add(time.Minute))))
	f.persistEach("l", "other")
	f.claimExactly(1, 10, "other")
	f.clock.Advance(time.Minute)
	f.wantIDs(f.claim(1, 10, "other"), "older", "head", "tail")
	// The same with a head that goes back behind a due time.
	f.release(1, "head", gobridge.Untried, time.Time{})
	f.release(1, "tail", gobridge.Untried, time.Time{})
	f.release(1, "older", gobridge.Failed, start.Add(time.Hour))
	f.wantIDs(f.claim(1, 10, "other"))
}

func olderCreatedAtBetweenSiblings(f *fixture) {
	f.persist(record("first", key("k"), createdAt(start.Add(-3*time.Hour))))
	f.persist(record("third", key("k"), createdAt(start.Add(-time.Hour))))
	f.persist(record("second", key("k"), createdAt(start.Add(-2*time.Hour))))
	f.claimExactly(1, 2, "first", "second")
	f.wantIDs(f.claim(1, 2, "first", "second"))
	f.wantIDs(f.claim(2, 10), "first", "second", "third")
}

func releasedHeadComesBeforeItsTail(f *fixture) {
	f.persistEach("k", "a", "b", "c")
	f.claimExactly(1, 2, "a", "b")
	f.release(1, "b", gobridge.Untried, time.Time{})
	f.wantIDs(f.claim(1, 10, "a"))
	f.release(1, "a", gobridge.Untried, time.Time{})
	f.claimExactly(1, 10, "a", "b", "c")
	f.wantCounters("released and claimed again", "a", counters{2, 0, 0})
}
