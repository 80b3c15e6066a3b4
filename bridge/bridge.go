package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"gobridge"
)

// ErrRunning says that the bridge runs already.
var ErrRunning = errors.New("the bridge is running already")

// Bridge is a set of routes over a store. It is safe for concurrent use.
type Bridge struct {
	store  gobridge.Store
	opts   Options // as they were given, but for the routes: see lineup
	lineup atomic.Pointer[lineup]

	running atomic.Bool
	keeper  atomic.Pointer[keeper] // nil while it does not run
	// changing is held while the lineup is being exchanged.
	changing *semaphore.Weighted
	holds    atomic.Pointer[holds] // the pauses and halts last seen
	strays   sync.WaitGroup        // sends that outlived their lease

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
		changing: semaphore.NewWeighted(1),
		troubles: troubles{now: opts.Now},
	}
	l := newLineup(opts.Parked, opts.Repartitioned)
	for _, r := range opts.Routes {
		h, s := newHandle(b, r.Name), newSetup(b, r, nil)
		h.setup.Store(s)
		l.add(h, s)
	}
	b.lineup.Store(l)
	return b, nil
}

// Route returns the way into a route, nil if there is none of that name.
func (b *Bridge) Route(name string) *RouteHandle { return b.lineup.Load().routes[name] }

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
		err = b.checkRemoved(ctx, b.lineup.Load())
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
	dead, err := b.checkPartitions(ctx, b.lineup.Load())
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
		log: b.opts.Logger, repeats: &b.repeats, troubles: &b.troubles, once: once, sightings: dead,
		lineup: b.lineup.Load, changed: make(chan struct{}, 1),
		event: func(e Event) {
			e.Route, e.Binding, _, _ = e.Partition.Split()
			b.observe(ctx, e)
		},
		serve: func(intake, work context.Context, p gobridge.Partition, token gobridge.Token, ended func() bool) error {
			err := b.serve(intake, work, p, token, ended, once)
			if errors.Is(err, errStuck) && ctx.Err() != nil {
				stuck.Store(true)
			}
			return err
		},
	}
	b.keeper.Store(k)
	defer b.keeper.Store(nil)
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

// serve drains a partition as it is served now, and goes on with what comes in the
// place of that under the same token. It returns nil when nothing does.
func (b *Bridge) serve(
	intake, work context.Context, p gobridge.Partition, token gobridge.Token, ended func() bool, once bool,
) error {
	for {
		d := b.lineup.Load().byPartition[p]
		if d == nil {
			return nil
		}
		err := d.serveUntilRetired(intake, work, token, ended, once)
		if err != nil || intake.Err() != nil || d.retired.Err() == nil {
			return err
		}
	}
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
		if d := b.lineup.Load().byPartition[p]; d != nil {
			d.wakeUp()
		}
		return
	}
	for _, d := range b.lineup.Load().destinations {
		d.wakeUp()
	}
}

// observe tells the observer of something that is no single binding's.
func (b *Bridge) observe(ctx context.Context, e Event) {
	if b.opts.Observer != nil {
		b.opts.Observer.Observe(ctx, e)
	}
}
