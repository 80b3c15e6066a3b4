package bridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"gobridge"
)

const (
	// lookEvery is the pause between two looks, while a destination is down,
	// whether somebody wants it tried at once.
	lookEvery = 500 * time.Millisecond
	// reportAgain is the least pause between two reports of an outage that goes on.
	reportAgain = time.Second
)

// reporter tells the store how the destination is, for whoever looks from
// another process, and learns from it when to probe at once. The loop owns it.
type reporter struct {
	busy     bool
	reported gobridge.Condition // what the store has of this owner
	at       time.Time          // of the last report
	next     time.Time          // the next look
	done     chan report
}

// retriesSeen is how often somebody had asked for a retry when a drainer of the
// destination looked last. It outlives the tenancy, as the circuit does.
type retriesSeen struct {
	n     int64
	known bool // there was a look since the circuit opened
}

// report is what a call of the reporter came to.
type report struct {
	looked  bool
	retries int64
	sent    gobridge.Condition
	err     error
}

// condition is what is to be known of the circuit outside of this process. The
// error of a destination that is up is nobody's business.
func (c *circuit) condition() gobridge.Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return gobridge.Condition{Since: c.since.Round(0)}
	}
	return gobridge.Condition{Down: true, Since: c.since.Round(0), Error: c.lastErr, NextProbe: c.nextProbe.Round(0)}
}

// startReport reports what has changed, or looks for retries while the
// destination is down.
func (d *drainer) startReport() {
	r := &d.reporter
	if r.busy || d.stopping {
		return
	}
	now := time.Now()
	current := d.circuit.condition()
	if !current.Down {
		d.retries.known = false
	}
	flipped := current.Down != r.reported.Down
	moved := current.Down && current != r.reported && now.Sub(r.at) >= reportAgain
	switch {
	case flipped || moved:
		r.busy, r.at = true, now
		d.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(d.work, settleTimeout)
			defer cancel()
			r.done <- report{sent: current, err: d.bridge.store.Report(ctx, d.partition, d.token, current)}
		})
	case current.Down && !now.Before(r.next):
		r.busy = true
		d.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(d.work, settleTimeout)
			defer cancel()
			stats, err := d.bridge.store.Stats(ctx, d.partition)
			out := report{looked: true, err: err}
			if err == nil && len(stats) > 0 {
				out.retries = stats[0].Retries
			}
			r.done <- out
		})
	}
}

// reportDone takes up what a call came to.
func (d *drainer) reportDone(done report) {
	r := &d.reporter
	r.busy = false
	if done.err != nil {
		r.next = time.Now().Add(reportAgain)
		if !errors.Is(done.err, gobridge.ErrStaleFencingToken) && !d.lost() {
			d.trouble("the destination's condition cannot be kept", done.err)
		}
		if !done.looked { // not again at once
			r.reported.Down = done.sent.Down
		}
		return
	}
	if !done.looked {
		r.reported = done.sent
		return
	}
	r.next = time.Now().Add(lookEvery)
	if d.retries.known && done.retries != d.retries.n {
		d.log(slog.LevelInfo, "asked to try the destination at once")
		d.circuit.probeNow()
		d.more = true
	}
	d.retries = retriesSeen{done.retries, true}
}

// when returns when the reporter wants to act next, zero for not by time.
func (r *reporter) when(c gobridge.Condition) time.Time {
	switch {
	case r.busy || !c.Down:
		return time.Time{}
	case c != r.reported && r.at.Add(reportAgain).Before(r.next):
		return r.at.Add(reportAgain)
	}
	return r.next
}
