package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// counting counts the claims of a store.
type counting struct {
	gobridge.Store
	mu     sync.Mutex
	claims int
}

func (c *counting) Claim(ctx context.Context, r gobridge.ClaimRequest) ([]gobridge.Record, error) {
	c.mu.Lock()
	c.claims++
	n := c.claims
	c.mu.Unlock()
	if n > 20_000 { // fake time stands still while the loop spins
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.Store.Claim(ctx, r)
}

// A record with an explicit, older CreatedAt that comes while a younger one of
// its key is being sent waits for that send, and goes before the rest of its key.
func TestAnOlderRecordThatComesDuringASend(t *testing.T) {
	dest := &target{}
	dest.answers(func(context.Context, gobridge.Delivery) error { time.Sleep(10 * time.Second); return nil })
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		store := &counting{Store: w.store}
		w.stop()
		opts := one(bridge.Binding{Sender: dest})
		opts.Leases = w.store.Leases()
		w.bridge = w.open(store, opts)
		defer w.run(w.bridge)()
		w.publish("k", 3)
		w.after(time.Second)
		if err := w.store.Persist(w.Context(), []gobridge.Record{{
			Partition: partition, Binding: "b", CreatedAt: time.Now().Add(-time.Hour),
			Envelope: messaging.Envelope{ID: "older", OrderingKey: "k"},
		}}); err != nil {
			w.Fatal(err)
		}
		w.after(time.Minute)
		if got := strings.Join(dest.ids("k"), " "); got != "k-1 older k-2 k-3" {
			w.Errorf("delivered %s", got)
		}
		if store.claims > 400 {
			w.Errorf("%d claims in a minute", store.claims)
		}
		for _, d := range dest.taken() {
			if d.Attempt > 2 {
				w.Errorf("%s arrived as attempt %d", d.Envelope.ID, d.Attempt)
			}
		}
	})
}

// One record to which the destination answers that it is not there at all, among
// others that it takes, does not hold the others up.
func TestARecordThatMakesADestinationLookDown(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		time.Sleep(5 * time.Millisecond)
		if d.Envelope.ID == "bad-1" {
			return gobridge.Unavailable(errBoom)
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, Retry: bridge.Retry{Attempts: 3}}), func(w *world) {
		w.publish("bad", 1)
		for i := range 1000 {
			w.put(messaging.Envelope{ID: fmt.Sprint("m", i)})
		}
		w.after(10 * time.Second)
		if n := len(dest.ids("")); n != 1000 {
			w.Errorf("%d of 1000 others arrived in 10 s", n)
		}
		worst := time.Duration(0)
		for i := range 30 {
			began := time.Now()
			id := fmt.Sprint("late", i)
			w.put(messaging.Envelope{ID: id})
			for w.get(id).State != gobridge.StateDelivered && time.Since(began) < time.Minute {
				w.after(100 * time.Millisecond)
			}
			worst = max(worst, time.Since(began))
			w.after(10 * time.Second)
		}
		if worst > time.Second {
			w.Errorf("a record waited for %s", worst)
		}
		if n := dest.tries("bad-1"); n > 40 {
			w.Errorf("the odd one was sent %d times", n)
		}
		if r := w.get("bad-1"); r.State != gobridge.StatePending || r.Attempts > 0 {
			w.Errorf("the odd one is %s after %d attempts", r.State, r.Attempts)
		}
	})
}

// A destination that comes back is used at once, also with a low rate.
func TestAnOutageUnderALowRate(t *testing.T) {
	dest := &target{}
	down := true
	var mu sync.Mutex
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return gobridge.Unavailable(errBoom)
		}
		return nil
	})
	inWorldOf(t, memory.Options{}, one(bridge.Binding{Sender: dest, Rate: 1.0 / 60}), func(w *world) {
		for i := range 40 {
			w.put(messaging.Envelope{ID: fmt.Sprint("m", i)})
		}
		w.after(2 * time.Minute)
		n := dest.sends()
		w.after(10 * time.Minute)
		if dest.sends()-n < 8 {
			w.Errorf("%d probes in ten minutes", dest.sends()-n)
		}
		mu.Lock()
		down = false
		mu.Unlock()
		w.after(10 * time.Minute)
		// One a minute from the first probe on, which has waited for its turn.
		if n := len(dest.ids("*")); n < 9 || n > 11 {
			w.Errorf("%d delivered in ten minutes after it came back, want one a minute", n)
		}
	})
}
