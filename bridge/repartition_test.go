package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// spread is one with n partitions.
func spread(n int, b bridge.Binding) bridge.Options {
	opts := one(b)
	opts.Routes[0].Partitions = n
	return opts
}

// runs runs a bridge for a minute and returns how Run ended.
func (w *world) runs(b *bridge.Bridge) error {
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	w.after(time.Minute)
	cancel()
	return <-done
}

func TestAKeyIsAlwaysInTheSamePartition(t *testing.T) {
	opts := spread(8, bridge.Binding{Sender: &target{}})
	opts.Routes[0].Bindings = append(opts.Routes[0].Bindings, bridge.Binding{Name: "c", Sender: &target{}})
	b, err := bridge.New(memory.New(memory.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		key, id := fmt.Sprint("k", i%10), fmt.Sprint("id", i)
		if i%3 == 0 {
			key = ""
		}
		for range 2 {
			records, err := b.Route("r").Records(messaging.Envelope{ID: id, OrderingKey: key})
			if err != nil || len(records) != 2 {
				t.Fatal(records, err)
			}
			for _, r := range records {
				if want := gobridge.NewShard("r", r.Binding, gobridge.Shard(8, key, id), 8); r.Partition != want {
					t.Errorf("key %q, ID %q is in %s, want %s", key, id, r.Partition, want)
				}
			}
		}
	}
}

func TestSpreadRouteDeliversInOrderAndKnowsDuplicates(t *testing.T) {
	dest := &target{}
	opts := spread(8, bridge.Binding{Sender: dest})
	inWorld(t, opts, func(w *world) {
		for k := range 20 {
			w.publish(fmt.Sprint("k", k), 20)
		}
		w.publish("", 20)
		receipt, err := w.bridge.Route("r").Accept(w.Context(), messaging.Envelope{ID: "id-7", Payload: []byte("x")})
		if err != nil || !receipt.Duplicate {
			t.Errorf("a keyless duplicate: %+v, %v", receipt, err)
		}
		w.after(time.Minute)
		for k := range 20 {
			w.wantOrder(dest, fmt.Sprint("k", k), 20)
		}
		if n := len(dest.ids("")); n != 20 {
			t.Errorf("%d keyless ones arrived, want 20", n)
		}
		s := w.bridge.Status().Bindings[0]
		if len(s.Partitions) != 8 || len(s.Owned) != 8 {
			t.Errorf("status: %+v", s)
		}
	})
}

// TestSpreadBindingHasOneDepth has the bound hold over all partitions.
func TestSpreadBindingHasOneDepth(t *testing.T) {
	w := &world{T: t, store: memory.New(memory.Options{})}
	w.bridge = w.open(w.store, spread(4, bridge.Binding{Sender: &target{}, MaxOutboxDepth: 10}))
	for i := range 11 {
		_, err := w.bridge.Route("r").Publish(t.Context(), messaging.Envelope{ID: fmt.Sprint(i)})
		if full := errors.Is(err, gobridge.ErrOutboxFull); full != (i == 10) {
			t.Errorf("message %d: %v", i+1, err)
		}
	}
}

// TestSpreadBindingHasOneCircuit has a destination that is down be tried by one
// partition at a time, and all go on when it is back.
func TestSpreadBindingHasOneCircuit(t *testing.T) {
	dest := &target{}
	dest.answers(func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(errBoom) })
	inWorld(t, spread(8, bridge.Binding{Sender: dest, Retry: bridge.Retry{MinBackoff: 10 * time.Second, MaxBackoff: 10 * time.Second}}), func(w *world) {
		w.after(time.Second)
		for k := range 50 {
			w.publish(fmt.Sprint("k", k), 2)
		}
		w.after(time.Second)
		before := dest.sends()
		w.after(2 * time.Minute)
		// A probe every 5 to 10 seconds.
		if n := dest.sends() - before; n < 12 || n > 25 {
			t.Errorf("%d probes in two minutes, want one every 5 to 10 seconds", n)
		}
		dest.answers(nil)
		if err := w.bridge.Probe("r", "b"); err != nil {
			t.Fatal(err)
		}
		w.after(2 * time.Second)
		for k := range 50 {
			w.wantOrder(dest, fmt.Sprint("k", k), 2)
		}
	})
}

// TestSpreadBindingHasOneRate has two processes keep to it together.
func TestSpreadBindingHasOneRate(t *testing.T) {
	dest := &target{}
	opts := spread(4, bridge.Binding{Sender: dest, Rate: 20})
	inWorld(t, opts, func(w *world) {
		stop := w.run(w.open(w.store.Handle(nil), opts))
		defer stop()
		w.after(10 * time.Second)
		for k := range 100 {
			w.publish(fmt.Sprint("k", k), 20)
		}
		before := dest.sends()
		w.after(20 * time.Second)
		if n := dest.sends() - before; n < 300 || n > 410 {
			t.Errorf("%d sends in 20 s by two processes, the rate is 20 a second", n)
		}
	})
}

func TestAnotherNumberOfPartitionsIsRefused(t *testing.T) {
	for _, change := range [][2]int{{1, 4}, {4, 1}, {4, 8}, {8, 4}} {
		t.Run(fmt.Sprint(change), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dest := &target{}
				w := &world{T: t, store: memory.New(memory.Options{})}
				w.bridge = w.open(w.store, spread(change[0], bridge.Binding{Sender: dest}))
				w.publish("a", 3)
				other := func(waive bool) *bridge.Bridge {
					opts := spread(change[1], bridge.Binding{Sender: dest})
					if waive {
						opts.Repartitioned = []string{"r"}
					}
					return w.open(w.store.Handle(nil), opts)
				}
				refused := func(what string, waive bool, parts ...string) {
					t.Helper()
					err := w.runs(other(waive))
					if !errors.Is(err, bridge.ErrPartitionsChanged) {
						t.Fatalf("%s: Run with another number says %v", what, err)
					}
					for _, part := range parts {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("%s: %q is not in: %v", what, part, err)
						}
					}
					if err := other(waive).Drain(t.Context()); !errors.Is(err, bridge.ErrPartitionsChanged) {
						t.Errorf("%s: Drain says %v", what, err)
					}
				}
				changed := fmt.Sprintf("partitions of route r was %d and is %d now", change[0], change[1])
				refused("records wait", true, "3 pending", changed, fmt.Sprintf("Set it back to %d", change[0]), "let everything be delivered")
				if err := other(true).CheckStored(t.Context()); !errors.Is(err, bridge.ErrPartitionsChanged) || !strings.Contains(err.Error(), changed) {
					t.Errorf("records wait, seen before Run: %v", err)
				}
				stop := w.run(w.bridge)
				w.after(time.Second)
				refused("a process has the old number", true, "serves r", changed, "Stop every process")
				stop()
				refused("IDs are remembered", false, "may remember", changed, "repartitioned")
				w.wantOrder(dest, "a", 3)
				w.bridge = other(true)
				w.publishFrom("a", 4, 6)
				if err := w.runs(w.bridge); err != nil {
					t.Errorf("with that waived: %v", err)
				}
				w.wantOrder(dest, "a", 6)
			})
		})
	}
}

func TestAnotherNumberIsFineWhenNothingIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := &target{}
		w := &world{T: t, store: memory.New(memory.Options{Retention: time.Hour})}
		w.bridge = w.open(w.store, spread(1, bridge.Binding{Sender: dest}))
		w.publish("a", 3)
		if err := w.runs(w.bridge); err != nil {
			t.Fatal(err)
		}
		w.after(time.Hour + 10*time.Second)
		if err := w.runs(w.open(w.store, spread(4, bridge.Binding{Sender: dest}))); err != nil {
			t.Errorf("an hour after the last delivery: %v", err)
		}
	})
}

// TestADeadProcessWithTheOldNumber is waited for, not believed.
func TestADeadProcessWithTheOldNumber(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		p := c.join("old")
		c.after(time.Second)
		p.kill()
		c.after(time.Second)
		opts := c.options(nil)
		opts.Routes[0].Partitions = 4
		w := &world{T: c.T, store: c.store}
		if err := w.runs(w.open(c.store.Handle(nil), opts)); err != nil {
			t.Errorf("a minute after the last process with the old number died: %v", err)
		}
	})
}

// TestMoveToAnotherNumberOfPartitions is the way that needs no destination: with no
// process about, what waits is moved to the partitions of the new number.
func TestMoveToAnotherNumberOfPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := &target{}
		w := &world{T: t, store: memory.New(memory.Options{})}
		w.bridge = w.open(w.store, spread(2, bridge.Binding{Sender: dest}))
		for k := range 10 {
			w.publish(fmt.Sprint("k", k), 5)
		}
		three := spread(3, bridge.Binding{Sender: dest})
		three.Repartitioned = []string{"r"}
		for i := range 2 {
			err := w.open(w.store, three).CheckStored(t.Context())
			from := gobridge.NewShard("r", "b", i, 2)
			if err == nil || !strings.Contains(err.Error(), string(from)) || !strings.Contains(err.Error(), "move what waits") {
				t.Errorf("with records in %s: %v", from, err)
			}
			if _, err := bridge.Move(t.Context(), w.store, from, "r", "b", bridge.ParkedOptions{Partitions: 3}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.runs(w.open(w.store, three)); err != nil {
			t.Fatal(err)
		}
		for k := range 10 {
			w.wantOrder(dest, fmt.Sprint("k", k), 5)
		}
	})
}

func TestTwoNumbersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New(memory.Options{})}
		errs := make(chan error, 2)
		for _, n := range []int{2, 3} {
			b := w.open(w.store.Handle(nil), spread(n, bridge.Binding{Sender: &target{}}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go func() { errs <- b.Run(ctx) }()
		}
		first, second := <-errs, <-errs
		if !errors.Is(first, bridge.ErrPartitionsChanged) && !errors.Is(second, bridge.ErrPartitionsChanged) {
			t.Errorf("both run: %v, %v", first, second)
		}
	})
}

func TestMoveToASpreadBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := &target{}
		w := &world{T: t, store: memory.New(memory.Options{})}
		w.bridge = w.open(w.store, one(bridge.Binding{Sender: dest}))
		for k := range 10 {
			w.publish(fmt.Sprint("k", k), 10)
		}
		result, err := bridge.Move(t.Context(), w.store, partition, "new", "b", bridge.ParkedOptions{Partitions: 4})
		if err != nil || result.Moved != 100 {
			t.Fatalf("moved %+v, %v", result, err)
		}
		opts := spread(4, bridge.Binding{Sender: dest})
		opts.Routes[0].Name = "new"
		if err := w.runs(w.open(w.store, opts)); err != nil {
			t.Fatal(err)
		}
		for k := range 10 {
			w.wantOrder(dest, fmt.Sprint("k", k), 10)
		}
		var used []gobridge.Partition
		for _, d := range dest.taken() {
			if !slices.Contains(used, d.Partition) {
				used = append(used, d.Partition)
			}
		}
		if len(used) < 2 {
			t.Errorf("everything went through %v", used)
		}
	})
}
