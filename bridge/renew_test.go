package bridge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/store/memory"
)

// lame is a lease store that does not renew some leases, and tells what it has
// renewed beside the error.
type lame struct {
	gobridge.LeaseStore
	fails func(gobridge.Partition) bool
}

func (l *lame) Renew(ctx context.Context, all []gobridge.Lease) ([]gobridge.Lease, error) {
	var good []gobridge.Lease
	var err error
	for _, one := range all {
		if l.fails(one.Partition) {
			err = errFault
		} else {
			good = append(good, one)
		}
	}
	out, renewErr := l.LeaseStore.Renew(ctx, good)
	if renewErr != nil {
		return out, renewErr
	}
	return out, err
}

// fourfold is a route over four partitions.
func fourfold(dest gobridge.Sender) bridge.Options {
	opts := one(bridge.Binding{Sender: dest})
	opts.Routes[0].Partitions = 4
	return opts
}

// TestALeaseThatCannotBeRenewedKeepsTheOthers: only what was not renewed is lost.
func TestALeaseThatCannotBeRenewedKeepsTheOthers(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails string
	}{{"a partition", "r/b/2of4"}, {"the member slot", "~member/0"}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(memory.Options{})
				w := &world{T: t, store: store}
				opts := fourfold(&target{})
				events := &eventLog{}
				opts.Observer = events
				opts.Leases = &lame{store.Leases(), func(p gobridge.Partition) bool { return string(p) == c.fails }}
				defer w.run(w.open(store, opts))()
				w.after(time.Minute)
				for _, e := range events.of(bridge.EventLost) {
					if string(e.Partition) != c.fails {
						t.Fatalf("%s was lost: %v", e.Partition, e.Err)
					}
				}
				if lost := len(events.of(bridge.EventLost)); (lost > 0) != strings.HasPrefix(c.fails, "r/") {
					t.Errorf("what is not renewed was lost %d times", lost)
				}
			})
		})
	}
}

// TestALeaseSaysWhatLastWentWrong: others see it, with when, and no sooner is it
// forgotten than the next thing goes wrong.
func TestALeaseSaysWhatLastWentWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		w := &world{T: t, store: store}
		var away atomic.Bool
		away.Store(true)
		broken := &faulty{Store: store, fail: func(op string) (before, after bool) { return op == "claim" && away.Load(), false }}
		dest := &target{}
		dest.answers(func(context.Context, gobridge.Delivery) error {
			return gobridge.Unavailable(errBoom)
		})
		opts := one(bridge.Binding{Sender: dest})
		opts.Leases = store.Leases()
		w.bridge = w.open(broken, opts)
		defer w.run(w.bridge)()
		lease := func() gobridge.Lease {
			all, err := store.Leases().Leases(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range all {
				if l.Partition == partition {
					return l
				}
			}
			t.Fatalf("no lease in %+v", all)
			return gobridge.Lease{}
		}
		w.after(10 * time.Second)
		if l := lease(); !strings.HasPrefix(l.LastError, "claim failed: ") || !strings.Contains(l.LastError, errFault.Error()) ||
			time.Since(l.LastErrorAt) > 10*time.Second {
			t.Errorf("after failed claims the lease says %q, of %s", l.LastError, l.LastErrorAt)
		}
		away.Store(false)
		w.after(20 * time.Second)
		was := lease()
		w.after(20 * time.Second)
		if l := lease(); l.LastError != was.LastError || !l.LastErrorAt.Equal(was.LastErrorAt) {
			t.Errorf("with all well it went from %q of %s to %q of %s", was.LastError, was.LastErrorAt, l.LastError, l.LastErrorAt)
		}
		w.publish("k", 1)
		w.after(20 * time.Second)
		if l := lease(); !strings.HasPrefix(l.LastError, "destination is down: ") || !strings.HasSuffix(l.LastError, "boom") {
			t.Errorf("with the destination down the lease says %q", l.LastError)
		}
	})
}

// TestLongErrorsAreCut: a lease has room for so much.
func TestLongErrorsAreCut(t *testing.T) {
	dest := &target{}
	dest.answers(func(context.Context, gobridge.Delivery) error {
		return gobridge.Unavailable(&longError{})
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("k", 1)
		w.after(20 * time.Second)
		all, err := w.store.Leases().Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l := all[0]; len(l.LastError) > gobridge.MaxLeaseError || len(l.LastError) < gobridge.MaxLeaseError/2 {
			t.Errorf("an error of %d bytes", len(l.LastError))
		}
	})
}

type longError struct{}

func (*longError) Error() string { return strings.Repeat("ä\xff", 1000) }
