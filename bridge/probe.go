package bridge

import (
	"log/slog"
	"slices"
)

// probeWindow is how many keys are looked through for one that has not been
// probed yet, before the oldest is probed again; then twice as many, and so on, for
// so many may fail for reasons of their own, and a good one wait behind them.
const probeWindow = 256

// tookProbe picks a record to probe with, of a key that has not been probed
// since the circuit opened, out of what has been claimed for it, and puts the
// rest back. If every such key has been probed, it looks further: one record at a
// time, for what is held keeps the rest of its key out of the next claim.
func (d *drainer) tookProbe(taken []*item) {
	for _, it := range taken {
		if it.next() && d.circuit.fresh(it.key()) {
			d.probe(it)
			return
		}
	}
	if len(taken) > 0 && len(d.items) < min(d.circuit.reach(), d.window) && d.bytes < d.binding.BatchBytes {
		d.probing, d.more = false, true // claims again, beyond what is held now
		return
	}
	d.circuit.startOver()
	if oldest := d.waiting(); len(oldest) > 0 {
		d.probe(oldest[0])
		return
	}
	d.probing = false // there is nothing; the next poll or wake-up looks again
}

// waiting returns the first record of every group that could be sent now, in
// ascending age.
func (d *drainer) waiting() []*item {
	var out []*item
	for _, it := range d.items {
		if it.next() {
			out = append(out, it)
		}
	}
	slices.SortFunc(out, func(a, b *item) int {
		if a.rec.Older(b.rec) {
			return -1
		}
		return 1
	})
	return out
}

// probe sends one record and puts everything else that waits back.
func (d *drainer) probe(it *item) {
	d.circuit.noteProbe(it.key())
	g := it.group
	g.queue = g.queue[1:]
	d.releaseQueued()
	if !d.sendable(it) { // it has expired, say: that needs no destination
		d.probing, d.more = false, true
		return
	}
	d.log(slog.LevelDebug, "probing the destination")
	d.take(it)
	d.startSend([]*item{it}, true, true)
}
