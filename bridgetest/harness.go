package bridgetest

import (
	"log/slog"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// Harness is a bridge in the hands of a test. Its methods end the test when
// they can't do what they are for; they are the test goroutine's.
//
// Where a method takes a binding, "mail" will do if one route only has a binding
// of that name, and "orders/mail" always does.
type Harness struct {
	tb       testing.TB
	store    gobridge.Store
	bridge   *bridge.Bridge
	clock    *Clock
	bindings []*binding
}

// New returns a bridge of the routes over store; nil is a new store in memory.
// A binding without a Sender, or with a nil [gobridge.HandlerFunc], takes
// everything.
//
// A [memory.Store] is used through a handle with the harness's clock. Any other
// store has its own clock: see [NewWithClock].
func New(tb testing.TB, store gobridge.Store, routes []bridge.Route) *Harness {
	tb.Helper()
	return NewWithClock(tb, store, routes, NewClock())
}

// NewWithClock is [New] with a clock that the store has as well:
//
//	clock := bridgetest.NewClock()
//	store, err := sqlite.Open(ctx, db, sqlite.Options{Now: clock.Now})
//	h := bridgetest.NewWithClock(t, store, routes, clock)
func NewWithClock(tb testing.TB, store gobridge.Store, routes []bridge.Route, clock *Clock) *Harness {
	tb.Helper()
	switch s := store.(type) {
	case nil:
		store = memory.New(memory.Options{Now: clock.Now})
	case *memory.Store:
		store = s.Handle(clock.Now)
	}
	h := &Harness{tb: tb, store: store, clock: clock}
	b, err := bridge.New(store, bridge.Options{
		Routes: h.control(routes),
		Now:    clock.Now,
		// A pass ends when a look finds nothing: let it look soon.
		PollInterval: time.Millisecond,
		Logger:       slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		tb.Fatal(err)
	}
	h.bridge = b
	return h
}

// control returns the routes with senders that do as the test says.
func (h *Harness) control(routes []bridge.Route) []bridge.Route {
	out := make([]bridge.Route, len(routes))
	for i, r := range routes {
		out[i] = r
		out[i].Bindings = make([]bridge.Binding, len(r.Bindings))
		for j, b := range r.Bindings {
			c := &binding{
				route: r.Name, name: b.Name, sender: b.Sender, clock: h.clock,
			}
			of := min(max(1, r.Partitions), bridge.MaxPartitions) // bridge.New refuses others
			for shard := range of {
				c.partitions = append(c.partitions, gobridge.NewShard(r.Name, b.Name, shard, of))
			}
			if f, ok := b.Sender.(gobridge.HandlerFunc); ok && f == nil {
				c.sender = nil
			}
			h.bindings = append(h.bindings, c)
			b.Sender = c
			if batch, ok := c.sender.(gobridge.BatchSender); ok {
				b.Sender = batching{c, batch}
			}
			b.Concurrency = 1
			b.Rate = 0
			out[i].Bindings[j] = b
		}
	}
	return out
}

// Bridge returns the bridge.
func (h *Harness) Bridge() *bridge.Bridge { return h.bridge }

// Store returns the store, with the harness's clock if it is one in memory.
func (h *Harness) Store() gobridge.Store { return h.store }

// Now returns the harness's time.
func (h *Harness) Now() time.Time { return h.clock.Now() }

// Route returns the way into a route, for the code under test to publish through.
func (h *Harness) Route(name string) *bridge.RouteHandle {
	h.tb.Helper()
	r := h.bridge.Route(name)
	if r == nil {
		h.tb.Fatalf("there is no route %q; the routes are %s", name, h.routeNames())
	}
	return r
}

// Publish puts messages into a route.
func (h *Harness) Publish(route string, envelopes ...messaging.Envelope) []gobridge.Receipt {
	h.tb.Helper()
	receipts, err := h.Route(route).Publish(h.tb.Context(), envelopes...)
	if err != nil {
		h.tb.Fatalf("publish to %q: %v", route, err)
	}
	return receipts
}

// Drain delivers what is due now. A destination that is down is tried once,
// unless it asked ([gobridge.RetryAfter]) to be left alone for longer.
func (h *Harness) Drain() {
	h.tb.Helper()
	if err := h.bridge.Drain(h.tb.Context()); err != nil {
		h.tb.Fatalf("drain: %v", err)
	}
}

// Advance lets time pass: it delivers what is due now, what comes due on the
// way, when it does, and what is due in the end.
func (h *Harness) Advance(d time.Duration) {
	h.tb.Helper()
	if d < 0 {
		h.tb.Fatalf("Advance by %s: time does not go back", d)
	}
	end := h.Now().Add(d)
	h.Drain()
	for {
		next := h.nextDue()
		if next.IsZero() || next.After(end) {
			break
		}
		h.clock.set(next)
		h.Drain()
	}
	h.clock.set(end)
	h.Drain()
}

// most is how many pending records of a binding are looked at.
const most = 10_000

// nextDue returns the first time from now on when something comes due, zero if
// there is none.
func (h *Harness) nextDue() time.Time {
	h.tb.Helper()
	now := h.Now()
	var next time.Time
	sooner := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, b := range h.bindings {
		sooner(b.leftAloneUntil())
		for _, r := range h.pending(b, most) {
			sooner(r.DueAt())
		}
	}
	return next
}

func (h *Harness) pending(b *binding, limit int) []gobridge.Record {
	h.tb.Helper()
	var out []gobridge.Record
	for _, p := range b.partitions {
		if len(out) >= limit {
			break
		}
		records, err := h.store.QueryPending(h.tb.Context(), p, limit-len(out))
		if err != nil {
			h.tb.Fatalf("look at what %s has pending: %v", b, err)
		}
		out = append(out, records...)
	}
	return out
}
