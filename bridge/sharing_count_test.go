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

// tallied counts the calls of a store and of its leases.
type tallied struct {
	gobridge.Store
	n *atomic.Int64
}

func (s tallied) Claim(ctx context.Context, r gobridge.ClaimRequest) ([]gobridge.Record, error) {
	s.n.Add(1)
	return s.Store.Claim(ctx, r)
}

func (s tallied) Complete(ctx context.Context, t gobridge.Token, c []gobridge.Completion) error {
	s.n.Add(1)
	return s.Store.Complete(ctx, t, c)
}

func (s tallied) Release(ctx context.Context, t gobridge.Token, r []gobridge.Release) error {
	s.n.Add(1)
	return s.Store.Release(ctx, t, r)
}

func (s tallied) Sweep(ctx context.Context, r gobridge.SweepRequest) (gobridge.SweepResult, error) {
	s.n.Add(1)
	return s.Store.Sweep(ctx, r)
}

func (s tallied) Stats(ctx context.Context, p ...gobridge.Partition) ([]gobridge.Stats, error) {
	s.n.Add(1)
	return s.Store.Stats(ctx, p...)
}

func (s tallied) Report(ctx context.Context, p gobridge.Partition, t gobridge.Token, c gobridge.Condition) error {
	s.n.Add(1)
	return s.Store.Report(ctx, p, t, c)
}

func (s tallied) ListControls(ctx context.Context) ([]gobridge.Control, error) {
	s.n.Add(1)
	return s.Store.ListControls(ctx)
}

// talliedLeases counts a lease that is renewed as a write, and a look at all as
// a read.
type talliedLeases struct {
	gobridge.LeaseStore
	writes, reads *atomic.Int64
}

func (l talliedLeases) Acquire(ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
	l.writes.Add(1)
	return l.LeaseStore.Acquire(ctx, r)
}

func (l talliedLeases) Renew(ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
	l.writes.Add(int64(len(leases)))
	return l.LeaseStore.Renew(ctx, leases)
}

func (l talliedLeases) Leases(ctx context.Context) ([]gobridge.Lease, error) {
	l.reads.Add(1)
	return l.LeaseStore.Leases(ctx)
}

// counts is what a minute of n processes comes to.
type counts struct{ perMessage, idlePerMinute, leaseWrites, leaseReads float64 }

func (c *crowd) count(processes int) counts {
	c.Helper()
	var calls, writes, reads atomic.Int64
	var stops []func()
	w := &world{T: c.T, store: c.store}
	for range processes {
		opts := c.options(nil)
		opts.Leases = talliedLeases{c.store.Leases(), &writes, &reads}
		stops = append(stops, w.run(w.open(tallied{c.store.Handle(nil), &calls}, opts)))
	}
	c.after(time.Minute)
	c.even(processes)
	calls.Store(0)
	writes.Store(0)
	reads.Store(0)
	c.after(time.Minute)
	out := counts{idlePerMinute: float64(calls.Load()), leaseWrites: float64(writes.Load()), leaseReads: float64(reads.Load())}
	calls.Store(0)
	// One after the other, so that what is counted depends little on which of them
	// happen to be claimed together.
	const rounds, keys = 50, 64
	for i := range rounds * keys {
		e := messaging.Envelope{ID: fmt.Sprint(i), OrderingKey: fmt.Sprint("k", i%keys)}
		if _, err := c.front.Publish(c.Context(), e); err != nil {
			c.Fatal(err)
		}
		c.after(10 * time.Millisecond)
	}
	out.perMessage = float64(calls.Load()) / (rounds * keys)
	for _, stop := range stops {
		stop()
	}
	return out
}

// TestStoreCallsDoNotGrowWithProcesses counts.
func TestStoreCallsDoNotGrowWithProcesses(t *testing.T) {
	got := map[int]counts{}
	for _, n := range []int{1, 2, 4} {
		inCrowd(t, func(c *crowd) { got[n] = c.count(n) })
		t.Logf("%d processes, %d partitions: %.3f store calls a message; idle, a minute: %.0f store calls, %.0f lease writes, %.0f looks",
			n, shards, got[n].perMessage, got[n].idlePerMinute, got[n].leaseWrites, got[n].leaseReads)
	}
	for _, n := range []int{2, 4} {
		// Fewer may be: what is claimed together, and how many looks find nothing, depends on
		// the phases of the polls.
		if r := got[n].perMessage / got[1].perMessage; r > 1.1 {
			t.Errorf("%d processes make %.2f times the store calls a message of one", n, r)
		}
		if r := got[n].idlePerMinute / got[1].idlePerMinute; r > 1.1 {
			t.Errorf("%d idle processes make %.2f times the store calls of one", n, r)
		}
		if more := got[n].leaseWrites - got[1].leaseWrites; more > got[1].leaseWrites*float64(n-1)/shards*1.1 {
			t.Errorf("%d processes write leases %.0f times more a minute than one, which does %.0f times", n, more, got[1].leaseWrites)
		}
	}
}

// hanging is a store whose first claim never returns by itself.
type hanging struct {
	gobridge.Store
	hung atomic.Bool
}

func (h *hanging) Claim(ctx context.Context, r gobridge.ClaimRequest) ([]gobridge.Record, error) {
	if !h.hung.Swap(true) {
		if _, err := h.Store.Claim(ctx, r); err != nil { // it happened, but nobody learns of it
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Store.Claim(ctx, r)
}

func TestAClaimThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := &target{}
		store := memory.New(memory.Options{})
		w := &world{T: t, store: store}
		opts := one(bridge.Binding{Sender: dest})
		opts.Leases = store.Leases()
		w.bridge = w.open(&hanging{Store: store}, opts)
		w.publish("a", 10)
		defer w.run(w.bridge)()
		w.after(time.Minute)
		w.wantOrder(dest, "a", 10)
	})
}
