package sqlite

import (
	"context"
	"database/sql"

	"gobridge"
)

// retryLimit is how many records a Retry takes.
const retryLimit = 1000

const (
	selectRetrying = hitColumns + `WHERE partition = ?1 AND status = 0 AND retry_at > 0 AND (retry_at, id) > (?2, ?3)
		ORDER BY retry_at, id LIMIT ?4`
	selectStillRetrying = `SELECT 1 FROM gobridge_record
		WHERE id = ?1 AND partition = ?2 AND seq = ?3 AND status = 0 AND retry_at = ?4`
)

// Retry implements [gobridge.Controls].
func (s *Store) Retry(ctx context.Context, request gobridge.RetryRequest) (int, error) {
	const op = "retry"
	filter := &request.Filter
	entry := gobridge.AuditEntry{Action: gobridge.AuditRetry, Scope: filter.Scope(), By: request.By, Reason: request.Reason}
	now := nanos(s.options.Now())
	hits, err := s.findRetrying(ctx, filter, now)
	if err == nil {
		err = s.write(ctx, urgent, func(t *txn) error { return s.tellRetry(t, filter, entry) })
	}
	if err == nil {
		hits, err = s.change(ctx, hits, s.noting(entry, func(t *txn, hits []hit) ([]hit, error) { return retryNow(t, hits, now) }))
	}
	if err != nil {
		return 0, fail(op, filter.Partition, err)
	}
	return len(hits), nil
}

// tellRetry counts a retry in the partitions that the filter names, and wakes
// their owners.
func (s *Store) tellRetry(t *txn, filter *gobridge.Filter, entry gobridge.AuditEntry) error {
	args := []any{blob(filter.Partition), blob(filter.Route), blob(filter.Binding)}
	err := queryAll(t.ctx, t, countRetry, args, func(rows *sql.Rows) error {
		var name gobridge.Partition
		err := rows.Scan(&name)
		t.touch(name)
		return err
	})
	if err != nil {
		return err
	}
	entry.At = s.options.Now()
	return note(t, entry)
}

// findRetrying returns released records that match the filter and are not due yet.
func (s *Store) findRetrying(ctx context.Context, filter *gobridge.Filter, now int64) (hits []hit, err error) {
	find := search{filter: filter}
	parts, err := find.parts(ctx, s.read, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		for at, id, more := now, int64(latest), true; more && len(hits) < retryLimit; {
			const chunk = 1000
			n := 0
			err := queryAll(ctx, s.read, selectRetrying, []any{p.id, at, id, chunk}, func(rows *sql.Rows) error {
				h, err := scanHit(rows, p)
				n++
				at, id = h.retryAt, h.id
				if err == nil && len(hits) < retryLimit && filter.Matches(&h.BulkItem, h.state) {
					hits = append(hits, h)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			more = n == chunk
		}
	}
	return hits, nil
}

// retryNow takes the wait off records of one partition.
func retryNow(t *txn, hits []hit, now int64) (done []hit, err error) {
	p, err := findPart(t, hits[0].Ref.Partition)
	if err != nil || p == nil {
		return nil, err
	}
	var all []int64
	keys := map[string]struct{}{}
	for _, h := range hits {
		var one int
		still, err := queryOne(t.ctx, t, selectStillRetrying, []any{h.id, h.partition, h.Seq, h.retryAt}, &one)
		if err != nil {
			return nil, err
		}
		if still {
			done = append(done, h)
			all = append(all, h.id)
			keys[h.OrderingKey] = struct{}{}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	if _, err := t.ExecContext(t.ctx, setRetry, list(all), 0, now); err != nil {
		return nil, err
	}
	t.touch(p.name)
	return done, p.settleHeads(t, all, keys)
}
