package leasetest

import "gobridge"

func releaseCases() []testCase {
	return []testCase{
		{
			name: "ReleaseFreesAtOnce",
			why:  "every restart would hold up its partitions for a term",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				f.release(lease)
				f.another(0).acquire(request("b"))
			},
		},
		{
			name: "ReleaseOfAnOlderRevision",
			why:  "a renewal whose answer was lost would leave the holder unable to give the lease up",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				f.renew(lease)
				f.release(lease)
				f.another(0).acquire(request("b"))
			},
		},
		{
			name: "ReleaseOfWhatWasTakenOverIsLost",
			why:  "a late release would take the lease from its new holder",
			run:  releaseTakenOver,
		},
		{
			name: "ReleaseOfWhatTheSameOwnerTookAgainIsLost",
			why:  "the owner's name is not the lease: a late release would take it from the same owner's newer version",
			run: func(f *fixture) {
				old := f.acquire(request("a"))
				next := f.acquire(takeOver("a", old))
				wantError(f, f.store.Release(f.Context(), old), gobridge.ErrLeaseLost, "Release of %+v", old)
				unchanged(f, next)
			},
		},
		{
			name: "ReleaseAgainIsSuccess",
			why:  "the answer may have been lost, not the release; nobody has taken the lease over",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				f.release(lease)
				f.release(lease)
				f.another(0).acquire(request("b"))
			},
		},
		{
			name: "EveryChangeHasANewRevision",
			why:  "whoever watches would not see that something happened, and take over from a living holder",
			run:  revisions,
		},
	}
}

func releaseTakenOver(f *fixture) {
	lease := f.acquire(request("a"))
	next := f.another(0).acquire(takeOver("b", lease))
	wantError(f, f.store.Release(f.Context(), lease), gobridge.ErrLeaseLost, "Release of %+v", lease)
	unchanged(f, next)
	f.refused(request("c"), gobridge.ErrLeaseHeld)

	f.another(0).release(next)
	third := f.acquire(request("c"))
	wantError(f, f.store.Release(f.Context(), next), gobridge.ErrLeaseLost, "Release of %+v", next)
	unchanged(f, third)
}

func revisions(f *fixture) {
	seen := map[int64]string{}
	note := func(what string, lease gobridge.Lease) gobridge.Lease {
		f.Helper()
		if lease.Revision <= 0 {
			f.Errorf("revision %d after %s, want one above zero", lease.Revision, what)
		}
		if before, ok := seen[lease.Revision]; ok {
			f.Errorf("revision %d after %s was there before, after %s", lease.Revision, what, before)
		}
		seen[lease.Revision] = what
		return lease
	}
	lease := note("the first acquisition", f.acquire(request("a")))
	lease = note("a takeover", f.acquire(takeOver("b", lease)))
	f.renew(lease)
	lease = note("a renewal", f.current())
	f.release(lease)
	note("a release", f.current())
	lease = note("the acquisition after a release", f.acquire(request("a")))
	f.renew(lease)
	note("the last renewal", f.current())
}
