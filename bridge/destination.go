package bridge

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"gobridge"
)

// How much a drainer takes at a time: more when the destination is faster than
// the claims. A key can fill no more than one claim, for its held records keep
// the rest of it in the store; so room for as many claims as there may be sends
// at once leaves every key its chance.
const (
	claimLimit    = 64
	maxClaimLimit = 512
)

// outlet is a binding at work: what its partitions share.
type outlet struct {
	bridge  *Bridge
	route   *Route
	binding *Binding
	shards  []*destination // as [gobridge.Shard] numbers them
	depth   *depth         // nil without a bound
	limiter *rate.Limiter  // nil without a rate
	turn    chan struct{}  // held while waiting for the limiter
	circuit *circuit
	carrier gobridge.Carrier        // the sender, if it is one
	prober  atomic.Pointer[drainer] // the one that probes: one at a time

	ownedMu sync.Mutex
	owned   int // partitions that this process drains
}

func newOutlet(b *Bridge, r *Route, binding *Binding) *outlet {
	o := &outlet{bridge: b, route: r, binding: binding, circuit: newCircuit(binding.Retry), turn: make(chan struct{}, 1)}
	o.carrier, _ = binding.Sender.(gobridge.Carrier)
	if binding.Rate > 0 {
		o.limiter = rate.NewLimiter(0, 1)
		o.shareRate(r.Partitions)
	}
	for shard := range r.Partitions {
		o.shards = append(o.shards, newDestination(o, shard))
	}
	if binding.MaxOutboxDepth > 0 {
		o.depth = newDepth(binding.MaxOutboxDepth, o.partitions())
	}
	return o
}

func (o *outlet) partitions() []gobridge.Partition {
	out := make([]gobridge.Partition, len(o.shards))
	for i, d := range o.shards {
		out[i] = d.partition
	}
	return out
}

// draining notes that this process drains n partitions more than before. Its part
// of the binding's rate is that of its partitions.
func (o *outlet) draining(n int) {
	o.ownedMu.Lock()
	defer o.ownedMu.Unlock()
	o.owned += n
	if o.limiter != nil && o.owned > 0 {
		o.shareRate(o.owned)
	}
}

func (o *outlet) shareRate(partitions int) {
	part := o.binding.Rate * float64(partitions) / float64(o.route.Partitions)
	o.limiter.SetLimit(rate.Limit(part))
	// A small burst, for timers are coarse: at most a twentieth of a second's worth.
	o.limiter.SetBurst(max(1, int(math.Min(part/20, 1<<20))))
}

// mayProbe reports whether a drainer is the one to probe, and makes it that if
// nobody is.
func (o *outlet) mayProbe(d *drainer) bool {
	return o.prober.Load() == d || o.prober.CompareAndSwap(nil, d)
}

// othersSend reports whether the drainer of another partition has sends under way.
func (o *outlet) othersSend(d *drainer) bool {
	for _, shard := range o.shards {
		if other := shard.drainer.Load(); other != nil && other != d {
			if sending, _ := other.status.read(); sending > 0 {
				return true
			}
		}
	}
	return false
}

// wakeUp tells the drainers of all partitions that there may be work.
func (o *outlet) wakeUp() {
	for _, d := range o.shards {
		d.wakeUp()
	}
}

// destination is a partition of a binding at work: what its drainer, the front
// door and the status share.
type destination struct {
	*outlet
	partition gobridge.Partition

	batch   gobridge.BatchLimits // MaxRecords is one unless the sender takes batches
	claims  int                  // records in a claim, to begin with
	window  int                  // records held at most
	retries retriesSeen          // of the drainer, of which there is one at a time

	wake chan struct{} // has room for one: there may be work

	drainer atomic.Pointer[drainer] // nil while this process does not own it
	quiet   atomic.Bool             // the store says that nothing is stored here

	// serving is held while it is drained. It ends, and is not begun any more, once
	// retired has ended: something else serves the partition then, or nothing.
	serving chan struct{}
	retired context.Context
	retire  context.CancelFunc

	strays *strays
}

// strays are records whose send outlived the lease, or the setup of the route,
// under which they were claimed. They count as held until it returns.
type strays struct {
	mu     sync.Mutex
	counts map[gobridge.Ref]int
}

func newDestination(o *outlet, shard int) *destination {
	binding := o.binding
	d := &destination{
		outlet:    o,
		partition: gobridge.NewShard(o.route.Name, binding.Name, shard, o.route.Partitions),
		batch:     gobridge.BatchLimits{MaxRecords: 1},
		claims:    claimLimit,
		wake:      make(chan struct{}, 1),
		serving:   make(chan struct{}, 1),
		strays:    &strays{counts: map[gobridge.Ref]int{}},
	}
	d.retired, d.retire = context.WithCancel(context.Background())
	if sender, ok := binding.Sender.(gobridge.BatchSender); ok {
		d.batch = sender.BatchLimits()
		if d.batch.MaxRecords <= 0 {
			d.batch.MaxRecords = maxClaimLimit
		}
		d.claims = min(max(claimLimit, d.batch.MaxRecords), maxClaimLimit)
	}
	d.window = maxClaimLimit * binding.Concurrency
	return d
}

// wakeUp tells the drainer that there may be work. It never blocks.
func (d *destination) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// inherit makes d count as held what a send of old, unless nil, has still in hand
// when old has been drained for the last time.
func (d *destination) inherit(old *destination) {
	if old != nil {
		d.strays = old.strays
	}
}

// stray adds n to the count of sends that still have ref.
func (d *destination) stray(ref gobridge.Ref, n int) {
	d.strays.mu.Lock()
	defer d.strays.mu.Unlock()
	d.strays.counts[ref] += n
	if d.strays.counts[ref] <= 0 {
		delete(d.strays.counts, ref)
	}
}

func (d *destination) appendStrays(refs []gobridge.Ref) []gobridge.Ref {
	d.strays.mu.Lock()
	defer d.strays.mu.Unlock()
	for ref := range d.strays.counts {
		refs = append(refs, ref)
	}
	return refs
}

// observe tells the observer of something in this binding.
func (d *destination) observe(ctx context.Context, e Event) {
	if d.bridge.opts.Observer == nil {
		return
	}
	e.Partition, e.Route, e.Binding = d.partition, d.route.Name, d.binding.Name
	d.bridge.opts.Observer.Observe(ctx, e)
}
