package bridge_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// owners says how many partitions of routes each process has.
func (w *world) owners(routes ...string) map[string]int {
	w.Helper()
	leases, err := w.store.Leases().Leases(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]int{}
	for _, l := range leases {
		if r, _, _, ok := l.Partition.Split(); ok && slices.Contains(routes, r) && !l.Released {
			out[l.Token.Owner]++
		}
	}
	return out
}

func (w *world) wantOwners(want map[string]int, routes ...string) {
	w.Helper()
	if got := w.owners(routes...); !maps.Equal(got, want) {
		w.Errorf("%v are drained by %v, want %v", routes, got, want)
	}
}

// TestProcessesAreReconfiguredOneByOne has two processes that share an outbox and
// get new routes one after the other.
func TestProcessesAreReconfiguredOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New(memory.Options{})}
		dest := &target{}
		route := func(name string) bridge.Route {
			r := to(name, dest)
			r.Partitions = 8
			return r
		}
		var all [2]*bridge.Bridge
		for i, name := range []string{"one", "two"} {
			all[i] = w.open(w.store, bridge.Options{Owner: name, Routes: []bridge.Route{route("kept"), route("old")}})
			defer w.run(all[i])()
		}
		change := func(i int, c bridge.Change) {
			t.Helper()
			if err := all[i].Reconfigure(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			w.after(3 * time.Second) // less than a lease term
		}
		w.after(time.Minute)
		alone, even := map[string]int{"two": 8}, map[string]int{"one": 8, "two": 8}
		w.wantOwners(even, "kept", "old")

		change(0, bridge.Change{Set: []bridge.Route{route("new")}, Remove: []string{"old"}})
		w.wantOwners(map[string]int{"one": 8}, "new")
		w.wantOwners(alone, "old")
		w.wantOwners(map[string]int{"one": 4, "two": 4}, "kept")
		change(1, bridge.Change{Set: []bridge.Route{route("new")}, Remove: []string{"old"}})
		w.wantOwners(even, "kept", "new")
		w.wantOwners(map[string]int{}, "old")

		change(0, bridge.Change{Remove: []string{"new", "kept"}})
		w.wantOwners(alone, "kept")
		w.wantOwners(alone, "new")
		change(0, set(route("new")))
		w.wantOwners(alone, "kept")
		w.wantOwners(map[string]int{"one": 4, "two": 4}, "new")
	})
}

// TestTortureOfReconfiguring changes three processes at random, each by itself,
// while their store fails now and then and their destinations fail in every way.
// Nothing may be lost, no key may arrive out of order, no two sends of a key may
// overlap, and no change may strand a record.
func TestTortureOfReconfiguring(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newReload(t, seed).run() })
		})
	}
}

const reloadKeys, reloadMessages = 6, 120

type reload struct {
	*torture // its destination is that of binding b
	side     *target
	bridges  []*bridge.Bridge
	changed  int
	refused  int
}

func newReload(t *testing.T, seed uint64) *reload {
	x := &reload{torture: newTorture(t, seed), side: &target{}}
	for range 3 {
		store := &faulty{x.store.Handle(nil), func(string) (bool, bool) { return x.once(30), x.once(30) }}
		x.bridges = append(x.bridges, x.open(store, bridge.Options{
			Routes: []bridge.Route{x.route(true)}, Leases: x.store.Leases(), Removed: bridge.RemovedRefuse, Grace: 3 * time.Second,
		}))
	}
	return x
}

// route is route r in a random shape, with its binding "side" or without. Its
// senders are of no use any more once it has been replaced.
func (x *reload) route(side bool) bridge.Route {
	retry := bridge.Retry{Attempts: 1 << 30}
	r := bridge.Route{Name: "r", Partitions: 2, Bindings: []bridge.Binding{
		{Name: "b", Sender: gobridge.HandlerFunc(x.dest.one), Retry: retry, Concurrency: 1 + x.random(8)},
	}}
	if side {
		r.Bindings = append(r.Bindings, bridge.Binding{
			Name: "side", Sender: x.side, Retry: retry, Rate: float64(50 * x.random(2)),
			Filter: func(*messaging.Envelope) (bool, error) { return x.random(2) == 0, nil },
		})
	}
	return r
}

// change changes one process somehow.
func (x *reload) change() {
	b := x.bridges[x.random(len(x.bridges))]
	c := set(x.route(x.random(3) > 0))
	switch {
	case x.random(3) > 0:
	case b.Route("extra") == nil:
		c.Set = append(c.Set, to("extra", x.side))
	default:
		c.Remove = []string{"extra"}
	}
	if err := b.Reconfigure(x.Context(), c); err != nil {
		x.refused++
	} else {
		x.changed++
	}
}

func (x *reload) run() {
	for _, b := range x.bridges {
		defer x.world.run(b)()
	}
	published := 0
	for i := 1; i <= reloadMessages; i++ {
		for k := range reloadKeys {
			b := x.bridges[x.random(len(x.bridges))]
			e := messaging.Envelope{ID: fmt.Sprintf("k%d-%d", k, i), OrderingKey: fmt.Sprintf("k%d", k)}
			if _, err := b.Route("r").Publish(x.Context(), e); err != nil {
				x.Fatal(err)
			}
			published++
			if extra := b.Route("extra"); extra != nil && x.random(4) == 0 {
				e.ID = "extra-" + e.ID
				if _, err := extra.Publish(x.Context(), e); err != nil {
					x.Fatal(err)
				}
			}
		}
		x.down.Store(x.once(10))
		if x.random(3) == 0 {
			x.change()
		}
		x.after(time.Duration(x.random(1000)) * time.Millisecond)
	}
	x.calm.Store(true)
	x.down.Store(false)
	x.after(30 * time.Minute)

	for k := range reloadKeys {
		key := fmt.Sprintf("k%d", k)
		var want []string
		for i := 1; i <= reloadMessages; i++ {
			want = append(want, fmt.Sprintf("%s-%d", key, i))
		}
		if got := firsts(x.dest, key); !slices.Equal(got, want) {
			x.Errorf("key %q first arrived as %d: %v", key, len(got), got)
		}
	}
	stats, err := x.store.Stats(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	for _, s := range stats {
		if s.Pending+s.Claimed+s.Dead > 0 {
			x.Errorf("%s was stranded with %d pending, %d claimed, %d dead", s.Partition, s.Pending, s.Claimed, s.Dead)
		}
	}
	if x.changed < 10 || len(x.side.taken()) == 0 {
		x.Errorf("%d changes were made, and %d messages went beside", x.changed, len(x.side.taken()))
	}
	x.Logf("%d messages, %d arrivals, %d beside; %d changes, %d refused",
		published, len(x.dest.taken()), len(x.side.taken()), x.changed, x.refused)
}
