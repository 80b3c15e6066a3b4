package bridge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
)

// both is a route "r" with a binding "b" and another, "other".
func both(b, other gobridge.Sender) bridge.Options {
	opts := one(bridge.Binding{Sender: b})
	opts.Routes[0].Bindings = append(opts.Routes[0].Bindings, bridge.Binding{Name: "other", Sender: other})
	return opts
}

const downKeys = 6

func TestADestinationThatIsDownForADay(t *testing.T) {
	for _, tc := range []struct {
		name  string
		down  error
		hours int
	}{
		{"401 for an hour or two", gobridge.Unavailable(errBoom), 2},
		{"network error for a day", errBoom, 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dest, other := &target{}, &target{}
			inWorld(t, both(dest, other), func(w *world) {
				for i := 1; i <= 20; i++ { // it goes down under load
					if i == 10 {
						dest.answers(func(context.Context, gobridge.Delivery) error { return tc.down })
					}
					for k := range downKeys {
						w.publishFrom(fmt.Sprintf("k%d", k), i, i)
					}
					w.after(time.Millisecond)
				}
				tried := dest.sends()
				for i := 21; i <= 20+tc.hours; i++ {
					w.after(time.Hour)
					for k := range downKeys {
						w.publishFrom(fmt.Sprintf("k%d", k), i, i)
					}
				}
				w.after(time.Second)
				if s := w.stats(partition); s.Dead != 0 || s.Claimed != 0 {
					t.Errorf("while it was down: %+v", s)
				}
				pending, err := w.store.QueryPending(w.Context(), partition, 10000)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range pending {
					if r.Attempts != 0 {
						t.Errorf("%s has %d attempts", r.Envelope.ID, r.Attempts)
					}
				}
				if probes := dest.sends() - tried; probes > tc.hours*60*4+100 {
					t.Errorf("%d probes in %d hours", probes, tc.hours)
				}
				status := w.bridge.Status().Bindings[0]
				if !status.Down || status.LastError != "boom" {
					t.Errorf("status: %+v", status)
				}
				for k := range downKeys {
					w.wantOrder(other, fmt.Sprintf("k%d", k), 20+tc.hours)
				}

				dest.answers(nil)
				w.after(31 * time.Second) // the longest pause between two probes
				for k := range downKeys {
					w.wantOrder(dest, fmt.Sprintf("k%d", k), 20+tc.hours)
				}
				if w.bridge.Status().Bindings[0].Down {
					t.Error("still down after it is back")
				}
			})
		})
	}
}

func TestProbeFromOutside(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		dest.answers(func(context.Context, gobridge.Delivery) error { return gobridge.RetryAfter(time.Hour, errBoom) })
		w.publish("a", 10)
		w.after(time.Minute)
		if n := dest.sends(); n != 1 {
			t.Errorf("tried %d times while it asked to be left alone", n)
		}
		dest.answers(nil)
		if err := w.bridge.Probe("r", "b"); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		w.wantOrder(dest, "a", 10)
		if err := w.bridge.Probe("r", "no"); err == nil {
			t.Error("probing a binding that is not there is no error")
		}
	})
}

func TestRetryAfterSlowsTheWholeBinding(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		dest.answers(func(context.Context, gobridge.Delivery) error { return gobridge.RetryAfter(10*time.Minute, errBoom) })
		w.publish("a", 1)
		w.after(time.Second)
		dest.answers(nil)
		w.publish("b", 5)
		w.after(9 * time.Minute)
		if got := dest.ids("*"); len(got) != 0 {
			t.Errorf("arrived before the time it asked for: %v", got)
		}
		w.after(time.Minute)
		w.wantOrder(dest, "a", 1)
		w.wantOrder(dest, "b", 5)
	})
}

func TestProbesRotateOverKeys(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.OrderingKey != "good" {
			return errBoom
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.stop()
		for i := range 50 { // all older than the one that gets through
			w.publish(fmt.Sprintf("bad%d", i), 40)
		}
		w.publish("good", 1)
		defer w.run(w.bridge)()
		w.after(30 * time.Minute)
		w.wantOrder(dest, "good", 1)
	})
}

func TestOneKeyOnlySpendsNoAttempts(t *testing.T) {
	dest := &target{}
	dest.answers(func(context.Context, gobridge.Delivery) error { return errBoom })
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("a", 3)
		w.after(4 * time.Hour)
		if r := w.get("a-1"); r.State != gobridge.StatePending || r.Attempts != 0 {
			t.Errorf("%s after %d attempts", r.State, r.Attempts)
		}
		dest.answers(nil)
		w.after(31 * time.Second)
		w.wantOrder(dest, "a", 3)
	})
}

func TestTheRestGetsThroughWhileOneKeyIsInDoubt(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.OrderingKey == "a" {
			return errBoom
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("a", 1)
		w.after(time.Hour)
		w.wantState("a-1", gobridge.StatePending)
		for i := 1; i <= 20; i++ {
			w.publishFrom("b", i, i)
			w.after(time.Second)
			w.wantOrder(dest, "b", i)
			w.after(10 * time.Minute)
		}
		w.wantState("a-1", gobridge.StateDead)
	})
}

func TestSlowBindingDoesNotDelayAnother(t *testing.T) {
	slow, other := &target{}, &target{}
	slow.answers(func(ctx context.Context, _ gobridge.Delivery) error {
		<-ctx.Done()
		return ctx.Err()
	})
	inWorld(t, both(slow, other), func(w *world) {
		for i := 1; i <= 100; i++ {
			w.publishFrom("a", i, i)
			w.after(time.Millisecond)
			w.wantOrder(other, "a", i)
		}
	})
}

func TestBatchesKeepOrder(t *testing.T) {
	dest := &batches{limits: gobridge.BatchLimits{MaxRecords: 7, MaxBytes: 100}}
	failed := 0
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.ID == "k3-10" && failed < 2 {
			failed++
			return errBoom
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, Concurrency: 3}), func(w *world) {
		for i := 1; i <= 40; i++ {
			for k := range 10 {
				w.put(messaging.Envelope{ID: fmt.Sprintf("k%d-%d", k, i), OrderingKey: fmt.Sprintf("k%d", k), Payload: make([]byte, 20)})
			}
		}
		w.after(time.Minute)
		for k := range 10 {
			w.wantOrder(&dest.target, fmt.Sprintf("k%d", k), 40)
		}
		if dest.most < 2 || dest.most > 5 {
			t.Errorf("the largest batch has %d records; five of 20 bytes fit 100", dest.most)
		}
	})
}

// batches is a target that takes batches, and stops at what fails.
type batches struct {
	target
	limits gobridge.BatchLimits
	most   int
}

func (s *batches) BatchLimits() gobridge.BatchLimits { return s.limits }

func (s *batches) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	s.mu.Lock()
	s.most = max(s.most, len(batch))
	s.mu.Unlock()
	time.Sleep(time.Millisecond)
	out := make([]error, len(batch))
	for i, d := range batch {
		if i > 0 && out[i-1] != nil {
			out[i] = gobridge.ErrNotSent
			continue
		}
		out[i] = s.one(ctx, d)
	}
	return out
}
