package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gobridge"
)

// QueryDead implements [gobridge.DeadLetters].
func (s *Store) QueryDead(ctx context.Context, query gobridge.DeadQuery) (gobridge.DeadPage, error) {
	const op = "query dead letters"
	if err := begin(ctx, op, query.Filter.Partition); err != nil {
		return gobridge.DeadPage{}, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	found, cursor, err := s.db.page(&search{filter: &query.Filter, dead: true, effort: largestPage}, query.Limit, query.Cursor)
	if err != nil {
		return gobridge.DeadPage{}, fail(op, query.Filter.Partition, err)
	}
	page := gobridge.DeadPage{Cursor: cursor}
	for _, r := range found {
		page.Records = append(page.Records, own(r.Record))
	}
	return page, nil
}

// Redrive implements [gobridge.DeadLetters].
func (s *Store) Redrive(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
	now := clean(s.now())
	find := search{filter: &request.Filter, dead: true, effort: bulkEffort, except: func(r *record) bool { return r.Expired(now) }}
	return s.bulk(ctx, "redrive", &request, &find, func(p *partition, r *record) {
		p.drop(r)
		r.CreatedAt = time.Time{}
		p.stamp(r, now)
		r.State = gobridge.StatePending
		r.ReplayCount, r.Attempts, r.Unsettled = 0, 0, 0
		r.Redrives++
		r.RetryAt, r.EndedAt = time.Time{}, time.Time{}
		r.ClaimedBy, r.ClaimedAt, r.settled = gobridge.Token{}, time.Time{}, gobridge.Token{}
		p.add(r)
	})
}

// Discard implements [gobridge.DeadLetters].
func (s *Store) Discard(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
	const op = "discard"
	now := clean(s.now())
	find := search{filter: &request.Filter, effort: bulkEffort}
	for _, state := range request.Filter.States {
		switch state {
		case gobridge.StatePending:
			find.pending = true
		case gobridge.StateDead:
			find.dead = true
		default:
			return gobridge.BulkResult{}, fail(op, request.Filter.Partition,
				fmt.Errorf("filter has state %s; pending and dead records can be discarded", state))
		}
	}
	if !find.pending && !find.dead {
		return gobridge.BulkResult{}, fail(op, request.Filter.Partition,
			errors.New("filter has no states; name pending, dead or both"))
	}
	return s.bulk(ctx, op, &request, &find, func(p *partition, r *record) {
		r.settled = gobridge.Token{}
		p.end(r, gobridge.StateDiscarded, now, request.Reason, r.Error)
	})
}

// bulk does one page of a bulk request.
func (s *Store) bulk(ctx context.Context, op string, request *gobridge.BulkRequest, find *search,
	do func(*partition, *record)) (gobridge.BulkResult, error) {
	if err := begin(ctx, op, request.Filter.Partition); err != nil {
		return gobridge.BulkResult{}, err
	}
	var touched []gobridge.Partition
	s.db.mu.Lock()
	found, cursor, err := s.db.page(find, request.Limit, request.Cursor)
	result := gobridge.BulkResult{Cursor: cursor}
	for _, r := range found {
		result.Items = append(result.Items, s.db.partitions[r.Partition].item(r))
	}
	if !request.DryRun {
		for _, r := range found {
			do(s.db.partitions[r.Partition], r)
			touched = append(touched, r.Partition)
		}
		if len(found) > 0 {
			s.db.note(gobridge.AuditEntry{
				At: clean(s.now()), Action: gobridge.AuditAction(op), Scope: request.Filter.Scope(),
				Count: int64(len(found)), By: request.By, Reason: request.Reason,
			})
		}
	}
	s.db.mu.Unlock()
	if err != nil {
		return gobridge.BulkResult{}, fail(op, request.Filter.Partition, err)
	}
	s.announce(touched)
	return result, nil
}

// item tells of r as it is before the change.
func (p *partition) item(r *record) gobridge.BulkItem {
	item := r.BulkItem()
	if k := p.keys[r.Envelope.OrderingKey]; k != nil {
		item.NewerGone = k.gone.younger(r)
	}
	return item
}
