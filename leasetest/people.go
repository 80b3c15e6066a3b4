package leasetest

import (
	"strings"
	"time"

	"gobridge"
)

// peopleCases are about what people read of a lease.
func peopleCases() []testCase {
	return []testCase{
		{
			name: "AcquireStampsTheHoldersClock",
			why:  "people read from it since when an owner has a partition",
			run: func(f *fixture) {
				wantAcquired(f, f.acquire(request("a")), f.clock.Now())
				f.clock.advance(time.Hour)
				wantAcquired(f, f.another(0).acquire(takeOver("b", f.current())), f.clock.Now())
			},
		},
		{
			name: "RenewKeepsWhenItWasAcquired",
			why:  "every owner would seem to have come a moment ago",
			run: func(f *fixture) {
				lease := f.acquire(request("a"))
				began := f.clock.Now()
				for range 3 {
					f.clock.advance(time.Second)
					renewed := f.renew(lease)
					if len(renewed) != 1 {
						f.Fatalf("Renew returned %+v", renewed)
					}
					lease = renewed[0]
					wantAcquired(f, lease, began)
				}
				f.release(lease)
				f.clock.advance(time.Second)
				wantAcquired(f, f.acquire(request("b")), f.clock.Now())
			},
		},
		{
			name: "RenewKeepsTheLastError",
			why:  "nobody could tell from another process why an owner gets nowhere",
			run:  lastError,
		},
	}
}

// wantAcquired checks when a lease was acquired, as it was returned and as
// another process sees it.
func wantAcquired(f *fixture, lease gobridge.Lease, at time.Time) {
	f.Helper()
	if now := f.another(time.Hour).current(); !lease.AcquiredAt.Equal(at) || !same(now, lease) {
		f.Errorf("the lease is %+v, another process sees %+v; it was acquired at %s", lease, now, at)
	}
}

func lastError(f *fixture) {
	lease := f.acquire(request("a"))
	if lease.LastError != "" || !lease.LastErrorAt.IsZero() {
		f.Errorf("a new lease has the error %q", lease.LastError)
	}
	ask := request("a")
	ask.Partition = "orders/mail/1"
	quiet := f.acquire(ask)
	for i, text := range []string{"claim: \x00 out of reach", "ä", strings.Repeat("x", gobridge.MaxLeaseError), "", "again"} {
		lease.LastError, lease.LastErrorAt = text, f.clock.Now().Add(time.Duration(-i)*time.Second)
		if text == "" {
			lease.LastErrorAt = time.Time{}
		}
		f.clock.advance(time.Second)
		want := lease
		renewed := f.renew(quiet, lease, gobridge.Lease{Partition: "orders/mail/2", Token: lease.Token, LastError: "x"})
		if len(renewed) != 2 {
			f.Fatalf("Renew of two leases returned %+v", renewed)
		}
		for _, l := range renewed {
			if l.Partition == part {
				lease = l
			} else if l.LastError != "" {
				f.Errorf("the other lease has the error %q", l.LastError)
			}
		}
		want.Revision, want.RenewedAt = lease.Revision, lease.RenewedAt
		if now := f.another(0).current(); !same(lease, want) || !same(now, want) {
			f.Errorf("Renew of %+v returned %+v, another process sees %+v", want, lease, now)
		}
	}
	f.release(lease)
	if now := f.current(); now.LastError != lease.LastError || !now.LastErrorAt.Equal(lease.LastErrorAt) {
		f.Errorf("after the release the error is %q of %s, it was %q of %s", now.LastError, now.LastErrorAt, lease.LastError, lease.LastErrorAt)
	}
	if next := f.another(0).acquire(request("b")); next.LastError != "" || !next.LastErrorAt.IsZero() {
		f.Errorf("the next holder's lease has the error %q of %s", next.LastError, next.LastErrorAt)
	}
}
