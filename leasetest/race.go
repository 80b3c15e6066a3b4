package leasetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"gobridge"
)

func raceCases() []testCase {
	return []testCase{
		{
			name: "OneOfManyAcquiresWins",
			why:  "processes that start together would all own the partition",
			run: func(f *fixture) {
				for round := range 20 {
					p := gobridge.Partition(fmt.Sprintf("orders/mail/%d", round))
					oneWins(f, func(owner string) gobridge.AcquireRequest {
						return gobridge.AcquireRequest{Partition: p, Owner: owner, Term: term}
					})
				}
			},
		},
		{
			name: "OneOfManyTakeoversWins",
			why:  "all who saw the owner die take over at the same moment",
			run: func(f *fixture) {
				f.acquire(request("dead"))
				for range 20 {
					seen := f.current()
					oneWins(f, func(owner string) gobridge.AcquireRequest { return takeOver(owner, seen) })
				}
			},
		},
		{
			name: "ARenewalOrATakeoverWins",
			why:  "an owner that renews at the last moment and the one that takes over would both believe they own the partition",
			run:  renewOrTakeOver,
		},
		{
			name: "OneHolderPerVersion",
			why:  "two holders with one version pass the outbox's fence side by side",
			run:  oneHolderPerVersion,
		},
	}
}

// racers is how many try at a time, on half as many handles.
const racers = 8

// race runs f for each racer at the same time, with the racer's number and a
// handle that two of them share.
func (f *fixture) race(run func(i int, store gobridge.LeaseStore)) {
	var stores [racers / 2]gobridge.LeaseStore
	for i := range stores {
		stores[i] = f.another(time.Duration(i) * time.Minute).store
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range racers {
		wg.Go(func() {
			<-start
			run(i, stores[i/2])
		})
	}
	close(start)
	wg.Wait()
}

// oneWins lets all racers ask for a lease and checks that one gets it.
func oneWins(f *fixture, ask func(owner string) gobridge.AcquireRequest) {
	f.Helper()
	var mu sync.Mutex
	var winners []gobridge.Lease
	f.race(func(i int, store gobridge.LeaseStore) {
		lease, err := store.Acquire(f.Context(), ask(fmt.Sprint("owner-", i)))
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			winners = append(winners, lease)
		case !errors.Is(err, gobridge.ErrLeaseHeld):
			f.Errorf("Acquire: %v", err)
		}
	})
	if len(winners) != 1 {
		f.Fatalf("%d of %d at a time got the lease: %+v", len(winners), racers, winners)
	}
}

func renewOrTakeOver(f *fixture) {
	lease := f.acquire(request("a"))
	other := f.another(0).store
	for round := range 50 {
		var renewed []gobridge.Lease
		var renewErr, takeErr error
		var wg sync.WaitGroup
		start := make(chan struct{})
		wg.Go(func() {
			<-start
			renewed, renewErr = f.store.Renew(f.Context(), []gobridge.Lease{lease})
		})
		wg.Go(func() {
			<-start
			_, takeErr = other.Acquire(f.Context(), takeOver("b", lease))
		})
		close(start)
		wg.Wait()
		if renewErr != nil || takeErr != nil && !errors.Is(takeErr, gobridge.ErrLeaseHeld) {
			f.Fatalf("round %d: Renew: %v, Acquire: %v", round, renewErr, takeErr)
		}
		if kept, lost := len(renewed) == 1, takeErr == nil; kept == lost {
			f.Fatalf("round %d: renewed %t, taken over %t; want one of them", round, kept, lost)
		}
		f.release(f.current())
		lease = f.acquire(request("a"))
	}
}

// oneHolderPerVersion lets all racers acquire, renew, release and take over as
// they please, and checks who ever held which version.
func oneHolderPerVersion(f *fixture) {
	var mu sync.Mutex
	holders := map[int64]string{}
	note := func(owner string, lease gobridge.Lease) {
		mu.Lock()
		defer mu.Unlock()
		if before, ok := holders[lease.Token.Version]; ok {
			f.Errorf("version %d was acquired by %s and by %s", lease.Token.Version, before, owner)
		}
		holders[lease.Token.Version] = owner
	}
	f.race(func(i int, store gobridge.LeaseStore) {
		owner := fmt.Sprint("owner-", i)
		for round := range 30 {
			if err := contend(f, store, owner, round+i, note); err != nil {
				f.Errorf("%s, round %d: %v", owner, round, err)
				return
			}
		}
	})
	if len(holders) == 0 {
		f.Error("nobody ever got the lease")
	}
}

// contend does one round of one racer; turn varies what it does.
func contend(f *fixture, store gobridge.LeaseStore, owner string, turn int, note func(string, gobridge.Lease)) error {
	ctx := f.Context()
	ask := request(owner)
	if turn%3 == 0 { // as if the holder had been seen unchanged for its term
		leases, err := store.Leases(ctx)
		if err != nil {
			return err
		}
		for _, lease := range leases {
			ask.Observed = lease.Revision
		}
	}
	lease, err := store.Acquire(ctx, ask)
	if errors.Is(err, gobridge.ErrLeaseHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	note(owner, lease)
	renewed, err := store.Renew(ctx, []gobridge.Lease{lease})
	if err != nil || len(renewed) == 0 || turn%2 == 0 {
		return err
	}
	if err := store.Release(ctx, renewed[0]); err != nil && !errors.Is(err, gobridge.ErrLeaseLost) {
		return err
	}
	return nil
}
