package gobridge

import (
	"context"
	"time"
)

// LeaseStore gives out leases: who owns which partition, under which version.
//
// A lease store judges no expiry, for clocks differ. Whoever wants a lease that
// another holds watches its Revision, and when that has not changed for the
// lease's whole Term, by the watcher's own monotonic clock, takes it over. The
// holder counts its term from before it asked, and stops when it could not
// renew in time.
//
// All methods are safe for concurrent use, also from several processes. A lease
// store may be a [Notifier] as well, and then tells, with the lease's partition or
// none, that a lease may have been acquired or released.
type LeaseStore interface {
	// Acquire takes the lease of a partition that nobody holds, or that is
	// unchanged since the request's Observed. Otherwise the error is
	// [ErrLeaseHeld]. The new lease's version is above every earlier one of the
	// partition, released or not, and above MinVersion. An empty owner or a term
	// of zero or less is an error.
	//
	// The holder itself is refused too. An owner that finds its own name on a
	// lease that it does not know, because the answer to an acquisition was lost,
	// may take it at once, with that lease's Revision as Observed.
	Acquire(ctx context.Context, request AcquireRequest) (Lease, error)

	// Renew gives the leases a new Revision each and returns them, with the same
	// token, term and AcquiredAt, and with the LastError and LastErrorAt that they
	// were handed over with, which are kept. A lease is known by Partition and Token;
	// an older Revision of it will do. One that has been taken over or released is
	// missing from the result; that is no error. With an error, what is returned has
	// been renewed, and of the others nothing is known.
	Renew(ctx context.Context, leases []Lease) ([]Lease, error)

	// Release gives a lease up, so that another can acquire it at once. One that
	// has been taken over is [ErrLeaseLost]; releasing again what the same holder
	// has released is success, as long as nobody has taken it.
	Release(ctx context.Context, lease Lease) error

	// Leases returns every partition's lease, released ones too, in ascending
	// order of partitions.
	Leases(ctx context.Context) ([]Lease, error)
}

// AcquireRequest asks for a lease.
type AcquireRequest struct {
	Partition Partition
	Owner     string
	Term      time.Duration

	// MinVersion is the newest version that the outbox has seen
	// ([Stats].Fence), which is ahead of the lease's after a restore.
	MinVersion int64

	// Observed, unless zero, is the Revision that the asker has seen unchanged
	// for the holder's whole term.
	Observed int64
}

// Lease is the right to drain a partition.
type Lease struct {
	Partition Partition
	Token     Token
	Term      time.Duration

	// Revision is above zero and changes with every acquisition, renewal and
	// release of the partition's lease.
	Revision int64

	// Released says that nobody holds it.
	Released bool

	// AcquiredAt and RenewedAt are the holder's clock, for people to read. Nothing
	// is decided by them. AcquiredAt is zero if an older version acquired the lease.
	AcquiredAt, RenewedAt time.Time

	// LastError is what last went wrong for the holder with the partition, for
	// people to read, of at most [MaxLeaseError] bytes, and LastErrorAt when, by his
	// clock. A new lease has none. They stay with a lease that is released.
	LastError   string
	LastErrorAt time.Time
}

// MaxLeaseError is the longest [Lease].LastError in bytes.
const MaxLeaseError = 500

// Leaser is a store that brings its own leases. Optional.
type Leaser interface {
	Leases() LeaseStore
}
