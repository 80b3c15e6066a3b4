package bridge

import (
	"context"
	"errors"
	"time"

	"gobridge"
)

// sweep is what a step of housekeeping came to.
type sweep struct {
	result gobridge.SweepResult
	err    error
}

// startSweep does a step of housekeeping beside the loop when it is time, also
// while the destination is down or the binding is paused.
func (d *drainer) startSweep() {
	if d.sweeping || d.stopping || time.Now().Before(d.nextSweep) {
		return
	}
	d.sweeping = true
	request := gobridge.SweepRequest{
		Partition: d.partition, Token: d.token, Limit: sweepLimit, MaxBackoff: d.binding.Retry.MaxBackoff,
	}
	if d.route.OnExpire == ExpireDeadLetter {
		request.ExpireTo = gobridge.StateDead
	}
	d.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(d.work, settleTimeout)
		defer cancel()
		result, err := d.bridge.store.Sweep(ctx, request)
		d.swept <- sweep{result, err}
	})
}

// sweepDone takes up a step of housekeeping. An error means that the partition
// is another's.
func (d *drainer) sweepDone(s sweep) error {
	d.sweeping = false
	d.nextSweep = time.Now().Add(sweepEvery)
	if s.err != nil {
		if errors.Is(s.err, gobridge.ErrStaleFencingToken) {
			return s.err
		}
		if !d.lost() {
			d.trouble("housekeeping failed", s.err)
		}
		return nil
	}
	r := s.result
	if d.empty && d.quiet.Load() {
		d.nextSweep = time.Now().Add(idleEvery)
	}
	if r.More {
		d.nextSweep = time.Now().Add(sweepAgain)
	}
	if r.Clamped > 0 {
		d.more = true
	}
	if r.Expired > 0 {
		d.more = true // what they held up may be claimable
		kind := EventExpired
		if d.route.OnExpire == ExpireDeadLetter {
			kind = EventDeadLettered
		}
		d.observe(d.work, Event{Kind: kind, Count: r.Expired, Err: asError(gobridge.ReasonExpired)})
	}
	if n := r.Purged + r.Aged + r.Clamped; n > 0 {
		d.observe(d.work, Event{Kind: EventSwept, Count: n})
	}
	return nil
}
