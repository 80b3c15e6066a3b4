package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

func open(t *testing.T, store gobridge.Store, routes ...bridge.Route) *bridge.Bridge {
	t.Helper()
	b, err := bridge.New(store, bridge.Options{Routes: routes})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOptionsAreChecked(t *testing.T) {
	good := bridge.Binding{Name: "b", Sender: &target{}}
	change := func(f func(*bridge.Binding)) []bridge.Route {
		b := good
		f(&b)
		return []bridge.Route{{Name: "r", Bindings: []bridge.Binding{b}}}
	}
	for _, tc := range []struct {
		opts bridge.Options
		want string
	}{
		{bridge.Options{Routes: []bridge.Route{{Name: "a/b", Bindings: []bridge.Binding{good}}}}, `name "a/b": character '/' at position 2`},
		{bridge.Options{Routes: []bridge.Route{{Name: "r"}}}, `route "r" has no bindings`},
		{bridge.Options{Routes: []bridge.Route{
			{Name: "r", Bindings: []bridge.Binding{good}}, {Name: "R", Bindings: []bridge.Binding{good}},
		}}, `name "R" is taken`},
		{bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{good, good}}}}, `binding name "b" is taken`},
		{bridge.Options{Routes: change(func(b *bridge.Binding) { b.Sender = nil })}, "Sender is nil"},
		{bridge.Options{Routes: change(func(b *bridge.Binding) { b.Rate = -1 })}, "Rate is -1"},
		{bridge.Options{Routes: change(func(b *bridge.Binding) { b.Retry = bridge.Retry{MinBackoff: 2, MaxBackoff: 1} })}, "less than MinBackoff"},
		{bridge.Options{Routes: change(func(b *bridge.Binding) { b.OnFailure = 9 })}, "OnFailure is 9"},
		{bridge.Options{LeaseTerm: -1}, "Options.LeaseTerm is -1ns"},
		{bridge.Options{LeaseTerm: 1}, "shortest is 10ms"},
		{bridge.Options{Removed: 7}, "Options.Removed is 7"},
	} {
		_, err := bridge.New(memory.New(memory.Options{}), tc.opts)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
	if _, err := bridge.New(nil, bridge.Options{}); err == nil {
		t.Error("a nil store is no error")
	}
	if _, err := bridge.New(&faulty{Store: memory.New(memory.Options{})}, bridge.Options{}); err == nil || !strings.Contains(err.Error(), "Options.Leases") {
		t.Errorf("no leases: %v", err)
	}
	if b := open(t, memory.New(memory.Options{})); b.Route("none") != nil {
		t.Error("a route that is not there")
	}
}

func TestRecordsOfAnEnvelope(t *testing.T) {
	store := memory.New(memory.Options{})
	b := open(t, store, bridge.Route{
		Name:        "r",
		OrderingKey: func(e *messaging.Envelope) (string, error) { return "key of " + e.Subject, nil },
		ExpireAfter: time.Hour,
		Bindings: []bridge.Binding{
			{Name: "all", Sender: &target{}},
			{Name: "hot", Sender: &target{}, Filter: func(e *messaging.Envelope) (bool, error) { return e.Subject == "hot", nil }},
		},
	})
	e := messaging.Envelope{ID: "1", Subject: "cold", OrderingKey: "own", Payload: []byte("x")}
	records, err := b.Route("r").Records(e)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records: %v", len(records), err)
	}
	r := records[0]
	if r.Partition != "r/all/0" || r.Binding != "all" || r.Envelope.OrderingKey != "key of cold" || r.ContentHash != messaging.ContentHash(&e) {
		t.Errorf("record: %+v", r)
	}
	if left := time.Until(r.Envelope.ExpiresAt); left < 59*time.Minute || left > time.Hour {
		t.Errorf("expires in %s", left)
	}
	records, err = b.Route("r").Records(messaging.Envelope{Subject: "hot"})
	if err != nil || len(records) != 2 || records[0].Envelope.ID == "" || records[0].Envelope.ID != records[1].Envelope.ID {
		t.Errorf("records: %+v, %v", records, err)
	}
	if s, _ := store.Stats(t.Context()); len(s) != 0 {
		t.Errorf("something was stored: %+v", s)
	}
}

func TestPublish(t *testing.T) {
	ctx := t.Context()
	bad := func(e *messaging.Envelope) (bool, error) {
		switch e.Subject {
		case "error":
			return false, errBoom
		case "panic":
			panic("boom")
		}
		return e.Subject != "nobody", nil
	}
	route := open(t, memory.New(memory.Options{}), bridge.Route{Name: "r", Bindings: []bridge.Binding{
		{Name: "b", Sender: &target{}, Filter: bad},
	}}).Route("r")

	receipt, err := route.Accept(ctx, messaging.Envelope{Payload: []byte("x")})
	if err != nil || receipt.EnvelopeID == "" || receipt.Bindings != 1 || receipt.Duplicate {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
	e := messaging.Envelope{ID: "1", Payload: []byte("x"), Headers: messaging.Headers{"traceparent": "1"}}
	for i := range 2 {
		receipt, err = route.Accept(ctx, e)
		if err != nil || receipt.Duplicate != (i == 1) || receipt.EnvelopeID != "1" {
			t.Errorf("receipt %+v, %v", receipt, err)
		}
		e.Headers = messaging.Headers{"traceparent": "2"} // a redelivery
	}
	e.Payload = []byte("y")
	if _, err = route.Accept(ctx, e); !errors.Is(err, gobridge.ErrIdentityReused) {
		t.Errorf("other content: %v", err)
	}
	if receipt, err = route.Accept(ctx, messaging.Envelope{Subject: "nobody"}); err != nil || receipt.Bindings != 0 || receipt.Duplicate {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
	for _, subject := range []string{"error", "panic"} {
		_, err = route.Accept(ctx, messaging.Envelope{Subject: subject})
		if !errors.Is(err, gobridge.ErrRejected) || !strings.Contains(err.Error(), `route "r": filter of binding b`) {
			t.Errorf("a filter's %s: %v", subject, err)
		}
	}
	_, err = route.Accept(ctx, messaging.Envelope{Payload: make([]byte, 17<<20)})
	if !errors.Is(err, gobridge.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	_, err = route.Publish(ctx, messaging.Envelope{ID: "good"}, messaging.Envelope{ID: "bad", Subject: "error"})
	if !errors.Is(err, gobridge.ErrRejected) {
		t.Errorf("one of two rejected: %v", err)
	}
	receipts, err := route.Publish(ctx, messaging.Envelope{ID: "good"}, messaging.Envelope{ID: "good2"})
	if err != nil || len(receipts) != 2 || receipts[0].Duplicate {
		t.Errorf("receipts %+v, %v: the good one was stored with the bad one", receipts, err)
	}
	if receipts, err = route.Publish(ctx); err != nil || len(receipts) != 0 {
		t.Errorf("publishing nothing: %+v, %v", receipts, err)
	}
}

func TestDepthIsExact(t *testing.T) {
	store := memory.New(memory.Options{})
	route := open(t, store, bridge.Route{Name: "r", Bindings: []bridge.Binding{
		{Name: "b", Sender: &target{}, MaxOutboxDepth: 100},
		{Name: "free", Sender: &target{}},
	}}).Route("r")
	var stored, refused atomic.Int64
	var wg sync.WaitGroup
	for p := range 16 {
		wg.Go(func() {
			for i := range 20 {
				e := messaging.Envelope{ID: fmt.Sprintf("%d-%d", p, i)}
				_, err := route.Accept(context.Background(), e)
				switch {
				case err == nil:
					stored.Add(1)
					if _, err := route.Accept(context.Background(), e); err != nil && !errors.Is(err, gobridge.ErrOutboxFull) {
						t.Error(err)
					}
				case errors.Is(err, gobridge.ErrOutboxFull):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if stored.Load() != 100 || refused.Load() != 220 {
		t.Errorf("%d stored and %d refused, want 100 and 220", stored.Load(), refused.Load())
	}
	for _, p := range []gobridge.Partition{"r/b/0", "r/free/0"} {
		if s, _ := store.Stats(t.Context(), p); s[0].Pending != 100 {
			t.Errorf("%s has %d pending: a refused message was stored in part", p, s[0].Pending)
		}
	}
}

func TestFullBindingPutsItsCopyIntoTheDeadLetters(t *testing.T) {
	store := memory.New(memory.Options{})
	route := open(t, store, bridge.Route{Name: "r", Bindings: []bridge.Binding{
		{Name: "b", Sender: &target{}, MaxOutboxDepth: 2, OnFull: bridge.FullDeadLetter},
		{Name: "free", Sender: &target{}},
	}}).Route("r")
	for i := range 5 {
		if _, err := route.Accept(t.Context(), messaging.Envelope{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := store.Stats(t.Context(), "r/b/0", "r/free/0")
	if s[0].Pending != 2 || s[0].Dead != 3 || s[1].Pending != 5 {
		t.Errorf("stats: %+v", s)
	}
	page, err := store.QueryDead(t.Context(), gobridge.DeadQuery{})
	if err != nil || len(page.Records) != 3 || page.Records[0].Reason != gobridge.ReasonFull || !strings.Contains(page.Records[0].Error, "room for 2") {
		t.Errorf("dead letters: %+v, %v", page.Records, err)
	}
}

func TestRoomThatHasBeenMadeIsUsed(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest, MaxOutboxDepth: 10}), func(w *world) {
		for i := 1; i <= 100; i++ {
			w.publishFrom("a", i, i) // fails the test if it is refused
			w.after(time.Millisecond)
		}
		w.wantOrder(dest, "a", 100)
	})
}

func TestUnservedPartitions(t *testing.T) {
	ctx := t.Context()
	store := memory.New(memory.Options{})
	old := open(t, store,
		bridge.Route{Name: "gone", Bindings: []bridge.Binding{{Name: "x", Sender: &target{}}, {Name: "y", Sender: &target{}}}},
		bridge.Route{Name: "r", Bindings: []bridge.Binding{{Name: "b", Sender: &target{}}, {Name: "was", Sender: &target{}}}},
	)
	for _, r := range []string{"gone", "r"} {
		if _, err := old.Route(r).Publish(ctx, messaging.Envelope{ID: "1"}, messaging.Envelope{ID: "2"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		policy  bridge.RemovedPolicy
		parked  []string
		refused []string
	}{
		{bridge.RemovedWarn, nil, nil},
		{bridge.RemovedRefuse, nil, []string{"gone/x/0 (2 pending, 0 claimed, 0 dead)", "gone/y/0", "r/was/0"}},
		{bridge.RemovedRefuse, []string{"gone"}, []string{"r/was/0"}},
		{bridge.RemovedRefuse, []string{"gone/x", "r/was"}, []string{"gone/y/0"}},
		{bridge.RemovedRefuse, []string{"gone", "r/was/0"}, nil},
	} {
		opts := one(bridge.Binding{Sender: &target{}})
		opts.Removed, opts.Parked = tc.policy, tc.parked
		var err, before error
		synctest.Test(t, func(t *testing.T) {
			second, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			b, err2 := bridge.New(store, opts)
			if err2 != nil {
				t.Fatal(err2)
			}
			before = b.CheckStored(second)
			err = b.Run(second)
		})
		if fmt.Sprint(before) != fmt.Sprint(err) {
			t.Errorf("parked %v: the check says %v, and the start %v", tc.parked, before, err)
		}
		if len(tc.refused) == 0 && err != nil {
			t.Errorf("parked %v: %v", tc.parked, err)
		}
		if len(tc.refused) > 0 && !errors.Is(err, bridge.ErrUnservedPartitions) {
			t.Errorf("parked %v: %v", tc.parked, err)
		}
		var unserved *bridge.UnservedError
		if errors.As(err, &unserved) && len(unserved.Partitions) != len(tc.refused) {
			t.Errorf("parked %v: %v", tc.parked, err)
		}
		for _, want := range tc.refused {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("parked %v: %v, want it to name %s", tc.parked, err, want)
			}
		}
	}
}

func TestMoveWhatIsParked(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		old := w.open(w.store, bridge.Options{Routes: []bridge.Route{{Name: "gone", Bindings: []bridge.Binding{{Name: "x", Sender: &target{}}}}}})
		for i := 1; i <= 200; i++ {
			e := messaging.Envelope{ID: fmt.Sprintf("a-%d", i), OrderingKey: "a"}
			if _, err := old.Route("gone").Publish(w.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		// A move that was interrupted: some are in the new partition already.
		w.publish("a", 0)
		from := gobridge.NewPartition("gone", "x", 0)
		for _, fail := range []string{"complete", ""} {
			store := &faulty{w.store, func(op string) (bool, bool) { return op == fail, false }}
			result, err := bridge.Move(w.Context(), store, from, "r", "b", bridge.ParkedOptions{Leases: w.store.Leases()})
			if (err != nil) != (fail != "") {
				t.Fatalf("failing %q: %+v, %v", fail, result, err)
			}
			if fail == "" && (result.Moved != 200 || result.Left.Pending != 0 || result.Left.Claimed != 0) {
				t.Errorf("result: %+v", result)
			}
		}
		w.after(time.Second)
		w.wantOrder(dest, "a", 200)
		r, err := w.store.Get(w.Context(), gobridge.Ref{Partition: from, EnvelopeID: "a-1", Binding: "x"})
		if err != nil || r.State != gobridge.StateDiscarded || r.Reason != gobridge.ReasonParked {
			t.Errorf("the old record: %+v, %v", r, err)
		}
		if _, err := bridge.Move(w.Context(), w.store, partition, "r", "c", bridge.ParkedOptions{}); !errors.Is(err, gobridge.ErrLeaseHeld) {
			t.Errorf("moving what is served: %v", err)
		}
		if _, err := bridge.Move(w.Context(), w.store, from, "r/", "c", bridge.ParkedOptions{}); err == nil {
			t.Error("moving to a name that is none is no error")
		}
	})
}

func TestDiscardWhatIsParked(t *testing.T) {
	store := memory.New(memory.Options{})
	old := open(t, store, bridge.Route{Name: "gone", Bindings: []bridge.Binding{
		{Name: "x", Sender: &target{}, MaxOutboxDepth: 1500, OnFull: bridge.FullDeadLetter},
	}})
	for i := range 2000 {
		if _, err := old.Route("gone").Publish(t.Context(), messaging.Envelope{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	from := gobridge.NewPartition("gone", "x", 0)
	n, err := bridge.Discard(t.Context(), store, from, "me", "no longer wanted", bridge.ParkedOptions{})
	if err != nil || n != 2000 {
		t.Errorf("discarded %d: %v", n, err)
	}
	if s, _ := store.Stats(t.Context(), from); s[0].Pending+s[0].Dead != 0 {
		t.Errorf("left: %+v", s)
	}
}

func TestObserverSeesWhatHappens(t *testing.T) {
	seen := &counter{counts: map[bridge.EventKind]int{}}
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		switch {
		case d.Envelope.ID == "a-1":
			return gobridge.Permanent(errBoom)
		case dest.tries("b-1") == 1 && d.Envelope.ID == "b-1":
			return gobridge.Unavailable(errBoom)
		}
		return nil
	})
	opts := one(bridge.Binding{Sender: dest})
	opts.Observer = seen
	inWorld(t, opts, func(w *world) {
		w.publish("a", 2)
		w.publish("a", 1)
		w.after(time.Second)
		w.publish("b", 1)
		w.after(time.Minute)
		w.stop()
		for kind, want := range map[bridge.EventKind]int{
			bridge.EventAccepted: 3, bridge.EventDuplicate: 1, bridge.EventDelivered: 2, bridge.EventFailed: 2,
			bridge.EventDeadLettered: 1, bridge.EventOpened: 1, bridge.EventClosed: 1, bridge.EventReleased: 1,
			bridge.EventAcquired: 1, bridge.EventHandedOver: 1, bridge.EventLost: 0, bridge.EventStale: 0,
		} {
			if got := seen.counts[kind]; got != want {
				t.Errorf("%s: %d, want %d", kind, got, want)
			}
		}
	})
}

type counter struct {
	mu     sync.Mutex
	counts map[bridge.EventKind]int
}

func (c *counter) Observe(_ context.Context, e bridge.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[e.Kind] += max(1, e.Count)
}

func TestRunThatIsStoppedBeforeItHasBegunIsNoFailure(t *testing.T) {
	b, err := bridge.New(memory.New(memory.Options{}), bridge.Options{Removed: bridge.RemovedRefuse,
		Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{{Name: "b", Sender: &target{}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestFullAndDeadLettersFull has a binding that puts what it has no room for into the
// dead letters refuse it once these are full as well.
func TestFullAndDeadLettersFull(t *testing.T) {
	store := memory.New(memory.Options{MaxDead: 4})
	b := open(t, store, bridge.Route{Name: "r", Bindings: []bridge.Binding{
		{Name: "b", Sender: &target{}, MaxOutboxDepth: 1, OnFull: bridge.FullDeadLetter},
	}})
	for i := range 10 {
		_, err := b.Route("r").Publish(t.Context(), messaging.Envelope{ID: fmt.Sprint(i)})
		if refused := errors.Is(err, gobridge.ErrOutboxFull); refused != (i >= 5) || !refused && err != nil {
			t.Errorf("message %d of 1 that waits and 4 dead letters: %v", i+1, err)
		}
	}
}
