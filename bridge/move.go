package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gobridge"
)

// ParkedOptions configure [Move] and [Discard]. The zero value of every field
// works.
type ParkedOptions struct {
	// Leases is nil for the store's own ([gobridge.Leaser]).
	Leases gobridge.LeaseStore
	// LeaseTerm is 5 s when zero.
	LeaseTerm time.Duration
	// Now is the clock for expiry; time.Now when nil.
	Now func() time.Time
	// Partitions is over how many partitions the binding is spread that Move
	// moves to; 1 when zero.
	Partitions int
	// Logger is told of the lease; nil discards.
	Logger *slog.Logger
	// By and Reason say who moves and why, for the audit log. Discard has its own.
	By     string
	Reason string
}

// MoveResult tells what [Move] did.
type MoveResult struct {
	// Moved counts the records that are in the new partition now, Expired those
	// that had expired and were ended.
	Moved   int
	Expired int
	// Left are the old partition's figures afterwards. Pending ones that are
	// left are not due before their NotBefore, or on hold. Dead letters are not
	// moved: redrive them first, or discard them.
	Left gobridge.Stats
}

// Move moves what a parked partition holds to another binding, in the order in
// which it would have been delivered, and behind what that binding has already.
// The old records end as discarded, for [gobridge.ReasonParked].
//
// It takes the partition's lease first, and fails with [gobridge.ErrLeaseHeld]
// while a process serves the partition. It can be interrupted at any point and
// called again: a record that is in the new partition already is not stored
// twice. A record whose ID the new partition holds with other content stops it,
// with [gobridge.ErrIdentityReused].
func Move(ctx context.Context, store gobridge.Store, from gobridge.Partition, route, binding string, opts ParkedOptions) (MoveResult, error) {
	if err := errors.Join(gobridge.CheckName(route), gobridge.CheckName(binding)); err != nil {
		return MoveResult{}, fmt.Errorf("move %s to %s/%s: %w", from, route, binding, err)
	}
	m := mover{store: store, from: from, route: route, binding: binding, of: max(1, opts.Partitions)}
	if r, b, _, _ := from.Split(); r == route && b == binding && from.Of() == m.of {
		return MoveResult{}, fmt.Errorf("move %s: it is %s/%s's partition already", from, route, binding)
	}
	m.retry = gobridge.RetryRequest{
		Filter: gobridge.Filter{Partition: from}, By: opts.By, Reason: fmt.Sprintf("move to %s/%s: %s", route, binding, opts.Reason),
	}
	m.now = opts.Now
	if m.now == nil {
		m.now = time.Now
	}
	err := withLease(ctx, store, from, opts, m.run)
	if err != nil {
		err = fmt.Errorf("move %s to %s/%s after %d records: %w", from, route, binding, m.result.Moved, err)
	}
	return m.result, err
}

type mover struct {
	store          gobridge.Store
	from           gobridge.Partition
	route, binding string
	of             int // partitions
	now            func() time.Time
	retry          gobridge.RetryRequest
	result         MoveResult
}

func (m *mover) run(ctx context.Context, token gobridge.Token) error {
	// What waits for its next attempt needs not wait for it here.
	for {
		n, err := m.store.Retry(ctx, m.retry)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	for {
		records, err := m.store.Claim(ctx, gobridge.ClaimRequest{
			Partition: m.from, Token: token, Limit: claimLimit, MaxBytes: 4 << 20, HeldKnown: true,
		})
		if err != nil {
			return err
		}
		if len(records) == 0 {
			break
		}
		if err := m.move(ctx, token, records); err != nil {
			return err
		}
	}
	stats, err := m.store.Stats(ctx, m.from)
	if err == nil && len(stats) > 0 {
		m.result.Left = stats[0]
	}
	return err
}

// move stores one batch in the new partition and ends it in the old one.
func (m *mover) move(ctx context.Context, token gobridge.Token, records []gobridge.Record) error {
	var fresh []gobridge.Record
	ends := make([]gobridge.Completion, 0, len(records))
	expired := 0
	for _, r := range records {
		if r.Expired(m.now()) {
			expired++
			ends = append(ends, gobridge.Completion{Ref: r.Ref(), As: gobridge.StateExpired, Reason: gobridge.ReasonExpired})
			continue
		}
		key, id := r.Envelope.OrderingKey, r.Envelope.ID
		to := gobridge.NewShard(m.route, m.binding, gobridge.Shard(m.of, key, id), m.of)
		ends = append(ends, gobridge.Completion{
			Ref: r.Ref(), As: gobridge.StateDiscarded, Reason: gobridge.ReasonParked, Error: "moved to " + string(to),
		})
		fresh = append(fresh, gobridge.Record{
			Partition: to, Binding: m.binding, Envelope: r.Envelope, ContentHash: r.ContentHash,
		})
	}
	err := m.store.Persist(ctx, fresh)
	if err != nil && !errors.Is(err, gobridge.ErrDuplicateRecord) {
		releases := make([]gobridge.Release, len(records))
		for i := range records {
			releases[i].Ref = records[i].Ref()
		}
		return errors.Join(err, m.store.Release(ctx, token, releases))
	}
	if err := m.store.Complete(ctx, token, ends); err != nil {
		return err
	}
	m.result.Moved += len(fresh)
	m.result.Expired += expired
	return nil
}

// Discard ends everything that a parked partition holds, dead letters too, with
// the reason, and returns how many. It takes the partition's lease first, and
// fails with [gobridge.ErrLeaseHeld] while a process serves the partition.
func Discard(ctx context.Context, store gobridge.Store, from gobridge.Partition, by, reason string, opts ParkedOptions) (int, error) {
	count := 0
	err := withLease(ctx, store, from, opts, func(ctx context.Context, token gobridge.Token) error {
		// Raises the fence: what a dead owner had claimed can be discarded then.
		if _, err := store.Claim(ctx, gobridge.ClaimRequest{Partition: from, Token: token}); err != nil {
			return err
		}
		request := gobridge.BulkRequest{
			Filter: gobridge.Filter{
				Partition: from, States: []gobridge.State{gobridge.StatePending, gobridge.StateDead},
			},
			By: by, Reason: cmp.Or(reason, gobridge.ReasonParked), Limit: 1000,
		}
		for {
			page, err := store.Discard(ctx, request)
			count += len(page.Items)
			if err != nil || page.Cursor == "" {
				return err
			}
			request.Cursor = page.Cursor
		}
	})
	if err != nil {
		err = fmt.Errorf("discard what %s holds, after %d records: %w", from, count, err)
	}
	return count, err
}

// withLease runs f while holding a partition's lease. The context of f ends
// with the lease.
func withLease(ctx context.Context, store gobridge.Store, p gobridge.Partition, opts ParkedOptions,
	f func(context.Context, gobridge.Token) error) error {
	if opts.Leases == nil {
		leaser, ok := store.(gobridge.Leaser)
		if !ok {
			return errors.New("no lease store is given and the store brings no leases of its own")
		}
		opts.Leases = leaser.Leases()
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	intake, stop := context.WithCancel(ctx)
	defer stop()
	err := fmt.Errorf("%w: a process serves this partition", gobridge.ErrLeaseHeld)
	k := &keeper{
		leases: opts.Leases, store: store, owner: newOwner(), term: cmp.Or(opts.LeaseTerm, 5*time.Second),
		log: opts.Logger, repeats: &repeats{}, troubles: &troubles{now: time.Now},
		event: func(Event) {}, once: true, changed: make(chan struct{}, 1),
		lineup: func() *lineup { return &lineup{partitions: []gobridge.Partition{p}} },
		serve: func(_, work context.Context, _ gobridge.Partition, token gobridge.Token, _ func() bool) error {
			defer stop() // one go, whatever comes of it
			work, cancel := context.WithCancel(work)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			err = f(work, token)
			if cause := context.Cause(work); cause != nil && err != nil {
				err = errors.Join(err, cause)
			}
			return err
		},
	}
	if failed := k.run(intake); failed != nil {
		return failed
	}
	if ctx.Err() != nil && err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}
