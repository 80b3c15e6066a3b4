package bridge_test

import (
	"context"
	"errors"
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

// to is a route with a binding "b".
func to(name string, sender gobridge.Sender) bridge.Route {
	return bridge.Route{Name: name, Bindings: []bridge.Binding{{Name: "b", Sender: sender}}}
}

func set(routes ...bridge.Route) bridge.Change { return bridge.Change{Set: routes} }

func (w *world) change(c bridge.Change) {
	w.Helper()
	if err := w.bridge.Reconfigure(w.Context(), c); err != nil {
		w.Fatalf("Reconfigure: %v", err)
	}
}

// versions returns under which token versions a target got anything.
func versions(s *target) []int64 {
	var out []int64
	for _, d := range s.taken() {
		if !slices.Contains(out, d.Token.Version) {
			out = append(out, d.Token.Version)
		}
	}
	return out
}

// gate answers when it is opened, or with its context's error.
type gate chan struct{}

func (g gate) wait(ctx context.Context, _ gobridge.Delivery) error {
	select {
	case <-g:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestReconfigureHandsOverUnderTheSameLease(t *testing.T) {
	before, after := &target{}, &target{}
	inWorld(t, bridge.Options{Routes: []bridge.Route{to("r", before)}}, func(w *world) {
		open := make(gate)
		before.answers(open.wait)
		w.publish("k", 5)
		w.after(time.Second) // the first is being sent
		handle := w.bridge.Route("r")
		done := make(chan error, 1)
		switched := false
		change := set(to("r", after))
		change.Switched = func() { switched = true }
		go func() { done <- w.bridge.Reconfigure(w.Context(), change) }()
		w.after(2 * time.Second)
		if !switched {
			t.Error("the new route is not in force while the old sender has a message in hand")
		}
		w.publishFrom("k", 6, 8) // goes on meanwhile
		w.after(time.Second)
		if len(done) != 0 || after.sends() != 0 {
			t.Fatalf("it is done (%d), or %d were sent, while the old sender has a message in hand", len(done), after.sends())
		}
		close(open)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		if got, rest := before.ids("k"), after.ids("k"); !slices.Equal(got, []string{"k-1"}) ||
			!slices.Equal(rest, []string{"k-2", "k-3", "k-4", "k-5", "k-6", "k-7", "k-8"}) {
			t.Errorf("the old sender took %v, the new one %v", got, rest)
		}
		if got := append(versions(before), versions(after)...); !slices.Equal(got, []int64{1, 1}) {
			t.Errorf("token versions %v, want that the lease is kept", got)
		}
		if w.bridge.Route("r") != handle {
			t.Error("the route has another handle")
		}
	})
}

func TestReconfigureDisturbsNoOtherRoute(t *testing.T) {
	other, before, after := &target{}, &target{}, &target{}
	inWorld(t, bridge.Options{Routes: []bridge.Route{to("r", before), to("other", other)}}, func(w *world) {
		open := make(gate)
		other.answers(open.wait)
		handle := w.bridge.Route("other")
		for i := range 3 {
			if _, err := handle.Publish(w.Context(), messaging.Envelope{ID: string(rune('1' + i)), OrderingKey: "k"}); err != nil {
				t.Fatal(err)
			}
		}
		w.after(time.Second)
		w.change(set(to("r", after), to("added", after)))
		w.after(20 * time.Second) // longer than the grace
		close(open)
		w.after(time.Second)
		if got := other.ids("k"); !slices.Equal(got, []string{"1", "2", "3"}) || other.sends() != 3 {
			t.Errorf("arrived %v in %d sends", got, other.sends())
		}
		if got := versions(other); !slices.Equal(got, []int64{1}) {
			t.Errorf("token versions %v", got)
		}
		w.put(messaging.Envelope{ID: "m", OrderingKey: "k"})
		if _, err := w.bridge.Route("added").Publish(w.Context(), messaging.Envelope{ID: "n", OrderingKey: "l"}); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		if got := append(after.ids("k"), after.ids("l")...); !slices.Equal(got, []string{"m", "n"}) {
			t.Errorf("the changed and the added route delivered %v", got)
		}
	})
}

func TestReconfigureEndsSendsThatOutlastTheGrace(t *testing.T) {
	for name, ignores := range map[string]bool{"obeys": false, "ignores its context": true} {
		t.Run(name, func(t *testing.T) {
			before, after := &target{}, &target{}
			inWorld(t, bridge.Options{Routes: []bridge.Route{to("r", before)}, Grace: time.Second}, func(w *world) {
				open := make(gate)
				before.answers(func(ctx context.Context, d gobridge.Delivery) error {
					if ignores {
						ctx = context.Background()
					}
					return open.wait(ctx, d)
				})
				w.publish("k", 2)
				w.after(time.Second)
				w.change(set(to("r", after)))
				w.after(time.Minute)
				if ignores {
					if after.sends() != 0 {
						t.Errorf("%v were sent beside the send of the old sender", after.ids("*"))
					}
					close(open)
					w.after(5 * time.Minute)
				}
				got := append(firsts(before, "k"), firsts(after, "k")...)
				if slices.Sort(got); !slices.Equal(slices.Compact(got), []string{"k-1", "k-2"}) {
					t.Errorf("arrived %v", got)
				}
				w.wantState("k-2", gobridge.StateDelivered)
			})
		})
	}
}

func TestReconfigureRefusesToStrandRecords(t *testing.T) {
	crm, audit := &target{}, &target{}
	down := func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(errBoom) }
	crm.answers(down)
	audit.answers(down)
	both := bridge.Route{Name: "r", Bindings: []bridge.Binding{{Name: "b", Sender: crm}, {Name: "audit", Sender: audit}}}
	opts := bridge.Options{Routes: []bridge.Route{both, to("other", crm)}, Removed: bridge.RemovedRefuse}
	inWorld(t, opts, func(w *world) {
		w.publish("k", 1)
		w.after(time.Second)
		for name, c := range map[string]bridge.Change{
			"binding":      set(to("r", crm)),
			"route":        {Remove: []string{"r"}},
			"beside added": {Set: []bridge.Route{to("added", crm)}, Remove: []string{"r"}},
		} {
			err := w.bridge.Reconfigure(w.Context(), c)
			if !errors.Is(err, bridge.ErrUnservedPartitions) || !strings.Contains(err.Error(), "r/audit/0 (1 pending, 0 claimed, 0 dead)") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if w.bridge.Route("added") != nil {
			t.Error("a part of a refused change was made")
		}
		w.publishFrom("k", 2, 2) // to both bindings, as before
		crm.answers(nil)
		audit.answers(nil)
		w.after(time.Minute)
		w.wantOrder(crm, "k", 2)
		w.wantOrder(audit, "k", 2)
		w.change(set(to("r", crm))) // nothing waits any more
		w.publishFrom("k", 3, 3)
		w.after(time.Second)
		w.wantOrder(crm, "k", 3)
		w.wantOrder(audit, "k", 2)
	})
}

func TestReconfigureParks(t *testing.T) {
	down, again := &target{}, &target{}
	down.answers(func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(errBoom) })
	opts := bridge.Options{Routes: []bridge.Route{to("r", down), to("other", again)}, Removed: bridge.RemovedRefuse}
	inWorld(t, opts, func(w *world) {
		w.publish("k", 3)
		w.after(time.Second)
		handle := w.bridge.Route("r")
		w.change(bridge.Change{Remove: []string{"r"}, Parked: []string{"r"}})
		if s := w.stats(partition); s.Pending != 3 || s.Claimed != 0 {
			t.Errorf("%d pending, %d claimed", s.Pending, s.Claimed)
		}
		if _, parked, err := w.bridge.Unserved(w.Context()); err != nil || len(parked) != 1 {
			t.Errorf("parked %v, %v", parked, err)
		}
		if _, err := handle.Publish(w.Context(), messaging.Envelope{ID: "x"}); !errors.Is(err, bridge.ErrRouteRemoved) {
			t.Errorf("publishing: %v", err)
		}
		if err := handle.Take(w.Context(), []gobridge.Incoming{{Envelope: messaging.Envelope{ID: "x"}}}); !errors.Is(err, bridge.ErrRouteRemoved) {
			t.Errorf("taking: %v", err)
		}
		// What a start would refuse is refused.
		if err := w.bridge.Reconfigure(w.Context(), set(to("other", down))); !errors.Is(err, bridge.ErrUnservedPartitions) {
			t.Errorf("not parked any more: %v", err)
		}
		w.change(set(to("r", again)))
		w.publishFrom("k", 4, 4)
		w.after(time.Second)
		w.wantOrder(again, "k", 4)
	})
}

func TestReconfigureRefuses(t *testing.T) {
	dest := &target{}
	several := to("r", dest)
	several.Partitions = 4
	two := to("R", dest)
	inWorld(t, bridge.Options{Routes: []bridge.Route{to("r", dest)}}, func(w *world) {
		for name, tt := range map[string]struct {
			change bridge.Change
			want   string
		}{
			"another number of partitions": {set(several), "partitions of route r was 1 and is 4 now; "},
			"no such route":                {bridge.Change{Remove: []string{"x"}}, `route "x" is to be removed, and there is none`},
			"twice":                        {set(to("x", dest), to("x", dest)), `route "x" is to be set twice`},
			"set and removed":              {bridge.Change{Set: set(to("r", dest)).Set, Remove: []string{"r"}}, "to be set and to be removed"},
			"without a sender":             {set(to("x", nil)), "Sender is nil"},
			"a name in another case":       {set(two), "is taken by an earlier route"},
		} {
			if err := w.bridge.Reconfigure(w.Context(), tt.change); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.publish("k", 1)
		w.after(time.Second)
		w.wantOrder(dest, "k", 1)
	})
}

// TestReconfigureNamesAChangedNumber of a route that was not there before, but whose
// records are.
func TestReconfigureNamesAChangedNumber(t *testing.T) {
	w := &world{T: t, store: memory.New(memory.Options{})}
	w.bridge = w.open(w.store, spread(2, bridge.Binding{Sender: &target{}}))
	w.publish("k", 1)
	three := spread(3, bridge.Binding{Sender: &target{}})
	b := w.open(w.store.Handle(nil), bridge.Options{Routes: []bridge.Route{to("other", &target{})}})
	err := b.Reconfigure(t.Context(), bridge.Change{Set: three.Routes})
	if !errors.Is(err, bridge.ErrPartitionsChanged) || !strings.Contains(err.Error(), "partitions of route r was 2 and is 3 now") {
		t.Errorf("to add a route with another number of partitions than its records have: %v", err)
	}
}

// slowStore is a store whose Persist and Stats can be held up.
type slowStore struct {
	*memory.Store
	persist, stats func(context.Context) error // nil passes
}

func (s *slowStore) Persist(ctx context.Context, r []gobridge.Record) error {
	if s.persist != nil {
		if err := s.persist(ctx); err != nil {
			return err
		}
	}
	return s.Store.Persist(ctx, r)
}

func (s *slowStore) Stats(ctx context.Context, p ...gobridge.Partition) ([]gobridge.Stats, error) {
	if s.stats != nil {
		if err := s.stats(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.Stats(ctx, p...)
}

// TestRemovalSeesWhatIsBeingStored removes a route while a message of it is on its
// way into the store.
func TestRemovalSeesWhatIsBeingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, dest := make(gate), &target{}
		store := &slowStore{Store: memory.New(memory.Options{})}
		store.persist = func(ctx context.Context) error { return open.wait(ctx, gobridge.Delivery{}) }
		w := &world{T: t, store: store.Store}
		w.bridge = w.open(store, bridge.Options{Routes: []bridge.Route{to("r", dest)}, Removed: bridge.RemovedRefuse})
		stored, done := make(chan error, 1), make(chan error, 1)
		handle := w.bridge.Route("r")
		go func() {
			_, err := handle.Publish(t.Context(), messaging.Envelope{ID: "m"})
			stored <- err
		}()
		synctest.Wait()
		go func() { done <- w.bridge.Reconfigure(t.Context(), bridge.Change{Remove: []string{"r"}}) }()
		w.after(time.Second)
		if len(done) > 0 {
			t.Fatalf("the route is gone (%v) while a message is being stored", <-done)
		}
		close(open)
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, bridge.ErrUnservedPartitions) {
			t.Errorf("Reconfigure: %v", err)
		}
	})
}

// TestReconfigureGivesUp lets the change meet a store that fails or hangs at every
// step. The old routes go on.
func TestReconfigureGivesUp(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errBoom },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		for call := range 3 {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, before, after := &slowStore{Store: memory.New(memory.Options{})}, &target{}, &target{}
					w := &world{T: t, store: store.Store}
					w.bridge = w.open(store, bridge.Options{Routes: []bridge.Route{to("r", before)}, Removed: bridge.RemovedRefuse})
					calls := 0
					store.stats = func(ctx context.Context) error {
						if calls++; calls == call+1 {
							return fail(ctx)
						}
						return nil
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					err := w.bridge.Reconfigure(ctx, set(to("r", after)))
					if !errors.Is(err, errBoom) && !errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("Reconfigure: %v", err)
					}
					store.stats = nil
					w.stop = w.run(w.bridge)
					defer w.stop()
					w.publish("k", 1)
					w.after(time.Second)
					w.wantOrder(before, "k", 1)
				})
			})
		}
	}
}

// TestTakeGoesOnUnderTheNewRoute has a source wait for room in a binding that is
// taken away.
func TestTakeGoesOnUnderTheNewRoute(t *testing.T) {
	kept, gone := &target{}, &target{}
	gone.answers(func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(errBoom) })
	r := to("r", kept)
	r.Bindings = append(r.Bindings, bridge.Binding{Name: "gone", Sender: gone, MaxOutboxDepth: 1})
	inWorld(t, bridge.Options{Routes: []bridge.Route{r}}, func(w *world) {
		batch := make([]gobridge.Incoming, 5)
		for i := range batch {
			batch[i].Envelope = messaging.Envelope{ID: "k-" + string(rune('1'+i)), OrderingKey: "k"}
		}
		taken := make(chan error, 1)
		go func() { taken <- w.bridge.Route("r").Take(w.Context(), batch) }()
		w.after(time.Minute)
		if len(taken) > 0 {
			t.Fatalf("it does not wait: %v", <-taken)
		}
		w.change(set(to("r", kept)))
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		w.wantOrder(kept, "k", 5)
	})
}
