package dynamodb

import (
	"context"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge"
)

// Explain implements [gobridge.Inspector]. Which record is the next of a key or a
// partition it takes from the index, what the record is from the table.
func (s *Store) Explain(ctx context.Context, query gobridge.ExplainQuery) (gobridge.Explanation, error) {
	c := call{op: "explain", partition: query.Partition}
	if err := ctx.Err(); err != nil {
		return gobridge.Explanation{}, fail(c.op, c.partition, err)
	}
	if unheardOf(query.Partition) {
		return gobridge.Explanation{Cause: gobridge.CauseNotFound}, nil
	}
	out, err := s.explain(ctx, c, &query)
	if err != nil {
		return gobridge.Explanation{}, fail(c.op, c.partition, err)
	}
	return out, nil
}

func (s *Store) explain(ctx context.Context, c call, query *gobridge.ExplainQuery) (gobridge.Explanation, error) {
	notFound := gobridge.Explanation{Cause: gobridge.CauseNotFound}
	f, ok, err := s.readFence(ctx, c, c.partition)
	if err != nil || !ok {
		return notFound, err
	}
	notFound.Fence = f.token
	r, err := s.subject(ctx, c, query)
	if err != nil || r == nil {
		return notFound, err
	}
	controls, err := s.currentControls(ctx, c)
	if err != nil {
		return notFound, err
	}
	head := r
	if r.key() != "" && !r.State.Ended() {
		if head, err = s.head(ctx, c, r.key()); err != nil {
			return notFound, err
		}
	}
	e := explainer{controls: controls, fence: &f, now: clean(s.now()), head: head}
	e.route, e.binding, _, _ = c.partition.Split()
	return e.explain(r), nil
}

// subject returns the record that a query is about, nil if there is none.
func (s *Store) subject(ctx context.Context, c call, query *gobridge.ExplainQuery) (*row, error) {
	switch {
	case query.EnvelopeID != "":
		return s.getRow(ctx, c, gobridge.Ref{Partition: query.Partition, EnvelopeID: query.EnvelopeID, Binding: query.Binding})
	case query.OrderingKey != "" || query.HasKey:
		return s.head(ctx, c, query.OrderingKey)
	default:
		return s.oldestLive(ctx, c, nil)
	}
}

// head returns the oldest record of a key that has not ended, or of those
// without a key.
func (s *Store) head(ctx context.Context, c call, key string) (*row, error) {
	return s.oldestLive(ctx, c, func(r *row) bool { return r.key() == key })
}

func (s *Store) oldestLive(ctx context.Context, c call, likely func(*row) bool) (*row, error) {
	found, _, err := s.searchRange(ctx, c, rangeSearch{in: liveRange, limit: 1, effort: bulkEffort, likely: likely,
		matches: func(r *row) bool { return !r.State.Ended() }})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// currentControls reads the controls that are in force now.
func (s *Store) currentControls(ctx context.Context, c call) (*controlSet, error) {
	out, err := s.getItem(ctx, c, &ddb.GetItemInput{Key: key(controlsPK, revisionSK), ConsistentRead: yes()})
	if err != nil {
		return nil, err
	}
	p := parser{it: out.Item}
	return s.controlsAt(ctx, c, p.num("revision"))
}

// explainer says why a record is not being delivered.
type explainer struct {
	controls       *controlSet
	fence          *fence
	now            time.Time
	route, binding string
	head           *row // of the record's key; nil or itself if it leads
}

func (e *explainer) explain(r *row) gobridge.Explanation {
	out := gobridge.Explanation{Record: shown(r), Fence: e.fence.token}
	out.Cause, out.Control = e.cause(r)
	if r.State.Ended() {
		return out
	}
	last, lastCause := r, out.Cause
	if !e.leads(r) {
		out.Head = shown(e.head)
		out.HeadCause, _ = e.cause(e.head)
		if out.Cause == gobridge.CauseBlocked {
			last, lastCause = e.head, out.HeadCause
		}
	}
	if lastCause == gobridge.CauseNotDue {
		out.ClaimableAt = last.DueAt()
	}
	return out
}

func (e *explainer) leads(r *row) bool { return e.head == nil || !e.head.age().before(r.age()) }

// cause returns why r is not being delivered, and the control that holds it.
func (e *explainer) cause(r *row) (gobridge.Cause, *gobridge.Control) {
	if r.State.Ended() {
		return gobridge.CauseEnded, nil
	}
	if c := e.controls.pause(e.route, e.binding); c != nil {
		return gobridge.CausePaused, c
	}
	if c := e.controls.halt(e.route, e.binding, r); c != nil {
		return gobridge.CauseHalted, c
	}
	switch {
	case r.State == gobridge.StateClaimed && r.ClaimedBy.Version < e.fence.token.Version:
		return gobridge.CauseStranded, nil
	case r.State == gobridge.StateClaimed:
		return gobridge.CauseClaimed, nil
	case !e.leads(r):
		return gobridge.CauseBlocked, nil
	case e.now.Before(r.DueAt()):
		return gobridge.CauseNotDue, nil
	case r.Expired(e.now):
		return gobridge.CauseExpired, nil
	default:
		return gobridge.CauseClaimable, nil
	}
}

// shown returns a record for an explanation, which has no payloads.
func shown(r *row) *gobridge.Record {
	out := r.Record
	out.Envelope.Payload = nil
	return &out
}
