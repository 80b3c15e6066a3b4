package memory

import (
	"context"
	"fmt"

	"gobridge"
)

// Complete implements [gobridge.Outbox].
func (s *Store) Complete(ctx context.Context, token gobridge.Token, completions []gobridge.Completion) error {
	const op = "complete"
	if !token.Valid() {
		return fail(op, "", gobridge.ErrInvalidToken)
	}
	for _, c := range completions {
		switch c.As {
		case 0, gobridge.StateDelivered, gobridge.StateExpired, gobridge.StateDiscarded:
		default:
			return &gobridge.Error{Op: op, Partition: c.Ref.Partition, Ref: c.Ref,
				Err: fmt.Errorf("a record is completed as delivered, expired or discarded, not as %s", c.As)}
		}
	}
	now := clean(s.now())
	return s.settle(ctx, op, token, len(completions), func(i int) settlement {
		c := &completions[i]
		as := c.As
		if as == 0 {
			as = gobridge.StateDelivered
		}
		return settlement{ref: c.Ref, to: as, do: func(p *partition, r *record) error {
			p.end(r, as, now, c.Reason, c.Error)
			return nil
		}}
	})
}

// Release implements [gobridge.Outbox].
func (s *Store) Release(ctx context.Context, token gobridge.Token, releases []gobridge.Release) error {
	return s.settle(ctx, "release", token, len(releases), func(i int) settlement {
		rel := &releases[i]
		return settlement{ref: rel.Ref, to: gobridge.StatePending, do: func(p *partition, r *record) error {
			p.change(r, func() { release(r, rel) })
			return nil
		}}
	})
}

func release(r *record, rel *gobridge.Release) {
	r.State = gobridge.StatePending
	r.Unsettled = 0
	if rel.Tried == gobridge.Failed {
		r.Attempts++
	}
	if !rel.NotBefore.IsZero() {
		r.RetryAt = clean(rel.NotBefore)
	}
	if rel.Reason != "" {
		r.Reason = rel.Reason
	}
	if rel.Error != "" {
		r.Error = rel.Error
	}
}

// DeadLetter implements [gobridge.Outbox].
func (s *Store) DeadLetter(ctx context.Context, token gobridge.Token, burials []gobridge.Burial) error {
	now := clean(s.now())
	return s.settle(ctx, "dead-letter", token, len(burials), func(i int) settlement {
		b := &burials[i]
		return settlement{ref: b.Ref, to: gobridge.StateDead, do: func(p *partition, r *record) error {
			if p.deadFull(1, r.size()) {
				return gobridge.ErrDeadLettersFull
			}
			if b.Tried == gobridge.Failed {
				r.Attempts++
			}
			p.bury(r, now, b.Reason, b.Error)
			return nil
		}}
	})
}

// settlement is what one entry of a settling call asks for.
type settlement struct {
	ref gobridge.Ref
	to  gobridge.State
	do  func(*partition, *record) error
}

// settle applies n settlements, each to a record that is claimed by the token.
// One that the same token has settled in the same way before is left as it is.
func (s *Store) settle(ctx context.Context, op string, token gobridge.Token, n int, at func(int) settlement) error {
	if !token.Valid() {
		return fail(op, "", gobridge.ErrInvalidToken)
	}
	if err := begin(ctx, op, ""); err != nil {
		return err
	}
	var failed []*gobridge.Error
	var touched []gobridge.Partition

	s.db.mu.Lock()
	for i := range n {
		one := at(i)
		p, r := s.db.get(one.ref)
		err := gobridge.ErrStaleFencingToken
		switch {
		case r == nil:
		case r.State == gobridge.StateClaimed && r.ClaimedBy == token:
			if err = one.do(p, r); err == nil {
				r.settled = token
				touched = append(touched, p.name)
			}
		case r.State == one.to && r.settled == token:
			err = nil
		}
		if err != nil {
			failed = append(failed, &gobridge.Error{Op: op, Partition: one.ref.Partition, Ref: one.ref, Err: err})
		}
	}
	s.db.mu.Unlock()
	s.announce(touched)
	if len(failed) > 0 {
		return &gobridge.SettleError{Failed: failed}
	}
	return nil
}
