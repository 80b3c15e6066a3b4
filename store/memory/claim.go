package memory

import (
	"container/heap"
	"context"
	"time"

	"gobridge"
)

// Claim implements [gobridge.Outbox].
func (s *Store) Claim(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
	const op = "claim"
	if !request.Token.Valid() {
		return nil, fail(op, request.Partition, gobridge.ErrInvalidToken)
	}
	if err := begin(ctx, op, request.Partition); err != nil {
		return nil, err
	}
	now := clean(s.now())

	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	p := s.db.partition(request.Partition)
	if err := p.raise(op, request.Token); err != nil {
		return nil, err
	}
	if request.Limit <= 0 || p.pause() != nil {
		return nil, nil
	}
	taken := newSelection(p, &request, now).take(request.Limit, request.MaxBytes)
	out := make([]gobridge.Record, len(taken))
	for i, r := range taken {
		p.change(r, func() {
			r.ReplayCount++
			if r.State == gobridge.StateClaimed {
				r.Unsettled++
			}
			r.State = gobridge.StateClaimed
			r.ClaimedBy, r.ClaimedAt = request.Token, now
			r.settled = gobridge.Token{}
		})
		out[i] = own(r.Record)
	}
	return out, nil
}

// raise lets a token in, and with it no older one any more.
func (p *partition) raise(op string, token gobridge.Token) error {
	if token.Version < p.fence.Version {
		return &gobridge.Error{Op: op, Partition: p.name, Err: gobridge.ErrStaleFencingToken,
			Hint: "the partition now belongs to " + p.fence.String()}
	}
	if token.Version > p.fence.Version {
		p.fence = token
	}
	return nil
}

// selection walks over the claimable records of a partition in ascending age:
// over those that lead (no key, or the head of theirs), and from each head that
// is taken along its key.
type selection struct {
	p      *partition
	bounds values
	held   map[*record]bool
	at     age // that of the last one of those that lead
	behind siblings
}

func newSelection(p *partition, request *gobridge.ClaimRequest, now time.Time) *selection {
	s := &selection{p: p, bounds: noBounds(), at: birth}
	s.bounds[byDue] = nanos(now)
	if !request.HeldKnown {
		s.bounds[byVersion] = request.Token.Version - 1
		s.bounds[byClaimedAt] = nanos(now.Add(-p.db.options.StaleWindow))
		return s
	}
	s.bounds[byVersion] = request.Token.Version
	s.held = make(map[*record]bool, len(request.Held))
	for _, ref := range request.Held {
		if _, r := p.db.get(ref); r != nil {
			s.held[r] = true
		}
	}
	return s
}

// take returns the oldest claimable records, up to a number and, unless that is
// zero, up to a size, but at least one.
func (s *selection) take(limit int, maxBytes int64) (out []*record) {
	var bytes int64
	lead := s.lead()
	for len(out) < limit {
		var r *record
		switch {
		case lead != nil && (len(s.behind) == 0 || lead.age().before(s.behind[0].age())):
			r = lead
		case len(s.behind) > 0:
			r = s.behind[0]
		default:
			return out
		}
		bytes += r.size()
		if maxBytes > 0 && bytes > maxBytes && len(out) > 0 {
			return out
		}
		out = append(out, r)
		if r == lead {
			lead = s.lead()
		} else {
			heap.Pop(&s.behind)
		}
		s.follow(r)
	}
	return out
}

// lead returns the next claimable record that leads, nil after the last.
func (s *selection) lead() *record {
	for {
		r := s.p.index.next(s.at, &s.bounds)
		if r == nil {
			return nil
		}
		s.at = r.age()
		if !s.held[r] {
			return r
		}
	}
}

// follow puts the one behind r in its key in line, if it is claimable.
func (s *selection) follow(r *record) {
	key := r.Envelope.OrderingKey
	if key == "" {
		return
	}
	if r = s.p.keys[key].live.after(r); r != nil && s.claimable(r) {
		heap.Push(&s.behind, r)
	}
}

// claimable reports whether r could be claimed if all older ones of its key are.
func (s *selection) claimable(r *record) bool {
	switch {
	case s.held[r]:
		return false
	case r.State == gobridge.StatePending:
		return nanos(r.DueAt()) <= s.bounds[byDue]
	default:
		return r.ClaimedBy.Version <= s.bounds[byVersion] || nanos(r.ClaimedAt) <= s.bounds[byClaimedAt]
	}
}

// siblings is a heap of records, the oldest first.
type siblings []*record

func (s siblings) Len() int           { return len(s) }
func (s siblings) Less(i, j int) bool { return s[i].age().before(s[j].age()) }
func (s siblings) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *siblings) Push(r any)        { *s = append(*s, r.(*record)) }
func (s *siblings) Pop() any {
	last := len(*s) - 1
	r := (*s)[last]
	*s = (*s)[:last]
	return r
}
