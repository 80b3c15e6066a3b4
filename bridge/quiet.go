package bridge

import (
	"context"
	"slices"
	"time"

	"gobridge"
)

// idleEvery is the pause between two claims, and two steps of housekeeping, of a
// partition of which the store says that it is quiet.
const idleEvery = 2 * time.Minute

// watchQuiet asks the store, if it can tell, which of the partitions that have
// nothing to do are quiet, and wakes the drainers of the others, until ctx ends.
// So a partition in which nothing happens costs no claims.
func (b *Bridge) watchQuiet(ctx context.Context) {
	store, ok := b.store.(gobridge.Quieter)
	if !ok {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(b.opts.PollInterval):
		}
		var idle []gobridge.Partition
		for _, d := range b.lineup.Load().destinations {
			if dr := d.drainer.Load(); dr != nil && dr.status.isIdle() {
				idle = append(idle, d.partition)
			}
		}
		if len(idle) == 0 {
			continue
		}
		call, cancel := context.WithTimeout(ctx, settleTimeout)
		quiet, err := store.Quiet(call, idle...)
		cancel()
		if err != nil {
			quiet = nil // each finds out for itself
		}
		for _, p := range idle {
			d := b.lineup.Load().byPartition[p]
			if now := slices.Contains(quiet, p); d != nil && d.quiet.Swap(now) && !now {
				d.wakeUp() // else it polls by itself
			}
		}
	}
}

// pollPause is the pause before a claim that nothing calls for.
func (d *drainer) pollPause() time.Duration {
	if d.empty && d.failures == 0 && d.quiet.Load() {
		return max(idleEvery, d.pause)
	}
	return d.pause
}

// woken notes that there may be work.
func (d *drainer) woken() {
	d.more = true
	d.quiet.Store(false)
	if soon := time.Now().Add(sweepEvery); d.nextSweep.After(soon) {
		d.nextSweep = soon
	}
}

// isIdle reports whether there was nothing to claim and nothing is held.
func (s *drainerStatus) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle
}
