package leasetest

import (
	"slices"
	"time"

	"gobridge"
)

func renewCases() []testCase {
	return []testCase{
		{
			name: "RenewGivesANewRevision",
			why:  "whoever watches would take the holder for dead",
			run:  renewRevision,
		},
		{
			name: "RenewOfManyLeases",
			why:  "an owner of a thousand partitions renews them in one call",
			run:  renewMany,
		},
		{
			name: "RenewOfNothing",
			why:  "an owner of no partition renews as well",
			run: func(f *fixture) {
				if got := f.renew(); len(got) != 0 {
					f.Errorf("Renew of nothing returned %+v", got)
				}
			},
		},
		{
			name: "RenewLeavesOutWhatWasTakenOver",
			why:  "an owner that lost one partition must stop that one, and keep the others",
			run:  renewTakenOver,
		},
		{
			name: "RenewLeavesOutWhatTheSameOwnerTookAgain",
			why:  "the owner's name is not the lease: a part of the process that missed the takeover would go on under the old version",
			run: func(f *fixture) {
				old := f.acquire(request("a"))
				next := f.acquire(takeOver("a", old))
				if got := f.renew(old); len(got) != 0 {
					f.Errorf("Renew of version %d returned %+v, the lease has version %d", old.Token.Version, got, next.Token.Version)
				}
				unchanged(f, next)
			},
		},
		{
			name: "RenewLeavesOutWhatWasReleased",
			why:  "a renewal that was under way would take the lease back after it was given up, and nobody would drain",
			run:  renewReleased,
		},
		{
			name: "RenewLeavesOutWhatIsUnknown",
			why:  "after the leases were lost an owner must learn that it has none",
			run: func(f *fixture) {
				unknown := gobridge.Lease{Partition: part, Token: gobridge.Token{Owner: "a", Version: 3}, Term: term, Revision: 9}
				if got := f.renew(unknown); len(got) != 0 {
					f.Errorf("Renew of an unknown lease returned %+v", got)
				}
				if leases := f.list(); len(leases) != 0 {
					f.Errorf("Renew of an unknown lease made %+v", leases)
				}
			},
		},
		{
			name: "RenewStampsTheHoldersClock",
			why:  "people read from it whether an owner is alive",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				f.clock.advance(3 * time.Second)
				if got := f.renew(lease); len(got) != 1 || !got[0].RenewedAt.Equal(f.clock.Now()) {
					f.Errorf("Renew at %s returned %+v", f.clock.Now(), got)
				}
			},
		},
	}
}

// unchanged checks that the lease of part is still as it was.
func unchanged(f *fixture, was gobridge.Lease) {
	f.Helper()
	if now := f.current(); !same(now, was) {
		f.Errorf("the lease is %+v, it was %+v", now, was)
	}
}

func renewRevision(f *fixture) {
	lease := f.acquire(request("a"))
	seen := map[int64]bool{lease.Revision: true}
	for range 3 {
		asked := []gobridge.Lease{lease}
		renewed := f.renew(asked...)
		if len(renewed) != 1 || renewed[0].Partition != part || renewed[0].Term != term || renewed[0].Released {
			f.Fatalf("Renew of %+v returned %+v", lease, renewed)
		}
		if !same(asked[0], lease) {
			f.Errorf("Renew changed what it was handed to %+v", asked[0])
		}
		lease = renewed[0]
		if lease.Revision <= 0 || seen[lease.Revision] {
			f.Errorf("revision %d after a renewal, want a new one above zero", lease.Revision)
		}
		seen[lease.Revision] = true
		unchanged(f, lease)
	}
}

// partitions are some names, in ascending order, that a careless store mixes up.
var partitions = []gobridge.Partition{"\x00", "A/b/0", "a", "a/b/0", "a/b/0\x00", "a/b/0 ", "a/b/1", "a/b/10", "a/b/2", "a/b0", "ä/b/0"}

func renewMany(f *fixture) {
	var leases []gobridge.Lease
	for _, p := range partitions {
		ask := request("a")
		ask.Partition = p
		leases = append(leases, f.acquire(ask))
	}
	renewed := f.renew(leases...)
	if len(renewed) != len(leases) {
		f.Fatalf("Renew of %d leases returned %d: %+v", len(leases), len(renewed), renewed)
	}
	for _, was := range leases {
		i := slices.IndexFunc(renewed, func(l gobridge.Lease) bool { return l.Partition == was.Partition })
		if i < 0 || renewed[i].Token != was.Token || renewed[i].Revision == was.Revision {
			f.Errorf("%q was %+v; Renew returned %+v", was.Partition, was, renewed)
		}
	}
}

func renewTakenOver(f *fixture) {
	lost := f.acquire(request("a"))
	ask := request("a")
	ask.Partition = "orders/mail/1"
	kept := f.acquire(ask)
	next := f.another(0).acquire(takeOver("b", lost))
	renewed := f.renew(lost, kept)
	if len(renewed) != 1 || renewed[0].Token != kept.Token || renewed[0].Partition != kept.Partition {
		f.Errorf("Renew of a lost and a held lease returned %+v, want the held one", renewed)
	}
	unchanged(f, next)
}

func renewReleased(f *fixture) {
	lease := f.acquire(request("a"))
	f.release(lease)
	released := f.current()
	if got := f.renew(lease); len(got) != 0 {
		f.Errorf("Renew of a released lease returned %+v", got)
	}
	unchanged(f, released)
	f.another(0).acquire(request("b"))
	if got := f.renew(lease); len(got) != 0 {
		f.Errorf("Renew of a lease that was released and taken returned %+v", got)
	}
}
