package sqlite

import (
	"context"
	"database/sql"

	"gobridge"
)

const (
	auditColumns  = `at, action, scope, count, by_whom, reason`
	selectAudit   = `SELECT id, ` + auditColumns + ` FROM gobridge_audit ORDER BY id DESC LIMIT ?1`
	insertAudit   = `INSERT INTO gobridge_audit (` + auditColumns + `) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`
	continueAudit = `UPDATE gobridge_audit SET at = ?2, count = count + ?3 WHERE id = ?1`
	forgetAudit   = `DELETE FROM gobridge_audit WHERE id <= (SELECT max(id) FROM gobridge_audit) - ?1`
	countRetry    = `UPDATE gobridge_partition SET retries = retries + 1
		WHERE (?1 = x'' OR name = ?1) AND (?2 = x'' OR route = ?2) AND (?3 = x'' OR binding = ?3) RETURNING name`
	upsertCondition = `INSERT INTO gobridge_condition (partition, down, since, error, next_probe, owner, version, reported_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
		ON CONFLICT (partition) DO UPDATE SET down = ?2, since = ?3, error = ?4, next_probe = ?5, owner = ?6, version = ?7, reported_at = ?8`
)

// note keeps an audit entry, or counts it in the one that it continues.
func note(t *txn, e gobridge.AuditEntry) error {
	var last gobridge.AuditEntry
	var lastID int64
	err := queryAll(t.ctx, t, selectAudit, []any{1}, func(rows *sql.Rows) (err error) {
		lastID, last, err = scanAudit(rows)
		return err
	})
	if err != nil {
		return err
	}
	if lastID > 0 && e.Continues(&last) {
		_, err = t.ExecContext(t.ctx, continueAudit, lastID, nanos(e.At), e.Count)
		return err
	}
	_, err = t.ExecContext(t.ctx, insertAudit, nanos(e.At), string(e.Action), blob(e.Scope), e.Count, blob(e.By), blob(e.Reason))
	if err == nil {
		_, err = t.ExecContext(t.ctx, forgetAudit, gobridge.AuditLimit)
	}
	return err
}

func scanAudit(rows *sql.Rows) (id int64, e gobridge.AuditEntry, err error) {
	var at int64
	err = rows.Scan(&id, &at, &e.Action, &e.Scope, &e.Count, &e.By, &e.Reason)
	e.At = moment(at)
	return id, e, err
}

// noting returns a bulk change that keeps an audit entry of what it changed.
func (s *Store) noting(e gobridge.AuditEntry, do func(*txn, []hit) ([]hit, error)) func(*txn, []hit) ([]hit, error) {
	return func(t *txn, hits []hit) ([]hit, error) {
		done, err := do(t, hits)
		if err != nil || len(done) == 0 {
			return done, err
		}
		e.At, e.Count = s.options.Now(), int64(len(done))
		return done, note(t, e)
	}
}

// ListAudit implements [gobridge.Controls].
func (s *Store) ListAudit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	var out []gobridge.AuditEntry
	err := queryAll(ctx, s.read, selectAudit, []any{max(limit, 0)}, func(rows *sql.Rows) error {
		_, e, err := scanAudit(rows)
		out = append(out, e)
		return err
	})
	if err != nil {
		return nil, fail("list audit", "", err)
	}
	return out, nil
}

// Report implements [gobridge.Outbox].
func (s *Store) Report(ctx context.Context, partition gobridge.Partition, token gobridge.Token, condition gobridge.Condition) error {
	const op = "report"
	if !token.Valid() {
		return fail(op, partition, gobridge.ErrInvalidToken)
	}
	var stale error
	err := s.write(ctx, urgent, func(t *txn) error {
		var p *part
		var err error
		p, stale, err = fence(t, op, partition, token)
		if err != nil || stale != nil {
			return err
		}
		_, err = t.ExecContext(t.ctx, upsertCondition, p.id, condition.Down, nanos(condition.Since), blob(condition.Error),
			nanos(condition.NextProbe), blob(token.Owner), token.Version, nanos(s.options.Now()))
		return err
	})
	if err != nil {
		return fail(op, partition, err)
	}
	return stale
}
