package memory

import (
	"context"
	"slices"

	"gobridge"
)

// note keeps an audit entry, or counts it in the one that it continues. The
// caller holds mu.
func (db *database) note(e gobridge.AuditEntry) {
	if n := len(db.audit); n > 0 && e.Continues(&db.audit[n-1]) {
		db.audit[n-1].Count += e.Count
		db.audit[n-1].At = e.At
		return
	}
	db.audit = append(db.audit, e)
	if over := len(db.audit) - gobridge.AuditLimit; over > 0 {
		db.audit = slices.Delete(db.audit, 0, over)
	}
}

// ListAudit implements [gobridge.Controls].
func (s *Store) ListAudit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	if err := begin(ctx, "list audit", ""); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	n := len(s.db.audit)
	out := slices.Clone(s.db.audit[n-min(max(limit, 0), n):])
	slices.Reverse(out)
	return out, nil
}

// Report implements [gobridge.Outbox].
func (s *Store) Report(ctx context.Context, partition gobridge.Partition, token gobridge.Token, condition gobridge.Condition) error {
	const op = "report"
	if !token.Valid() {
		return fail(op, partition, gobridge.ErrInvalidToken)
	}
	if err := begin(ctx, op, partition); err != nil {
		return err
	}
	condition.Since, condition.NextProbe = clean(condition.Since), clean(condition.NextProbe)
	condition.Token, condition.At = token, clean(s.now())
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	p := s.db.partition(partition)
	if err := p.raise(op, token); err != nil {
		return err
	}
	p.condition = condition
	return nil
}
