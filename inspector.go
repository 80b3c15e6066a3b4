package gobridge

import (
	"context"
	"time"
)

// Inspector answers what is where, and why.
type Inspector interface {
	// Stats returns the figures of the given partitions, or of all that the
	// store knows when none is given, in ascending order of names. It costs
	// little enough to be asked every second, whatever the backlog. A partition
	// that was never seen has zero figures.
	Stats(ctx context.Context, partitions ...Partition) ([]Stats, error)

	// Get returns a record in whatever state, or [ErrNotFound]. The payload of
	// an ended one is gone, except for a dead letter's.
	Get(ctx context.Context, ref Ref) (Record, error)

	// Explain says why a record, the next one of a key, or the next one of a
	// partition is not being delivered.
	Explain(ctx context.Context, query ExplainQuery) (Explanation, error)
}

// Stats are the figures of a partition.
type Stats struct {
	Partition Partition

	Pending int64
	Claimed int64
	Dead    int64
	// DeadBytes counts payloads and headers of dead letters.
	DeadBytes int64

	// OldestPending is the StoredAt of the oldest pending record, zero if none.
	OldestPending time.Time

	// Fence is the newest token that the partition has seen.
	Fence Token
	// LastSeq is the newest Seq, NewestStamp the newest CreatedAt.
	LastSeq     int64
	NewestStamp time.Time

	// Condition is what an owner reported last, zero if none ever did. If its
	// token is not the Fence, it is a former owner's.
	Condition Condition
	// Retries counts the calls of Retry that named the partition.
	Retries int64
}

// Condition is what a partition's owner knows about the destination, and what
// the store cannot see by itself.
type Condition struct {
	// Down says that the destination takes nothing; since when, and why.
	Down  bool
	Since time.Time
	Error string
	// NextProbe is when the owner tries again.
	NextProbe time.Time

	// Token is the owner's, At its clock. Report sets them.
	Token Token
	At    time.Time
}

// ExplainQuery says what to explain: a record (Partition, Binding and
// EnvelopeID), a key (Partition, OrderingKey and HasKey), or a partition.
type ExplainQuery struct {
	Partition   Partition
	Binding     string
	EnvelopeID  string
	OrderingKey string
	HasKey      bool
}

// Cause is why a record is not being delivered.
type Cause string

// The causes. The first of these that holds is given.
const (
	CauseNotFound  Cause = "not found" // no such record, or no record of the key or partition that has not ended
	CauseEnded     Cause = "ended"     // delivered, expired, discarded or dead: see Record
	CausePaused    Cause = "paused"    // the route or binding is paused: see Control
	CauseHalted    Cause = "halted"    // the key or record is halted: see Control
	CauseClaimed   Cause = "claimed"   // in flight with the owner of the newest version
	CauseStranded  Cause = "stranded"  // claimed under an older version; the next claim takes it over
	CauseBlocked   Cause = "blocked"   // an older record of its key has not ended: see Head
	CauseNotDue    Cause = "not due"   // before its NotBefore or RetryAt
	CauseExpired   Cause = "expired"   // it has expired, and is ended with the next claim or sweep
	CauseClaimable Cause = "claimable" // nothing holds it: the next claim takes it
)

// Explanation is the answer. Records in it have no payload.
type Explanation struct {
	Cause Cause

	// Record is what was asked about: the record, or the oldest one of the key
	// or partition that has not ended. Nil when not found.
	Record *Record

	// Head is the oldest record of the key that has not ended, when it is
	// another one, and HeadCause why that is not being delivered.
	Head      *Record
	HeadCause Cause

	// Control is the pause or halt that holds the record, or its head.
	Control *Control

	// Fence is the newest token that the partition has seen: who owns it.
	Fence Token

	// ClaimableAt is when the record (or its head) can next be claimed as far as
	// time alone decides; zero when it is now, or when time alone does not.
	ClaimableAt time.Time
}

// Checker is a store that can tell whether it takes writes just now. Optional.
type Checker interface {
	// Check tries without changing anything, and answers within a second or so.
	// Nil says that it does; [ErrOutboxFull] that new records are refused for
	// want of space; [ErrLocked] that somebody else's transaction holds
	// everything up; [ErrThrottled] that many requests are refused for want of
	// throughput. The [*Error] has a hint.
	Check(ctx context.Context) error
}
