package protocol

// proofs are setups in which nothing goes wrong. They are explored by every run
// of the tests.
var proofs = []Setup{
	{Name: "two calls of one key, redriven once", Keys: "aaa", Calls: []string{"AB", "C"}, Redrives: 1, Faults: 3},
	{Name: "two keys", Keys: "aba", Calls: []string{"AB", "C"}, Redrives: 1, Faults: 2},
	{Name: "a duplicate in the middle", Keys: "aaa", Calls: []string{"B", "ABC"}, Faults: 3},
	{Name: "claims of one record", Keys: "aaa", Calls: []string{"AB", "C"}, Limit: 1, Redrives: 1, Faults: 3},
	{Name: "clocks that differ, leases renewed", Keys: "aa", Calls: []string{"A", "B"}, FastClock: true, Renewals: 2, Faults: 3},
	{Name: "an owner's clock stands still", Keys: "aa", Calls: []string{"A", "B"}, Faults: 3, Of: usualFaults | StoppedClock},

	{Name: "one call", Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Faults: 3},
	{Name: "one call, read youngest first", Store: Scanned, Keys: "aa", Calls: []string{"BA"}, Faults: 2},
	{Name: "one transaction a claim", Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Chunk: 2, Faults: 2},
	{Name: "two calls, clocks that differ", Store: Scanned, Keys: "aa", Calls: []string{"A", "B"}, FastClock: true, Faults: 2},
	{Name: "a duplicate in the middle", Store: Scanned, Keys: "aaa", Calls: []string{"B", "ABC"}, Faults: 1},
	{Name: "one call made twice at once", Store: Scanned, Keys: "aa", Calls: []string{"AB", "AB"}, Faults: 1},
	{Name: "one call, redriven twice", Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Redrives: 2, Faults: 2},
	{Name: "one call, claims of one record", Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Limit: 1, Redrives: 1, Faults: 2},
	{Name: "a redrive of two beside a call", Store: Scanned, Keys: "aaa", Calls: []string{"C"}, Dead: 2, Redrives: 1, Faults: 1},
	{Name: "two keys", Store: Scanned, Keys: "aba", Calls: []string{"ABC"}, Faults: 1},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"ACB"}, Faults: 1},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"BAC"}, Faults: 1},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"BCA"}, Faults: 1},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"CAB"}, Faults: 1},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"CBA"}, Faults: 1},
	{Name: "leases renewed", Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Renewals: 1, Faults: 2},
	{Name: "an owner's clock stands still", Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Faults: 2, Of: usualFaults | StoppedClock},
}

// bigProofs take minutes.
var bigProofs = []Setup{
	{Name: "three calls", Keys: "aaa", Calls: []string{"A", "B", "C"}, Faults: 4},
	{Name: "three calls, clocks that differ", Keys: "aaa", Calls: []string{"A", "B", "C"}, FastClock: true, Renewals: 1, Redrives: 1, Faults: 2},
	{Name: "two keys", Keys: "aba", Calls: []string{"AB", "C"}, Redrives: 1, Faults: 3},

	{Name: "one call of two", Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Faults: 4},
	{Name: "one call of three", Store: Scanned, Keys: "aaa", Calls: []string{"ABC"}, Faults: 2},
	{Name: "one call of three, chunks of two", Store: Scanned, Keys: "aaa", Calls: []string{"ABC"}, Limit: 2, Chunk: 2, Faults: 2},
	{Name: "three calls", Store: Scanned, Keys: "aaa", Calls: []string{"A", "B", "C"}, Faults: 1},
	{Name: "a call of two beside one of one", Store: Scanned, Keys: "aaa", Calls: []string{"AB", "C"}, Redrives: 1, Faults: 1},
	{Name: "one call made twice at once", Store: Scanned, Keys: "aa", Calls: []string{"AB", "AB"}, Faults: 2},
	{Name: "a duplicate in the middle, read youngest first", Store: Scanned, Keys: "aaa", Calls: []string{"B", "CBA"}, Faults: 1},
	{Name: "a redrive of three", Store: Scanned, Keys: "aaa", Dead: 3, Redrives: 1, Faults: 2},
	{Name: "two keys", Store: Scanned, Keys: "ab", Calls: []string{"AB"}, Faults: 3},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"ACB"}, Faults: 2},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"BAC"}, Faults: 2},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"BCA"}, Faults: 2},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"CAB"}, Faults: 2},
	{Name: "one call of three, in another order of places", Store: Scanned, Keys: "aaa", Calls: []string{"CBA"}, Faults: 2},
	{Name: "an owner's clock stands still", Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Faults: 3, Of: usualFaults | StoppedClock},
}

// needed are setups that go wrong without a rule, and how: what the failure
// begins with.
var needed = []struct {
	Setup
	failure string
}{
	{Setup{Without: FenceCheck, Keys: "a", Calls: []string{"A"}, Faults: 1, Of: StoppedClock}, "late claim"},
	{Setup{Without: FenceCheck, Store: Scanned, Keys: "a", Calls: []string{"A"}, Faults: 1, Of: StoppedClock}, "late claim"},
	{Setup{Without: HeadOfLine, Keys: "aa", Calls: []string{"AB"}, Faults: 1}, "order"},
	{Setup{Without: HeadOfLine, Store: Scanned, Keys: "aa", Calls: []string{"A", "B"}, Faults: 1}, "order"},
	{Setup{Without: SnapshotBound, Store: Scanned, Keys: "aa", Calls: []string{"A", "B"}}, "order"},
	{Setup{Without: SiblingLinks, Store: Scanned, Keys: "aa", Calls: []string{"AB"}}, "order"},
	{Setup{Without: SkipAfterFailedHead, Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Faults: 1}, "order"},
	{Setup{Without: StopAtTermEnd, Keys: "a", Calls: []string{"A"}, Faults: 1}, "sends side by side"},
	{Setup{Without: StopAtTermEnd, Store: Scanned, Keys: "a", Calls: []string{"A"}, Faults: 1}, "sends side by side"},
	{Setup{Without: HeldTold, Keys: "a", Calls: []string{"A"}}, "claimed twice"},
	{Setup{Without: HeldTold, Store: Scanned, Keys: "a", Calls: []string{"A"}}, "claimed twice"},
	{Setup{Without: ConfirmedBurial, Keys: "aa", Calls: []string{"AB"}, Faults: 2}, "order"},
	{Setup{Without: ConfirmedBurial, Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Faults: 2}, "order"},

	{Setup{Without: AllLinks, Store: Scanned, Keys: "aaa", Calls: []string{"B", "ABC"}}, "order"},
	{Setup{Without: OlderLinks, Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Limit: 1, Redrives: 1, Faults: 1}, "stuck"},
	{Setup{Without: FreshAges, Store: Scanned, Keys: "aa", Calls: []string{"AB", "AB"}}, "order"},
	{Setup{Without: MonotonicStamps, Keys: "aa", Calls: []string{"A", "B"}, FastClock: true}, "order"},
	{Setup{Without: SettleToken, Keys: "a", Calls: []string{"A"}, Faults: 1}, "stale settle"},
	{Setup{Without: ObservedLease, Keys: "a", Calls: []string{"A"}, Faults: 2}, "two owners"},
	{Setup{Without: TermFromRequest, Keys: "a", Calls: []string{"A"}, Renewals: 1, Faults: 1}, "two owners"},
	{Setup{Without: StrandedAtOnce, Keys: "a", Calls: []string{"A"}, Faults: 1}, "stuck"},
}
