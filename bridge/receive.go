package bridge

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"gobridge"
)

// Running reports whether Run or Drain is under way.
func (b *Bridge) Running() bool { return b.running.Load() }

// sourcePartition is the lease of a route's source, where one process at a time
// may run it. No partition of a binding has such a name.
func sourcePartition(route string) gobridge.Partition {
	return gobridge.Partition("~source/" + route)
}

// Waits between two runs of a receiver that gave up.
const (
	minReceiveWait = 100 * time.Millisecond
	maxReceiveWait = 30 * time.Second
)

// Receive runs a route's receiver until ctx ends, and returns nil then. A
// receiver that gives up or panics is logged and run again, after a while. One that
// is [gobridge.Solo] runs while this process has the lease of the route's source;
// the others stand by.
func (h *RouteHandle) Receive(ctx context.Context, receiver gobridge.Receiver) error {
	solo, ok := receiver.(gobridge.Solo)
	if ok && solo.Solo() {
		s := &sole{bridge: h.bridge, partition: sourcePartition(h.name), run: func(ctx context.Context) { h.receive(ctx, receiver) }}
		s.stand(ctx)
		return nil
	}
	h.receive(ctx, receiver)
	return nil
}

func (h *RouteHandle) receive(ctx context.Context, receiver gobridge.Receiver) {
	wait := minReceiveWait
	for ctx.Err() == nil {
		began := time.Now()
		err := h.receiveOnce(ctx, receiver)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxReceiveWait {
			wait = minReceiveWait // it had worked
		}
		h.bridge.opts.Logger.Error("the source gave up; it is run again", "route", h.name, "error", err, "in", wait)
		if !pauseFor(ctx, wait) {
			return
		}
		wait = min(2*wait, maxReceiveWait)
	}
}

func (h *RouteHandle) receiveOnce(ctx context.Context, receiver gobridge.Receiver) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			h.bridge.opts.Logger.Error("receiver panicked", "route", h.name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	if err := receiver.Receive(ctx, h.Take); err != nil {
		return err
	}
	return errors.New("it returned though it was not told to")
}

// sole runs something while this process has a lease. Time is the monotonic
// clock, as for a keeper.
type sole struct {
	bridge    *Bridge
	partition gobridge.Partition
	run       func(context.Context)

	sighting sighting // of another's lease
}

// stand waits for the lease and runs, again and again, until ctx ends.
func (s *sole) stand(ctx context.Context) {
	term := s.bridge.opts.LeaseTerm
	failed := false
	for ctx.Err() == nil {
		asked := time.Now()
		lease, err := s.acquire(ctx)
		switch {
		case err == nil:
			failed = false
			s.hold(ctx, lease, asked)
			continue
		case errors.Is(err, gobridge.ErrLeaseHeld):
			failed = false
		case ctx.Err() == nil && !failed:
			failed = true
			s.bridge.opts.Logger.Warn("the lease of a source cannot be had", "partition", s.partition, "error", err)
		}
		pauseFor(ctx, min(max(term/10, 5*time.Millisecond), time.Second))
	}
}

// acquire takes the lease if nobody holds it, or if its holder has not renewed it
// for its whole term.
func (s *sole) acquire(ctx context.Context) (gobridge.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.bridge.opts.LeaseTerm)
	defer cancel()
	request := gobridge.AcquireRequest{Partition: s.partition, Owner: s.bridge.opts.Owner, Term: s.bridge.opts.LeaseTerm}
	leases := s.bridge.opts.Leases
	all, err := leases.Leases(ctx)
	if err != nil {
		return gobridge.Lease{}, err
	}
	for _, l := range all {
		if l.Partition != s.partition || l.Released {
			continue
		}
		now := time.Now()
		if l.Revision != s.sighting.revision {
			s.sighting = sighting{revision: l.Revision, since: now}
		}
		if now.Sub(s.sighting.since) < l.Term && l.Token.Owner != request.Owner {
			return gobridge.Lease{}, gobridge.ErrLeaseHeld
		}
		request.Observed = l.Revision
	}
	return leases.Acquire(ctx, request)
}

// hold runs while the lease can be renewed, and gives it back.
func (s *sole) hold(ctx context.Context, lease gobridge.Lease, asked time.Time) {
	opts := &s.bridge.opts
	term := opts.LeaseTerm
	s.bridge.observe(ctx, Event{Kind: EventAcquired, Partition: s.partition})
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(running)
	}()
	end := time.AfterFunc(time.Until(asked.Add(term-term/10)), func() { stop(errTermEnded) })
	defer end.Stop()
	for pauseFor(running, term/3) {
		asked = time.Now()
		renewal, cancel := context.WithTimeout(running, term/3)
		got, err := opts.Leases.Renew(renewal, []gobridge.Lease{lease})
		cancel()
		switch {
		case err != nil:
		case len(got) == 0:
			stop(gobridge.ErrLeaseLost)
		case end.Stop():
			lease = got[0]
			end.Reset(time.Until(asked.Add(term - term/10)))
		}
	}
	<-done
	if cause := context.Cause(running); errors.Is(cause, errTermEnded) || errors.Is(cause, gobridge.ErrLeaseLost) {
		opts.Logger.Warn("lost the lease of a source; another process may take it over", "partition", s.partition, "error", cause)
		s.bridge.observe(ctx, Event{Kind: EventLost, Partition: s.partition, Err: cause})
		return
	}
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), term)
	defer cancel()
	if err := opts.Leases.Release(releasing, lease); err != nil {
		opts.Logger.Warn("the lease of a source was not released", "partition", s.partition, "error", err)
		return
	}
	s.bridge.observe(releasing, Event{Kind: EventHandedOver, Partition: s.partition})
}
