package gobridge

import (
	"context"
	"strings"
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

// Matches reports whether a record matches the filter, its partition, route and
// states aside: those a store knows where to look for. Item tells of the record,
// which is in state.
func (f *Filter) Matches(item *BulkItem, state State) bool {
	switch {
	case f.Binding != "" && f.Binding != item.Ref.Binding,
		f.EnvelopeID != "" && f.EnvelopeID != item.Ref.EnvelopeID,
		(f.HasKey || f.OrderingKey != "") && f.OrderingKey != item.OrderingKey,
		f.Reason != "" && f.Reason != item.Reason,
		f.Error != "" && !like(f.Error, item.Error):
		return false
	}
	dead := state == StateDead
	if !f.EndedFrom.IsZero() && (!dead || item.EndedAt.Before(f.EndedFrom)) {
		return false
	}
	return f.EndedBefore.IsZero() || dead && item.EndedAt.Before(f.EndedBefore)
}

// like reports whether text has the form of a pattern in which '*' stands for
// any text: the parts between the stars come one after the other, the first at
// the beginning and the last at the end.
func like(pattern, text string) bool {
	first, rest, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	for ok {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		_, text, ok = strings.Cut(text, part)
		rest = after
	}
	return false
}

// DeadQuery asks for a page of dead letters.
type DeadQuery struct {
	Filter Filter
	// Limit is the size of the page; zero means 100, and 1,000 is the most.
	Limit int
	// Cursor is that of the page before, empty for the first. The error for any other
	// is [ErrInvalidCursor].
	Cursor string
}

// DeadPage is a page of dead letters. Where few match, it may have fewer than its
// limit, or none, and go on: a page reads a bounded number of records.
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

// BulkItem tells of r as it is, NewerGone aside.
func (r *Record) BulkItem() BulkItem {
	return BulkItem{
		Ref: r.Ref(), OrderingKey: r.Envelope.OrderingKey, Seq: r.Seq,
		Reason: r.Reason, Error: r.Error, EndedAt: r.EndedAt,
	}
}
