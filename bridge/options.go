package bridge

import (
	"log/slog"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// Options configure a [Bridge]. The zero value of every field works.
type Options struct {
	Routes []Route

	// Leases says who owns what; nil takes the store's own ([gobridge.Leaser]).
	Leases gobridge.LeaseStore
	// LeaseTerm is how long a dead owner holds up its partitions at most; 5 s
	// when zero.
	LeaseTerm time.Duration
	// Owner names this process; host name, process ID and a random part when
	// empty. Two processes never have the same.
	Owner string

	// Removed says what to do about records of routes and bindings that are not
	// among Routes.
	Removed RemovedPolicy
	// Parked names routes ("orders"), bindings ("orders/crm") and partitions whose records
	// may wait although they are not among Routes.
	Parked []string

	// Repartitioned names routes ("orders") and bindings ("orders/crm") whose
	// number of partitions was changed, and for which it will do that what was
	// delivered before the change is not recognised when it is published again.
	Repartitioned []string

	// Grace is how long a shutdown waits for sends in flight; 10 s when zero.
	Grace time.Duration
	// PollInterval bounds the wait between two looks for work that nobody
	// announced, due records among it; 1 s when zero.
	PollInterval time.Duration

	// Now is the clock for due times and expiry; time.Now when nil.
	Now func() time.Time
	// Logger gets what operators should know; nil discards.
	Logger *slog.Logger
	// Observer is told of what happens; nil is none.
	Observer Observer
}

// RemovedPolicy is what to do about records that no route serves.
type RemovedPolicy uint8

// The policies.
const (
	// RemovedWarn logs them and leaves them: another process may serve them.
	RemovedWarn RemovedPolicy = iota
	// RemovedRefuse makes Run fail with [ErrUnservedPartitions], but for what is parked.
	RemovedRefuse
)

// Route takes messages of one source to its bindings.
type Route struct {
	// Name is unique, and a name as [gobridge.CheckName] has it.
	Name string

	// OrderingKey gives the key of a message; nil keeps the envelope's own. An
	// error rejects the message.
	OrderingKey func(*messaging.Envelope) (string, error)

	// ExpireAfter, unless zero, is the time from acceptance to expiry of
	// messages that have none of their own. OnExpire says what then.
	ExpireAfter time.Duration
	OnExpire    ExpirePolicy

	// OnReject says what becomes of a message of a [gobridge.Receiver] that can't be
	// taken. Callers of Publish and Accept get an error instead.
	OnReject RejectPolicy

	// Partitions is over how many partitions each binding is spread by ordering
	// key, so that as many processes can drain it; 1 when zero, [MaxPartitions] at
	// most. It can't be changed while anything is stored: see [ErrPartitionsChanged].
	Partitions int

	Bindings []Binding
}

// MaxPartitions is the largest number of partitions of a binding.
const MaxPartitions = 256

// Binding is one destination of a route.
type Binding struct {
	// Name is unique in the route.
	Name   string
	Sender gobridge.Sender

	// Filter says whether the binding takes a message; nil takes all. An error
	// rejects the message for the whole route.
	Filter func(*messaging.Envelope) (bool, error)

	Retry     Retry
	OnFailure FailurePolicy

	// MaxOutboxDepth bounds the records that are pending or claimed; zero is no
	// bound. OnFull says what then. Several processes may overshoot it by what they
	// add within a second.
	MaxOutboxDepth int
	OnFull         FullPolicy

	// Rate is how many records a second are sent at most, over all partitions and
	// processes; zero is no bound.
	Rate float64

	// Concurrency is how many sends of a partition are in flight at most; 16 when zero.
	Concurrency int
	// BatchBytes bounds the payloads and headers of a partition held in memory; 8 MiB
	// when zero.
	BatchBytes int64
	// Timeout bounds one send; 30 s when zero.
	Timeout time.Duration
}

// Retry is how a failed record is tried again: after MinBackoff, doubled with
// each attempt up to MaxBackoff, less a random part of up to half. A destination
// that is down is probed at the same pace, but at least every 30 s.
type Retry struct {
	// Attempts is how many may fail for the record's own reasons; 10 when zero.
	// The package comment tells which those are.
	Attempts int
	// MinBackoff is 1 s, MaxBackoff 5 min when zero.
	MinBackoff, MaxBackoff time.Duration
}

// FailurePolicy is what becomes of a record that fails for good.
type FailurePolicy uint8

// The policies.
const (
	// FailDeadLetter moves it to the dead letters; its key goes on.
	FailDeadLetter FailurePolicy = iota
	// FailDiscard ends it with the reason; its key goes on.
	FailDiscard
	// FailHaltKey keeps it and halts its key until a person decides.
	FailHaltKey
)

// FullPolicy is what happens to a message when a binding is full.
type FullPolicy uint8

// The policies.
const (
	// FullReject refuses the message for the whole route.
	FullReject FullPolicy = iota
	// FullDeadLetter puts that binding's copy into the dead letters.
	FullDeadLetter
)

// ExpirePolicy is where expired records go.
type ExpirePolicy uint8

// The policies.
const (
	// ExpireDrop ends them as expired.
	ExpireDrop ExpirePolicy = iota
	// ExpireDeadLetter moves them to the dead letters.
	ExpireDeadLetter
)

// RejectPolicy is what becomes of a source's message that a route can't take.
type RejectPolicy uint8

// The policies.
const (
	// RejectDeadLetter makes it a dead letter of every binding, as it came.
	RejectDeadLetter RejectPolicy = iota
	// RejectDiscard logs and forgets it.
	RejectDiscard
)
