package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"gobridge"
)

// Leases is a handle on leases in memory. It implements [gobridge.LeaseStore].
type Leases struct {
	table *leaseTable
	now   func() time.Time
}

// leaseTable is what the handles share.
type leaseTable struct {
	mu     sync.Mutex
	leases map[gobridge.Partition]gobridge.Lease

	watchers map[int]func(gobridge.Partition)
	watches  int // so far
}

// Notify implements [gobridge.Notifier].
func (l *Leases) Notify(f func(gobridge.Partition)) (stop func()) {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers == nil {
		t.watchers = map[int]func(gobridge.Partition){}
	}
	t.watches++
	key := t.watches
	t.watchers[key] = f
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watchers, key)
	}
}

// set keeps a lease that was acquired or released, under the lock.
func (t *leaseTable) set(lease gobridge.Lease) {
	t.leases[lease.Partition] = lease
	for _, f := range t.watchers {
		f(lease.Partition)
	}
}

// NewLeases returns a handle on a new, empty set of leases. The clock only
// dates renewals for people; a nil one is time.Now.
func NewLeases(now func() time.Time) *Leases {
	l := &Leases{table: &leaseTable{leases: map[gobridge.Partition]gobridge.Lease{}}}
	return l.Handle(now)
}

// Handle returns another handle on the same leases, as another process would
// have it.
func (l *Leases) Handle(now func() time.Time) *Leases {
	if now == nil {
		now = time.Now
	}
	return &Leases{table: l.table, now: now}
}

// Acquire implements [gobridge.LeaseStore].
func (l *Leases) Acquire(ctx context.Context, request gobridge.AcquireRequest) (gobridge.Lease, error) {
	const op = "acquire lease"
	if err := begin(ctx, op, request.Partition); err != nil {
		return gobridge.Lease{}, err
	}
	if err := checkAcquire(&request); err != nil {
		return gobridge.Lease{}, fail(op, request.Partition, err)
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	old, exists := l.table.leases[request.Partition]
	if exists && !old.Released && old.Revision != request.Observed {
		return gobridge.Lease{}, &gobridge.Error{Op: op, Partition: request.Partition, Err: gobridge.ErrLeaseHeld,
			Hint: fmt.Sprintf("held by %s, revision %d", old.Token, old.Revision)}
	}
	lease := gobridge.Lease{
		Partition: request.Partition,
		Token:     gobridge.Token{Owner: request.Owner, Version: max(old.Token.Version, request.MinVersion) + 1},
		Term:      request.Term,
		Revision:  old.Revision + 1,
	}
	lease.RenewedAt = clean(l.now())
	lease.AcquiredAt = lease.RenewedAt
	l.table.set(lease)
	return lease, nil
}

// checkAcquire says what is wrong with a request.
func checkAcquire(request *gobridge.AcquireRequest) error {
	switch {
	case request.Owner == "":
		return errors.New("the owner is empty")
	case request.Term <= 0:
		return fmt.Errorf("the term is %s; it must be above zero", request.Term)
	case request.MinVersion == math.MaxInt64:
		return fmt.Errorf("no version is above %d", request.MinVersion)
	}
	return nil
}

// Renew implements [gobridge.LeaseStore].
func (l *Leases) Renew(ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
	if err := begin(ctx, "renew leases", ""); err != nil {
		return nil, err
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	var out []gobridge.Lease
	for _, asked := range leases {
		lease, ok := l.table.leases[asked.Partition]
		if !ok || lease.Released || lease.Token != asked.Token {
			continue
		}
		lease.Revision++
		lease.RenewedAt = clean(l.now())
		lease.LastError, lease.LastErrorAt = asked.LastError, clean(asked.LastErrorAt)
		l.table.leases[asked.Partition] = lease
		out = append(out, lease)
	}
	return out, nil
}

// Release implements [gobridge.LeaseStore].
func (l *Leases) Release(ctx context.Context, lease gobridge.Lease) error {
	const op = "release lease"
	if err := begin(ctx, op, lease.Partition); err != nil {
		return err
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	held, ok := l.table.leases[lease.Partition]
	switch {
	case !ok || held.Token != lease.Token:
		return fail(op, lease.Partition, gobridge.ErrLeaseLost)
	case held.Released: // by the same holder, who may not have learned it
		return nil
	}
	held.Released = true
	held.Revision++
	l.table.set(held)
	return nil
}

// Leases implements [gobridge.LeaseStore].
func (l *Leases) Leases(ctx context.Context) ([]gobridge.Lease, error) {
	if err := begin(ctx, "list leases", ""); err != nil {
		return nil, err
	}
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	out := make([]gobridge.Lease, 0, len(l.table.leases))
	for _, name := range slices.Sorted(maps.Keys(l.table.leases)) {
		out = append(out, l.table.leases[name])
	}
	return out, nil
}
