package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"gobridge"
)

// scope is what makes two controls the same.
type scope struct {
	kind                            gobridge.ControlKind
	route, binding, key, envelopeID string
}

func scopeOf(c *gobridge.Control) scope {
	return scope{c.Kind, c.Route, c.Binding, c.OrderingKey, c.EnvelopeID}
}

// SetControl implements [gobridge.Controls].
func (s *Store) SetControl(ctx context.Context, control gobridge.Control) error {
	const op = "set control"
	if err := begin(ctx, op, ""); err != nil {
		return err
	}
	if err := control.Check(); err != nil {
		return fail(op, "", err)
	}
	control.Since = clean(control.Since)
	if control.Since.IsZero() {
		control.Since = clean(s.now())
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.note(gobridge.AuditSet(&control, clean(s.now())))
	if old, ok := s.db.controls[scopeOf(&control)]; ok {
		control.Since, control.By = old.Since, old.By
	}
	s.db.controls[scopeOf(&control)] = control
	s.db.controlChanged(&control)
	return nil
}

// ClearControl implements [gobridge.Controls].
func (s *Store) ClearControl(ctx context.Context, control gobridge.Control) error {
	const op = "clear control"
	if err := begin(ctx, op, ""); err != nil {
		return err
	}
	s.db.mu.Lock()
	if _, ok := s.db.controls[scopeOf(&control)]; !ok {
		s.db.mu.Unlock()
		return fail(op, "", gobridge.ErrNotFound)
	}
	delete(s.db.controls, scopeOf(&control))
	s.db.note(gobridge.AuditCleared(&control, clean(s.now())))
	touched := s.db.controlChanged(&control)
	s.db.mu.Unlock()
	s.announce(touched)
	return nil
}

// ListControls implements [gobridge.Controls].
func (s *Store) ListControls(ctx context.Context) ([]gobridge.Control, error) {
	if err := begin(ctx, "list controls", ""); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.db.controls), func(a, b gobridge.Control) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Route, b.Route),
			cmp.Compare(a.Binding, b.Binding), cmp.Compare(a.OrderingKey, b.OrderingKey), cmp.Compare(a.EnvelopeID, b.EnvelopeID))
	}), nil
}

// controlChanged brings the records up to date that a control is about, and
// returns the partitions it is about.
func (db *database) controlChanged(c *gobridge.Control) (touched []gobridge.Partition) {
	for _, p := range db.partitions {
		if p.route != c.Route || c.Binding != "" && p.binding != c.Binding {
			continue
		}
		touched = append(touched, p.name)
		if c.OrderingKey != "" {
			p.refreshHead(c.OrderingKey)
		}
		if r := p.records[identity{c.EnvelopeID, c.Binding}]; r != nil {
			p.refresh(r)
		}
	}
	return touched
}

// pause returns the control that pauses the partition, nil if none does.
func (p *partition) pause() *gobridge.Control {
	for _, binding := range [...]string{"", p.binding} {
		if c, ok := p.db.controls[scope{kind: gobridge.Pause, route: p.route, binding: binding}]; ok {
			return &c
		}
	}
	return nil
}

// halt returns the control that halts r or its key, nil if none does.
func (p *partition) halt(r *record) *gobridge.Control {
	if len(p.db.controls) == 0 {
		return nil
	}
	s := scope{kind: gobridge.Halt, route: p.route, binding: p.binding, key: r.Envelope.OrderingKey}
	if s.key == "" {
		s.envelopeID = r.Envelope.ID
	}
	if c, ok := p.db.controls[s]; ok {
		return &c
	}
	return nil
}

// retryLimit is how many records a Retry takes.
const retryLimit = 1000

// Retry implements [gobridge.Controls].
func (s *Store) Retry(ctx context.Context, request gobridge.RetryRequest) (int, error) {
	filter := &request.Filter
	if err := begin(ctx, "retry", filter.Partition); err != nil {
		return 0, err
	}
	var touched []gobridge.Partition
	total := 0
	s.db.mu.Lock()
	for _, p := range s.db.inOrder(filter, "") {
		if filter.Binding != "" && filter.Binding != p.binding {
			continue
		}
		p.retries++
		touched = append(touched, p.name)
		total += p.retry(filter, s.now(), retryLimit-total)
	}
	s.db.note(gobridge.AuditEntry{
		At: clean(s.now()), Action: gobridge.AuditRetry, Scope: filter.Scope(), Count: int64(total),
		By: request.By, Reason: request.Reason,
	})
	s.db.mu.Unlock()
	s.announce(touched)
	return total, nil
}

// retry takes the wait off up to limit released records.
func (p *partition) retry(filter *gobridge.Filter, now time.Time, limit int) int {
	bounds := noBounds()
	bounds[byRetry] = -nanos(now) - 1
	n := 0
	for r := p.index.next(birth, &bounds); r != nil && n < limit; r = p.index.next(r.age(), &bounds) {
		if r.matches(filter) {
			p.change(r, func() { r.RetryAt = time.Time{} })
			n++
		}
	}
	return n
}
