package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"gobridge"
)

// Claims that took over a claimed record and never settled it: above aloneAbove
// the record is sent alone, above onlyAbove with nothing else claimed, so that
// others are not counted along if the process dies, above crashedAbove no more
// at all.
const (
	aloneAbove   = 1
	onlyAbove    = 2
	crashedAbove = 5
)

// errPanic says that a sender panicked.
var errPanic = errors.New("the sender panicked")

// result is what a send came to.
type result struct {
	batch []*item
	tick  uint64 // of the start
	probe bool
	// untried says that the batch was not handed to the sender after all.
	untried bool
	errs    []error // one each
	took    time.Duration
}

// startSends sends what is ready, so far as there is room.
func (d *drainer) startSends() {
	d.clearing = false
	for d.ready.len() > 0 && d.sending < d.binding.Concurrency && !d.alone && !d.stopping {
		if open, _ := d.circuit.state(); open {
			d.releaseQueued()
			return
		}
		g := d.ready.front()
		if g.busy > 0 || len(g.queue) == 0 {
			d.ready.pop()
			continue
		}
		head := g.queue[0]
		if !d.allowed(head) {
			d.ready.pop()
			d.releaseTail(g, nil)
			continue
		}
		alone := head.rec.Unsettled > aloneAbove
		if alone && head.rec.Unsettled <= crashedAbove && !d.clearFor(head) {
			return // until the others are back
		}
		if d.batch.MaxRecords > 1 && !alone {
			if batch := d.fill(); len(batch) > 0 {
				d.startSend(batch, false, false)
			}
			continue
		}
		d.ready.pop()
		g.queue = g.queue[1:]
		if d.sendable(head) {
			d.take(head)
			d.startSend([]*item{head}, alone, false)
		}
	}
}

// clearFor reports whether a record that is to be sent alone can be sent now.
// For one that is to be the only one claimed, it puts everything else back.
func (d *drainer) clearFor(head *item) bool {
	if d.sending > 0 {
		return false
	}
	if head.rec.Unsettled <= onlyAbove {
		return true
	}
	d.clearing = true
	for _, it := range d.items {
		if it.group != head.group && len(it.group.queue) > 0 {
			d.releaseTail(it.group, nil)
		}
	}
	for _, it := range head.group.queue[1:] {
		d.settleLater(op{item: it, kind: opRelease})
	}
	head.group.queue = head.group.queue[:1]
	d.ready.clear()
	d.ready.push(head.group)
	return len(d.items) == 1 && !d.claiming
}

// take marks an item as being sent: its key waits.
func (d *drainer) take(it *item) {
	it.group.busy++
	it.sending = true
}

// allowed reports whether no pause or halt has come since the claim, which saw
// those before.
func (d *drainer) allowed(it *item) bool {
	holds := d.bridge.holds.Load()
	return holds == nil || holds.at.Before(it.claimed) || !holds.stop(d.route.Name, d.binding.Name, it.rec)
}

// sendable reports whether an item taken off its group's queue is to be sent,
// and ends it otherwise.
func (d *drainer) sendable(it *item) bool {
	switch {
	case it.rec.Expired(d.bridge.opts.Now()):
		d.expire(it)
	case it.rec.Unsettled > crashedAbove:
		d.fail(it, gobridge.Untried, gobridge.ReasonCrashed, fmt.Sprintf(
			"claimed %d times in a row by a process that never came to settle it", it.rec.Unsettled))
	default:
		return true
	}
	return false
}

// fill takes a batch off the ready queue: whole groups as far as they fit, up
// to the first record that has to go alone. The batch is in ascending age.
func (d *drainer) fill() []*item {
	var batch []*item
	var bytes int64
	fits := func(it *item) bool {
		return len(batch) < d.batch.MaxRecords &&
			(len(batch) == 0 || d.batch.MaxBytes <= 0 || bytes+it.size <= d.batch.MaxBytes)
	}
	for d.ready.len() > 0 {
		g := d.ready.front()
		if g.busy > 0 || len(g.queue) == 0 {
			d.ready.pop()
			continue
		}
		if head := g.queue[0]; head.rec.Unsettled > aloneAbove || !d.allowed(head) || !fits(head) {
			break
		}
		d.ready.pop()
		for len(g.queue) > 0 && fits(g.queue[0]) && g.queue[0].rec.Unsettled <= aloneAbove && (g.busy == 0 || !d.batch.OnePerKey) {
			it := g.queue[0]
			g.queue = g.queue[1:]
			if !d.sendable(it) {
				break // its end must be confirmed before the rest goes on
			}
			d.take(it)
			batch = append(batch, it)
			bytes += it.size
		}
	}
	slices.SortFunc(batch, func(a, b *item) int {
		if a.rec.Older(b.rec) {
			return -1
		}
		return 1
	})
	return batch
}

// startSend sends a batch of taken items beside the loop; alone keeps others from
// being sent meanwhile.
func (d *drainer) startSend(batch []*item, alone, probe bool) {
	d.sending++
	d.alone = alone
	j := job{batch, probe, d.queueing}
	select {
	case d.jobs <- j:
	default:
		go d.sendAll(j)
	}
}

// job is a batch to send.
type job struct {
	batch []*item
	probe bool
	turn  context.Context // for how long it may wait for its turn
}

// sendAll sends one batch after the other, for a goroutine of its own to each
// would have to grow its stack anew each time.
func (d *drainer) sendAll(j job) {
	for {
		d.send(j)
		select {
		case j = <-d.jobs:
		case <-d.over:
			return
		}
	}
}

// send runs beside the loop and answers it, always.
func (d *drainer) send(j job) {
	batch := j.batch
	r := result{batch: batch, probe: j.probe}
	defer func() {
		if !r.untried && len(r.errs) != len(batch) { // a sender can end its goroutine, too
			err := fmt.Errorf("the sender gave %d answers for %d deliveries", len(r.errs), len(batch))
			r.errs = slices.Repeat([]error{err}, len(batch))
		}
		d.results <- r
	}()
	if d.limiter != nil {
		if !d.waitTurn(j.turn, len(batch)) {
			r.untried = true
			return
		}
		open, _ := d.circuit.state()
		if open && !j.probe || slices.ContainsFunc(batch, d.tooLate) {
			r.untried = true
			return
		}
	}
	deliveries := make([]gobridge.Delivery, len(batch))
	for i, it := range batch {
		deliveries[i] = gobridge.Delivery{
			Envelope: it.rec.Envelope, Route: d.route.Name, Binding: d.binding.Name, Partition: d.partition,
			Attempt: max(1, it.rec.ReplayCount), Redrives: it.rec.Redrives, Token: d.token, Seq: it.rec.Seq,
		}
	}
	if d.lost() {
		r.untried = true
		return
	}
	r.tick = d.circuit.start()
	began := time.Now()
	r.errs = d.call(deliveries)
	r.took = time.Since(began)
	for i, err := range r.errs {
		if err != nil {
			r.errs[i] = speakable(err)
		}
	}
}

// waitTurn waits until n records may be sent under the rate, and reports false if
// ctx ends first. One waits at a time: the limiter gives back what is not used
// only if nobody has come after.
func (d *destination) waitTurn(ctx context.Context, n int) bool {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return false
	}
	for range n {
		if d.limiter.Wait(ctx) != nil {
			return false
		}
	}
	return true
}

// speakable returns err if its text can be had, and an error that says why not
// otherwise: the methods of an error are the sender's code.
func speakable(err error) (out error) {
	defer func() {
		if v := recover(); v != nil {
			out = fmt.Errorf("the sender gave a %T that cannot be read: %v", err, v)
		}
	}()
	_ = err.Error()
	gobridge.Classify(err)
	return err
}

// tooLate reports whether an item has expired or been put on hold while its send
// waited for its turn.
func (d *drainer) tooLate(it *item) bool {
	return it.rec.Expired(d.bridge.opts.Now()) || !d.allowed(it)
}

// call calls the sender, within its time, and answers for one that panics.
func (d *drainer) call(batch []gobridge.Delivery) (errs []error) {
	ctx, cancel := context.WithTimeout(d.sends, d.binding.Timeout)
	defer cancel()
	// Nobody can end a sender that ignores its context. It holds up its key.
	defer time.AfterFunc(2*d.binding.Timeout, func() {
		d.log(slog.LevelError, "a send does not return, though its time is over: the sender ignores its context",
			about(&batch[0].Envelope), slog.Duration("timeout", d.binding.Timeout))
	}).Stop()
	defer func() {
		if v := recover(); v != nil {
			d.log(slog.LevelError, "sender panicked", about(&batch[0].Envelope),
				slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			errs = slices.Repeat([]error{fmt.Errorf("%w: %v", errPanic, v)}, len(batch))
		}
	}()
	return d.binding.Sender.Send(ctx, batch)
}

// sent takes up what a send came to.
func (d *drainer) sent(r result) {
	d.sending--
	d.alone = false
	if !r.untried && d.lost() {
		d.tellLate(r.batch)
	}
	for _, it := range r.batch {
		it.sending = false
		it.group.busy--
	}
	if r.untried {
		for _, it := range r.batch {
			d.releaseTail(it.group, &op{item: it, kind: opRelease})
		}
		d.probing = d.probing && !r.probe
		return
	}
	failed := false // something in the batch, so that what is behind it may be unsent
	for i, it := range r.batch {
		outcome, after := gobridge.Classify(r.errs[i])
		if outcome == gobridge.OutcomeDelivered {
			d.delivered(it, r)
			continue
		}
		if outcome == gobridge.OutcomeNotSent && failed {
			d.releaseTail(it.group, &op{item: it, kind: opRelease})
			continue
		}
		failed = true
		d.observe(d.work, Event{Kind: EventFailed, Count: 1, Bytes: it.size, Took: r.took, Err: r.errs[i]})
		d.notDelivered(it, r, outcome, after, r.errs[i], laterPassed(r, i))
	}
	if r.probe {
		d.probing, d.mayProbe = false, false
		d.circuit.probeFailed() // does nothing if it passed
		if c := d.circuit.condition(); c.Down {
			d.sayDown(false, c.Error)
		}
		d.more = true
	}
	for _, it := range r.batch {
		d.proceed(it.group)
	}
}

// laterPassed reports whether a later record of the batch, of another key, got
// through.
func laterPassed(r result, i int) bool {
	for j := i + 1; j < len(r.batch); j++ {
		if r.errs[j] == nil && r.batch[j].key() != r.batch[i].key() {
			return true
		}
	}
	return false
}

func (d *drainer) delivered(it *item, r result) {
	event := Event{Kind: EventDelivered, Count: 1, Bytes: it.size, Took: r.took}
	if !it.rec.StoredAt.IsZero() {
		event.Age = max(0, d.bridge.opts.Now().Sub(it.rec.StoredAt))
	}
	d.observe(d.work, event)
	key := it.key()
	if closed, openFor := d.circuit.pass(key, it.rec.Envelope.ID, r.tick); closed {
		d.closed(openFor)
	}
	if len(d.suspects) > 0 {
		d.passed(key, r.tick)
	}
	d.settleLater(op{item: it, kind: opComplete, as: gobridge.StateDelivered})
}

// notDelivered deals with a send that failed.
func (d *drainer) notDelivered(it *item, r result, outcome gobridge.Outcome, after time.Duration, err error, proven bool) {
	text := errorText(err)
	switch {
	case outcome == gobridge.OutcomePermanent:
		if closed, openFor := d.circuit.answered(it.rec.Envelope.ID, r.tick); closed {
			d.closed(openFor)
		}
		d.fail(it, gobridge.Failed, gobridge.ReasonPermanent, text)
	case d.sends.Err() != nil:
		// The send was broken off: by the end of the grace period, for with the
		// lease lost nobody is here. What came of it nobody knows.
		d.releaseTail(it.group, &op{item: it, kind: opRelease, tried: gobridge.Blameless, err: text})
	case outcome == gobridge.OutcomeUnavailable && after == 0 && d.circuit.odd(it.key(), it.rec.Envelope.ID):
		// It spends no attempt, but neither does it keep the others waiting.
		d.releaseTail(it.group, &op{
			item: it, kind: opRelease, tried: gobridge.Blameless, reason: reasonUnavailable, err: text,
			pause: d.circuit.pauseOf(it.rec.Envelope.ID),
		})
	case outcome == gobridge.OutcomeUnavailable:
		d.trip(text, after)
		d.releaseTail(it.group, &op{item: it, kind: opRelease, tried: gobridge.Blameless, reason: reasonUnavailable, err: text})
	default:
		d.suspect(it, err, text, proven)
	}
}
