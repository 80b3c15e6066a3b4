package bridge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// mortal is a process's way to a store and its leases: once it is dead, nothing
// gets through any more.
type mortal struct {
	faulty
	gobridge.LeaseStore
	dead atomic.Bool
}

func newMortal(store *memory.Store) *mortal {
	m := &mortal{LeaseStore: store.Leases()}
	m.faulty = faulty{Store: store, fail: func(string) (before, after bool) { return m.dead.Load(), false }}
	return m
}

// Renew and Release are those of a process that may be dead.
func (m *mortal) Renew(ctx context.Context, l []gobridge.Lease) ([]gobridge.Lease, error) {
	if m.dead.Load() {
		return nil, errFault
	}
	return m.LeaseStore.Renew(ctx, l)
}

type mortalLeases struct{ *mortal }

func (m mortalLeases) Release(ctx context.Context, l gobridge.Lease) error {
	if m.dead.Load() {
		return errFault
	}
	return m.LeaseStore.Release(ctx, l)
}

func (m mortalLeases) Acquire(ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
	if m.dead.Load() {
		return gobridge.Lease{}, errFault
	}
	return m.LeaseStore.Acquire(ctx, r)
}

func TestARecordThatKillsEveryProcessTakesNoOthersWithIt(t *testing.T) {
	for _, key := range []string{"", "k"} {
		t.Run("key "+key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Options{})
				w := &world{T: t, store: store}
				dest := &target{}
				w.bridge = w.open(store, one(bridge.Binding{Sender: dest}))
				for i := range 40 {
					w.put(messaging.Envelope{ID: fmt.Sprint("m", i), OrderingKey: key})
				}
				deaths := 0
				for deaths < 60 && w.stats(partition).Pending+w.stats(partition).Claimed > 0 {
					m := newMortal(store)
					dest.answers(func(ctx context.Context, d gobridge.Delivery) error {
						time.Sleep(time.Millisecond)
						if d.Envelope.ID == "m5" {
							m.dead.Store(true)
						}
						if m.dead.Load() {
							<-ctx.Done()
							return ctx.Err()
						}
						return nil
					})
					opts := one(bridge.Binding{Sender: dest})
					opts.Leases = mortalLeases{m}
					b := w.open(&m.faulty, opts)
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() { done <- b.Run(ctx) }()
					w.after(time.Minute)
					if m.dead.Load() {
						deaths++
					}
					cancel()
					<-done //nolint:errcheck // what a process that died says matters to nobody
				}
				for i := range 40 {
					want := gobridge.StateDelivered
					if i == 5 {
						want = gobridge.StateDead
					}
					w.wantState(fmt.Sprint("m", i), want)
				}
				if r := w.get("m5"); r.Reason != gobridge.ReasonCrashed {
					t.Errorf("m5 ended for %q", r.Reason)
				}
				t.Logf("%d processes died", deaths)
			})
		})
	}
}
