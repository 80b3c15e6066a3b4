package memory

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"gobridge"
)

// QueryPending implements [gobridge.Outbox]. It returns the oldest.
func (s *Store) QueryPending(ctx context.Context, partition gobridge.Partition, limit int) ([]gobridge.Record, error) {
	if err := begin(ctx, "query pending", partition); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	p := s.db.partitions[partition]
	if p == nil {
		return nil, nil
	}
	var out []gobridge.Record
	for r := p.oldestPending(birth); r != nil && len(out) < limit; r = p.oldestPending(r.age()) {
		out = append(out, own(r.Record))
	}
	return out, nil
}

// oldestPending returns the oldest pending record younger than a.
func (p *partition) oldestPending(a age) *record {
	bounds := noBounds()
	bounds[byRetry] = 0
	return p.index.next(a, &bounds)
}

// oldestLive returns the oldest record younger than a that has not ended.
func (p *partition) oldestLive(a age) *record {
	bounds := noBounds()
	bounds[byRetry] = 0
	bounds[byClaim] = math.MaxInt64 - 1
	return p.index.next(a, &bounds)
}

// CountPending implements [gobridge.Outbox].
func (s *Store) CountPending(ctx context.Context, partition gobridge.Partition, limit int) (int, error) {
	if err := begin(ctx, "count pending", partition); err != nil {
		return 0, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	p := s.db.partitions[partition]
	if p == nil {
		return 0, nil
	}
	return min(int(p.pending), max(limit, 0)), nil
}

// Stats implements [gobridge.Inspector].
func (s *Store) Stats(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error) {
	if err := begin(ctx, "stats", ""); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if len(partitions) == 0 {
		partitions = slices.Collect(maps.Keys(s.db.partitions))
	}
	names := slices.Compact(slices.Sorted(slices.Values(partitions)))
	out := make([]gobridge.Stats, len(names))
	for i, name := range names {
		out[i] = s.db.stats(name)
	}
	return out, nil
}

func (db *database) stats(name gobridge.Partition) gobridge.Stats {
	p := db.partitions[name]
	if p == nil {
		return gobridge.Stats{Partition: name}
	}
	out := gobridge.Stats{
		Partition:   name,
		Pending:     p.pending,
		Claimed:     p.claimed,
		Dead:        p.dead,
		DeadBytes:   p.deadBytes,
		Fence:       p.fence,
		LastSeq:     p.seq,
		NewestStamp: p.newest,
		Condition:   p.condition,
		Retries:     p.retries,
	}
	if r := p.oldestPending(birth); r != nil {
		out.OldestPending = r.StoredAt
	}
	return out
}

// Get implements [gobridge.Inspector].
func (s *Store) Get(ctx context.Context, ref gobridge.Ref) (gobridge.Record, error) {
	const op = "get"
	if err := begin(ctx, op, ref.Partition); err != nil {
		return gobridge.Record{}, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	_, r := s.db.get(ref)
	if r == nil {
		return gobridge.Record{}, &gobridge.Error{Op: op, Partition: ref.Partition, Ref: ref, Err: gobridge.ErrNotFound}
	}
	return own(r.Record), nil
}

// Explain implements [gobridge.Inspector].
func (s *Store) Explain(ctx context.Context, query gobridge.ExplainQuery) (gobridge.Explanation, error) {
	if err := begin(ctx, "explain", query.Partition); err != nil {
		return gobridge.Explanation{}, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	p := s.db.partitions[query.Partition]
	if p == nil {
		return gobridge.Explanation{Cause: gobridge.CauseNotFound}, nil
	}
	r := p.subject(&query)
	if r == nil {
		return gobridge.Explanation{Cause: gobridge.CauseNotFound, Fence: p.fence}, nil
	}
	return p.explain(r, clean(s.now())), nil
}

// subject returns the record that a query is about, nil if there is none.
func (p *partition) subject(query *gobridge.ExplainQuery) *record {
	switch {
	case query.EnvelopeID != "":
		return p.records[identity{query.EnvelopeID, query.Binding}]
	case query.OrderingKey != "":
		return p.head(query.OrderingKey)
	case query.HasKey:
		r := p.oldestLive(birth)
		for r != nil && r.Envelope.OrderingKey != "" {
			r = p.oldestLive(r.age())
		}
		return r
	default:
		return p.oldestLive(birth)
	}
}

func (p *partition) explain(r *record, now time.Time) gobridge.Explanation {
	out := gobridge.Explanation{Record: shown(r), Fence: p.fence}
	out.Cause, out.Control = p.cause(r, now)
	if r.State.Ended() {
		return out
	}
	last, lastCause := r, out.Cause
	if head := p.head(r.Envelope.OrderingKey); head != nil && head != r {
		out.Head = shown(head)
		out.HeadCause, _ = p.cause(head, now)
		if out.Cause == gobridge.CauseBlocked {
			last, lastCause = head, out.HeadCause
		}
	}
	if lastCause == gobridge.CauseNotDue {
		out.ClaimableAt = last.DueAt()
	}
	return out
}

// cause returns why r is not being delivered, and the control that holds it.
func (p *partition) cause(r *record, now time.Time) (gobridge.Cause, *gobridge.Control) {
	if r.State.Ended() {
		return gobridge.CauseEnded, nil
	}
	if c := p.pause(); c != nil {
		return gobridge.CausePaused, c
	}
	if c := p.halt(r); c != nil {
		return gobridge.CauseHalted, c
	}
	head := p.head(r.Envelope.OrderingKey)
	switch {
	case r.State == gobridge.StateClaimed && r.ClaimedBy.Version < p.fence.Version:
		return gobridge.CauseStranded, nil
	case r.State == gobridge.StateClaimed:
		return gobridge.CauseClaimed, nil
	case head != nil && head != r:
		return gobridge.CauseBlocked, nil
	case now.Before(r.DueAt()):
		return gobridge.CauseNotDue, nil
	case r.Expired(now):
		return gobridge.CauseExpired, nil
	default:
		return gobridge.CauseClaimable, nil
	}
}

// shown returns a record for an explanation, which has no payloads.
func shown(r *record) *gobridge.Record {
	out := r.Record
	out.Envelope.Payload = nil
	out = own(out)
	return &out
}
