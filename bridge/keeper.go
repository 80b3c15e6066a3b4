package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"gobridge"
)

// errTermEnded says that a lease could not be renewed in time.
var errTermEnded = errors.New("the lease could not be renewed before its term ended")

// serveFunc drains a partition under a token. It returns when intake has ended
// and everything is settled, at once when work has ended (the lease is lost),
// and otherwise when it finds that the partition is another's (an error), or
// has nothing more to do.
type serveFunc func(intake, work context.Context, partition gobridge.Partition, token gobridge.Token) error

// keeper keeps the leases of partitions, and serves those it holds.
//
// Time is the monotonic clock throughout. A lease held by another is taken over
// when its revision has not changed for its whole term, counted from after the
// look that showed it first. An own lease ends a margin before its term, which
// is counted from before the request that renewed it; a timer of its own sees to
// that, whatever the renewing goroutine is waiting for.
type keeper struct {
	leases gobridge.LeaseStore
	store  gobridge.Inspector
	owner  string
	term   time.Duration
	log    *slog.Logger
	event  func(Event)
	serve  serveFunc
	// once makes the keeper end when each partition has been served once, or
	// was seen to be served by another.
	once bool

	mu       sync.Mutex
	owned    map[gobridge.Partition]*tenancy
	lost     map[gobridge.Partition]gobridge.Token // own leases given up without a release
	finished map[gobridge.Partition]bool           // with once: done with
	changed  chan struct{}                         // has room for one: a tenancy has ended

	sightings map[gobridge.Partition]sighting // of the acquiring goroutine
}

// sighting is when a lease of another was first seen with a revision.
type sighting struct {
	revision int64
	since    time.Time
}

// tenancy is the holding of one lease.
type tenancy struct {
	lease   gobridge.Lease // guarded by keeper.mu
	work    context.Context
	cancel  context.CancelCauseFunc
	expire  *time.Timer
	leaving bool // guarded by keeper.mu: no longer renewed
}

// margin is how long before its end an own term counts as ended.
func (k *keeper) margin() time.Duration { return k.term / 10 }

// poll is the pause between two looks at the leases of others.
func (k *keeper) poll() time.Duration {
	return min(max(k.term/10, 5*time.Millisecond), time.Second)
}

// run keeps and serves the partitions until ctx has ended and every tenancy has
// been wound up.
func (k *keeper) run(ctx context.Context, partitions []gobridge.Partition) {
	k.owned = map[gobridge.Partition]*tenancy{}
	k.lost = map[gobridge.Partition]gobridge.Token{}
	k.finished = map[gobridge.Partition]bool{}
	k.sightings = map[gobridge.Partition]sighting{}
	k.changed = make(chan struct{}, 1)

	work, end := context.WithCancel(context.WithoutCancel(ctx))
	var tenancies, renewer sync.WaitGroup
	renewer.Go(func() { k.renewAll(work) })

	for ctx.Err() == nil {
		free, holding := k.free(partitions)
		if k.once && len(free) == 0 && !holding {
			break
		}
		wait := time.Hour
		if len(free) > 0 {
			wait = k.acquireFree(ctx, work, free, &tenancies)
		}
		select {
		case <-ctx.Done():
		case <-k.changed:
		case <-time.After(wait):
		}
	}
	tenancies.Wait()
	end()
	renewer.Wait()
}

// free returns the partitions to acquire, and whether any is held.
func (k *keeper) free(partitions []gobridge.Partition) (free []gobridge.Partition, holding bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range partitions {
		if k.owned[p] == nil && !k.finished[p] {
			free = append(free, p)
		}
	}
	return free, len(k.owned) > 0
}

// acquireFree takes what can be taken, and returns how long to wait before the
// next look.
func (k *keeper) acquireFree(ctx, work context.Context, free []gobridge.Partition, tenancies *sync.WaitGroup) time.Duration {
	call, cancel := context.WithTimeout(ctx, k.term)
	defer cancel()
	leases, err := k.leases.Leases(call)
	if err != nil {
		k.warn(ctx, "leases cannot be read", "", err)
		return k.poll()
	}
	seen := time.Now()
	byPartition := make(map[gobridge.Partition]gobridge.Lease, len(leases))
	for _, l := range leases {
		byPartition[l.Partition] = l
	}
	wait := k.poll()
	var take []gobridge.Partition
	for _, p := range free {
		l, ok := byPartition[p]
		left := k.watch(p, l, ok, seen)
		if left <= 0 {
			take = append(take, p)
		} else {
			wait = min(wait, left)
		}
	}
	if len(take) == 0 {
		return wait
	}
	stats, err := k.store.Stats(call, take...)
	if err != nil {
		k.warn(ctx, "fences cannot be read", "", err)
		return wait
	}
	fences := make(map[gobridge.Partition]int64, len(stats))
	for _, s := range stats {
		fences[s.Partition] = s.Fence.Version
	}
	for _, p := range take {
		if ctx.Err() != nil {
			break
		}
		k.acquire(call, work, p, byPartition[p], fences[p], ctx, tenancies)
	}
	return wait
}

// watch returns how long a partition's lease must still be seen unchanged
// before it can be taken, as of a look at seen.
func (k *keeper) watch(p gobridge.Partition, l gobridge.Lease, ok bool, seen time.Time) time.Duration {
	k.mu.Lock()
	own := k.lost[p] == l.Token
	k.mu.Unlock()
	if !ok || l.Released || own {
		return 0
	}
	s, watched := k.sightings[p]
	if !watched || s.revision != l.Revision {
		k.sightings[p] = sighting{l.Revision, seen}
		if watched && k.once { // it is being renewed: another serves it
			k.finish(p)
		}
		return l.Term
	}
	return l.Term - seen.Sub(s.since)
}

func (k *keeper) finish(p gobridge.Partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.finished[p] = true
}

// acquire takes a partition's lease and starts to serve it.
func (k *keeper) acquire(call, work context.Context, p gobridge.Partition, before gobridge.Lease, fence int64,
	intake context.Context, tenancies *sync.WaitGroup) {
	request := gobridge.AcquireRequest{Partition: p, Owner: k.owner, Term: k.term, MinVersion: fence}
	takeover := before.Revision > 0 && !before.Released
	if takeover {
		request.Observed = before.Revision
	}
	began := time.Now()
	lease, err := k.leases.Acquire(call, request)
	switch {
	case errors.Is(err, gobridge.ErrLeaseHeld):
		return
	case err != nil:
		k.warn(intake, "lease cannot be acquired", p, err)
		return
	}
	delete(k.sightings, p)
	t := &tenancy{lease: lease}
	t.work, t.cancel = context.WithCancelCause(work)
	k.mu.Lock()
	delete(k.lost, p)
	k.owned[p] = t
	t.expire = time.AfterFunc(k.term-k.margin()-time.Since(began), func() { t.cancel(errTermEnded) })
	k.mu.Unlock()
	k.log.LogAttrs(intake, slog.LevelInfo, "partition acquired",
		slog.String("partition", string(p)), slog.Int64("version", lease.Token.Version), slog.String("owner", k.owner),
		slog.Bool("takeover", takeover), slog.String("previous_owner", before.Token.Owner),
		slog.Int64("previous_version", before.Token.Version))
	k.event(Event{Kind: EventAcquired, Partition: p})
	tenancies.Go(func() { k.tenancy(intake, t, p, lease.Token) })
}

// tenancy serves a partition until the end, and gives the lease up if it is
// still held.
func (k *keeper) tenancy(intake context.Context, t *tenancy, p gobridge.Partition, token gobridge.Token) {
	err := k.serve(intake, t.work, p, token)
	if t.work.Err() != nil {
		err = context.Cause(t.work) //nolint:contextcheck // work outlives intake on purpose
	}

	k.mu.Lock()
	t.leaving = true
	t.expire.Stop()
	lease := t.lease
	k.mu.Unlock()

	held := t.work.Err() == nil
	t.cancel(nil)
	if errors.Is(err, errStuck) {
		held = false // a send may still be under way: let the term run out
	}
	if held {
		// Under a stale token, too: the lease may be the newest while the fence
		// is ahead of it, and is then acquired anew above the fence.
		held = k.release(t.work, lease) //nolint:contextcheck // work outlives intake on purpose
	}
	if err != nil {
		k.log.LogAttrs(intake, slog.LevelWarn, "partition lost", slog.String("partition", string(p)),
			slog.Int64("version", token.Version), slog.String("error", err.Error()))
		k.event(Event{Kind: EventLost, Partition: p, Err: err})
		select { // so that two owners with different lease stores don't chase each other
		case <-time.After(k.poll()):
		case <-intake.Done():
		}
	}
	k.mu.Lock()
	delete(k.owned, p)
	if !held {
		k.lost[p] = token
	}
	if err == nil {
		k.finished[p] = k.once
	}
	k.mu.Unlock()
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// release gives a lease up, within the term that is left at most.
func (k *keeper) release(ctx context.Context, lease gobridge.Lease) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.term)
	defer cancel()
	if err := k.leases.Release(ctx, lease); err != nil {
		k.warn(ctx, "lease cannot be released", lease.Partition, err)
		return false
	}
	k.log.LogAttrs(ctx, slog.LevelInfo, "partition released",
		slog.String("partition", string(lease.Partition)), slog.Int64("version", lease.Token.Version))
	k.event(Event{Kind: EventHandedOver, Partition: lease.Partition})
	return true
}

// renewAll renews all leases together, three times a term, until ctx ends.
func (k *keeper) renewAll(ctx context.Context) {
	for {
		wait := k.term / 3
		if !k.renew(ctx) {
			wait = k.term / 20
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// renew renews once, and reports whether that worked.
func (k *keeper) renew(ctx context.Context) bool {
	k.mu.Lock()
	var leases []gobridge.Lease
	asked := map[gobridge.Partition]*tenancy{}
	for p, t := range k.owned {
		if !t.leaving && t.work.Err() == nil {
			leases = append(leases, t.lease)
			asked[p] = t
		}
	}
	k.mu.Unlock()
	if len(leases) == 0 {
		return true
	}
	began := time.Now()
	call, cancel := context.WithTimeout(ctx, k.term/3)
	defer cancel()
	renewed, err := k.leases.Renew(call, leases)
	if err != nil {
		if ctx.Err() == nil {
			k.warn(ctx, "leases cannot be renewed", "", err)
		}
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	left := k.term - k.margin() - time.Since(began)
	for _, l := range renewed {
		t := asked[l.Partition]
		delete(asked, l.Partition)
		if t == nil || t.leaving || t.lease.Token != l.Token {
			continue
		}
		// A timer that has gone off has ended the tenancy, and stays that way.
		t.lease = l
		if t.expire.Stop() && left > 0 {
			t.expire.Reset(left)
		} else {
			t.cancel(errTermEnded)
		}
	}
	for _, t := range asked {
		if !t.leaving {
			t.cancel(fmt.Errorf("%w: taken over by another owner", gobridge.ErrLeaseLost))
		}
	}
	return true
}

func (k *keeper) warn(ctx context.Context, message string, p gobridge.Partition, err error) {
	attrs := []slog.Attr{slog.String("error", err.Error())}
	if p != "" {
		attrs = append(attrs, slog.String("partition", string(p)))
	}
	k.log.LogAttrs(ctx, slog.LevelWarn, message, attrs...)
}
