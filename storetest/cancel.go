package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"gobridge"
)

func cancelCases() []testCase {
	return []testCase{
		{name: "CancelledBeforeDoesNothing", run: cancelledBeforeDoesNothing,
			why: "A caller that has given up must not find later that its call was carried out."},
		{name: "CancelledClaimStrandsNothing", run: cancelledClaimStrandsNothing,
			why: "A claim that is durable although its caller got an error belongs to nobody that knows of it."},
		{name: "CancelledSettleCanBeRepeated", run: cancelledSettleCanBeRepeated,
			why: "A settle that was cut off may or may not have happened; asked again, it has, and once."},
		{name: "CancelledRedriveCanBeRepeated", run: cancelledRedriveCanBeRepeated,
			why: "A page of redrives that was cut off is asked for again; every record comes back, and once."},
	}
}

func cancelledRedriveCanBeRepeated(f *fixture) {
	var want []string
	for n := range 30 {
		some := numbered(fmt.Sprintf("r%d", n), 3)
		for _, id := range some {
			f.persist(record(id, key("k"), dead()))
		}
		if _, err := f.store.Redrive(f.interrupted(n), gobridge.BulkRequest{}); err != nil {
			f.redrive(gobridge.Filter{})
		}
		for _, id := range some {
			if r := f.get(id); r.State != gobridge.StatePending || r.Redrives != 1 {
				f.Fatalf("after a Redrive cut off at look %d and another, record %q is %s, redriven %d times", n, id, r.State, r.Redrives)
			}
		}
		want = append(want, some...)
	}
	f.claimExactly(1, len(want), want...)
}

// lookContext is cancelled when it has been looked at a number of times.
type lookContext struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func (c *lookContext) look() {
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
}

func (c *lookContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *lookContext) Err() error {
	c.look()
	return c.Context.Err()
}

// interrupted returns a context that allows for n looks at it and is cancelled
// at the next, so that a call is cut off at its n-th step, whatever that is.
func (f *fixture) interrupted(n int) context.Context {
	ctx, cancel := context.WithCancel(f.Context())
	f.Cleanup(cancel)
	c := &lookContext{Context: ctx, cancel: cancel}
	c.left.Store(int64(n))
	return c
}

func cancelledBeforeDoesNothing(f *fixture) {
	f.kill("dead", "dead")
	f.persist(record("claimed"))
	f.claimExactly(1, 1, "claimed")
	f.persist(record("pending"))
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	discard := gobridge.BulkRequest{Filter: gobridge.Filter{States: states(gobridge.StateDead, gobridge.StatePending)}}
	for name, call := range map[string]func() error{
		"Persist": func() error { return f.store.Persist(ctx, []gobridge.Record{record("new")}) },
		"Claim": func() error {
			got, err := f.store.Claim(ctx, request(2, 10))
			if len(got) != 0 {
				f.Fatalf("a cancelled Claim returned %s", idsOf(got))
			}
			return err
		},
		"Complete":     func() error { return f.store.Complete(ctx, token(1), completions("claimed")) },
		"Release":      func() error { return f.store.Release(ctx, token(1), []gobridge.Release{{Ref: ref("claimed")}}) },
		"DeadLetter":   func() error { return f.store.DeadLetter(ctx, token(1), burials("claimed")) },
		"Redrive":      func() error { _, err := f.store.Redrive(ctx, gobridge.BulkRequest{}); return err },
		"Discard":      func() error { _, err := f.store.Discard(ctx, discard); return err },
		"SetControl":   func() error { return f.store.SetControl(ctx, pauseOf(route, binding)) },
		"Stats":        func() error { _, err := f.store.Stats(ctx); return err },
		"QueryPending": func() error { _, err := f.store.QueryPending(ctx, part, 1); return err },
	} {
		f.wantErr(name+" with a cancelled context", call(), context.Canceled)
	}
	f.wantGone("new")
	f.wantState(gobridge.StateClaimed, "claimed")
	f.wantState(gobridge.StatePending, "pending")
	f.wantState(gobridge.StateDead, "dead")
	if len(f.controls()) != 0 {
		f.Fatal("a cancelled SetControl has set the control")
	}
	if fence := f.stats(part).Fence; fence != token(1) {
		f.Fatalf("a cancelled Claim has raised the fence to %s", fence)
	}
}

func cancelledClaimStrandsNothing(f *fixture) {
	want := numbered("r", 30)
	f.persistEach("k", want...)
	for n := range 60 {
		got, err := f.store.Claim(f.interrupted(n), request(1, len(want)))
		if err != nil && len(got) != 0 {
			f.Fatalf("Claim cut off at look %d returned %d records and error %v", n, len(got), err)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			f.Fatalf("Claim cut off at look %d returned error %v, want context.Canceled", n, err)
		}
		if claimed := f.stats(part).Claimed; claimed != int64(len(got)) {
			f.Fatalf("Claim cut off at look %d returned %d records and error %v, and %d are claimed", n, len(got), err, claimed)
		}
		f.wantIDs(got, want[:len(got)]...)
		for _, id := range ids(got) {
			f.release(1, id, gobridge.Untried, f.clock.Now())
		}
	}
	f.claimExactly(1, 100, want...)
}

func cancelledSettleCanBeRepeated(f *fixture) {
	version := int64(1)
	for n := range 40 {
		a, b, c := fmt.Sprintf("a-%d", n), fmt.Sprintf("b-%d", n), fmt.Sprintf("c-%d", n)
		f.persist(record(a), record(b), record(c))
		f.claimExactly(version, 10, a, b, c)
		cutOff := f.settlesUnder(f.interrupted(n))
		for how, id := range map[string]string{"Complete": a, "Release": b, "DeadLetter": c} {
			err := cutOff[how](token(version), id)
			if err != nil {
				err = f.settles()[how](token(version), id)
			}
			if err != nil {
				f.Fatalf("%s after one that was cut off at look %d: %v, want nil", how, n, err)
			}
			f.wantState(settledState(how), id)
		}
		f.wantCounters("released once or twice", b, counters{1, 1, 0})
		f.complete(version, f.claimExactly(version, 10, b)[0].Envelope.ID)
	}
}
