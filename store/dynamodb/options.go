package dynamodb

import (
	"log/slog"
	"time"

	"gobridge"
)

// Options configure a [Store]. The zero value of every field works.
type Options struct {
	// Table is the table's name; "gobridge" when empty.
	Table string
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

	// ClaimRetentionFactor is how many candidates a claim that reads the whole
	// partition keeps, as a multiple of its limit; 3 when zero.
	ClaimRetentionFactor int
	// OldestPendingAge is how old the figure OldestPending of Stats may be, for
	// finding it reads the front of the index; 5 seconds when zero, and never
	// old when negative. The other figures are those of the moment.
	OldestPendingAge time.Duration

	// Region pins a global table: the Region that all processes use. Without it
	// a table with replicas is refused, for conditions see one Region's copy
	// only and two owners in two Regions would pass each other's fence.
	Region string
	// SkipCheck opens the table without looking at how it is made, for
	// credentials that may not describe it.
	SkipCheck bool

	// Observer is told what the store's calls cost; nobody when nil.
	Observer Observer
	// Logger gets the few things worth a line; discarded when nil.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	defaultTo(&o.Table, "gobridge")
	defaultTo(&o.Retention, 24*time.Hour)
	defaultTo(&o.DeadRetention, 30*24*time.Hour)
	defaultTo(&o.MaxDead, 100_000)
	defaultTo(&o.MaxDeadBytes, 1<<30)
	defaultTo(&o.StaleWindow, 5*time.Minute)
	defaultTo(&o.MaxSkew, 5*time.Minute)
	defaultTo(&o.ClaimRetentionFactor, 3)
	defaultTo(&o.OldestPendingAge, 5*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Metric is the name of something an [Observer] is told.
type Metric string

// The metrics. Each is a count, added up by partition and what Event names.
const (
	// OutboxClaimConflicts counts transactions and updates that DynamoDB refused
	// because of another one on the same row at that moment: contention, not a
	// race lost to another claimer.
	OutboxClaimConflicts Metric = "OutboxClaimConflicts"
	// DynamoDBOutboxClaimScanPages counts the pages that claims have read of
	// partitions with ordering keys.
	DynamoDBOutboxClaimScanPages Metric = "DynamoDBOutboxClaimScanPages"
	// DynamoDBOutboxClaimTruncated counts claims that returned less than they
	// had selected because a later step failed.
	DynamoDBOutboxClaimTruncated Metric = "DynamoDBOutboxClaimTruncated"
	// DynamoDBReadUnits and DynamoDBWriteUnits count consumed capacity by
	// Operation, and by Resource: "table" or the index's name.
	DynamoDBReadUnits  Metric = "DynamoDBReadUnits"
	DynamoDBWriteUnits Metric = "DynamoDBWriteUnits"
	// DynamoDBCalls counts requests by Operation and Resource, which is the API call.
	DynamoDBCalls Metric = "DynamoDBCalls"
	// DynamoDBThrottles counts throttled requests by Operation and Resource:
	// what DynamoDB says was short.
	DynamoDBThrottles Metric = "DynamoDBThrottles"
	// DynamoDBRetries counts repeated requests by Operation.
	DynamoDBRetries Metric = "DynamoDBRetries"
)

// Event is something that happened.
type Event struct {
	Metric Metric
	// Partition is empty where it is none in particular.
	Partition gobridge.Partition
	// Operation is the store's: "persist", "claim", "complete" and so on.
	Operation string
	Resource  string
	Value     float64
}

// Observer is told what the store's calls cost. Observe must not block and is
// called from any goroutine.
type Observer interface{ Observe(Event) }
