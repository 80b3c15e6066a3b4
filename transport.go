package gobridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gobridge/messaging"
)

// Receiver takes messages from a source that delivers by itself: a broker.
//
// Optional powers of a receiver are [Solo] and [Connector].
type Receiver interface {
	// Receive hands over to take what the source delivers, until ctx ends, and
	// returns nil then, with no goroutine left and what take has not made durable
	// given back to the source. It connects, and connects again, for as long as it
	// takes; an error says that it cannot go on, and is tried again later.
	//
	// A message is acknowledged to the source only when the take that had it has
	// returned nil. What the source delivers in order is handed over in that order:
	// in one batch, or in a take that begins when the one before has returned.
	// Messages that have no order among them may be in takes side by side.
	Receive(ctx context.Context, take Take) error
}

// Take makes messages durable, in their order, and returns nil when the outbox
// holds all of them: only then may the source be told so. A message that can
// never be stored, or that the route rejects, goes where the route's policy says,
// and counts as held.
//
// While the outbox is full, or the store cannot be used, Take waits: this is the
// backpressure. It returns an error only when ctx has ended; some may be stored
// then, none may be acknowledged, and those come again as duplicates.
//
// Batches of hundreds share one commit. Take keeps nothing of the slice.
type Take func(ctx context.Context, batch []Incoming) error

// Incoming is a message as a source hands it over.
type Incoming struct {
	// Envelope has the source's own identity of the message as its ID, by which a
	// redelivery is known. Empty, the message gets an ID that no other has.
	Envelope messaging.Envelope
	// Reject, unless nil, says why this is no message: Envelope has then what came,
	// as it came.
	Reject error
}

// Solo is a Receiver of which one in all processes may run at a time: the broker
// would spread messages among them whose order matters, or lets in one client of a
// name. Optional.
type Solo interface {
	Receiver
	Solo() bool
}

// Connector is a Sender or a Receiver that can look whether what it needs is
// there. Optional.
type Connector interface {
	// Connect connects, consumes nothing, publishes nothing, makes nothing, and says
	// what would be done in a few words ("publishes to topic orders at k1:9093, 12
	// partitions"). An error names all that is missing: the endpoint, the topic, the
	// permission.
	Connect(ctx context.Context) (string, error)
}

// Carrier is a Sender that knows of some messages beforehand that its
// destination can never take. Optional.
type Carrier interface {
	Sender
	// Carry returns nil if nothing speaks against the envelope, and otherwise what
	// does, with sizes and limits. It is called before the message is stored, for
	// every message of the route that the binding's filter takes, concurrently, and
	// looks at nothing but the envelope.
	Carry(envelope *messaging.Envelope) error
}

// Accept makes a message durable, for a source whose client waits for the answer.
// Its errors: [ErrInvalidRecord] and
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
// A batch is in ascending age and may hold several records of a key, unless
// OnePerKey is set. If one of them fails, no later one of that key may become
// visible at the destination before it: those get [ErrNotSent].
type BatchSender interface {
	Sender
	BatchLimits() BatchLimits
}

// BatchLimits bounds a batch; zero means no bound of the sender's own.
type BatchLimits struct {
	MaxRecords int
	MaxBytes   int64
	// OnePerKey says that a batch has at most one record of a key, for a
	// destination that may take a later one though an earlier one failed.
	OnePerKey bool
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
	// become claimable: by a commit through this handle, or by another process's.
	// The empty partition stands for any, where the store can't tell which. Calls
	// may be merged; f must not block. Stop ends them.
	Notify(f func(Partition)) (stop func())
}
