package leasetest

import (
	"errors"
	"math"
	"testing"
	"time"

	"gobridge"
)

func acquireCases() []testCase {
	return []testCase{
		{
			name: "AcquireTakesWhatNobodyHolds",
			why:  "a partition that nobody drains must be had at once, with a token that the outbox takes",
			run:  acquireFree,
		},
		{
			name: "AcquireOfAHeldLeaseIsRefused",
			why:  "two owners of a partition deliver side by side",
			run: func(f *fixture) {
				f.acquire(request("a"))
				f.refused(request("b"), gobridge.ErrLeaseHeld)
				f.another(0).refused(request("b"), gobridge.ErrLeaseHeld)
			},
		},
		{
			name: "AcquireByTheHolderItselfIsRefused",
			why:  "two processes with one name by mistake would take the lease from each other for ever",
			run: func(f *fixture) {
				f.acquire(request("a"))
				f.refused(request("a"), gobridge.ErrLeaseHeld)
			},
		},
		{
			name: "AcquireJudgesNoExpiry",
			why:  "clocks differ: a process whose clock is ahead would take over from a living owner",
			run:  acquireJudgesNoExpiry,
		},
		{
			name: "AcquireTakesOverWhatIsUnchanged",
			why:  "the partitions of a dead owner would stand still for ever",
			run:  acquireUnchanged,
		},
		{
			name: "AcquireRefusesWhatHasChanged",
			why:  "an owner that renewed in time would lose its lease to somebody who has not seen it",
			run:  acquireChanged,
		},
		{
			name: "AcquireOfAReleasedLeaseIgnoresObserved",
			why:  "whoever watched the holder until it gave up would be refused what is free",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				f.release(lease)
				f.acquire(takeOver("b", lease))
			},
		},
		{
			name: "AcquireWithObservedOfAnUnknownLease",
			why:  "after the leases were lost, whoever still watches one could never get it again",
			run:  func(f *fixture) { f.acquire(takeOver("b", gobridge.Lease{Revision: 7})) },
		},
		{
			name: "AcquireRefusesInvalidArguments",
			why:  "a token without owner is refused by every outbox, and a lease without term can be taken at once",
			run:  acquireInvalid,
		},
	}
}

func acquireFree(f *fixture) {
	lease := f.acquire(request("a"))
	if lease.Partition != part || lease.Token.Owner != "a" || !lease.Token.Valid() || lease.Term != term || lease.Released {
		f.Errorf("Acquire returned %+v", lease)
	}
	if lease.Revision <= 0 {
		f.Errorf("revision %d, want one above zero", lease.Revision)
	}
	if !lease.RenewedAt.Equal(f.clock.Now()) {
		f.Errorf("RenewedAt %s, the holder's clock says %s", lease.RenewedAt, f.clock.Now())
	}
	if now := f.another(time.Hour).current(); !same(now, lease) {
		f.Errorf("another process sees %+v, acquired was %+v", now, lease)
	}
}

func acquireJudgesNoExpiry(f *fixture) {
	lease := f.acquire(request("a"))
	const years = 10 * 365 * 24 * time.Hour
	f.another(years).refused(request("b"), gobridge.ErrLeaseHeld)
	f.clock.advance(years)
	f.refused(request("b"), gobridge.ErrLeaseHeld)
	f.clock.advance(-2 * years)
	if got := f.renew(lease); len(got) != 1 {
		f.Errorf("after the clock moved, Renew returned %+v; nobody has taken the lease", got)
	}
}

func acquireUnchanged(f *fixture) {
	lease := f.acquire(request("a"))
	ask := takeOver("b", f.another(0).current())
	ask.Term = 2 * term
	next := f.another(0).acquire(ask)
	if next.Token.Owner != "b" || next.Term != 2*term || next.Released || next.Partition != part {
		f.Errorf("the lease taken over is %+v", next)
	}
	if now := f.current(); !same(now, next) {
		f.Errorf("the old holder sees %+v, acquired was %+v", now, next)
	}
	f.refused(takeOver("c", lease), gobridge.ErrLeaseHeld)
}

func acquireChanged(f *fixture) {
	first := f.acquire(request("a"))
	renewed := f.renew(first)
	if len(renewed) != 1 {
		f.Fatalf("Renew returned %+v", renewed)
	}
	other := f.another(0)
	for _, observed := range []int64{first.Revision, renewed[0].Revision + 1, renewed[0].Revision - 1, math.MaxInt64, -1} {
		if observed == renewed[0].Revision {
			continue
		}
		ask := request("b")
		ask.Observed = observed
		other.refused(ask, gobridge.ErrLeaseHeld)
	}
	if now := f.current(); !same(now, renewed[0]) {
		f.Errorf("after refusals the lease is %+v, it was %+v", now, renewed[0])
	}
}

func acquireInvalid(f *fixture) {
	for name, change := range map[string]func(*gobridge.AcquireRequest){
		"no owner":      func(r *gobridge.AcquireRequest) { r.Owner = "" },
		"no term":       func(r *gobridge.AcquireRequest) { r.Term = 0 },
		"negative term": func(r *gobridge.AcquireRequest) { r.Term = -time.Second },
	} {
		ask := request("a")
		change(&ask)
		lease, err := f.store.Acquire(f.Context(), ask)
		if err == nil || errors.Is(err, gobridge.ErrLeaseHeld) {
			f.Errorf("%s: Acquire returned %+v, %v; want an error that says what is wrong", name, lease, err)
		}
	}
	if leases := f.list(); len(leases) != 0 {
		f.Errorf("refused requests left %+v", leases)
	}
}

func versionCases() []testCase {
	return []testCase{
		{
			name: "VersionsGrowAcrossTakeovers",
			why:  "the outbox tells the old owner from the new one by nothing else",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				for range 5 {
					next := f.acquire(takeOver("b", lease))
					above(f, next, lease.Token.Version)
					lease = next
				}
			},
		},
		{
			name: "VersionsGrowAcrossReleases",
			why:  "what a holder sent before it gave up the lease would pass for the next holder's",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				for range 5 {
					f.release(lease)
					next := f.acquire(request("a"))
					above(f, next, lease.Token.Version)
					lease = next
				}
			},
		},
		{
			name: "VersionsAreAboveMinVersion",
			why:  "after a restore of the leases every new owner would be below the outbox's fence",
			run:  aboveMinVersion,
		},
		{
			name: "RenewKeepsTheVersion",
			why:  "what the holder has claimed would look like another's after each renewal",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				for range 3 {
					renewed := f.renew(lease)
					if len(renewed) != 1 || renewed[0].Token != lease.Token {
						f.Fatalf("Renew of %+v returned %+v", lease, renewed)
					}
					lease = renewed[0]
				}
			},
		},
	}
}

func aboveMinVersion(f *fixture) {
	ask := request("a")
	ask.MinVersion = 1000
	first := f.acquire(ask)
	above(f, first, 1000)

	ask = takeOver("b", first)
	ask.MinVersion = 1 << 40
	second := f.acquire(ask)
	above(f, second, 1<<40)

	ask = takeOver("c", second)
	ask.MinVersion = 5
	third := f.acquire(ask)
	above(f, third, second.Token.Version)

	f.release(third)
	ask = request("d")
	ask.MinVersion = 1 << 50
	fourth := f.acquire(ask)
	above(f, fourth, 1<<50)
	f.release(fourth)
	above(f, f.acquire(request("e")), fourth.Token.Version)
}

// above checks that a lease's version is above another.
func above(f *fixture, lease gobridge.Lease, version int64) {
	f.Helper()
	if lease.Token.Version <= version {
		f.Errorf("version %d, want one above %d", lease.Token.Version, version)
	}
}

// wantError checks an error, with what it came from for the message.
func wantError(tb testing.TB, err, want error, format string, args ...any) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Fatalf("got error %v, want %v: "+format, append([]any{err, want}, args...)...)
	}
}
