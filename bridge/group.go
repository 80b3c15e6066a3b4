package bridge

import (
	"slices"
	"time"

	"gobridge"
)

// item is a record that this process has claimed.
type item struct {
	rec     *gobridge.Record
	group   *group
	size    int64 // zero once its payload is let go
	claimed time.Time
	sending bool
	solo    group // the group, unless it is in an earlier record's
}

func (it *item) ref() gobridge.Ref { return it.rec.Ref() }

func (it *item) key() keyID {
	if k := it.rec.Envelope.OrderingKey; k != "" {
		return keyID{true, k}
	}
	return keyID{false, it.rec.Envelope.ID}
}

// next reports whether the item could be sent now: it is the first of its group,
// which waits for nothing.
func (it *item) next() bool {
	g := it.group
	return g.busy == 0 && len(g.queue) > 0 && g.queue[0] == it
}

// group is the claimed records of one ordering key, or one record without. One
// send of it is under way at a time.
type group struct {
	key    string  // empty: one record without a key
	queue  []*item // not yet sent, in ascending age
	busy   int     // records sent or being ended, whose outcome the rest waits for
	queued bool    // stands in the ready queue
}

// queue is the groups that have something to send, first come first served.
type queue struct {
	groups []*group
	head   int
}

func (q *queue) len() int { return len(q.groups) - q.head }

func (q *queue) front() *group { return q.groups[q.head] }

func (q *queue) push(g *group) {
	if g.queued {
		return
	}
	g.queued = true
	q.groups = append(q.groups, g)
}

func (q *queue) pop() {
	q.front().queued = false
	q.groups[q.head] = nil
	q.head++
	if q.head == len(q.groups) {
		q.groups, q.head = q.groups[:0], 0
	} else if q.head >= 1024 { // don't let the spent part grow with a queue that never empties
		q.groups, q.head = append(q.groups[:0], q.groups[q.head:]...), 0
	}
}

func (q *queue) clear() {
	for q.len() > 0 {
		q.pop()
	}
}

// admit takes a claimed record in. It reports false for one that is held
// already.
func (d *drainer) admit(it *item) bool {
	id := it.rec.Envelope.ID
	if d.items[id] != nil {
		return false
	}
	d.items[id] = it
	it.group = &it.solo
	it.size = payloadSize(it.rec)
	d.bytes += it.size
	return true
}

// payloadSize is what a record counts as where bytes are bounded.
func payloadSize(r *gobridge.Record) int64 {
	return int64(len(r.Envelope.Payload) + r.Envelope.Headers.Size())
}

// enqueue puts an admitted item in its place among those of its key, which is
// behind them but for a record whose CreatedAt was given.
func (d *drainer) enqueue(it *item) {
	if key := it.rec.Envelope.OrderingKey; key != "" {
		if g := d.groups[key]; g != nil {
			it.group = g
		} else {
			it.group.key = key
			d.groups[key] = it.group
		}
	}
	q := it.group.queue
	at := len(q)
	for at > 0 && it.rec.Older(q[at-1].rec) {
		at--
	}
	it.group.queue = slices.Insert(q, at, it)
}

// proceed makes the group ready if there is something to send and nothing to
// wait for, and forgets it when it is done.
func (d *drainer) proceed(g *group) {
	switch {
	case g.busy > 0:
	case len(g.queue) == 0:
		if g.key != "" && d.groups[g.key] == g {
			delete(d.groups, g.key)
		}
	case d.stopping:
		d.releaseTail(g, nil)
	default:
		d.ready.push(g)
	}
}

// unload lets an item's payload go: it only waits to be settled.
func (d *drainer) unload(it *item) {
	d.bytes -= it.size
	it.size = 0
	it.rec.Envelope.Payload = nil
	it.rec.Envelope.Headers = nil
}

// drop forgets an item that is settled, or another's.
func (d *drainer) drop(it *item) {
	d.bytes -= it.size
	it.size = 0
	delete(d.items, it.rec.Envelope.ID)
}
