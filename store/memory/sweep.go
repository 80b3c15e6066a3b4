package memory

import (
	"context"
	"fmt"
	"time"

	"gobridge"
)

// Sweep implements [gobridge.Outbox].
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
	if err := begin(ctx, op, request.Partition); err != nil {
		return gobridge.SweepResult{}, err
	}
	now := clean(s.now())

	s.db.mu.Lock()
	p := s.db.partition(request.Partition)
	if err := p.raise(op, request.Token); err != nil {
		s.db.mu.Unlock()
		return gobridge.SweepResult{}, err
	}
	var result gobridge.SweepResult
	if request.Limit > 0 {
		result = p.sweep(&request, now)
	}
	s.db.mu.Unlock()
	if result.Expired > 0 {
		s.announce([]gobridge.Partition{p.name})
	}
	return result, nil
}

func (p *partition) sweep(request *gobridge.SweepRequest, now time.Time) (result gobridge.SweepResult) {
	each := func(attribute int, bound int64, do func(*record) bool) int {
		n, more := p.upTo(request.Limit, attribute, bound, do)
		result.More = result.More || more
		return n
	}
	result.Expired = each(byExpiry, nanos(now), func(r *record) bool {
		r.settled = gobridge.Token{}
		if request.ExpireTo != gobridge.StateDead {
			p.end(r, gobridge.StateExpired, now, gobridge.ReasonExpired, "")
			return true
		}
		if p.deadFull(1, r.size()) {
			return false
		}
		p.bury(r, now, gobridge.ReasonExpired, "")
		return true
	})
	if request.MaxBackoff > 0 {
		latest := now.Add(request.MaxBackoff)
		result.Clamped = each(byRetry, -nanos(latest)-1, func(r *record) bool {
			p.change(r, func() { r.RetryAt = latest })
			return true
		})
	}
	result.Purged = each(byEnd, nanos(now.Add(-p.db.options.Retention)), func(r *record) bool {
		p.drop(r)
		return true
	})
	result.Aged = each(byDeath, nanos(now.Add(-p.db.options.DeadRetention)), func(r *record) bool {
		r.settled = gobridge.Token{}
		p.end(r, gobridge.StateDiscarded, now, gobridge.ReasonAged, r.Error)
		return true
	})
	return result
}

// upTo lets do change the records that have an attribute within a bound, up to
// limit of them, and reports whether there are more. It stops at the first that
// do leaves as it is.
func (p *partition) upTo(limit, attribute int, bound int64, do func(*record) bool) (n int, more bool) {
	bounds := noBounds()
	bounds[attribute] = bound
	for at := birth; ; n++ {
		r := p.index.next(at, &bounds)
		if r == nil || n == limit {
			return n, r != nil
		}
		at = r.age()
		if !do(r) {
			return n, false
		}
	}
}
