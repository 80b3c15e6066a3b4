package gobridge

import (
	"context"
	"time"
)

// Store is what a backend implements: four ports, one responsibility each.
//
// All methods are safe for concurrent use, also from several processes on one
// database. A store retries what its database asks it to retry (a lock, a
// throttle, a conflict) within the caller's context; callers retry the rest. A
// store never changes or keeps what it was handed, and what it returns is the
// caller's. Every error is, or wraps, an [*Error] that names the operation;
// the database's own error stays reachable by errors.As.
type Store interface {
	Outbox
	DeadLetters
	Inspector
	Controls
}

// Outbox persists, claims and settles records.
type Outbox interface {
	// Persist stores records durably: when it returns nil, every record is on
	// stable storage, or was already.
	//
	// It reads Partition, Binding, Envelope, ContentHash, CreatedAt and, for a
	// record that goes straight to the dead letters, State ([StateDead]),
	// Reason, Error and Redrives (for one that comes back from an export). It allocates Seq, strictly increasing per partition
	// across processes and restarts, in the order of the slice.
	//
	// A zero CreatedAt is stamped, never before the newest stamp of the
	// partition: if one Persist returned before another began, on whatever
	// machine with whatever clock, their records are in that age order. An
	// explicit CreatedAt is kept and raises the newest stamp; one further ahead
	// of the store's clock than its allowed skew is [ErrInvalidRecord].
	//
	// A record whose identity the store holds, in whatever state, is skipped,
	// and the others are stored; if nothing was new the error is
	// [ErrDuplicateRecord]. If the identity is held with another ContentHash,
	// no record of that envelope is stored and the error is
	// [ErrIdentityReused], naming it; other envelopes of the call are stored
	// all the same.
	//
	// An envelope with a record for the dead letters, when those are full, is not
	// stored: [ErrDeadLettersFull] names it, the others are.
	//
	// An invalid record refuses the whole call ([ErrInvalidRecord], and
	// [ErrTooLarge] where a size was the matter) before anything is stored. The
	// records of one envelope are stored all or none. A call with several
	// envelopes may be stored in part when it returns another error; repeating
	// it is always safe. Records of one key in one call never become claimable
	// in another order than theirs. No records is a no-op.
	Persist(ctx context.Context, records []Record) error

	// Claim takes the oldest claimable records of a partition for the token's
	// owner and returns them, payloads included, in ascending age.
	//
	// An invalid token is [ErrInvalidToken], before anything else. The highest
	// version ever seen of the partition is durable, and an empty claim raises
	// it too; a lower one gets [ErrStaleFencingToken] and nothing. A limit of
	// zero or less validates the token and raises the mark, and claims nothing.
	//
	// Claimable is a record that is pending and due; or claimed under an older
	// version; or stranded under this version: claimed under it and not held by
	// this process (see [ClaimRequest]). A paused binding and a halted key give
	// nothing. Nothing is left out for its counters, and an expired record is
	// claimed like any other: its claimer ends it.
	//
	// A record with an ordering key is claimable only if every older record of
	// that key in the partition that has not ended is returned by the same
	// Claim. So a held, delayed or halted head, or one beyond the limit, holds
	// up its key, and only its key. If a record cannot be claimed after all, no
	// younger record of its key is in the result.
	//
	// A batch may be shorter than what is claimable, but is not empty while
	// something is. What has been claimed is returned with a nil error even if
	// a later step failed; an error comes with no records.
	//
	// Claiming counts ReplayCount up, and Unsettled too where the record was
	// claimed before and never settled or released.
	Claim(ctx context.Context, request ClaimRequest) ([]Record, error)

	// Complete ends claimed records.
	//
	// Complete, Release and DeadLetter act on a record only if it is claimed by
	// exactly this owner and version. For any other the error is a
	// [*SettleError] that names each record with [ErrStaleFencingToken] (also
	// when it is not there any more), and the rest of the call is settled. Any
	// other error leaves the outcome of the whole call unknown, and repeating
	// the call is safe: settling again in the same way what the same token has
	// settled is success. An invalid token is [ErrInvalidToken].
	//
	// An ended record keeps its identity, content hash, times and last token
	// for its retention, not its payload.
	Complete(ctx context.Context, token Token, completions []Completion) error

	// Release puts claimed records back to pending.
	Release(ctx context.Context, token Token, releases []Release) error

	// DeadLetter moves claimed records to the dead letters in one atomic step:
	// at no instant is a message in neither place or in both. Where the bound
	// on dead letters is reached, the record stays claimed and the SettleError
	// names it with [ErrDeadLettersFull].
	DeadLetter(ctx context.Context, token Token, burials []Burial) error

	// Sweep does one bounded step of housekeeping in a partition: it ends
	// pending records that have expired (also under pause and halt), brings
	// retry times that lie too far ahead back, purges ended records whose
	// retention has passed, and discards dead letters that are too old
	// ([ReasonAged]). Claim's rules on the token hold. A record that is claimed
	// or redriven meanwhile is left alone.
	Sweep(ctx context.Context, request SweepRequest) (SweepResult, error)

	// Report keeps what the owner knows about the destination for
	// [Stats].Condition, in place of what was reported before. Claim's rules on
	// the token hold. Owners report changes only.
	Report(ctx context.Context, partition Partition, token Token, condition Condition) error

	// QueryPending returns up to limit pending records for people to look at,
	// payloads included. Which ones and in what order is not specified.
	QueryPending(ctx context.Context, partition Partition, limit int) ([]Record, error)

	// CountPending returns the number of pending records, claimed ones not
	// among them, counting no further than limit and at no more cost than that.
	CountPending(ctx context.Context, partition Partition, limit int) (int, error)

	// Limits returns what the store can hold. It never changes.
	Limits() Limits
}

// ClaimRequest asks for records.
type ClaimRequest struct {
	Partition Partition
	Token     Token

	// Limit is the number of records at most.
	Limit int

	// MaxBytes, unless zero, ends the batch early so that its payloads and
	// headers have at most that many bytes; one record is returned whatever its
	// size. Where a batch ends early, it is the younger records that are
	// missing.
	MaxBytes int64

	// HeldKnown says that Held is complete: every record that this process has
	// claimed, under any version, and has not settled or released. Held ones
	// stay as they are and hold up their keys, also if another owner has put one
	// back to pending meanwhile, for this process may still be sending it;
	// whatever else is claimed under Token.Version is stranded and claimable at
	// once.
	//
	// Without it, every claim under Token.Version counts as held until the
	// store's stale window has passed since.
	HeldKnown bool
	Held      []Ref
}

// Completion ends one claimed record.
type Completion struct {
	Ref Ref
	// As is StateDelivered, StateExpired or StateDiscarded; zero means delivered.
	As     State
	Reason string
	Error  string
}

// Tried says what became of a claimed record that was not delivered.
type Tried uint8

// What can have happened.
const (
	// Untried: it was not sent.
	Untried Tried = iota
	// Blameless: it was sent or may have been, and did not fail for a reason of
	// its own: the destination was down, or the outcome is unknown.
	Blameless
	// Failed: the send failed for the record's own reasons. Counts an attempt.
	Failed
)

// Release puts one claimed record back.
type Release struct {
	Ref   Ref
	Tried Tried
	// NotBefore, unless zero, becomes the record's RetryAt.
	NotBefore time.Time
	// Reason and Error are kept on the record; empty keeps what it had.
	Reason string
	Error  string
}

// Burial moves one claimed record to the dead letters.
type Burial struct {
	Ref    Ref
	Tried  Tried
	Reason string
	Error  string
}

// SweepRequest asks for a step of housekeeping.
type SweepRequest struct {
	Partition Partition
	Token     Token
	// Limit is how many records of each kind are touched at most; zero or less
	// does nothing but check the token.
	Limit int
	// ExpireTo is where expired records go: StateExpired (zero means that too)
	// or StateDead. When the dead letters are full, those are left pending.
	ExpireTo State
	// MaxBackoff, unless zero, is the longest wait that a release asks for: a
	// RetryAt further ahead than that was written by a wrong clock, and is set
	// to MaxBackoff from now.
	MaxBackoff time.Duration
}

// SweepResult counts what a sweep did.
type SweepResult struct {
	Expired int
	Clamped int
	Purged  int
	Aged    int
	// More says that a limit was reached: another sweep would find work.
	More bool
}
