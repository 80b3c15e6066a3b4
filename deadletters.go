package gobridge

import (
	"context"
	"time"
)

// DeadLetters looks at dead letters and ends or revives records in bulk. A dead
// letter is a record in [StateDead], not a copy in another store.
type DeadLetters interface {
	// QueryDead returns a page of dead letters, payloads included, in ascending
	// age within each partition.
	QueryDead(ctx context.Context, query DeadQuery) (DeadPage, error)

	// Redrive takes dead records back to pending, oldest first, with counters
	// at zero, Redrives counted up, and a new stamp and Seq each: they become
	// the youngest of their partition and keep their order among themselves. It
	// does so only if the record is still the dead letter that it read. A record
	// that has expired is left dead.
	Redrive(ctx context.Context, request BulkRequest) (BulkResult, error)

	// Discard ends records for good, with the reason: dead and pending ones, as
	// the filter's States says (at least one is required), and, with pending, those claimed
	// under a version below the partition's newest.
	Discard(ctx context.Context, request BulkRequest) (BulkResult, error)
}

// Filter selects records; they must match every field that is set.
type Filter struct {
	Route     string
	Binding   string
	Partition Partition

	EnvelopeID string
	// OrderingKey selects one key. HasKey with an empty one selects the records
	// without a key.
	OrderingKey string
	HasKey      bool

	// States is read by Discard: StatePending, StateDead or both.
	States []State

	// Reason is compared whole. Error is a pattern in which '*' stands for any
	// text, case-sensitive, over the whole error.
	Reason string
	Error  string

	// EndedFrom and EndedBefore bound the time of death.
	EndedFrom   time.Time
	EndedBefore time.Time
}

// DeadQuery asks for a page of dead letters.
type DeadQuery struct {
	Filter Filter
	// Limit is the size of the page; zero means 100, and 1,000 is the most.
	Limit int
	// Cursor is that of the page before, empty for the first.
	Cursor string
}

// DeadPage is a page of dead letters.
type DeadPage struct {
	Records []Record
	// Cursor asks for the next page; empty after the last.
	Cursor string
}

// BulkRequest asks to change the records that match a filter, one page of them.
type BulkRequest struct {
	Filter Filter
	// Limit and Cursor are those of [DeadQuery]. A page that was interrupted can
	// be asked for again.
	Limit  int
	Cursor string
	// DryRun changes nothing and returns what would be.
	DryRun bool
	// By and Reason say who asks and why; Discard keeps Reason on the records.
	By     string
	Reason string
}

// BulkResult tells of one page.
type BulkResult struct {
	Items []BulkItem
	// Cursor asks for the next page; empty after the last.
	Cursor string
}

// BulkItem is a record that was changed, or would be in a dry run.
type BulkItem struct {
	Ref         Ref
	OrderingKey string
	Seq         int64 // before the change
	Reason      string
	Error       string
	EndedAt     time.Time
	// NewerGone counts younger records of the same key that have been delivered
	// and are still remembered: what a redrive would come after.
	NewerGone int
}
