package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gobridge"
)

// modelSettle is a settling call on its way.
type modelSettle struct {
	how       string
	token     gobridge.Token
	refs      []gobridge.Ref
	as        gobridge.State
	tried     gobridge.Tried
	notBefore time.Time
}

func (r *modelRun) newSettle(p *modelProcess, token gobridge.Token, refs []gobridge.Ref) modelSettle {
	s := modelSettle{token: token, refs: refs, as: gobridge.StateDelivered, tried: gobridge.Tried(r.rng.IntN(3))}
	switch n := r.rng.IntN(100); {
	case n < 50:
		s.how = "Complete"
		if r.chance(10) {
			s.as = pick(r, []gobridge.State{gobridge.StateExpired, gobridge.StateDiscarded})
		}
	case n < 80:
		s.how, s.as = "Release", gobridge.StatePending
		if r.chance(60) {
			s.notBefore = p.clock.Now().Add(time.Duration(r.rng.Int64N(int64(15 * time.Minute))))
		}
	default:
		s.how, s.as = "DeadLetter", gobridge.StateDead
	}
	return s
}

// call makes the call.
func (s *modelSettle) call(ctx context.Context, store gobridge.Store) error {
	switch s.how {
	case "Complete":
		call := make([]gobridge.Completion, len(s.refs))
		for i, ref := range s.refs {
			call[i] = gobridge.Completion{Ref: ref, As: s.as, Reason: "model"}
		}
		return store.Complete(ctx, s.token, call)
	case "Release":
		call := make([]gobridge.Release, len(s.refs))
		for i, ref := range s.refs {
			call[i] = gobridge.Release{Ref: ref, Tried: s.tried, NotBefore: s.notBefore, Reason: "model"}
		}
		return store.Release(ctx, s.token, call)
	}
	call := make([]gobridge.Burial, len(s.refs))
	for i, ref := range s.refs {
		call[i] = gobridge.Burial{Ref: ref, Tried: s.tried, Reason: "model"}
	}
	return store.DeadLetter(ctx, s.token, call)
}

// settleOnce makes a settling call in the store and in the model, and reports
// whether its answer came through.
func (r *modelRun) settleOnce(p *modelProcess, s modelSettle) bool {
	var err error
	failures, open := map[gobridge.Ref]error{}, map[gobridge.Ref]bool{}
	names := make([]string, len(s.refs))
	for i, ref := range s.refs {
		names[i] = ref.EnvelopeID
	}
	what := fmt.Sprintf("%s %s by %s as %s, tried %d", s.how, joined(names), s.token, s.as, s.tried)
	told := r.attempt(what, p, func(ctx context.Context) error {
		err = s.call(ctx, p.store)
		return err
	}, func() error {
		for _, ref := range s.refs {
			failure := r.applySettle(p, s, ref)
			if errors.Is(failure, errEither) {
				open[ref] = true
			} else if failure != nil {
				failures[ref] = failure
			}
		}
		for _, failure := range failures {
			return failure
		}
		if len(open) > 0 {
			return errEither
		}
		return nil
	})
	if told {
		r.compareFailures(err, failures, open)
	}
	return told
}

func (r *modelRun) applySettle(p *modelProcess, s modelSettle, ref gobridge.Ref) error {
	now := p.clock.Now()
	return r.model.settle(s.token, ref, s.as, func(m *modelRecord) {
		m.Reason = "model"
		if s.how != "Complete" && s.tried == gobridge.Failed {
			m.Attempts++
		}
		if s.as != gobridge.StatePending {
			m.EndedAt = now
			return
		}
		if !s.notBefore.IsZero() {
			m.RetryAt = s.notBefore
		} else {
			r.learnRetryAt(m)
		}
	})
}

// learnRetryAt takes over the store's RetryAt of a record where the contract
// leaves it open: none, or what it was.
func (r *modelRun) learnRetryAt(m *modelRecord) {
	got, err := r.store.Get(r.Context(), m.Ref())
	if err != nil {
		r.failf("record %s: %v", m.Ref(), err)
	}
	if !got.RetryAt.IsZero() && !got.RetryAt.Equal(m.RetryAt) {
		r.failf("record %s was released without a time and has RetryAt %v, want none or %v", m.Ref(), got.RetryAt, m.RetryAt)
	}
	m.RetryAt = got.RetryAt
}

// compareFailures compares the records that a settling call names.
func (r *modelRun) compareFailures(err error, want map[gobridge.Ref]error, open map[gobridge.Ref]bool) {
	got := settleFailures(err)
	for ref, failure := range want {
		if got[ref] == nil || !errors.Is(got[ref], failure) {
			r.failf("settling %s came to %v, want %v", ref, got[ref], failure)
		}
	}
	for ref, failure := range got {
		if want[ref] == nil && !open[ref] {
			r.failf("settling %s came to %v, want nil", ref, failure)
		}
	}
}

// settleFailures returns the records that a settling call's error names.
func settleFailures(err error) map[gobridge.Ref]error {
	out := map[gobridge.Ref]error{}
	var settle *gobridge.SettleError
	if errors.As(err, &settle) {
		for _, failed := range settle.Failed {
			out[failed.Ref] = failed
		}
	}
	return out
}

func (r *modelRun) randomFilter() gobridge.Filter {
	var filter gobridge.Filter
	if r.chance(60) {
		filter.Partition = pick(r, modelPartitions())
	}
	if r.chance(50) {
		filter.OrderingKey, filter.HasKey = r.randomKey(), true
	}
	return filter
}

func (r *modelRun) redriveSome(p *modelProcess) {
	request := gobridge.BulkRequest{Filter: r.randomFilter(), Limit: 1000, By: p.name}
	var got gobridge.BulkResult
	var want []*modelRecord
	told := r.attempt(fmt.Sprintf("Redrive %+v", request.Filter), p, func(ctx context.Context) (err error) {
		got, err = p.store.Redrive(ctx, request)
		return err
	}, func() error {
		want = r.model.redrive(p.clock.Now(), request.Filter)
		r.learnAges(p, want)
		return nil
	})
	r.compareBulk(told, got, want)
}

func (r *modelRun) discardSome(p *modelProcess) {
	request := gobridge.BulkRequest{Filter: r.randomFilter(), Limit: 1000, By: p.name, Reason: "unwanted"}
	request.Filter.States = pick(r, [][]gobridge.State{
		{gobridge.StateDead}, {gobridge.StatePending}, {gobridge.StateDead, gobridge.StatePending},
	})
	var got gobridge.BulkResult
	var want []*modelRecord
	told := r.attempt(fmt.Sprintf("Discard %+v", request.Filter), p, func(ctx context.Context) (err error) {
		got, err = p.store.Discard(ctx, request)
		return err
	}, func() error {
		want = r.model.discard(p.clock.Now(), request)
		return nil
	})
	r.compareBulk(told, got, want)
}

// compareBulk compares what a bulk change says that it changed.
func (r *modelRun) compareBulk(told bool, got gobridge.BulkResult, want []*modelRecord) {
	r.Helper()
	if told {
		a, b := make([]gobridge.Ref, len(got.Items)), make([]gobridge.Ref, len(want))
		for i := range got.Items {
			a[i] = got.Items[i].Ref
		}
		for i := range want {
			b[i] = want[i].Ref()
		}
		slices.SortFunc(a, compareRefs)
		slices.SortFunc(b, compareRefs)
		if !slices.Equal(a, b) || got.Cursor != "" {
			r.failf("changed %v (cursor %q), want %v", a, got.Cursor, b)
		}
	}
	r.compareSome(want)
}

func (r *modelRun) randomControl() gobridge.Control {
	c := gobridge.Control{Kind: gobridge.Halt, Route: route, Binding: pick(r, []string{"mail", "crm"}), By: "model"}
	switch k := r.randomKey(); {
	case r.chance(25):
		c.Kind = gobridge.Pause
		if r.chance(30) {
			c.Binding = ""
		}
	case k != "":
		c.OrderingKey = k
	default:
		c.EnvelopeID = fmt.Sprintf("m%d", 1+r.rng.IntN(r.named+1))
	}
	return c
}

// controlSome sets a control, or lifts one: there are never many at a time.
func (r *modelRun) controlSome(p *modelProcess) {
	if len(r.model.controls) > r.rng.IntN(4) {
		c := pick(r, r.model.controls)
		r.attempt(fmt.Sprintf("ClearControl %+v", c), p,
			func(ctx context.Context) error { return p.store.ClearControl(ctx, c) },
			func() error {
				r.model.controls = slices.Delete(r.model.controls, r.model.control(c), r.model.control(c)+1)
				return nil
			})
		return
	}
	c := r.randomControl()
	r.attempt(fmt.Sprintf("SetControl %+v", c), p,
		func(ctx context.Context) error { return p.store.SetControl(ctx, c) },
		func() error {
			if r.model.control(c) < 0 {
				r.model.controls = append(r.model.controls, c)
			}
			return nil
		})
}

// retrySome makes released records due. When exactly they were is open.
func (r *modelRun) retrySome(p *modelProcess) {
	filter := r.randomFilter()
	now := p.clock.Now()
	r.attempt(fmt.Sprintf("Retry %+v", filter), p, func(ctx context.Context) error {
		_, err := p.store.Retry(ctx, gobridge.RetryRequest{Filter: filter})
		return err
	}, func() error {
		for _, m := range r.model.records {
			if m.State != gobridge.StatePending || m.RetryAt.IsZero() || !r.model.matches(m, filter) {
				continue
			}
			got, err := r.store.Get(r.Context(), m.Ref())
			if err != nil || got.RetryAt.After(now) {
				r.failf("after Retry record %s has RetryAt %v (error %v), want none after %v", m.Ref(), got.RetryAt, err, now)
			}
			m.RetryAt = got.RetryAt
		}
		return nil
	})
}

// finish lifts every control, lets every due time pass, and delivers what is
// left in a plain loop: nothing may stay behind.
func (r *modelRun) finish() {
	p := r.processes[0]
	p.clock.Advance(24 * time.Hour)
	for _, c := range r.model.controls {
		r.clearControl(c)
	}
	r.model.controls = nil
	for _, part := range modelPartitions() {
		r.newToken(p, part)
		request := gobridge.ClaimRequest{Partition: part, Token: p.tokens[part], Limit: 7, HeldKnown: true}
		for {
			got, err := p.store.Claim(r.Context(), request)
			want, _ := r.model.claim(p.clock.Now(), request)
			if err != nil || !slices.Equal(ids(got), idsOfModel(want)) {
				r.failf("at the end, claimed %s of %s and error %v, want %s", joined(ids(got)), part, err, joined(idsOfModel(want)))
			}
			if len(got) == 0 {
				break
			}
			s := modelSettle{how: "Complete", token: request.Token, as: gobridge.StateDelivered}
			for i := range got {
				s.refs = append(s.refs, got[i].Ref())
			}
			for !r.settleOnce(p, s) {
			}
		}
		if left := len(r.model.sorted(part, func(m *modelRecord) bool { return !m.State.Ended() })); left > 0 {
			r.failf("at the end, %d records of %s can't be claimed", left, part)
		}
	}
}
