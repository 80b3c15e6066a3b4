package bridge

import (
	"log/slog"
	"slices"
)

const (
	// probeLimit is how many records one look for a key to probe takes, and
	// probeWindow how many it holds at most before it starts over with the
	// oldest.
	probeLimit  = 32
	probeWindow = 512
)

// tookProbe picks a record to probe with, of a key that has not been probed
// since the circuit opened, out of what has been claimed for it, and puts the
// rest back. If every such key has been probed, it looks further.
func (d *drainer) tookProbe(found bool) {
	probe := d.freshKey()
	if probe == nil && found && len(d.items) < min(probeWindow, d.window) && d.bytes < d.binding.BatchBytes {
		d.probing, d.more = false, true // claims again, beyond what is held now
		return
	}
	if probe == nil {
		d.circuit.startOver()
		probe = d.freshKey()
	}
	if probe == nil {
		d.probing = false // there is nothing; the next poll or wake-up looks again
		return
	}
	d.probe(probe)
}

// freshKey returns the oldest record waiting whose key has not been probed.
func (d *drainer) freshKey() *item {
	var oldest *item
	for _, it := range d.waiting() {
		if d.circuit.fresh(it.key(), false) && (oldest == nil || it.rec.Older(&oldest.rec)) {
			oldest = it
		}
	}
	return oldest
}

// waiting returns the first record of every group that could be sent now.
func (d *drainer) waiting() []*item {
	var out []*item
	for _, it := range d.items {
		if g := it.group; g.busy == 0 && len(g.queue) > 0 && g.queue[0] == it {
			out = append(out, it)
		}
	}
	slices.SortFunc(out, func(a, b *item) int {
		if a.rec.Older(&b.rec) {
			return -1
		}
		return 1
	})
	return out
}

// probe sends one record and puts everything else that waits back.
func (d *drainer) probe(it *item) {
	d.circuit.fresh(it.key(), true)
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
