package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gobridge"
)

// tenancy is the holding of one lease.
type tenancy struct {
	lease    gobridge.Lease // guarded by keeper.mu
	intake   context.Context
	stop     context.CancelFunc // of the intake
	work     context.Context
	cancel   context.CancelCauseFunc
	expire   *time.Timer
	deadline atomic.Pointer[time.Time]
	leaving  bool // guarded by keeper.mu: no longer renewed
}

// over reports whether the term has ended, and sees to it that the work ends
// when it has.
func (t *tenancy) over() bool {
	if time.Now().Before(*t.deadline.Load()) {
		return t.work.Err() != nil
	}
	t.cancel(errTermEnded)
	return true
}

// renewFailed says that what was to be renewed was not, as far as is known.
const renewFailed = "leases cannot be renewed"

// acquireAtOnce is how many leases are asked for side by side.
const acquireAtOnce = 8

// takeAll takes leases and starts to serve their partitions.
func (k *keeper) takeAll(ctx, call, work context.Context, v *view, take []gobridge.Partition) {
	if len(take) == 0 {
		return
	}
	stats, err := k.store.Stats(call, take...)
	if err != nil {
		k.warn(ctx, "fences cannot be read", "", err)
		if k.unreadable.IsZero() {
			k.unreadable = time.Now()
		} else if time.Since(k.unreadable) >= k.term {
			k.leave(ctx) // others may be able to
		}
		return
	}
	k.unreadable = time.Time{}
	room := make(chan struct{}, acquireAtOnce)
	var calls sync.WaitGroup
	for _, s := range stats {
		if ctx.Err() != nil {
			break
		}
		room <- struct{}{}
		calls.Go(func() {
			defer func() { <-room }()
			k.acquire(ctx, call, work, v.leases[s.Partition], s)
		})
	}
	calls.Wait()
}

// acquire takes a partition's lease and starts to serve it.
func (k *keeper) acquire(ctx, call, work context.Context, before gobridge.Lease, stats gobridge.Stats) {
	p := stats.Partition
	request := gobridge.AcquireRequest{Partition: p, Owner: k.owner, Term: k.term, MinVersion: stats.Fence.Version}
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
		k.warn(ctx, "lease cannot be acquired", p, err)
		return
	}
	t := &tenancy{lease: lease}
	t.work, t.cancel = context.WithCancelCause(work)
	t.intake, t.stop = context.WithCancel(k.intake)
	ends := began.Add(k.term - k.margin())
	t.deadline.Store(&ends)
	k.mu.Lock()
	delete(k.lost, p)
	k.owned[p] = t
	t.expire = time.AfterFunc(time.Until(ends), func() { t.cancel(errTermEnded) })
	k.mu.Unlock()
	k.log.LogAttrs(ctx, slog.LevelInfo, "partition acquired",
		slog.String("partition", string(p)), slog.Int64("version", lease.Token.Version), slog.String("owner", k.owner),
		slog.Bool("takeover", takeover), slog.String("previous_owner", before.Token.Owner),
		slog.Int64("previous_version", before.Token.Version))
	k.event(Event{Kind: EventAcquired, Partition: p})
	k.tenancies.Go(func() { k.tenancy(ctx, t, p, lease.Token) })
}

// tenancy serves a partition until the end, and gives the lease up if it is
// still held.
func (k *keeper) tenancy(ctx context.Context, t *tenancy, p gobridge.Partition, token gobridge.Token) {
	defer t.stop()
	err := k.serve(t.intake, t.work, p, token, t.over) //nolint:contextcheck // both are made for the tenancy
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
		k.troubles.note(p, "partition lost", err)
		k.log.LogAttrs(ctx, slog.LevelWarn, "partition lost", slog.String("partition", string(p)),
			slog.Int64("version", token.Version), slog.String("error", err.Error()))
		k.event(Event{Kind: EventLost, Partition: p, Err: err})
		select { // so that two owners with different lease stores don't chase each other
		case <-time.After(k.poll()):
		case <-ctx.Done():
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
	k.wake()
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

// renew renews once, the slot too, and reports whether that worked for all. What
// is in the answer has been renewed, also beside an error; of the rest nothing is
// known then.
func (k *keeper) renew(ctx context.Context) bool {
	k.mu.Lock()
	var leases []gobridge.Lease
	asked := map[gobridge.Partition]*tenancy{}
	slot := k.member
	if slot != nil {
		leases = append(leases, *slot)
	}
	for p, t := range k.owned {
		if !t.leaving && t.work.Err() == nil {
			l := t.lease
			k.troubles.tell(&l)
			leases = append(leases, l)
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
	k.mu.Lock()
	defer k.mu.Unlock()
	ends := began.Add(k.term - k.margin())
	for _, l := range renewed {
		if slot != nil && l.Partition == slot.Partition {
			slot = nil
			if k.member != nil && k.member.Token == l.Token {
				k.member = &l
			}
			continue
		}
		t := asked[l.Partition]
		delete(asked, l.Partition)
		if t == nil || t.leaving || t.lease.Token != l.Token {
			continue
		}
		// A timer that has gone off has ended the tenancy, and stays that way.
		t.lease = l
		if left := time.Until(ends); t.expire.Stop() && left > 0 {
			t.deadline.Store(&ends)
			t.expire.Reset(left)
		} else {
			t.cancel(errTermEnded)
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			for p := range asked {
				k.troubles.note(p, renewFailed, err)
			}
			k.warn(ctx, renewFailed, "", err)
		}
		return false
	}
	for _, t := range asked {
		if !t.leaving {
			t.cancel(fmt.Errorf("%w: taken over by another owner", gobridge.ErrLeaseLost))
		}
	}
	if slot != nil && k.member != nil && k.member.Token == slot.Token { // this process was taken for dead
		k.member = nil
		k.wake()
	}
	return true
}
