package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gobridge"
)

// BulkKind is what a job does.
type BulkKind string

// The kinds.
const (
	Redrive BulkKind = "redrive" // dead letters back to pending
	Discard BulkKind = "discard" // ends records for good
)

// Job is a bulk change. It works in pages, oldest first, so that it can be
// slowed, bounded, stopped and run again: what has been done is done, and the
// next run goes on with the rest.
type Job struct {
	Kind   BulkKind
	Filter gobridge.Filter
	// Max bounds the records that are changed; zero is no bound.
	Max int
	// Pace is how many records a second are changed at most; zero is no bound.
	Pace float64
	// DryRun changes nothing and tells what would be.
	DryRun bool
}

// BulkReport is what a job did, or would do.
type BulkReport struct {
	Kind   BulkKind `json:"kind"`
	Scope  string   `json:"scope"`
	DryRun bool     `json:"dry_run"`
	// Count is of records, Keys of ordering keys among them.
	Count int `json:"count"`
	Keys  int `json:"keys"`
	// Overtaken counts those of whose key younger ones have been delivered:
	// redriven, they come after those.
	Overtaken int `json:"overtaken"`
	// Reasons counts by the reason of death.
	Reasons map[string]int `json:"reasons,omitempty"`
	// First are the oldest few.
	First []BulkRecord `json:"first,omitempty"`
	// More says that Max ended it.
	More bool `json:"more"`
	// Before is the time of death up to which it redrives: what dies again
	// meanwhile is left.
	Before time.Time `json:"before,omitzero"`
}

// BulkRecord is one record of a report.
type BulkRecord struct {
	Partition string    `json:"partition"`
	ID        string    `json:"id"`
	Key       string    `json:"key,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Error     string    `json:"error,omitempty"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	NewerGone int       `json:"newer_gone,omitempty"`
}

const (
	bulkPage  = 200
	bulkFirst = 5
	// paceSteps is how often a second a paced job has its turn.
	paceSteps = 5
)

// Do runs a job until it is done, Max is reached or ctx ends, and calls
// progress, unless nil, after each page with how many records there are so far.
// With an error, the report tells what was done until then.
func (d *Desk) Do(ctx context.Context, job Job, who Who, progress func(done int)) (BulkReport, error) {
	report := BulkReport{Kind: job.Kind, Scope: job.Filter.Scope(), DryRun: job.DryRun, Reasons: map[string]int{}}
	page, err := d.pager(&job)
	if err != nil {
		return report, err
	}
	if job.Kind == Redrive && job.Filter.EndedBefore.IsZero() {
		job.Filter.EndedBefore = d.now().Add(time.Nanosecond)
		report.Before = job.Filter.EndedBefore
	}
	keys := map[string]bool{}
	request := gobridge.BulkRequest{Filter: job.Filter, DryRun: job.DryRun, By: who.By, Reason: who.Reason}
	for {
		request.Limit = bulkPage
		if job.Pace > 0 && !job.DryRun {
			request.Limit = max(1, min(bulkPage, int(job.Pace/paceSteps)))
		}
		if job.Max > 0 {
			request.Limit = min(request.Limit, job.Max-report.Count)
		}
		began := time.Now()
		result, err := page(ctx, request)
		if err != nil {
			return report, err
		}
		report.add(result.Items, keys)
		if progress != nil {
			progress(report.Count)
		}
		if result.Cursor == "" {
			return report, nil
		}
		if job.Max > 0 && report.Count >= job.Max {
			report.More = true
			return report, nil
		}
		request.Cursor = result.Cursor
		if err := job.rest(ctx, len(result.Items), began); err != nil {
			return report, err
		}
	}
}

func (d *Desk) pager(job *Job) (func(context.Context, gobridge.BulkRequest) (gobridge.BulkResult, error), error) {
	switch job.Kind {
	case Redrive:
		return d.store.Redrive, nil
	case Discard:
		if len(job.Filter.States) == 0 {
			return nil, errors.New("a discard needs the states: pending, dead or both")
		}
		return d.store.Discard, nil
	}
	return nil, fmt.Errorf("unknown kind of bulk change %q", job.Kind)
}

// rest waits as long as n records take at the job's pace.
func (job *Job) rest(ctx context.Context, n int, began time.Time) error {
	if job.Pace <= 0 || job.DryRun {
		return ctx.Err()
	}
	wait := time.Duration(float64(n)/job.Pace*float64(time.Second)) - time.Since(began)
	if wait <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

func (r *BulkReport) add(items []gobridge.BulkItem, keys map[string]bool) {
	for _, it := range items {
		r.Count++
		if it.OrderingKey != "" && !keys[it.OrderingKey] {
			keys[it.OrderingKey] = true
			r.Keys++
		}
		if it.NewerGone > 0 {
			r.Overtaken++
		}
		if it.Reason != "" {
			r.Reasons[it.Reason]++
		}
		if len(r.First) < bulkFirst {
			r.First = append(r.First, BulkRecord{
				Partition: string(it.Ref.Partition), ID: it.Ref.EnvelopeID, Key: it.OrderingKey,
				Reason: it.Reason, Error: oneLine(it.Error), EndedAt: it.EndedAt, NewerGone: it.NewerGone,
			})
		}
	}
}

// Waiting counts what a retry would be about: the pending records of a target.
func (d *Desk) Waiting(ctx context.Context, t Target) (int64, error) {
	stats, err := d.store.Stats(ctx)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, s := range stats {
		route, binding, _, _ := s.Partition.Split()
		if route == t.Route && (t.Binding == "" || t.Binding == binding) && (t.Partition == "" || t.Partition == s.Partition) {
			n += s.Pending
		}
	}
	return n, nil
}

// Retry makes records due at once, and a bridge whose destination is down try
// it. It returns how many records waited for their time.
func (d *Desk) Retry(ctx context.Context, filter gobridge.Filter, who Who) (int, error) {
	total := 0
	for {
		n, err := d.store.Retry(ctx, gobridge.RetryRequest{Filter: filter, By: who.By, Reason: who.Reason})
		total += n
		if n == 0 || err != nil {
			return total, err
		}
	}
}

// DeadPage is a page of dead letters, without their payloads: [Desk.Get] has one. As a
// [gobridge.DeadPage] it may be short, and go on.
type DeadPage struct {
	Records []RecordView `json:"dead_letters"`
	// Cursor asks for the next page; empty after the last.
	Cursor string `json:"cursor"`
}

// Dead returns a page of dead letters, oldest first.
func (d *Desk) Dead(ctx context.Context, query gobridge.DeadQuery) (DeadPage, error) {
	page, err := d.store.QueryDead(ctx, query)
	if err != nil {
		return DeadPage{}, err
	}
	out := DeadPage{Records: make([]RecordView, len(page.Records)), Cursor: page.Cursor}
	for i := range page.Records {
		out.Records[i] = ViewOf(&page.Records[i])
	}
	return out, nil
}
