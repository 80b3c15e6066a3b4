package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gobridge"
)

const (
	selectByIDs = `SELECT ` + recordColumns + ` FROM json_each(?1) AS j CROSS JOIN gobridge_record AS r ON r.id = j.value
		WHERE r.status = 5`

	countNewerGone = `SELECT count(*) FROM (SELECT 1 FROM gobridge_ended WHERE partition = ?1 AND ordering_key = ?2
		AND ordering_key <> x'' AND state = 2 AND (created_at, seq) > (?3, ?4) LIMIT 10000)`

	redriveRecord = `UPDATE gobridge_record SET status = 0, settled = 0, created_at = ?4, seq = ?5,
			due_at = CASE WHEN not_before > ?6 THEN not_before ELSE 0 END,
			ready = (ordering_key = x'' AND not_before <= ?6),
			replay_count = 0, attempts = 0, unsettled = 0, redrives = redrives + 1, retry_at = 0, ended_at = 0,
			claim_owner = x'', claim_version = 0, claimed_at = 0
		WHERE id = ?1 AND partition = ?2 AND seq = ?3 AND status = 5 AND (expires_at = 0 OR expires_at > ?6)`

	selectStill = `SELECT 1 FROM gobridge_record WHERE id = ?1 AND partition = ?2 AND seq = ?3 AND status = ?4
		AND (status <> 1 OR claim_version < ?5)`
)

// bulkChunk is how many records a bulk change touches in one transaction.
const bulkChunk = 100

// QueryDead implements [gobridge.DeadLetters].
func (s *Store) QueryDead(ctx context.Context, query gobridge.DeadQuery) (gobridge.DeadPage, error) {
	page, err := s.queryDead(ctx, query)
	if err != nil {
		return gobridge.DeadPage{}, fail("query dead letters", query.Filter.Partition, err)
	}
	return page, nil
}

func (s *Store) queryDead(ctx context.Context, query gobridge.DeadQuery) (page gobridge.DeadPage, err error) {
	find := search{filter: &query.Filter, dead: true, effort: largestPage}
	hits, next, err := find.page(ctx, s.read, query.Limit, query.Cursor)
	if err != nil {
		return page, err
	}
	page.Cursor = next
	names := make(map[int64]gobridge.Partition, len(hits))
	all := make([]int64, len(hits))
	for i, h := range hits {
		all[i], names[h.id] = h.id, h.Ref.Partition
	}
	err = queryAll(ctx, s.read, selectByIDs, []any{list(all)}, func(rows *sql.Rows) error {
		r, err := scanRow(rows, "")
		r.Partition = names[r.id]
		page.Records = append(page.Records, r.Record)
		return err
	})
	return page, err
}

// Redrive implements [gobridge.DeadLetters]. NewerGone is counted up to 10,000.
func (s *Store) Redrive(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
	now := nanos(s.options.Now())
	find := search{filter: &request.Filter, dead: true, now: now, effort: bulkEffort}
	return s.bulk(ctx, "redrive", &request, &find, func(t *txn, hits []hit) ([]hit, error) {
		return s.redrive(t, hits, now)
	})
}

// Discard implements [gobridge.DeadLetters]. NewerGone is counted up to 10,000.
func (s *Store) Discard(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
	const op = "discard"
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
	now := nanos(s.options.Now())
	return s.bulk(ctx, op, &request, &find, func(t *txn, hits []hit) ([]hit, error) {
		return discard(t, hits, ending{state: gobridge.StateDiscarded, now: now, reason: request.Reason})
	})
}

// bulk does one page of a bulk request: it finds the records without holding
// anything up, and then changes them in small transactions, each record only if
// it is still as it was found.
func (s *Store) bulk(ctx context.Context, op string, request *gobridge.BulkRequest, find *search,
	do func(*txn, []hit) ([]hit, error)) (result gobridge.BulkResult, err error) {
	hits, next, err := find.page(ctx, s.read, request.Limit, request.Cursor)
	if err != nil {
		return gobridge.BulkResult{}, fail(op, request.Filter.Partition, err)
	}
	if err := s.countGone(ctx, hits); err != nil {
		return gobridge.BulkResult{}, fail(op, request.Filter.Partition, err)
	}
	if !request.DryRun {
		entry := gobridge.AuditEntry{
			Action: gobridge.AuditAction(op), Scope: request.Filter.Scope(), By: request.By, Reason: request.Reason,
		}
		if hits, err = s.change(ctx, hits, s.noting(entry, do)); err != nil {
			return gobridge.BulkResult{}, fail(op, request.Filter.Partition, err)
		}
	}
	result.Cursor = next
	for _, h := range hits {
		result.Items = append(result.Items, h.BulkItem)
	}
	return result, nil
}

// countGone sets NewerGone.
func (s *Store) countGone(ctx context.Context, hits []hit) error {
	for i := range hits {
		h := &hits[i]
		if h.OrderingKey == "" {
			continue
		}
		args := []any{h.partition, blob(h.OrderingKey), h.createdAt, h.Seq}
		if _, err := queryOne(ctx, s.read, countNewerGone, args, &h.NewerGone); err != nil {
			return err
		}
	}
	return nil
}

// change applies do to the records of one partition after the other and returns
// those that were changed.
func (s *Store) change(ctx context.Context, hits []hit, do func(*txn, []hit) ([]hit, error)) (changed []hit, err error) {
	for len(hits) > 0 {
		n := 1
		for n < len(hits) && n < bulkChunk && hits[n].partition == hits[0].partition {
			n++
		}
		var done []hit
		err := s.write(ctx, background, func(t *txn) (err error) {
			done, err = do(t, hits[:n])
			return err
		})
		if err != nil {
			return nil, err
		}
		changed = append(changed, done...)
		hits = hits[n:]
	}
	return changed, nil
}

// redrive takes dead records of one partition back to pending.
func (s *Store) redrive(t *txn, hits []hit, now int64) (done []hit, err error) {
	p, err := openPartAt(t, hits[0].Ref.Partition, &s.options)
	if err != nil {
		return nil, err
	}
	p.newest = max(p.newest, now)
	var redriven []int64
	keys := map[string]struct{}{}
	for _, h := range hits {
		n, err := changed(t.ctx, t, redriveRecord, h.id, h.partition, h.Seq, p.newest, p.seq+1, now)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		p.seq++
		p.newPending++
		p.newDead--
		p.newBytes -= h.size
		p.added = true
		done = append(done, h)
		redriven = append(redriven, h.id)
		keys[h.OrderingKey] = struct{}{}
	}
	if len(done) == 0 {
		return nil, nil
	}
	heads := &part{id: p.id, name: p.name, halts: p.halts}
	if err := heads.settleHeads(t, redriven, keys); err != nil {
		return nil, err
	}
	t.touch(p.name)
	return done, p.close(t)
}

// discard ends records of one partition.
func discard(t *txn, hits []hit, e ending) (done []hit, err error) {
	p, err := findPart(t, hits[0].Ref.Partition)
	if err != nil || p == nil {
		return nil, err
	}
	var all, apart []int64
	var pendings, claims, deads, bytes int64
	keys := map[string]struct{}{}
	for _, h := range hits {
		var one int
		still, err := queryOne(t.ctx, t, selectStill, []any{h.id, h.partition, h.Seq, int64(h.state), p.fence.Version}, &one)
		if err != nil {
			return nil, err
		}
		if !still {
			continue
		}
		done = append(done, h)
		all = append(all, h.id)
		if h.apart {
			apart = append(apart, h.id)
		}
		switch h.state {
		case gobridge.StateDead:
			deads++
			bytes += h.size
		case gobridge.StateClaimed:
			claims++
		default:
			pendings++
		}
		keys[h.OrderingKey] = struct{}{}
	}
	if len(done) == 0 {
		return nil, nil
	}
	if err := end(t, all, apart, e); err != nil {
		return nil, err
	}
	if _, err := promoteAll(t, p, keys); err != nil {
		return nil, err
	}
	t.touch(p.name)
	return done, p.add(t, -pendings, -claims, -deads, -bytes)
}
