package bridge

import (
	"context"
	"errors"
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
// has nothing more to do. Over reports whether the lease's term has ended; after
// a pause of the process it knows before work has ended.
type serveFunc func(intake, work context.Context, partition gobridge.Partition, token gobridge.Token, over func() bool) error

// keeper keeps the leases of the partitions that fall to this process, and
// serves them. How several processes share them, see share and member.
//
// Time is the monotonic clock throughout. A lease held by another is taken over
// when its revision has not changed for its whole term, counted from after the
// look that showed it first. An own lease ends a margin before its term, which
// is counted from before the request that renewed it; a timer of its own sees to
// that, whatever the renewing goroutine is waiting for, and whoever is about to
// send or settle looks at the clock.
type keeper struct {
	leases   gobridge.LeaseStore
	store    gobridge.Inspector
	owner    string
	term     time.Duration
	log      *slog.Logger
	repeats  *repeats
	troubles *troubles
	event    func(Event)
	serve    serveFunc
	// lineup is what the process could drain, and what it tells the other members
	// that it serves. After a change of it [keeper.wake] has to be called.
	lineup func() *lineup
	// once makes the keeper end when each partition has been served once, or
	// was seen to be served by another. It is no member then, and takes what is
	// free.
	once bool

	mu       sync.Mutex
	owned    map[gobridge.Partition]*tenancy
	lost     map[gobridge.Partition]gobridge.Token // own leases given up without a release
	finished map[gobridge.Partition]bool           // with once: done with
	member   *gobridge.Lease                       // the slot; nil without
	changed  chan struct{}                         // has room for one: something has ended, or a lease or the lineup has changed

	// intake is what tenancies take by; it ends when the others have seen that this
	// process leaves.
	intake context.Context

	// Of the looking goroutine. What the leases looked like may be given.
	others     bool // there are other members
	sightings  map[gobridge.Partition]sighting
	tenancies  sync.WaitGroup
	joined     bool      // it has had a slot
	unreadable time.Time // since when the outbox has not been readable
	expecting  time.Time // since when another is about to release what falls to this process
	unwatch    func()    // ends the lease store's notices; nil while there are none
}

// sighting is when a lease of another was first seen with a revision.
type sighting struct {
	revision int64
	since    time.Time
	moved    bool // it has been seen with another one before: somebody renews it
}

// margin is how long before its end an own term counts as ended.
func (k *keeper) margin() time.Duration { return k.term / 10 }

// poll is the pause between two looks at the leases of others.
func (k *keeper) poll() time.Duration {
	return min(max(k.term/10, 5*time.Millisecond), time.Second)
}

// expectEvery is the pause between two looks while another is about to release
// what falls to this process.
const expectEvery = 20 * time.Millisecond

// run keeps and serves the partitions until ctx has ended and every tenancy has
// been wound up. It fails only if another process spreads a binding over another
// number of partitions.
func (k *keeper) run(ctx context.Context) error {
	k.owned = map[gobridge.Partition]*tenancy{}
	k.lost = map[gobridge.Partition]gobridge.Token{}
	k.finished = map[gobridge.Partition]bool{}
	if k.sightings == nil {
		k.sightings = map[gobridge.Partition]sighting{}
	}

	work, end := context.WithCancel(context.WithoutCancel(ctx))
	var endIntake context.CancelFunc
	k.intake, endIntake = context.WithCancel(context.WithoutCancel(ctx))
	defer endIntake()
	var renewer sync.WaitGroup
	renewer.Go(func() { k.renewAll(work) })

	var err error
	for ctx.Err() == nil {
		wait := time.Hour
		if !k.once && len(k.lineup().partitions) > 0 || k.once && len(k.free()) > 0 {
			if wait, err = k.step(ctx, work); err != nil {
				break
			}
		} else if k.once && !k.holding() {
			break
		} else if !k.once {
			k.leave(ctx) // it serves nothing
		}
		select {
		case <-ctx.Done():
		case <-k.changed:
		case <-time.After(wait):
		}
	}
	k.leave(ctx) // first, so that the others look for what is released next
	if k.others && k.unwatch == nil && !k.once && err == nil {
		// Nothing tells them: they see it with their next look, and look all the time
		// from then on. Until then nobody else would deliver.
		time.Sleep(k.poll())
	}
	endIntake()
	if k.unwatch != nil {
		k.unwatch()
	}
	k.tenancies.Wait()
	end()
	renewer.Wait()
	return err
}

// free returns the partitions that this process neither holds nor is done with.
func (k *keeper) free() (free []gobridge.Partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.lineup().partitions {
		if k.owned[p] == nil && !k.finished[p] {
			free = append(free, p)
		}
	}
	return free
}

func (k *keeper) holding() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.owned) > 0
}

// step looks at the leases, takes what falls to this process and can be had,
// lets go what falls to others, and returns how long to wait before the next look.
func (k *keeper) step(ctx, work context.Context) (time.Duration, error) {
	call, cancel := context.WithTimeout(ctx, k.term)
	defer cancel()
	if stated, err := k.restate(call); err != nil || !stated {
		if err != nil && ctx.Err() == nil {
			k.warn(ctx, "the member slot cannot be changed", "", err)
		}
		return k.poll(), nil
	}
	v, err := k.look(call)
	if err == nil && !k.once && k.slot() == nil {
		var joined bool
		if joined, err = k.join(call, v); err == nil && joined {
			if v, err = k.look(call); err == nil && !k.joined {
				k.joined = true
				if rivals := k.rivals(v); len(rivals) > 0 {
					return 0, &PartitionsError{Living: rivals}
				}
			}
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			k.warn(ctx, "leases cannot be looked at", "", err)
		}
		return k.poll(), nil
	}
	if k.once {
		wait, take := k.wanted(v, nil)
		k.takeAll(ctx, call, work, v, take)
		return wait, nil
	}
	if k.slot() == nil {
		return k.poll(), nil
	}
	target := share(v.members, k.holders(v))
	k.letGo(ctx, target)
	wait, take := k.wanted(v, target)
	k.takeAll(ctx, call, work, v, take)
	k.bury(call, v)
	k.others = !v.alone
	k.watchOthers(v.alone && k.expecting.IsZero())
	return wait, nil
}

// holders says who has which partition, as far as he keeps it.
func (k *keeper) holders(v *view) map[gobridge.Partition]string {
	out := map[gobridge.Partition]string{}
	for p := range v.left {
		if !v.free(p) {
			out[p] = v.leases[p].Token.Owner
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.owned {
		out[p] = k.owner
	}
	return out
}

// letGo begins to hand over what falls to other members.
func (k *keeper) letGo(ctx context.Context, target map[gobridge.Partition]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p, t := range k.owned {
		if to := target[p]; to != k.owner && to != "" && t.intake.Err() == nil {
			k.log.LogAttrs(ctx, slog.LevelInfo, "partition is handed over",
				slog.String("partition", string(p)), slog.String("to", to))
			t.stop()
		}
	}
}

// wanted returns what can be taken, and how long to wait before the next look.
// Without targets everything falls to this process.
func (k *keeper) wanted(v *view, target map[gobridge.Partition]string) (wait time.Duration, take []gobridge.Partition) {
	wait = k.poll()
	if v.alone && target != nil {
		wait = k.term / 3 // nobody waits but those who may come
	}
	coming := false
	for _, p := range k.free() {
		mine := target == nil || target[p] == k.owner
		switch holder := v.leases[p].Token.Owner; {
		case mine && v.free(p):
			take = append(take, p)
			continue
		case mine && target != nil && (v.leavers[holder] || v.living(holder)):
			coming = true
		}
		wait = min(wait, k.poll())
		if !v.free(p) {
			wait = min(wait, max(v.left[p], time.Millisecond))
		}
	}
	switch {
	case !coming:
		k.expecting = time.Time{}
	case k.expecting.IsZero():
		k.expecting = time.Now()
		fallthrough
	case time.Since(k.expecting) < max(k.term/2, time.Second) && k.unwatch == nil:
		wait = min(wait, expectEvery)
	}
	return wait, take
}

// watchOthers asks the lease store, if it can, to tell of changes while there
// are other members.
func (k *keeper) watchOthers(alone bool) {
	switch notifier, ok := k.leases.(gobridge.Notifier); {
	case !ok:
	case alone && k.unwatch != nil:
		k.unwatch()
		k.unwatch = nil
	case !alone && k.unwatch == nil:
		k.unwatch = notifier.Notify(func(gobridge.Partition) { k.wake() })
	}
}

func (k *keeper) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// watch returns how long a lease must still be seen unchanged before it can be
// taken, as of a look at seen.
func (k *keeper) watch(l gobridge.Lease, seen time.Time) time.Duration {
	p := l.Partition
	k.mu.Lock()
	own := k.lost[p] == l.Token
	k.mu.Unlock()
	if own {
		return 0
	}
	s, watched := k.sightings[p]
	if !watched || s.revision != l.Revision {
		k.sightings[p] = sighting{l.Revision, seen, watched}
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
	if k.owned[p] == nil {
		k.finished[p] = true
	}
}

// warn says that something went wrong, with a partition or with all, and notes it
// for others to see.
func (k *keeper) warn(ctx context.Context, message string, p gobridge.Partition, err error) {
	if p != "" {
		k.troubles.note(p, message, err)
	}
	say, attrs := k.repeats.news(message + " " + string(p))
	if !say {
		return
	}
	attrs = append(attrs, slog.String("error", err.Error()))
	if p != "" {
		attrs = append(attrs, slog.String("partition", string(p)))
	}
	k.log.LogAttrs(ctx, slog.LevelWarn, message, attrs...)
}
