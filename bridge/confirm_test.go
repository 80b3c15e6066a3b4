package bridge_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// inFaultyWorld runs f with a bridge whose store fails the operation that
// failing names.
func inFaultyWorld(t *testing.T, b bridge.Binding, f func(w *world, failing *atomic.Value)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		var failing atomic.Value
		failing.Store("")
		w := &world{T: t, store: store}
		opts := one(b)
		opts.Leases = store.Leases()
		w.bridge = w.open(&faulty{store, func(op string) (bool, bool) { return op == failing.Load(), false }}, opts)
		w.stop = w.run(w.bridge)
		defer w.stop()
		f(w, &failing)
	})
}

func refuseFirst(dest *target) {
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.ID == "a-1" {
			return gobridge.Permanent(errBoom)
		}
		return nil
	})
}

func TestAKeyGoesOnOnlyOnceItsDeadLetterIsConfirmed(t *testing.T) {
	for policy, op := range map[bridge.FailurePolicy]string{bridge.FailDeadLetter: "dead letter", bridge.FailDiscard: "complete"} {
		dest := &target{}
		refuseFirst(dest)
		inFaultyWorld(t, bridge.Binding{Sender: dest, OnFailure: policy}, func(w *world, failing *atomic.Value) {
			failing.Store(op)
			w.publish("a", 3)
			w.after(time.Minute)
			if got := dest.ids("a"); len(got) != 0 {
				t.Errorf("%v arrived before %s was confirmed", got, op)
			}
			w.wantState("a-1", gobridge.StateClaimed)
			failing.Store("")
			w.after(5 * time.Second)
			if got := dest.ids("a"); len(got) != 2 {
				t.Errorf("%v arrived, want the two behind it", got)
			}
		})
	}
}

func TestAHaltIsInForceBeforeTheRecordGoesBack(t *testing.T) {
	dest := &target{}
	refuseFirst(dest)
	inFaultyWorld(t, bridge.Binding{Sender: dest, OnFailure: bridge.FailHaltKey}, func(w *world, failing *atomic.Value) {
		failing.Store("set control")
		w.publish("a", 3)
		w.publish("b", 3)
		w.after(time.Minute)
		w.wantOrder(dest, "b", 3)
		w.wantState("a-1", gobridge.StateClaimed)
		failing.Store("")
		w.after(5 * time.Second)
		w.wantState("a-1", gobridge.StatePending)
		w.wantState("a-2", gobridge.StatePending)
		if n := dest.tries("a-1"); n != 1 {
			t.Errorf("sent %d times, want 1", n)
		}
		dest.answers(nil)
		halt := gobridge.Control{Kind: gobridge.Halt, Route: "r", Binding: "b", OrderingKey: "a"}
		if err := w.store.ClearControl(w.Context(), halt); err != nil {
			t.Fatal(err)
		}
		w.after(5 * time.Second)
		w.wantOrder(dest, "a", 3)
	})
}

func TestAStaleAnswerStopsTheKey(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		dest.answers(func(_ context.Context, d gobridge.Delivery) error {
			if d.Envelope.ID != "a-1" || d.Token.Version != 1 {
				return nil
			}
			// Another has the partition, by a lease that this process knows nothing of.
			_, err := w.store.Claim(w.Context(), gobridge.ClaimRequest{
				Partition: partition, Token: gobridge.Token{Owner: "other", Version: 50}, Limit: 1, HeldKnown: true,
			})
			if err != nil {
				t.Error(err)
			}
			return gobridge.Permanent(errBoom)
		})
		w.publish("a", 3)
		w.after(10 * time.Second)
		w.wantOrder(dest, "a", 3)
		for _, d := range dest.taken() {
			if d.Token.Version <= 50 {
				t.Errorf("%s arrived under %s", d.Envelope.ID, d.Token)
			}
		}
	})
}

func TestLargeRecordsOfASlowKeyLeaveRoomForOthers(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.OrderingKey == "slow" {
			time.Sleep(10 * time.Second)
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, Concurrency: 4, BatchBytes: 1 << 20}), func(w *world) {
		w.stop()
		for i := range 50 {
			w.put(messaging.Envelope{ID: fmt.Sprint(i), OrderingKey: "slow", Payload: make([]byte, 128<<10)})
		}
		w.publish("fast", 20)
		defer w.run(w.bridge)()
		w.after(time.Second)
		w.wantOrder(dest, "fast", 20)
		if s := w.stats(partition); s.Claimed > 8 {
			t.Errorf("%d records of 128 KiB are held with room for 1 MiB", s.Claimed)
		}
	})
}

// TestLargeRecordsDoNotWaitForPolls has a store that tells of nothing: what a claim has
// left out for its bytes is claimed at once, as soon as there is room.
func TestLargeRecordsDoNotWaitForPolls(t *testing.T) {
	const n, took = 64, time.Millisecond
	dest := &target{}
	var mu sync.Mutex
	var first, last time.Time
	dest.answers(func(context.Context, gobridge.Delivery) error {
		time.Sleep(took)
		mu.Lock()
		defer mu.Unlock()
		if last = time.Now(); first.IsZero() {
			first = last
		}
		return nil
	})
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New(memory.Options{})}
		w.bridge = w.open(struct {
			gobridge.Store
			gobridge.Leaser
		}{w.store, w.store}, one(bridge.Binding{Sender: dest}))
		for i := range n {
			w.put(messaging.Envelope{ID: fmt.Sprint(i), Payload: make([]byte, 600<<10)})
		}
		defer w.run(w.bridge)()
		w.after(time.Minute)
		if got := len(dest.taken()); got != n {
			t.Errorf("%d of %d arrived", got, n)
		}
		if all := last.Sub(first); all > n*took {
			t.Errorf("%d messages that take %s each arrived within %s", n, took, all)
		}
	})
}

func TestAHaltOfARecordWithoutAKey(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.ID == "id-1" {
			return gobridge.Permanent(errBoom)
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, OnFailure: bridge.FailHaltKey}), func(w *world) {
		w.publish("", 10)
		w.after(time.Minute)
		if n := dest.tries("id-1"); n != 1 {
			t.Errorf("tried %d times, want once", n)
		}
		if n := len(dest.ids("")); n != 9 {
			t.Errorf("%d others arrived, want 9", n)
		}
		w.wantState("id-1", gobridge.StatePending)
	})
}

func TestAPauseHoldsWhatWaitsForItsTurnUnderARate(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest, Rate: 1}), func(w *world) {
		w.publish("", 50)
		w.after(5 * time.Second)
		pause := gobridge.Control{Kind: gobridge.Pause, Route: "r"}
		if err := w.store.SetControl(w.Context(), pause); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		before := len(dest.ids("*"))
		w.after(time.Minute)
		if n := len(dest.ids("*")); n != before {
			t.Errorf("%d sent under the pause", n-before)
		}
		if err := w.store.ClearControl(w.Context(), pause); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		if n := len(dest.ids("*")); n != 50 {
			t.Errorf("%d arrived, want 50", n)
		}
	})
}
