package bridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"gobridge"
)

// Reasons kept with records that are tried again.
const (
	reasonFailed      = "failed"      // for its own reasons
	reasonUnavailable = "unavailable" // the destination took nothing
	reasonUnclear     = "unclear"     // one or the other
)

// suspect is a record whose failure waits for a sign of whose fault it is. It
// stays claimed until then, and its key waits.
type suspect struct {
	item   *item
	text   string
	tick   uint64
	at     time.Time
	ours   bool // it is the record's own for certain
	panics bool // it is the record's own unless the destination is down
}

// suspect takes up a failure that may be the record's or the destination's.
func (d *drainer) suspect(it *item, err error, text string, proven bool) {
	s := suspect{item: it, text: text, at: time.Now(), ours: proven, panics: errors.Is(err, errPanic)}
	s.tick = d.circuit.fail(it.key(), it.rec.Envelope.ID, text)
	it.group.busy++ // holds its key
	d.suspects = append(d.suspects, s)
}

// passed finds those whose failure began before a success of another key did:
// the destination was there.
func (d *drainer) passed(key keyID, tick uint64) {
	for i := range d.suspects {
		if s := &d.suspects[i]; !s.ours && s.tick < tick && s.item.key() != key {
			s.ours = true
			d.circuit.told(s.item.rec.Envelope.ID, tick)
		}
	}
}

// judge decides what can be decided about the suspects.
func (d *drainer) judge() {
	if len(d.suspects) == 0 {
		return
	}
	idle := !d.underway() && !d.othersSend(d)
	if d.circuit.down(idle) {
		d.trip(d.suspects[len(d.suspects)-1].text, 0)
	}
	left := d.suspects[:0]
	for _, s := range d.suspects {
		it := s.item
		last := idle || d.stopping || time.Since(s.at) >= judgeAfter
		v := d.circuit.judge(it.rec.Envelope.ID, s.tick)
		switch {
		case s.ours || v == own || v == unclear && last && s.panics:
			it.group.busy--
			d.failed(it, s.text)
		case v == theirs:
			it.group.busy--
			d.releaseTail(it.group, &op{item: it, kind: opRelease, tried: gobridge.Blameless, reason: reasonUnavailable, err: s.text})
		case last:
			it.group.busy--
			d.releaseTail(it.group, &op{
				item: it, kind: opRelease, tried: gobridge.Blameless, reason: reasonUnclear, err: s.text,
				pause: d.circuit.pauseOf(it.rec.Envelope.ID),
			})
		default:
			left = append(left, s)
		}
	}
	clear(d.suspects[len(left):])
	d.suspects = left
}

// trip opens the circuit: nothing is sent but probes, and what waits goes back.
func (d *drainer) trip(text string, after time.Duration) {
	if d.circuit.trip(text, after) {
		say, more := d.bridge.repeats.news(destinationDown + " " + d.route.Name + "/" + d.binding.Name)
		d.sayDown(say, text, more...)
		d.observe(d.work, Event{Kind: EventOpened, Err: errors.New(text)})
		d.stopQueueing() // what waits for its turn would keep the probes waiting
		if !d.stopping {
			d.queueing, d.stopQueueing = context.WithCancel(d.sends)
		}
	}
	d.releaseQueued()
}

const destinationDown = "destination is down"

// sayDown says that the destination is down, and notes it for others to see. Of one
// that comes and goes that is said now and then, and when it stays away.
func (d *drainer) sayDown(news bool, text string, attrs ...slog.Attr) {
	d.bridge.troubles.note(d.partition, destinationDown, errors.New(text))
	if d.circuit.tell(news) {
		d.log(slog.LevelWarn, destinationDown, append(attrs, slog.String("error", text))...)
	}
}

// closed goes on at once after the destination has come back.
func (d *drainer) closed(openFor time.Duration) {
	if d.circuit.saidSo() {
		d.log(slog.LevelInfo, "destination is back", slog.Duration("down_for", openFor))
	}
	d.observe(d.work, Event{Kind: EventClosed, Took: openFor})
	d.outlet.wakeUp() // the other partitions' drainers, too
	d.more = true
}

// failed counts an attempt: the record is tried again later, or fails for good.
func (d *drainer) failed(it *item, text string) {
	attempts := it.rec.Attempts + 1
	if attempts >= d.binding.Retry.Attempts {
		d.circuit.forget(it.rec.Envelope.ID)
		d.fail(it, gobridge.Failed, gobridge.ReasonExhausted, text)
		return
	}
	d.releaseTail(it.group, &op{
		item: it, kind: opRelease, tried: gobridge.Failed, reason: reasonFailed, err: text,
		pause: backoff(d.binding.Retry.MinBackoff, d.binding.Retry.MaxBackoff, attempts-1),
	})
}

// fail ends a record for good, as the binding's policy says. Its key goes on
// once that is confirmed.
func (d *drainer) fail(it *item, tried gobridge.Tried, reason, text string) {
	d.log(slog.LevelWarn, "record failed for good", about(&it.rec.Envelope),
		slog.String("reason", reason), slog.String("error", text))
	switch d.binding.OnFailure {
	case FailDiscard:
		d.end(op{item: it, kind: opComplete, as: gobridge.StateDiscarded, reason: reason, err: text})
	case FailHaltKey:
		d.halt(it, tried, reason, text)
	default:
		d.end(op{item: it, kind: opBury, tried: tried, reason: reason, err: text})
	}
}

// expire ends a record that has expired.
func (d *drainer) expire(it *item) {
	d.circuit.forget(it.rec.Envelope.ID)
	const text = "expired before it could be delivered"
	if d.route.OnExpire == ExpireDeadLetter {
		d.end(op{item: it, kind: opBury, reason: gobridge.ReasonExpired, err: text})
		return
	}
	d.end(op{item: it, kind: opComplete, as: gobridge.StateExpired, reason: gobridge.ReasonExpired, err: text})
}

// end settles a record that leaves without having been delivered. The rest of
// its key waits until that is confirmed.
func (d *drainer) end(o op) {
	o.item.group.busy++
	o.ends = true
	d.settleLater(o)
}

// halt holds a key until a person decides: the control first, and with it in
// force the record and its tail go back.
func (d *drainer) halt(it *item, tried gobridge.Tried, reason, text string) {
	control := gobridge.Control{
		Kind: gobridge.Halt, Route: d.route.Name, Binding: d.binding.Name,
		OrderingKey: it.rec.Envelope.OrderingKey, Since: d.bridge.opts.Now().Round(0),
		By: d.bridge.opts.Owner, Reason: reason + ": " + text,
	}
	if control.OrderingKey == "" {
		control.EnvelopeID = it.rec.Envelope.ID
	}
	d.log(slog.LevelWarn, "key halted", about(&it.rec.Envelope),
		slog.String("reason", reason), slog.String("error", text))
	d.observe(d.work, Event{Kind: EventHalted, Count: 1, Err: errors.New(text)})
	d.releaseTail(it.group, &op{item: it, kind: opRelease, tried: tried, reason: reason, err: text, halt: &control})
}

// errorText is what a store keeps of an error.
func errorText(err error) string { return bounded(err.Error(), 2000) }
