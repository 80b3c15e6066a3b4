package gobridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gobridge/messaging"
)

// Receiver takes messages from a source.
type Receiver interface {
	// Receive hands every message to accept until ctx ends, and returns nil
	// then. Accept may be called concurrently. Only when it has returned nil is
	// the message durable, and only then may the source be told so.
	Receive(ctx context.Context, accept Accept) error
}

// Accept makes a message durable. Its errors: [ErrInvalidRecord] and
// [ErrTooLarge] (it can never be stored), [ErrRejected] (the route's
// expressions failed on it), [ErrIdentityReused], [ErrOutboxFull] (try again
// later); any other means that the store could not be used just now. A
// duplicate is a success with Receipt.Duplicate.
type Accept func(ctx context.Context, envelope messaging.Envelope) (Receipt, error)

// Receipt tells what became of an accepted message.
type Receipt struct {
	EnvelopeID string
	// Duplicate says that every binding already had it.
	Duplicate bool
	// Bindings is how many bindings took it; none when every filter left it out.
	Bindings int
}

// Sender delivers to a destination.
type Sender interface {
	// Send delivers the batch and answers for each: the result has one error
	// per delivery, nil once the destination has taken it. The engine passes a
	// single delivery unless the sender is a [BatchSender].
	//
	// [Permanent], [RetryAfter] and [Unavailable] say more about a failure; any
	// other error is transient and the record's own. A delivery that was not
	// sent, because one before it failed, gets [ErrNotSent].
	//
	// Send is called concurrently, never for two records of one key at a time.
	// It honours ctx, and keeps nothing of the batch after it has returned.
	Send(ctx context.Context, batch []Delivery) []error
}

// BatchSender is a Sender that takes more than one delivery at a time.
//
// A batch is in ascending age and may hold several records of a key. If one of
// them fails, no later one of that key may become visible at the destination
// before it: those get [ErrNotSent].
type BatchSender interface {
	Sender
	BatchLimits() BatchLimits
}

// BatchLimits bounds a batch; zero means no bound of the sender's own.
type BatchLimits struct {
	MaxRecords int
	MaxBytes   int64
}

// Delivery is one record on its way out.
type Delivery struct {
	Envelope  messaging.Envelope
	Route     string
	Binding   string
	Partition Partition

	// Attempt counts claims since the record was stored or redriven: 1 is
	// surely the first attempt, more may be a repeat.
	Attempt int
	// Redrives counts returns from the dead letters.
	Redrives int

	// Token and Seq let a destination fence: of two deliveries of a partition,
	// the one with the lower token version comes from an owner that lost it.
	Token Token
	Seq   int64
}

// DedupeID is what a destination's own deduplication should go by: the
// envelope's ID, and another one after each redrive, which must not be
// swallowed.
func (d *Delivery) DedupeID() string {
	if d.Redrives == 0 {
		return d.Envelope.ID
	}
	return fmt.Sprintf("%s~%d", d.Envelope.ID, d.Redrives)
}

// HandlerFunc is a Sender that calls a function with each delivery. A function
// that panics has failed the attempt.
type HandlerFunc func(ctx context.Context, delivery Delivery) error

// Send calls f for each delivery.
func (f HandlerFunc) Send(ctx context.Context, batch []Delivery) []error {
	out := make([]error, len(batch))
	for i, d := range batch {
		out[i] = f(ctx, d)
	}
	return out
}

// Outcome is what a send came to.
type Outcome uint8

// The outcomes.
const (
	// OutcomeDelivered: the destination has it.
	OutcomeDelivered Outcome = iota
	// OutcomeTransient: it failed for its own reasons and may work later.
	OutcomeTransient
	// OutcomePermanent: it will never work.
	OutcomePermanent
	// OutcomeUnavailable: the destination takes nothing just now, or asks to
	// slow down; nobody's attempts are spent.
	OutcomeUnavailable
	// OutcomeNotSent: it was not tried.
	OutcomeNotSent
)

// SendError is a send's failure with what it means.
type SendError struct {
	Outcome Outcome
	// After, unless zero, is how long the destination asks to be left alone.
	After time.Duration
	Err   error
}

func (e *SendError) Error() string {
	if e == nil || e.Err == nil {
		return errNoReason.Error()
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

var errNoReason = errors.New("no reason given")

// Permanent says that this record will never be delivered.
func Permanent(err error) error { return sendError(OutcomePermanent, 0, err) }

// RetryAfter says that the destination asks to be left alone for a while; the
// whole binding waits that long.
func RetryAfter(after time.Duration, err error) error {
	return sendError(OutcomeUnavailable, after, err)
}

// Unavailable says that the destination takes nothing just now.
func Unavailable(err error) error { return sendError(OutcomeUnavailable, 0, err) }

func sendError(outcome Outcome, after time.Duration, err error) error {
	if err == nil {
		err = errNoReason
	}
	return &SendError{Outcome: outcome, After: after, Err: err}
}

// Classify says what the answer of a send means. It is the one place that
// decides between transient and permanent. An error is never a delivery: a
// [SendError] that names none of the other outcomes is transient.
func Classify(err error) (Outcome, time.Duration) {
	var se *SendError
	switch {
	case err == nil:
		return OutcomeDelivered, 0
	case errors.Is(err, ErrNotSent):
		return OutcomeNotSent, 0
	case errors.As(err, &se) && se != nil && se.Outcome > OutcomeDelivered && se.Outcome <= OutcomeNotSent:
		return se.Outcome, se.After
	default:
		return OutcomeTransient, 0
	}
}

// Notifier is a store that tells of new work at once. Optional.
type Notifier interface {
	// Notify calls f, from any goroutine, after records of a partition may have
	// become claimable: a commit through this handle, or one by another
	// process, then with the empty partition, for it may be any. Calls may be
	// merged; f must not block. Stop ends them.
	Notify(f func(Partition)) (stop func())
}
