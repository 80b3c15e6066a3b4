package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"gobridge"
)

// sweepChunk is how many records a sweep touches in one transaction.
const sweepChunk = 200

const (
	selectExpired = `SELECT id, ordering_key, size, payload IS NULL FROM gobridge_record
		WHERE partition = ?1 AND status = 0 AND expires_at > 0 AND expires_at <= ?2 ORDER BY expires_at LIMIT ?3`
	selectTooFar = `SELECT id, ordering_key, size, payload IS NULL FROM gobridge_record
		WHERE partition = ?1 AND status = 0 AND retry_at > 0 AND retry_at > ?2 ORDER BY retry_at DESC LIMIT ?3`
	selectAged = `SELECT id, ordering_key, size, payload IS NULL FROM gobridge_record
		WHERE partition = ?1 AND status = 5 AND ended_at <= ?2 ORDER BY ended_at LIMIT ?3`
	// setRetry sets the retry time of pending records, and whether they wait.
	setRetry = `UPDATE gobridge_record SET retry_at = ?2,
			due_at = CASE WHEN max(not_before, ?2) > ?3 THEN max(not_before, ?2) ELSE 0 END,
			ready = (ordering_key = x'' AND max(not_before, ?2) <= ?3)
		WHERE id IN (SELECT value FROM json_each(?1))`
	purgeEnded = `DELETE FROM gobridge_ended WHERE id IN (SELECT id FROM gobridge_ended
		WHERE partition = ?1 AND ended_at <= ?2 ORDER BY ended_at LIMIT ?3)`
	moreEnded = `SELECT 1 FROM gobridge_ended WHERE partition = ?1 AND ended_at <= ?2 LIMIT 1`
)

// Sweep implements [gobridge.Outbox]. It works in small transactions, between
// which others get their turn.
func (s *Store) Sweep(ctx context.Context, request gobridge.SweepRequest) (gobridge.SweepResult, error) {
	const op = "sweep"
	if !request.Token.Valid() {
		return gobridge.SweepResult{}, fail(op, request.Partition, gobridge.ErrInvalidToken)
	}
	switch request.ExpireTo {
	case 0, gobridge.StateExpired, gobridge.StateDead:
	default:
		return gobridge.SweepResult{}, fail(op, request.Partition,
			fmt.Errorf("expired records go to expired or dead, not to %s", request.ExpireTo))
	}
	w := &sweep{store: s, request: &request, now: nanos(s.options.Now())}
	err := w.run(ctx)
	return w.result, err
}

// sweep is a Sweep at work.
type sweep struct {
	store   *Store
	request *gobridge.SweepRequest
	now     int64
	result  gobridge.SweepResult
}

// found are records that a step is about.
type found struct {
	ids, apart []int64
	sizes      []int64
	keys       []string
}

func (f *found) scan(rows *sql.Rows) error {
	var (
		id, size int64
		key      string
		apart    bool
	)
	if err := rows.Scan(&id, &key, &size, &apart); err != nil {
		return err
	}
	f.ids, f.sizes, f.keys = append(f.ids, id), append(f.sizes, size), append(f.keys, key)
	if apart {
		f.apart = append(f.apart, id)
	}
	return nil
}

func (f *found) bytes() (n int64) {
	for _, size := range f.sizes {
		n += size
	}
	return n
}

func (f *found) keySet() map[string]struct{} {
	out := make(map[string]struct{}, len(f.keys))
	for _, key := range f.keys {
		out[key] = struct{}{}
	}
	return out
}

// run does the steps of each kind.
func (w *sweep) run(ctx context.Context) error {
	if w.request.Limit <= 0 {
		_, _, err := w.chunk(ctx, 0, nil)
		return err
	}
	kinds := []struct {
		count *int
		step  func(*txn, *part, int) (done int, more bool, err error)
	}{
		{&w.result.Expired, w.expire},
		{&w.result.Clamped, w.clamp},
		{&w.result.Purged, w.purge},
		{&w.result.Aged, w.age},
	}
	for _, kind := range kinds {
		for *kind.count < w.request.Limit {
			done, more, err := w.chunk(ctx, min(sweepChunk, w.request.Limit-*kind.count), kind.step)
			if err != nil {
				return err
			}
			*kind.count += done
			if !more {
				break
			}
			if *kind.count >= w.request.Limit {
				w.result.More = true
			}
		}
	}
	return nil
}

// chunk does one step in a transaction of its own.
func (w *sweep) chunk(ctx context.Context, limit int, step func(*txn, *part, int) (int, bool, error)) (done int, more bool, err error) {
	const op = "sweep"
	var stale error
	err = w.store.write(ctx, background, func(t *txn) error {
		var p *part
		p, stale, err = fence(t, op, w.request.Partition, w.request.Token)
		if err != nil || stale != nil || step == nil {
			return err
		}
		done, more, err = step(t, p, limit)
		return err
	})
	if err != nil {
		return 0, false, fail(op, w.request.Partition, err)
	}
	return done, more, stale
}

// find selects up to limit records and says whether there are more.
func (w *sweep) find(t *txn, query string, p *part, bound int64, limit int) (f found, more bool, err error) {
	err = queryAll(t.ctx, t, query, []any{p.id, bound, limit + 1}, f.scan)
	if len(f.ids) > limit {
		last := f.ids[limit]
		f.ids, f.sizes, f.keys = f.ids[:limit], f.sizes[:limit], f.keys[:limit]
		if n := len(f.apart); n > 0 && f.apart[n-1] == last {
			f.apart = f.apart[:n-1]
		}
		more = true
	}
	return f, more, err
}

// expire ends pending records that have expired.
func (w *sweep) expire(t *txn, p *part, limit int) (int, bool, error) {
	f, more, err := w.find(t, selectExpired, p, w.now, limit)
	if err != nil || len(f.ids) == 0 {
		return 0, false, err
	}
	if w.request.ExpireTo == gobridge.StateDead {
		options := &w.store.options
		room := room{count: options.MaxDead - p.dead, bytes: options.MaxDeadBytes - p.deadBytes}
		n := 0
		for n < len(f.ids) && room.take(f.sizes[n]) {
			n++
		}
		more = more && n == len(f.ids)
		f.ids, f.sizes, f.keys = f.ids[:n], f.sizes[:n], f.keys[:n]
		_, err = t.ExecContext(t.ctx, buryRecords, list(f.ids), false, 0, w.now, blob(gobridge.ReasonExpired), []byte{})
		if err == nil {
			err = p.add(t, -int64(n), 0, int64(n), f.bytes())
		}
	} else {
		err = end(t, f.ids, f.apart, ending{state: gobridge.StateExpired, now: w.now, reason: gobridge.ReasonExpired, error: []byte{}})
		if err == nil {
			err = p.add(t, -int64(len(f.ids)), 0, 0, 0)
		}
	}
	if err != nil {
		return 0, false, err
	}
	t.touch(p.name)
	_, err = promoteAll(t, p, f.keySet())
	return len(f.ids), more, err
}

// clamp brings back retry times that a wrong clock has put too far ahead.
func (w *sweep) clamp(t *txn, p *part, limit int) (int, bool, error) {
	if w.request.MaxBackoff <= 0 {
		return 0, false, nil
	}
	bound := w.now + int64(w.request.MaxBackoff)
	f, more, err := w.find(t, selectTooFar, p, bound, limit)
	if err != nil || len(f.ids) == 0 {
		return 0, false, err
	}
	if _, err := t.ExecContext(t.ctx, setRetry, list(f.ids), bound, w.now); err != nil {
		return 0, false, err
	}
	return len(f.ids), more, nil
}

// purge forgets ended records whose retention has passed.
func (w *sweep) purge(t *txn, p *part, limit int) (int, bool, error) {
	bound := w.now - int64(w.store.options.Retention)
	n, err := changed(t.ctx, t, purgeEnded, p.id, bound, limit)
	if err != nil || n < int64(limit) {
		return int(n), false, err
	}
	var one int
	more, err := queryOne(t.ctx, t, moreEnded, []any{p.id, bound}, &one)
	return int(n), more, err
}

// age discards dead letters that are too old.
func (w *sweep) age(t *txn, p *part, limit int) (int, bool, error) {
	f, more, err := w.find(t, selectAged, p, w.now-int64(w.store.options.DeadRetention), limit)
	if err != nil || len(f.ids) == 0 {
		return 0, false, err
	}
	if err := end(t, f.ids, f.apart, ending{state: gobridge.StateDiscarded, now: w.now, reason: gobridge.ReasonAged}); err != nil {
		return 0, false, err
	}
	return len(f.ids), more, p.add(t, 0, 0, -int64(len(f.ids)), -f.bytes())
}
