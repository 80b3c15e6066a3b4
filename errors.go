package gobridge

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of a record as it comes in.
var (
	// ErrInvalidRecord: it can never be stored. See [*FieldError].
	ErrInvalidRecord = errors.New("invalid record")
	// ErrTooLarge: it can never be stored because of a size. Such an error is an
	// ErrInvalidRecord too.
	ErrTooLarge = errors.New("too large")
	// ErrRejected: the route's expressions failed on the message.
	ErrRejected = errors.New("message rejected by the route")
	// ErrDuplicateRecord: the store holds everything that was to be stored.
	ErrDuplicateRecord = errors.New("duplicate record")
	// ErrIdentityReused: the store holds this ID with other content.
	ErrIdentityReused = errors.New("message ID reused with other content")
	// ErrOutboxFull: there is no room just now.
	ErrOutboxFull = errors.New("outbox full")
)

// Errors of ownership.
var (
	// ErrInvalidToken: a token without owner or version.
	ErrInvalidToken = errors.New("invalid fencing token")
	// ErrStaleFencingToken: the partition or the record belongs to another.
	ErrStaleFencingToken = errors.New("stale fencing token")
	// ErrLeaseHeld: another holds the lease.
	ErrLeaseHeld = errors.New("lease held by another owner")
	// ErrLeaseLost: the lease has been taken over.
	ErrLeaseLost = errors.New("lease lost")
)

// Other errors.
var (
	// ErrDeadLettersFull: the bound on dead letters is reached.
	ErrDeadLettersFull = errors.New("dead letters full")
	// ErrLocked: somebody else's transaction keeps the store from writing.
	ErrLocked = errors.New("store locked")
	// ErrThrottled: the store refuses many requests for want of throughput. They are
	// repeated: everything is slower.
	ErrThrottled = errors.New("store throttled")
	// ErrNotFound: there is no such thing.
	ErrNotFound = errors.New("not found")
	// ErrInvalidCursor: the store has given no such cursor.
	ErrInvalidCursor = errors.New("invalid cursor")
	// ErrNotSent answers for a delivery that was not tried.
	ErrNotSent = errors.New("not sent")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("store closed")
)

// Error says where something went wrong. Err is the cause: one of this
// package's errors, or the database's own.
type Error struct {
	// Op is the operation, "persist" or "claim" for instance.
	Op        string
	Partition Partition
	// Ref is the record, where one is to blame.
	Ref Ref
	// Hint, where it helps, tells an operator what to do.
	Hint string
	Err  error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	switch {
	case e.Ref != (Ref{}):
		fmt.Fprintf(&b, " %s", e.Ref)
	case e.Partition != "":
		fmt.Fprintf(&b, " %s", e.Partition)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// SettleError names the records of a settling call that were not settled. The
// others were.
type SettleError struct {
	// Failed has an *Error with Ref for each, in the order of the call.
	Failed []*Error
}

func (e *SettleError) Error() string {
	if len(e.Failed) == 1 {
		return e.Failed[0].Error()
	}
	return fmt.Sprintf("%d records not settled, the first: %v", len(e.Failed), e.Failed[0])
}

// Unwrap returns the errors of the records.
func (e *SettleError) Unwrap() []error {
	out := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		out[i] = f
	}
	return out
}

// FieldError says which field of a record is wrong, and how. It is an
// [ErrInvalidRecord], and with a limit an [ErrTooLarge].
type FieldError struct {
	Field   string
	Problem string
	// Size and Limit are set where a size is the problem.
	Size, Limit int64
}

func (e *FieldError) Error() string {
	if e.Limit > 0 {
		return fmt.Sprintf("invalid record: %s has %d %s, the limit is %d", e.Field, e.Size, e.Problem, e.Limit)
	}
	return fmt.Sprintf("invalid record: %s %s", e.Field, e.Problem)
}

// Is makes the error match ErrInvalidRecord and ErrTooLarge.
func (e *FieldError) Is(target error) bool {
	return target == ErrInvalidRecord || target == ErrTooLarge && e.Limit > 0
}
