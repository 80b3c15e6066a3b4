package bridge

import (
	"context"
	"errors"
	"time"

	"gobridge"
)

// claimTimeout bounds a claim.
const claimTimeout = 30 * time.Second

// claim is what a claim came to.
type claim struct {
	records []gobridge.Record
	limit   int
	bytes   int64
	probe   bool
	took    time.Duration
	err     error
}

// startClaim claims into the free capacity if there may be something, or one
// record to probe with if the destination is down.
func (d *drainer) startClaim() {
	now := time.Now()
	if !d.claiming && now.Sub(d.polled) >= d.pollPause() {
		d.more = true
	}
	if !d.nextDue.IsZero() && !now.Before(d.nextDue) {
		d.more, d.nextDue = true, time.Time{}
	}
	if d.claiming || d.stopping || !d.more || d.alone || d.clearing {
		return
	}
	if d.failures > 0 && now.Sub(d.polled) < d.pause {
		return
	}
	open, probe := d.circuit.state()
	if d.limit > d.claims && now.Sub(d.polled) > time.Second {
		d.limit = max(d.limit/2, d.claims) // the last one lasted long enough
	}
	limit := min(d.limit, d.window-len(d.items))
	switch {
	case limit <= 0 || d.bytes >= d.binding.BatchBytes:
		return
	case open && (d.once && !d.mayProbe || d.probing || d.sending > 0 || now.Before(probe)):
		return
	case open && !d.once && !d.outlet.mayProbe(d):
		return // another partition's drainer does
	case open:
		d.probing = true
		limit = 1
	case d.ready.len() >= max(d.binding.Concurrency, d.batch.MaxRecords, d.limit/2):
		return
	}
	d.more, d.claiming = false, true
	// As many claims as there are sends fit, so that none needs what another has.
	share := max(1, d.batch.MaxBytes, d.binding.BatchBytes/int64(d.binding.Concurrency))
	request := gobridge.ClaimRequest{
		Partition: d.partition, Token: d.token, Limit: limit,
		MaxBytes:  min(share, d.binding.BatchBytes-d.bytes),
		HeldKnown: true, Held: d.held(),
	}
	d.tasks.Go(func() {
		// What a call that never returns has claimed is stranded, and claimed again.
		ctx, cancel := context.WithTimeout(d.work, claimTimeout)
		defer cancel()
		began := time.Now()
		records, err := d.bridge.store.Claim(ctx, request)
		d.claimed <- claim{records, limit, request.MaxBytes, open, time.Since(began), err}
	})
}

// cutShort reports whether a claim may have left out records for their bytes: another
// one as large as its largest would not have fitted.
func (c *claim) cutShort() bool {
	var sum, largest int64
	for i := range c.records {
		size := payloadSize(&c.records[i])
		sum, largest = sum+size, max(largest, size)
	}
	return len(c.records) > 0 && sum+largest > c.bytes
}

// held returns every record that this process has claimed here. The slice is
// good until the next call.
func (d *drainer) held() []gobridge.Ref {
	d.refs = d.refs[:0]
	for _, it := range d.items {
		d.refs = append(d.refs, it.ref())
	}
	d.refs = d.appendStrays(d.refs)
	return d.refs
}

// took takes up what a claim brought. An error means that the partition is
// another's.
func (d *drainer) took(c claim) error {
	d.claiming = false
	d.polled = time.Now()
	if c.err != nil {
		return d.claimFailed(c)
	}
	d.failures = 0
	d.empty = len(c.records) == 0
	if d.empty {
		d.pause = min(2*d.pause, d.bridge.opts.PollInterval)
	} else {
		d.pause = min(minPoll, d.bridge.opts.PollInterval)
	}
	if len(c.records) == c.limit {
		d.more = true
		if !c.probe && d.ready.len() == 0 { // sends have waited for it
			d.limit = min(2*d.limit, maxClaimLimit)
		}
	}
	d.more = d.more || c.cutShort()
	taken := d.admitAll(c)
	open, _ := d.circuit.state()
	switch {
	case d.stopping || open && !c.probe:
		d.probing = d.probing && !c.probe
		d.releaseQueued()
	case open:
		d.tookProbe(taken)
	default:
		d.probing = d.probing && !c.probe
		if c.probe { // the destination came back while it was claimed
			taken = d.waiting()
		}
		for _, it := range taken {
			d.proceed(it.group)
		}
	}
	return nil
}

// admitAll takes in what was claimed, and returns what may be sent.
//
// What is held holds up its key, so a claim has a record of a key that has held
// ones in two cases only: a settling call for those has worked and the answer is
// still to come, or the record is older than they are, for its CreatedAt was
// given. It takes its place in the key, and waits for what is under way.
func (d *drainer) admitAll(c claim) []*item {
	items := make([]item, len(c.records))
	for i := range items {
		items[i].rec, items[i].claimed = &c.records[i], d.polled
	}
	before, count := d.bytes, 0
	taken := make([]*item, 0, len(items))
	for i := range items {
		it := &items[i]
		if !d.admit(it) {
			continue
		}
		count++
		d.enqueue(it)
		taken = append(taken, it)
	}
	if count > 0 {
		d.observe(d.work, Event{Kind: EventClaimed, Count: count, Bytes: d.bytes - before, Took: c.took})
	}
	return taken
}

func (d *drainer) claimFailed(c claim) error {
	if c.probe {
		d.probing = false
		d.releaseQueued()
	}
	if d.lost() {
		return nil
	}
	d.observe(d.work, Event{Kind: EventClaimFailed, Took: c.took, Err: c.err})
	if errors.Is(c.err, gobridge.ErrStaleFencingToken) || errors.Is(c.err, gobridge.ErrInvalidToken) {
		return c.err
	}
	d.failures++
	d.more = true
	d.pause = backoff(2*minPoll, d.bridge.opts.PollInterval, d.failures-1)
	d.trouble("claim failed", c.err)
	return nil
}
