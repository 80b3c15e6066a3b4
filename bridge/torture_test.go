package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

// TestTorture lets three processes share an outbox whose store fails now and
// then, before or after the fact, whose leases are cut off, and whose
// destination fails in every way. Processes stop and come back. Nothing may be
// lost, no key may arrive out of order, and no two sends of a key may overlap.
func TestTorture(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newTorture(t, seed).run() })
		})
	}
}

const tortureKeys, tortureMessages = 12, 100

type torture struct {
	*world
	rngMu  sync.Mutex
	rng    *rand.Rand
	calm   atomic.Bool
	down   atomic.Bool
	dest   *target
	keysMu sync.Mutex
	busy   map[string]bool
}

func newTorture(t *testing.T, seed uint64) *torture {
	x := &torture{
		world: &world{T: t, store: memory.New(memory.Options{})},
		rng:   rand.New(rand.NewPCG(seed, 1)), dest: &target{}, busy: map[string]bool{},
	}
	x.dest.answers(x.answer)
	return x
}

func (x *torture) random(n int) int {
	x.rngMu.Lock()
	defer x.rngMu.Unlock()
	return x.rng.IntN(n)
}

// once reports true once in n times, never when calm.
func (x *torture) once(n int) bool { return !x.calm.Load() && x.random(n) == 0 }

// answer is the destination: slow, failing in every way, and watching for
// sends of one key that overlap.
func (x *torture) answer(ctx context.Context, d gobridge.Delivery) error {
	if key := d.Envelope.OrderingKey; key != "" {
		x.keysMu.Lock()
		if x.busy[key] {
			x.Errorf("two sends of %s at a time, the second is %s", key, d.Envelope.ID)
		}
		x.busy[key] = true
		x.keysMu.Unlock()
		defer func() {
			x.keysMu.Lock()
			defer x.keysMu.Unlock()
			x.busy[key] = false
		}()
	}
	pause := time.Duration(x.random(100)) * time.Millisecond
	if x.once(100) {
		pause = time.Duration(x.random(10)) * time.Second
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case x.down.Load():
		return errBoom
	case x.once(30):
		return errBoom
	case x.once(200):
		return gobridge.Unavailable(errBoom)
	case x.once(200):
		return gobridge.RetryAfter(time.Second, errBoom)
	case x.once(200):
		panic("out of cheese")
	}
	return nil
}

// process runs a bridge of its own until ctx ends, stopping and coming back.
func (x *torture) process(ctx context.Context, n int) {
	leases := &cutOff{LeaseStore: x.store.Leases()}
	store := &faulty{x.store.Handle(nil), func(string) (bool, bool) { return leases.off.Load() || x.once(15), x.once(15) }}
	opts := one(bridge.Binding{Sender: x.dest, Concurrency: 4, Retry: bridge.Retry{Attempts: 1 << 30}})
	opts.Leases = leases
	for ctx.Err() == nil {
		b := x.open(store, opts)
		runs, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- b.Run(runs) }()
		for range 1 + x.random(5) { // cut off from the database for long enough to lose the leases, or not
			x.sleep(ctx, time.Duration(x.random(10_000))*time.Millisecond)
			leases.off.Store(x.once(3))
		}
		if x.calm.Load() {
			leases.off.Store(false)
			x.sleep(ctx, 24*time.Hour)
		}
		stop()
		if err := <-done; err != nil {
			x.Errorf("process %d: %v", n, err)
		}
		leases.off.Store(false)
	}
}

func (x *torture) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (x *torture) run() {
	ctx, cancel := context.WithCancel(x.Context())
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() { x.process(ctx, n) })
	}
	producer := x.open(x.store, one(bridge.Binding{Sender: x.dest})).Route("r")
	for i := 1; i <= tortureMessages; i++ {
		for k := range tortureKeys {
			key := fmt.Sprintf("k%d", k)
			e := messaging.Envelope{ID: fmt.Sprintf("%s-%d", key, i), OrderingKey: key}
			if k == 0 {
				e = messaging.Envelope{ID: fmt.Sprintf("-%d", i)}
			}
			if _, err := producer.Publish(ctx, e); err != nil {
				x.Fatal(err)
			}
		}
		x.down.Store(x.once(10))
		x.after(time.Duration(x.random(1000)) * time.Millisecond)
	}
	x.after(5 * time.Minute)
	x.calm.Store(true)
	x.down.Store(false)
	x.after(15 * time.Minute)
	cancel()
	all.Wait()

	for k := range tortureKeys {
		key := fmt.Sprintf("k%d", k)
		if k == 0 {
			key = ""
		}
		var want []string
		for i := 1; i <= tortureMessages; i++ {
			want = append(want, fmt.Sprintf("%s-%d", key, i))
		}
		got := firsts(x.dest, key)
		if k == 0 {
			slices.Sort(got)
			slices.Sort(want)
		}
		if !slices.Equal(got, want) {
			x.Errorf("key %q first arrived as %d: %v", key, len(got), got)
		}
	}
	tokens := map[gobridge.Token]int{}
	for _, d := range x.dest.taken() {
		tokens[d.Token]++
	}
	x.Logf("%d tries, %d arrivals of %d messages, under %d tokens", x.dest.sends(), len(x.dest.taken()), tortureKeys*tortureMessages, len(tokens))
	seen := map[string]bool{}
	for _, d := range x.dest.taken() {
		if seen[d.Envelope.ID] && d.Attempt < 2 {
			x.Errorf("%s arrived again as attempt %d", d.Envelope.ID, d.Attempt)
		}
		seen[d.Envelope.ID] = true
	}
	if s := x.stats(partition); s.Pending+s.Claimed+s.Dead != 0 {
		x.Errorf("left in the outbox: %+v", s)
	}
}
