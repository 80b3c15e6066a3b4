package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gobridge"
)

// ErrRunning says that the bridge runs already.
var ErrRunning = errors.New("the bridge is running already")

// Bridge is a set of routes over a store. It is safe for concurrent use.
type Bridge struct {
	store        gobridge.Store
	opts         Options
	routes       map[string]*RouteHandle
	outlets      []*outlet
	destinations []*destination // the partitions of all outlets
	byPartition  map[gobridge.Partition]*destination

	running atomic.Bool
	holds   atomic.Pointer[holds] // the pauses and halts last seen
	strays  sync.WaitGroup        // sends that outlived their lease

	repeats  repeats
	troubles troubles
}

// New checks the options, all of them, and returns a bridge that does nothing
// yet but take messages.
func New(store gobridge.Store, opts Options) (*Bridge, error) {
	if store == nil {
		return nil, errors.New("bridge: the store is nil")
	}
	opts, err := opts.withDefaults(store)
	if err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	b := &Bridge{
		store: store, opts: opts,
		routes:      map[string]*RouteHandle{},
		byPartition: map[gobridge.Partition]*destination{},
		troubles:    troubles{now: opts.Now},
	}
	for i := range opts.Routes {
		r := &opts.Routes[i]
		h := &RouteHandle{bridge: b, route: *r}
		for j := range r.Bindings {
			o := newOutlet(b, r, &r.Bindings[j])
			h.outlets = append(h.outlets, o)
			b.outlets = append(b.outlets, o)
			b.destinations = append(b.destinations, o.shards...)
			for _, d := range o.shards {
				b.byPartition[d.partition] = d
			}
		}
		b.routes[r.Name] = h
	}
	return b, nil
}

// Route returns the way into a route, nil if there is none of that name.
func (b *Bridge) Route(name string) *RouteHandle { return b.routes[name] }

// Run drains the routes' outboxes, those that this process gets the leases of,
// until ctx ends. Then it claims nothing more, waits up to Options.Grace for
// sends under way, settles what came of them, puts back what was not tried,
// hands the leases over, and returns nil.
//
// It returns early, with an error, if it runs already or finds
// [ErrUnservedPartitions] or [ErrPartitionsChanged]. Whatever goes wrong later is logged and tried again.
func (b *Bridge) Run(ctx context.Context) error {
	if !b.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer b.running.Store(false)
	dead, err := b.awaitPartitions(ctx)
	if err == nil {
		err = b.checkRemoved(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // ended before it began
		}
		return err
	}
	return b.drain(ctx, dead, false)
}

// Drain makes one pass: it delivers until nothing is claimable now, and returns
// nil. What is not due, on hold, or of a destination that is down stays; so do
// partitions that another process drains. A dead process's partitions are
// waited for, a lease term at most. It returns ctx's error if ctx ends first.
func (b *Bridge) Drain(ctx context.Context) error {
	if !b.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer b.running.Store(false)
	dead, err := b.checkPartitions(ctx)
	if err != nil {
		return err
	}
	if err := b.drain(ctx, dead, true); err != nil {
		return err
	}
	return ctx.Err()
}

func (b *Bridge) drain(ctx context.Context, dead map[gobridge.Partition]sighting, once bool) error {
	if n, ok := b.store.(gobridge.Notifier); ok {
		stop := n.Notify(b.notified)
		defer stop()
	}
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { b.watchHolds(watching) })
	watch.Go(func() { b.watchQuiet(watching) })

	var stuck atomic.Bool
	k := &keeper{
		leases: b.opts.Leases, store: b.store, owner: b.opts.Owner, term: b.opts.LeaseTerm,
		log: b.opts.Logger, repeats: &b.repeats, troubles: &b.troubles, once: once, serves: b.serves(), sightings: dead,
		event: func(e Event) {
			if d := b.byPartition[e.Partition]; d != nil {
				d.observe(ctx, e)
			}
		},
		serve: func(intake, work context.Context, p gobridge.Partition, token gobridge.Token, ended func() bool) error {
			d := b.byPartition[p]
			d.draining(1)
			defer d.draining(-1)
			err := d.serve(intake, work, token, ended, once)
			if errors.Is(err, errStuck) && ctx.Err() != nil {
				stuck.Store(true)
			}
			return err
		},
	}
	for _, d := range b.destinations {
		k.partitions = append(k.partitions, d.partition)
	}
	err := k.run(ctx)
	stopWatching()
	watch.Wait()
	if err != nil {
		return err
	}
	if stuck.Load() || !b.waitForStrays() {
		return errStuck
	}
	return nil
}

// serves is what this process tells others that it serves.
func (b *Bridge) serves() []serves {
	out := make([]serves, len(b.outlets))
	for i, o := range b.outlets {
		out[i] = serves{o.route.Name, o.binding.Name, o.route.Partitions}
	}
	return out
}

// waitForStrays waits for sends whose lease ended under them. Their contexts
// have ended as well, so this takes no time unless a sender ignores that.
func (b *Bridge) waitForStrays() bool {
	returned := make(chan struct{})
	go func() {
		b.strays.Wait()
		close(returned)
	}()
	select {
	case <-returned:
		return true
	case <-time.After(settleTimeout):
		return false
	}
}

// notified is called by the store.
func (b *Bridge) notified(p gobridge.Partition) {
	if p != "" {
		if d := b.byPartition[p]; d != nil {
			d.wakeUp()
		}
		return
	}
	for _, d := range b.destinations {
		d.wakeUp()
	}
}

// observe tells the observer of something that is no single binding's.
func (b *Bridge) observe(ctx context.Context, e Event) {
	if b.opts.Observer != nil {
		b.opts.Observer.Observe(ctx, e)
	}
}
