package leasetest

import (
	"context"
	"errors"

	"gobridge"
)

func lossCases() []testCase {
	return []testCase{
		{
			name: "LostAnswerOfAcquire",
			why: "the owner holds a lease that it does not know of; it must get it back without waiting for itself: " +
				"it finds its own name on the lease, and takes it by the revision that it sees there",
			run: lostAcquire,
		},
		{
			name: "LostAnswerOfRenew",
			why:  "an owner whose renewal got through but whose answer did not must be able to renew the lease as it knows it",
			run:  lostRenew,
		},
		{
			name: "LostAnswerOfRelease",
			why:  "an owner that gives up again what it has given up must not be told that it lost it, nor keep it",
			run:  lostRelease,
		},
	}
}

// errLost is the answer of a call that happened.
var errLost = errors.New("connection lost")

// forgetful is a lease store that does what it is asked and then says that it
// failed.
type forgetful struct{ gobridge.LeaseStore }

func (s forgetful) Acquire(ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
	if _, err := s.LeaseStore.Acquire(ctx, r); err != nil {
		return gobridge.Lease{}, err
	}
	return gobridge.Lease{}, errLost
}

func (s forgetful) Renew(ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
	if _, err := s.LeaseStore.Renew(ctx, leases); err != nil {
		return nil, err
	}
	return nil, errLost
}

func (s forgetful) Release(ctx context.Context, lease gobridge.Lease) error {
	if err := s.LeaseStore.Release(ctx, lease); err != nil {
		return err
	}
	return errLost
}

func lostAcquire(f *fixture) {
	_, err := forgetful{f.store}.Acquire(f.Context(), request("a"))
	wantError(f, err, errLost, "Acquire")
	f.refused(request("a"), gobridge.ErrLeaseHeld)

	lost := f.current()
	if lost.Token.Owner != "a" || lost.Released {
		f.Fatalf("the lease is %+v, want it held by the owner that asked", lost)
	}
	lease := f.acquire(takeOver("a", lost))
	above(f, lease, lost.Token.Version)
	if got := f.renew(lease); len(got) != 1 {
		f.Errorf("Renew of the lease that was got back returned %+v", got)
	}
}

func lostRenew(f *fixture) {
	lease := f.acquire(request("a"))
	for range 3 {
		_, err := forgetful{f.store}.Renew(f.Context(), []gobridge.Lease{lease})
		wantError(f, err, errLost, "Renew")
	}
	if got := f.renew(lease); len(got) != 1 || got[0].Token != lease.Token {
		f.Errorf("Renew of the lease as it was acquired returned %+v", got)
	}
}

func lostRelease(f *fixture) {
	lease := f.acquire(request("a"))
	wantError(f, forgetful{f.store}.Release(f.Context(), lease), errLost, "Release")
	f.release(lease)
	next := f.another(0).acquire(request("b"))
	wantError(f, f.store.Release(f.Context(), lease), gobridge.ErrLeaseLost, "Release of %+v", lease)
	unchanged(f, next)
}
