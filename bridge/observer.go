package bridge

import (
	"context"
	"time"

	"gobridge"
)

// Observer is told of what happens. It must be quick, must not block and must
// be safe for concurrent use.
type Observer interface {
	Observe(ctx context.Context, event Event)
}

// Event is one thing that happened. Which fields are set depends on the kind.
type Event struct {
	Kind      EventKind
	Partition gobridge.Partition
	Route     string
	Binding   string
	// Count is of records unless the kind says otherwise, Bytes of their payloads and
	// headers.
	Count int
	Bytes int64
	// Took is how long it took.
	Took time.Duration
	// Age, with EventDelivered, is the time from the record's acceptance.
	Age time.Duration
	Err error
}

// EventKind is what happened.
type EventKind string

// The kinds, and which fields they set beside Route and Binding.
const (
	EventAccepted     EventKind = "accepted"       // the messages of a call were made durable: Count (records), Bytes (of the messages), Took; no Binding
	EventDuplicate    EventKind = "duplicate"      // every binding had the messages of a call already: Count (messages); no Binding
	EventRefused      EventKind = "refused"        // a call's messages were not accepted: Count (messages), Bytes, Err; no Binding
	EventFull         EventKind = "full"           // the binding had no room: Count
	EventClaimed      EventKind = "claimed"        // Count, Bytes, Took
	EventClaimFailed  EventKind = "claim failed"   // Took, Err
	EventDelivered    EventKind = "delivered"      // one record: Bytes, Took (the send), Age
	EventFailed       EventKind = "failed"         // one record's send failed: Took, Err
	EventReleased     EventKind = "released"       // went back to pending: Count
	EventExpired      EventKind = "expired"        // ended as expired: Count
	EventDiscarded    EventKind = "discarded"      // ended by policy: Count, Err
	EventDeadLettered EventKind = "dead-lettered"  // Count, Err
	EventHalted       EventKind = "halted"         // a key was halted: Err
	EventSettled      EventKind = "settled"        // a settling call: Count, Took
	EventSettleFailed EventKind = "settle failed"  // Count, Took, Err; it is tried again
	EventStale        EventKind = "stale"          // records turned out to be another's when settled: Count
	EventStray        EventKind = "stray"          // sends were under way when the lease ended: Count
	EventSwept        EventKind = "swept"          // housekeeping ended, purged or clamped: Count
	EventOpened       EventKind = "circuit opened" // Err
	EventClosed       EventKind = "circuit closed" // Took is how long it was open
	EventAcquired     EventKind = "lease acquired" // Partition
	EventLost         EventKind = "lease lost"     // Partition, Err
	EventHandedOver   EventKind = "lease released" // Partition
)
