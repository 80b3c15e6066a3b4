package bridge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// quietStore tells what is quiet, as told, and of no changes by others.
type quietStore struct {
	gobridge.Store
	says   func(context.Context, ...gobridge.Partition) ([]gobridge.Partition, error)
	claims atomic.Int64
	sweeps atomic.Int64
}

func (s *quietStore) Claim(ctx context.Context, r gobridge.ClaimRequest) ([]gobridge.Record, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, r)
}

func (s *quietStore) Sweep(ctx context.Context, r gobridge.SweepRequest) (gobridge.SweepResult, error) {
	s.sweeps.Add(1)
	return s.Store.Sweep(ctx, r)
}

func (s *quietStore) Quiet(ctx context.Context, p ...gobridge.Partition) ([]gobridge.Partition, error) {
	return s.says(ctx, p...)
}

// TestQuietPartitionsCostNoClaims: and what comes then is not late, whatever the
// store says.
func TestQuietPartitionsCostNoClaims(t *testing.T) {
	for _, c := range []struct {
		name   string
		says   func(s *memory.Store) func(context.Context, ...gobridge.Partition) ([]gobridge.Partition, error)
		claims int64 // in ten idle minutes, at most
		within time.Duration
	}{
		{"it says how it is", saysHowItIs, 8, 2 * time.Second},
		{"it cannot tell", func(*memory.Store) func(context.Context, ...gobridge.Partition) ([]gobridge.Partition, error) {
			return func(context.Context, ...gobridge.Partition) ([]gobridge.Partition, error) { return nil, errFault }
		}, 700, 2 * time.Second},
		{"it is wrong", func(*memory.Store) func(context.Context, ...gobridge.Partition) ([]gobridge.Partition, error) {
			return func(_ context.Context, p ...gobridge.Partition) ([]gobridge.Partition, error) { return p, nil }
		}, 8, 2*time.Minute + 2*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dest := &target{}
				shared := memory.New(memory.Options{})
				store := &quietStore{Store: shared, says: c.says(shared)}
				opts := one(bridge.Binding{Sender: dest})
				opts.Leases = shared.Leases()
				w := &world{T: t, store: shared}
				w.bridge = w.open(store, opts)
				defer w.run(w.bridge)()
				w.after(10 * time.Minute)
				store.claims.Store(0)
				store.sweeps.Store(0)
				w.after(10 * time.Minute)
				if claims, sweeps := store.claims.Load(), store.sweeps.Load(); claims > c.claims || sweeps > c.claims {
					t.Errorf("ten idle minutes took %d claims and %d sweeps, want %d at most", claims, sweeps, c.claims)
				}
				w.publish("k", 3)
				w.after(c.within)
				w.wantOrder(dest, "k", 3)
				w.put(messaging.Envelope{ID: "later", NotBefore: time.Now().Add(20 * time.Minute)})
				w.after(20*time.Minute - time.Second)
				if dest.tries("later") > 0 {
					t.Error("sent before it was due")
				}
				w.after(time.Second + c.within)
				w.wantState("later", gobridge.StateDelivered)
				w.put(messaging.Envelope{ID: "expires", NotBefore: time.Now().Add(time.Hour), ExpiresAt: time.Now().Add(10 * time.Minute)})
				w.after(10*time.Minute + c.within + 2*time.Second)
				w.wantState("expires", gobridge.StateExpired)
			})
		})
	}
}

func saysHowItIs(s *memory.Store) func(context.Context, ...gobridge.Partition) ([]gobridge.Partition, error) {
	return func(ctx context.Context, p ...gobridge.Partition) (quiet []gobridge.Partition, err error) {
		stats, err := s.Stats(ctx, p...)
		for _, one := range stats {
			if one.Pending+one.Claimed == 0 {
				quiet = append(quiet, one.Partition)
			}
		}
		return quiet, err
	}
}
