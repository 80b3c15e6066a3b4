package sqlite

import (
	"context"
	"database/sql"

	"gobridge"
)

const (
	insertControl = `INSERT INTO gobridge_control (route, binding, kind, ordering_key, envelope_id, since, by_whom, reason)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
		ON CONFLICT (route, binding, kind, ordering_key, envelope_id) DO UPDATE SET reason = ?8`
	deleteControl = `DELETE FROM gobridge_control
		WHERE route = ?1 AND binding = ?2 AND kind = ?3 AND ordering_key = ?4 AND envelope_id = ?5`
	selectControls = `SELECT kind, route, binding, ordering_key, envelope_id, since, by_whom, reason FROM gobridge_control
		ORDER BY since, kind, route, binding, ordering_key, envelope_id`
	selectScope = `SELECT name FROM gobridge_partition WHERE route = ?1 AND (?2 = x'' OR binding = ?2)`

	// unreadyKey and unreadyRecord keep what is halted from being claimed.
	unreadyKey = `UPDATE gobridge_record SET ready = 0 WHERE ready = 1 AND id = (SELECT id FROM gobridge_record
		WHERE partition = ?1 AND ordering_key = ?2 AND ordering_key <> x'' AND status IN (0, 1)
		ORDER BY created_at, seq LIMIT 1)`
	unreadyRecord = `UPDATE gobridge_record SET ready = 0
		WHERE ready = 1 AND partition = ?1 AND envelope_id = ?2 AND ordering_key = x''`
	readyRecord = `UPDATE gobridge_record SET ready = 1 WHERE ready = 0 AND (status = 0 AND due_at = 0 OR freed = 1)
		AND partition = ?1 AND envelope_id = ?2 AND ordering_key = x''`
)

func scopeArgs(c *gobridge.Control) []any {
	return []any{blob(c.Route), blob(c.Binding), string(c.Kind), blob(c.OrderingKey), blob(c.EnvelopeID)}
}

// SetControl implements [gobridge.Controls].
func (s *Store) SetControl(ctx context.Context, control gobridge.Control) error {
	const op = "set control"
	if err := control.Check(); err != nil {
		return fail(op, "", err)
	}
	since := nanos(control.Since)
	if since == 0 {
		since = nanos(s.options.Now())
	}
	err := s.write(ctx, urgent, func(t *txn) error {
		args := append(scopeArgs(&control), since, blob(control.By), blob(control.Reason))
		if _, err := t.ExecContext(t.ctx, insertControl, args...); err != nil {
			return err
		}
		if err := note(t, gobridge.AuditSet(&control, s.options.Now())); err != nil || control.Kind == gobridge.Pause {
			return err
		}
		parts, err := inScope(t, &control)
		if err != nil {
			return err
		}
		for _, p := range parts {
			query, of := unreadyRecord, control.EnvelopeID
			if control.OrderingKey != "" {
				query, of = unreadyKey, control.OrderingKey
			}
			if _, err := t.ExecContext(t.ctx, query, p.id, blob(of)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fail(op, "", err)
	}
	return nil
}

// ClearControl implements [gobridge.Controls].
func (s *Store) ClearControl(ctx context.Context, control gobridge.Control) error {
	const op = "clear control"
	found := false
	err := s.write(ctx, urgent, func(t *txn) error {
		n, err := changed(t.ctx, t, deleteControl, scopeArgs(&control)...)
		if found = n > 0; err != nil || !found {
			return err
		}
		if err := note(t, gobridge.AuditCleared(&control, s.options.Now())); err != nil {
			return err
		}
		parts, err := inScope(t, &control)
		if err != nil {
			return err
		}
		for _, p := range parts {
			t.touch(p.name)
			if control.Kind != gobridge.Halt {
				continue
			}
			if control.OrderingKey != "" {
				_, err = promote(t, p.id, p.name, p.halts, control.OrderingKey)
			} else {
				_, err = t.ExecContext(t.ctx, readyRecord, p.id, blob(control.EnvelopeID))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return fail(op, "", err)
	case !found:
		return fail(op, "", gobridge.ErrNotFound)
	}
	return nil
}

// inScope returns the partitions that a control is about.
func inScope(t *txn, c *gobridge.Control) ([]*part, error) {
	var names []gobridge.Partition
	err := queryAll(t.ctx, t, selectScope, []any{blob(c.Route), blob(c.Binding)}, func(rows *sql.Rows) error {
		var name gobridge.Partition
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	parts := make([]*part, len(names))
	for i, name := range names {
		if parts[i], err = findPart(t, name); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// ListControls implements [gobridge.Controls].
func (s *Store) ListControls(ctx context.Context) ([]gobridge.Control, error) {
	out, err := readControls(ctx, s.read)
	if err != nil {
		return nil, fail("list controls", "", err)
	}
	return out, nil
}

func readControls(ctx context.Context, q Execer) (out []gobridge.Control, err error) {
	err = queryAll(ctx, q, selectControls, nil, func(rows *sql.Rows) error {
		var c gobridge.Control
		var since int64
		err := rows.Scan(&c.Kind, &c.Route, &c.Binding, &c.OrderingKey, &c.EnvelopeID, &since, &c.By, &c.Reason)
		c.Since = moment(since)
		out = append(out, c)
		return err
	})
	return out, err
}
