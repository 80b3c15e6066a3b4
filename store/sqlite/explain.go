package sqlite

import (
	"context"
	"database/sql"
	"time"

	"gobridge"
)

const (
	selectHead = `SELECT ` + recordColumns + ` FROM gobridge_record AS r
		WHERE r.partition = ?1 AND r.ordering_key = ?2 AND r.ordering_key <> x'' AND r.status IN (0, 1)
		ORDER BY r.created_at, r.seq LIMIT 1`

	// selectOldest looks at the oldest of those that are not ready, of those
	// that are, and of those that are claimed.
	selectOldest = `SELECT ` + recordColumns + ` FROM (
			SELECT * FROM (SELECT id, created_at, seq FROM gobridge_record
				WHERE partition = ?1 AND ready = 0 AND status = 0 ORDER BY created_at, seq LIMIT 1)
			UNION ALL
			SELECT * FROM (SELECT id, created_at, seq FROM gobridge_record
				WHERE partition = ?1 AND ready = 1 ORDER BY created_at, seq LIMIT 1)
			UNION ALL
			SELECT * FROM (SELECT id, created_at, seq FROM gobridge_record
				WHERE partition = ?1 AND status = 1 AND freed = 0 ORDER BY created_at, seq LIMIT 1)
		) AS o JOIN gobridge_record AS r ON r.id = o.id ORDER BY r.created_at, r.seq LIMIT 1`
	// selectOldestKeyless looks through the records of the partition.
	selectOldestKeyless = `SELECT ` + recordColumns + ` FROM gobridge_record AS r
		WHERE r.partition = ?1 AND r.ordering_key = x'' AND r.status IN (0, 1) ORDER BY r.created_at, r.seq LIMIT 1`
)

// Explain implements [gobridge.Inspector].
func (s *Store) Explain(ctx context.Context, query gobridge.ExplainQuery) (out gobridge.Explanation, err error) {
	err = s.snapshot(ctx, func(t *txn) error {
		p, err := findPart(t, query.Partition)
		if err != nil || p == nil {
			out.Cause = gobridge.CauseNotFound
			return err
		}
		x := explainer{t: t, p: p, now: s.options.Now()}
		out, err = x.explain(&query)
		return err
	})
	if err != nil {
		return gobridge.Explanation{}, fail("explain", query.Partition, err)
	}
	return out, nil
}

// snapshot runs f on one state of the database.
func (s *Store) snapshot(ctx context.Context, f func(*txn) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	return f(&txn{ctx: ctx, Execer: reading{s.read, tx}})
}

// reading runs prepared queries in a transaction.
type reading struct {
	*prepared
	tx *sql.Tx
}

// QueryContext implements [Execer].
func (r reading) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := r.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return r.tx.StmtContext(ctx, s).QueryContext(ctx, args...) //nolint:sqlclosecheck // ends with the transaction
}

// explainer explains within a partition.
type explainer struct {
	t   *txn
	p   *part
	now time.Time
}

func (x *explainer) explain(query *gobridge.ExplainQuery) (out gobridge.Explanation, err error) {
	out = gobridge.Explanation{Cause: gobridge.CauseNotFound, Fence: x.p.fence}
	r, err := x.subject(query)
	if err != nil || r == nil {
		return out, err
	}
	out.Record = shown(r)
	if r.State.Ended() {
		out.Cause = gobridge.CauseEnded
		return out, nil
	}
	head, err := x.head(r)
	if err != nil {
		return out, err
	}
	if out.Cause, out.Control, err = x.cause(r, head != nil); err != nil {
		return out, err
	}
	last, lastCause := r, out.Cause
	if head != nil {
		out.Head = shown(head)
		if out.HeadCause, _, err = x.cause(head, false); err != nil {
			return out, err
		}
		if out.Cause == gobridge.CauseBlocked {
			last, lastCause = head, out.HeadCause
		}
	}
	if lastCause == gobridge.CauseNotDue {
		out.ClaimableAt = last.DueAt()
	}
	return out, nil
}

// subject returns the record that a query is about, nil if there is none.
func (x *explainer) subject(query *gobridge.ExplainQuery) (*gobridge.Record, error) {
	switch {
	case query.EnvelopeID != "":
		return find(x.t.ctx, x.t, gobridge.Ref{Partition: x.p.name, EnvelopeID: query.EnvelopeID, Binding: query.Binding})
	case query.OrderingKey != "":
		return x.one(selectHead, x.p.id, blob(query.OrderingKey))
	case query.HasKey:
		return x.one(selectOldestKeyless, x.p.id)
	default:
		return x.one(selectOldest, x.p.id)
	}
}

// head returns the head of a record's key, nil if it is the record itself.
func (x *explainer) head(r *gobridge.Record) (*gobridge.Record, error) {
	if r.Envelope.OrderingKey == "" {
		return nil, nil
	}
	head, err := x.one(selectHead, x.p.id, blob(r.Envelope.OrderingKey))
	if err != nil || head == nil || head.Ref() == r.Ref() {
		return nil, err
	}
	return head, nil
}

func (x *explainer) one(query string, args ...any) (out *gobridge.Record, err error) {
	err = queryAll(x.t.ctx, x.t, query, args, func(rows *sql.Rows) error {
		r, err := scanRow(rows, x.p.name)
		out = &r.Record
		return err
	})
	return out, err
}

// cause returns why a record that has not ended is not being delivered, and the
// control that holds it.
func (x *explainer) cause(r *gobridge.Record, behind bool) (gobridge.Cause, *gobridge.Control, error) {
	control, err := x.control(r)
	switch {
	case err != nil:
		return "", nil, err
	case control != nil && control.Kind == gobridge.Pause:
		return gobridge.CausePaused, control, nil
	case control != nil:
		return gobridge.CauseHalted, control, nil
	case r.State == gobridge.StateClaimed && r.ClaimedBy.Version < x.p.fence.Version:
		return gobridge.CauseStranded, nil, nil
	case r.State == gobridge.StateClaimed:
		return gobridge.CauseClaimed, nil, nil
	case behind:
		return gobridge.CauseBlocked, nil, nil
	case x.now.Before(r.DueAt()):
		return gobridge.CauseNotDue, nil, nil
	case r.Expired(x.now):
		return gobridge.CauseExpired, nil, nil
	default:
		return gobridge.CauseClaimable, nil, nil
	}
}

// control returns the control that holds a record, a pause before a halt, nil
// if there is none.
func (x *explainer) control(r *gobridge.Record) (found *gobridge.Control, err error) {
	if !x.p.paused && !x.p.halts {
		return nil, nil
	}
	all, err := readControls(x.t.ctx, x.t)
	if err != nil {
		return nil, err
	}
	route, binding, _, _ := x.p.name.Split()
	for _, c := range all {
		if c.Route != route || c.Binding != binding && (c.Binding != "" || c.Kind != gobridge.Pause) {
			continue
		}
		if c.Kind == gobridge.Pause {
			return &c, nil
		}
		key := r.Envelope.OrderingKey
		if found == nil && c.OrderingKey == key && (key != "" || c.EnvelopeID == r.Envelope.ID) {
			found = &c
		}
	}
	return found, nil
}

// shown returns a record for an explanation, which has no payloads.
func shown(r *gobridge.Record) *gobridge.Record {
	out := *r
	out.Envelope.Payload = nil
	return &out
}
