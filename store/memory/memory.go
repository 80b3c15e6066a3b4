// Package memory keeps an outbox, dead letters and leases in the process's own
// memory, for tests and throwaway work: nothing survives the process.
//
// It has the whole contract of [gobridge.Store] otherwise. Several handles on
// one database ([Store.Handle]) behave as several processes on one disk would.
package memory

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"gobridge"
)

// Options configure a [Store]. The zero value of every field works.
type Options struct {
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Retention is how long identities of ended records are kept, which is how
	// long duplicates are recognised; 24 hours when zero.
	Retention time.Duration
	// DeadRetention is how long dead letters are kept; 30 days when zero.
	DeadRetention time.Duration
	// MaxDead and MaxDeadBytes bound the dead letters of a partition; 100,000
	// and 1 GiB when zero.
	MaxDead      int64
	MaxDeadBytes int64
	// StaleWindow frees claims that nobody says are held; 5 minutes when zero.
	// It must exceed the longest send and the worst difference of clocks.
	StaleWindow time.Duration
	// MaxSkew is how far ahead of the clock an explicit CreatedAt may be; 5
	// minutes when zero.
	MaxSkew time.Duration
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Retention == 0 {
		o.Retention = 24 * time.Hour
	}
	if o.DeadRetention == 0 {
		o.DeadRetention = 30 * 24 * time.Hour
	}
	if o.MaxDead == 0 {
		o.MaxDead = 100_000
	}
	if o.MaxDeadBytes == 0 {
		o.MaxDeadBytes = 1 << 30
	}
	if o.StaleWindow == 0 {
		o.StaleWindow = 5 * time.Minute
	}
	if o.MaxSkew == 0 {
		o.MaxSkew = 5 * time.Minute
	}
	return o
}

// limits are generous: memory runs out before they matter, and a test that
// forgets a bound still meets one.
var limits = gobridge.Limits{
	MaxPartition:   1024,
	MaxID:          1024,
	MaxBinding:     1024,
	MaxKey:         1024,
	MaxSubject:     4096,
	MaxContentType: 1024,
	MaxHeaders:     1000,
	MaxHeaderBytes: 1 << 20,
	MaxPayload:     16 << 20,
	MaxEnvelope:    18 << 20,
	MaxBindings:    1000,
	MaxCallBytes:   1 << 30,
}

// Store is a handle on a database in memory. It implements [gobridge.Store],
// [gobridge.Notifier] and [gobridge.Leaser]. There is nothing to close.
type Store struct {
	db     *database
	now    func() time.Time
	leases *Leases
}

// New returns a handle on a new, empty database.
func New(options Options) *Store {
	options = options.withDefaults()
	return &Store{
		db: &database{
			options:    options,
			partitions: map[gobridge.Partition]*partition{},
			controls:   map[scope]gobridge.Control{},
		},
		now:    options.Now,
		leases: NewLeases(options.Now),
	}
}

// Handle returns another handle on the same database, as another process would
// have it, with its own clock; a nil one is that of the options.
func (s *Store) Handle(now func() time.Time) *Store {
	if now == nil {
		now = s.db.options.Now
	}
	return &Store{db: s.db, now: now, leases: s.leases.Handle(now)}
}

// Snapshot returns a handle on an independent copy of the database as it is
// now, as a backup that was restored would be. The leases are not in it, for a
// backup has none either: those of the copy start afresh.
func (s *Store) Snapshot() *Store {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return &Store{db: s.db.clone(), now: s.now, leases: NewLeases(s.now)}
}

// Leases returns the leases that belong to the database.
func (s *Store) Leases() gobridge.LeaseStore { return s.leases }

// Limits returns what the store can hold.
func (s *Store) Limits() gobridge.Limits {
	out := limits
	out.Retention = s.db.options.Retention
	out.MaxDead, out.MaxDeadBytes = s.db.options.MaxDead, s.db.options.MaxDeadBytes
	return out
}

// database is what the handles share.
type database struct {
	mu         sync.Mutex
	options    Options
	partitions map[gobridge.Partition]*partition
	controls   map[scope]gobridge.Control
	audit      []gobridge.AuditEntry // oldest first

	// watchers are the functions of Notify, with the handle that each is for.
	watchers map[*watcher]struct{}
}

// partition returns a partition, which it makes if it is new. The caller holds mu.
func (db *database) partition(name gobridge.Partition) *partition {
	p := db.partitions[name]
	if p == nil {
		p = newPartition(db, name)
		db.partitions[name] = p
	}
	return p
}

func (db *database) clone() *database {
	out := &database{
		options:    db.options,
		partitions: make(map[gobridge.Partition]*partition, len(db.partitions)),
		controls:   make(map[scope]gobridge.Control, len(db.controls)),
	}
	for k, c := range db.controls {
		out.controls[k] = c
	}
	out.audit = slices.Clone(db.audit)
	for name, p := range db.partitions {
		q := newPartition(out, name)
		q.fence, q.seq, q.newest, q.condition, q.retries = p.fence, p.seq, p.newest, p.condition, p.retries
		out.partitions[name] = q
		for r := p.index.first(); r != nil; r = p.index.after(r) {
			q.add(&record{Record: r.Record, settled: r.settled})
		}
	}
	return out
}

// fail makes the error of an operation.
func fail(op string, p gobridge.Partition, err error) error {
	return &gobridge.Error{Op: op, Partition: p, Err: err}
}

// begin refuses a call whose context has ended.
func begin(ctx context.Context, op string, p gobridge.Partition) error {
	if err := ctx.Err(); err != nil {
		return fail(op, p, err)
	}
	return nil
}

// The nanoseconds of times that are none, and of those that are too far to tell.
const (
	never   = math.MaxInt64
	farAway = never - 1
)

// nanos returns t as nanoseconds since 1970, within what 63 bits can hold. The
// zero time is zero.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case s < 0:
		return 0
	case s >= farAway/int64(time.Second):
		return farAway
	default:
		return t.UnixNano()
	}
}

// clean takes the monotonic reading and the location off a time.
func clean(t time.Time) time.Time { return t.Round(0).UTC() }
