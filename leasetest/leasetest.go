// Package leasetest checks any [gobridge.LeaseStore] against the contract on
// the port, sentence by sentence. Third parties run it on theirs:
//
//	func TestLeases(t *testing.T) {
//		leasetest.Run(t, leasetest.Backend{Open: openMine})
//	}
package leasetest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"gobridge"
)

// Backend is a lease store under test.
type Backend struct {
	// Open makes a new, empty set of leases. It registers the clean-up with tb.
	Open func(tb testing.TB) Database
}

// Database is an open, empty set of leases. One that outlives its processes is
// a [Reopener] too.
type Database interface {
	// Leases returns a handle. Each call returns another, as another process
	// would have it, with its own clock. Handles are closed with the test.
	Leases(tb testing.TB, now func() time.Time) gobridge.LeaseStore
}

// Reopener is a database that survives the end of every process that uses it.
// For one that is none, the case of it is skipped and says so.
type Reopener interface {
	Database
	// Reopen closes all handles, opens the database again and returns it.
	Reopen(tb testing.TB) Database
}

// Run checks the backend against every sentence of the contract, each on new
// leases.
func Run(t *testing.T, backend Backend) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.check(t, backend) })
	}
}

// testCase is one named sentence.
type testCase struct {
	name string
	// why says what goes wrong in a system whose lease store breaks it.
	why string
	run func(*fixture)
	// durable says that only a Reopener can have it.
	durable bool
}

func cases() []testCase {
	return slices.Concat(acquireCases(), versionCases(), renewCases(), peopleCases(), releaseCases(), listCases(), raceCases(), lossCases())
}

// check runs the case on new leases.
func (c testCase) check(tb testing.TB, backend Backend) {
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%s: %s", c.name, c.why)
		}
	})
	db := backend.Open(tb)
	if _, ok := db.(Reopener); c.durable && !ok {
		tb.Skip("these leases end with their process: the backend is no leasetest.Reopener")
	}
	clock := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)}
	c.run(&fixture{TB: tb, db: db, clock: clock, handle: handle{tb, db.Leases(tb, clock.Now)}})
}

// fixture is what a case works with: new leases and one handle on them.
type fixture struct {
	testing.TB
	db    Database
	clock *clock
	handle
}

// another returns another handle, whose clock is ahead of the case's by a time.
func (f *fixture) another(ahead time.Duration) handle {
	return handle{f.TB, f.db.Leases(f.TB, func() time.Time { return f.clock.Now().Add(ahead) })}
}

// clock is a clock that a case moves by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// The partition and the term of a case that needs only one.
const (
	part = gobridge.Partition("orders/mail/0")
	term = 5 * time.Second
)

// request asks for the lease of part.
func request(owner string) gobridge.AcquireRequest {
	return gobridge.AcquireRequest{Partition: part, Owner: owner, Term: term}
}

// takeOver asks for the lease of part, seen unchanged.
func takeOver(owner string, seen gobridge.Lease) gobridge.AcquireRequest {
	r := request(owner)
	r.Observed = seen.Revision
	return r
}

// handle is a lease store, with what every case does to it.
type handle struct {
	tb    testing.TB
	store gobridge.LeaseStore
}

// acquire takes a lease that is to be had.
func (h handle) acquire(r gobridge.AcquireRequest) gobridge.Lease {
	h.tb.Helper()
	lease, err := h.store.Acquire(h.tb.Context(), r)
	if err != nil {
		h.tb.Fatalf("Acquire(%+v): %v", r, err)
	}
	return lease
}

// refused asks for a lease that is not to be had.
func (h handle) refused(r gobridge.AcquireRequest, want error) {
	h.tb.Helper()
	lease, err := h.store.Acquire(h.tb.Context(), r)
	wantError(h.tb, err, want, "Acquire(%+v), which returned %+v", r, lease)
}

// renew renews leases and returns those that could be.
func (h handle) renew(leases ...gobridge.Lease) []gobridge.Lease {
	h.tb.Helper()
	out, err := h.store.Renew(h.tb.Context(), leases)
	if err != nil {
		h.tb.Fatalf("Renew(%+v): %v", leases, err)
	}
	return out
}

// release gives up a lease that is held.
func (h handle) release(lease gobridge.Lease) {
	h.tb.Helper()
	if err := h.store.Release(h.tb.Context(), lease); err != nil {
		h.tb.Fatalf("Release(%+v): %v", lease, err)
	}
}

// list returns all leases.
func (h handle) list() []gobridge.Lease {
	h.tb.Helper()
	out, err := h.store.Leases(h.tb.Context())
	if err != nil {
		h.tb.Fatalf("Leases: %v", err)
	}
	return out
}

// current returns the lease of part as it stands.
func (h handle) current() gobridge.Lease {
	h.tb.Helper()
	leases := h.list()
	i := slices.IndexFunc(leases, func(l gobridge.Lease) bool { return l.Partition == part })
	if i < 0 {
		h.tb.Fatalf("Leases returned %+v, without %s", leases, part)
	}
	return leases[i]
}

// same reports whether two leases agree in every field.
func same(a, b gobridge.Lease) bool {
	agree := a.RenewedAt.Equal(b.RenewedAt) && a.AcquiredAt.Equal(b.AcquiredAt) && a.LastErrorAt.Equal(b.LastErrorAt)
	a.RenewedAt, a.AcquiredAt, a.LastErrorAt = b.RenewedAt, b.AcquiredAt, b.LastErrorAt
	return agree && a == b
}
