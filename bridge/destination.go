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

// destination is a binding at work: what its drainer, the front door and the
// status share.
type destination struct {
	bridge    *Bridge
	route     *Route
	binding   *Binding
	partition gobridge.Partition

	batch   gobridge.BatchLimits // MaxRecords is one unless the sender takes batches
	claims  int                  // records in a claim, to begin with
	window  int                  // records held at most
	depth   *depth               // nil without a bound
	limiter *rate.Limiter        // nil without a rate
	turn    chan struct{}        // held while waiting for the limiter
	circuit *circuit
	retries retriesSeen // of the drainer, of which there is one at a time

	wake chan struct{} // has room for one: there may be work

	drainer atomic.Pointer[drainer] // nil while this process does not own it

	// strays are records whose send outlived the lease under which they were
	// claimed. They count as held until it returns.
	straysMu sync.Mutex
	strays   map[gobridge.Ref]int
}

func newDestination(b *Bridge, r *Route, binding *Binding) *destination {
	d := &destination{
		bridge:    b,
		route:     r,
		binding:   binding,
		partition: gobridge.NewPartition(r.Name, binding.Name, 0),
		batch:     gobridge.BatchLimits{MaxRecords: 1},
		claims:    claimLimit,
		circuit:   newCircuit(binding.Retry),
		wake:      make(chan struct{}, 1),
		turn:      make(chan struct{}, 1),
		strays:    map[gobridge.Ref]int{},
	}
	if sender, ok := binding.Sender.(gobridge.BatchSender); ok {
		d.batch = sender.BatchLimits()
		if d.batch.MaxRecords <= 0 {
			d.batch.MaxRecords = maxClaimLimit
		}
		d.claims = min(max(claimLimit, d.batch.MaxRecords), maxClaimLimit)
	}
	d.window = maxClaimLimit * binding.Concurrency
	if binding.MaxOutboxDepth > 0 {
		d.depth = &depth{limit: int64(binding.MaxOutboxDepth)}
	}
	if binding.Rate > 0 {
		// A small burst, for timers are coarse: at most a twentieth of a second's worth.
		d.limiter = rate.NewLimiter(rate.Limit(binding.Rate), max(1, int(math.Min(binding.Rate/20, 1<<20))))
	}
	return d
}

// wakeUp tells the drainer that there may be work. It never blocks.
func (d *destination) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// stray adds n to the count of sends that still have ref.
func (d *destination) stray(ref gobridge.Ref, n int) {
	d.straysMu.Lock()
	defer d.straysMu.Unlock()
	d.strays[ref] += n
	if d.strays[ref] <= 0 {
		delete(d.strays, ref)
	}
}

func (d *destination) appendStrays(refs []gobridge.Ref) []gobridge.Ref {
	d.straysMu.Lock()
	defer d.straysMu.Unlock()
	for ref := range d.strays {
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
