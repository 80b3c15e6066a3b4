package bridge_test

import (
	"context"
	"errors"
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
	"gobridge/store/memory"
)

var errFault = errors.New("the store is away")

// faulty is a store that fails as told: before a call, or after it, so that
// what happened is not learned.
type faulty struct {
	gobridge.Store
	fail func(op string) (before, after bool)
}

func (f *faulty) do(op string, call func() error) error {
	before, after := f.fail(op)
	if before {
		return &gobridge.Error{Op: op, Err: errFault}
	}
	err := call()
	if after {
		return &gobridge.Error{Op: op, Err: errFault}
	}
	return err
}

func (f *faulty) Claim(ctx context.Context, r gobridge.ClaimRequest) (out []gobridge.Record, err error) {
	err = f.do("claim", func() (err error) { out, err = f.Store.Claim(ctx, r); return err })
	if err != nil {
		out = nil
	}
	return out, err
}

func (f *faulty) Complete(ctx context.Context, t gobridge.Token, c []gobridge.Completion) error {
	return f.do("complete", func() error { return f.Store.Complete(ctx, t, c) })
}

func (f *faulty) Release(ctx context.Context, t gobridge.Token, r []gobridge.Release) error {
	return f.do("release", func() error { return f.Store.Release(ctx, t, r) })
}

func (f *faulty) DeadLetter(ctx context.Context, t gobridge.Token, b []gobridge.Burial) error {
	return f.do("dead letter", func() error { return f.Store.DeadLetter(ctx, t, b) })
}

func (f *faulty) SetControl(ctx context.Context, c gobridge.Control) error {
	return f.do("set control", func() error { return f.Store.SetControl(ctx, c) })
}

func (f *faulty) Sweep(ctx context.Context, r gobridge.SweepRequest) (out gobridge.SweepResult, err error) {
	err = f.do("sweep", func() (err error) { out, err = f.Store.Sweep(ctx, r); return err })
	return out, err
}

// cutOff is a lease store whose renewals hang while it is cut off.
type cutOff struct {
	gobridge.LeaseStore
	off atomic.Bool
}

func (c *cutOff) Renew(ctx context.Context, l []gobridge.Lease) ([]gobridge.Lease, error) {
	if c.off.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.LeaseStore.Renew(ctx, l)
}

func (c *cutOff) Leases(ctx context.Context) ([]gobridge.Lease, error) {
	if c.off.Load() {
		return nil, errFault
	}
	return c.LeaseStore.Leases(ctx)
}

func (c *cutOff) Release(ctx context.Context, l gobridge.Lease) error {
	if c.off.Load() {
		return errFault
	}
	return c.LeaseStore.Release(ctx, l)
}

// firsts returns the IDs of a key in the order in which each arrived first.
func firsts(s *target, key string) []string {
	var out []string
	for _, id := range s.ids(key) {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func TestFaultsOfTheStoreLoseNothingAndKeepOrder(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var mu sync.Mutex
		random := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
		dest := &target{}
		dest.answers(func(_ context.Context, d gobridge.Delivery) error {
			time.Sleep(time.Duration(random(1000)) * time.Microsecond)
			if random(20) == 0 {
				return errBoom
			}
			return nil
		})
		store := memory.New(memory.Options{})
		quiet := atomic.Bool{}
		w := &world{T: t, store: store}
		w.bridge = w.open(&faulty{store, func(string) (bool, bool) {
			if quiet.Load() {
				return false, false
			}
			return random(10) == 0, random(10) == 0
		}}, func() bridge.Options {
			o := one(bridge.Binding{Sender: dest, Retry: bridge.Retry{Attempts: 1000}})
			o.Leases = store.Leases()
			return o
		}())
		defer w.run(w.bridge)()
		for i := 1; i <= 50; i++ {
			for k := range 10 {
				w.publishFrom(fmt.Sprintf("k%d", k), i, i)
			}
			w.after(10 * time.Millisecond)
		}
		w.after(10 * time.Minute)
		quiet.Store(true)
		w.after(10 * time.Minute)
		for k := range 10 {
			key := fmt.Sprintf("k%d", k)
			var want []string
			for i := 1; i <= 50; i++ {
				want = append(want, fmt.Sprintf("%s-%d", key, i))
			}
			if got := firsts(dest, key); !slices.Equal(got, want) {
				t.Errorf("key %s first arrived as %v", key, got)
			}
		}
		if s := w.stats(partition); s.Pending+s.Claimed+s.Dead != 0 {
			t.Errorf("left: %+v", s)
		}
		for _, d := range dest.taken() {
			if d.Attempt < 1 {
				t.Errorf("%s arrived as attempt %d", d.Envelope.ID, d.Attempt)
			}
		}
	})
}

func TestAStoreThatIsAwayIsWaitedForAndNothingIsSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := &target{}
		store := memory.New(memory.Options{})
		var away atomic.Bool
		w := &world{T: t, store: store}
		opts := one(bridge.Binding{Sender: dest})
		opts.Leases = store.Leases()
		w.bridge = w.open(&faulty{store, func(string) (bool, bool) { return away.Load(), false }}, opts)
		defer w.run(w.bridge)()
		dest.answers(func(context.Context, gobridge.Delivery) error { away.Store(true); return nil })
		w.publish("a", 20)
		w.publish("", 20)
		w.after(time.Hour)
		dest.answers(nil)
		away.Store(false)
		w.after(10 * time.Second)
		w.wantOrder(dest, "a", 20)
		if n := len(dest.ids("")); n != 20 {
			t.Errorf("%d arrived, want 20", n)
		}
	})
}

func TestALostLeaseBreaksSendsOffAndAnotherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		leases := &cutOff{LeaseStore: store.Leases()}
		first, second := &target{}, &target{}
		var cut, broken atomic.Int64 // when the lease store went away, when a send was broken off
		first.answers(func(ctx context.Context, _ gobridge.Delivery) error {
			<-ctx.Done()
			broken.Store(time.Now().UnixMilli())
			return nil // and the answer comes too late
		})
		w := &world{T: t, store: store}
		opts := one(bridge.Binding{Sender: first, Timeout: time.Hour})
		opts.Leases, opts.Owner = leases, "first"
		w.bridge = w.open(store, opts)
		defer w.run(w.bridge)()
		w.publish("a", 3)
		w.publish("b", 3)
		w.after(time.Second)

		opts2 := one(bridge.Binding{Sender: second})
		opts2.Owner = "second"
		defer w.run(w.open(store.Handle(nil), opts2))()
		w.after(time.Minute)
		if second.sends() != 0 {
			t.Fatal("the second drains what the first owns")
		}
		leases.off.Store(true)
		cut.Store(time.Now().UnixMilli())
		w.after(6 * time.Second)
		if ms := broken.Load() - cut.Load(); ms <= 0 || ms >= 5000 {
			t.Errorf("sends broken off %d ms after the last renewal, want less than the term of 5000", ms)
		}
		w.after(500 * time.Millisecond)
		w.wantOrder(second, "a", 3)
		w.wantOrder(second, "b", 3)
		for _, d := range second.taken() {
			if d.Token.Owner != "second" || d.Token.Version < 2 {
				t.Errorf("delivered under %s", d.Token)
			}
		}
		leases.off.Store(false)
		w.after(time.Minute)
		if len(second.taken()) != 6 {
			t.Errorf("the second sent %d, want 6", len(second.taken()))
		}
	})
}

func TestHandOverOnShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		first, second := &target{}, &target{}
		first.answers(func(context.Context, gobridge.Delivery) error { time.Sleep(10 * time.Millisecond); return nil })
		w := &world{T: t, store: store}
		w.bridge = w.open(store, one(bridge.Binding{Sender: first, Concurrency: 2}))
		stop := w.run(w.bridge)
		w.after(time.Second)
		defer w.run(w.open(store.Handle(nil), one(bridge.Binding{Sender: second})))()
		w.publish("a", 100)
		w.publish("b", 100)
		w.after(300 * time.Millisecond)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("shutdown took %s with sends of 10 ms", took)
		}
		w.after(time.Second)
		for _, key := range []string{"a", "b"} {
			got := append(first.ids(key), second.ids(key)...)
			all := &target{}
			for _, id := range got {
				d := gobridge.Delivery{}
				d.Envelope.ID, d.Envelope.OrderingKey = id, key
				all.got = append(all.got, d)
			}
			w.wantOrder(all, key, 100)
		}
		for _, d := range first.taken() {
			if d.Attempt != 1 {
				t.Errorf("the first sent %s as attempt %d", d.Envelope.ID, d.Attempt)
			}
		}
	})
}

func TestShutdownMidSend(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		state gobridge.State
	}{
		{"within the grace period", 5 * time.Second, gobridge.StateDelivered},
		{"beyond it", time.Hour, gobridge.StatePending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dest := &target{}
			dest.answers(func(ctx context.Context, _ gobridge.Delivery) error {
				select {
				case <-time.After(tc.takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			inWorld(t, one(bridge.Binding{Sender: dest, Timeout: time.Hour}), func(w *world) {
				w.publish("a", 3)
				w.after(time.Second)
				w.stop()
				w.wantState("a-1", tc.state)
				if r := w.get("a-1"); r.Attempts != 0 {
					t.Errorf("%d attempts", r.Attempts)
				}
				w.wantState("a-2", gobridge.StatePending)
				w.wantState("a-3", gobridge.StatePending)
				leases, err := w.store.Leases().Leases(w.Context())
				held := slices.ContainsFunc(leases, func(l gobridge.Lease) bool { return !l.Released })
				if err != nil || len(leases) != 2 || held { // the partition's and the process's own
					t.Errorf("leases after the shutdown: %+v, %v", leases, err)
				}
			})
		})
	}
}

func TestASenderThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		dest := &target{}
		dest.answers(func(context.Context, gobridge.Delivery) error { <-let; return nil })
		w := &world{T: t, store: memory.New(memory.Options{})}
		w.bridge = w.open(w.store, one(bridge.Binding{Sender: dest}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.bridge.Run(ctx) }()
		w.publish("a", 1)
		w.after(time.Second)
		cancel()
		w.after(time.Minute)
		select {
		case err := <-done:
			if err == nil {
				t.Error("Run says that all is well")
			}
		default:
			t.Error("Run waits for ever")
		}
		close(let)
	})
}

func TestRecordsThatAProcessDiesOfAreSentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		dest := &target{}
		var now, most atomic.Int32
		var suspectWith atomic.Int32
		dest.answers(func(_ context.Context, d gobridge.Delivery) error {
			n := now.Add(1)
			defer now.Add(-1)
			time.Sleep(10 * time.Millisecond)
			for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
			}
			if d.Envelope.ID == "id-3" {
				suspectWith.Store(max(n, now.Load()))
			}
			return nil
		})
		w := &world{T: t, store: store}
		w.bridge = w.open(store, one(bridge.Binding{Sender: dest}))
		w.publish("", 8)
		// Processes die: all of them with id-8, three with id-3 as well.
		claim := func(version int64, settle ...int) {
			token := gobridge.Token{Owner: "dead", Version: version}
			records, err := store.Claim(w.Context(), gobridge.ClaimRequest{Partition: partition, Token: token, Limit: 100, HeldKnown: true})
			if err != nil || len(records) != 8 {
				t.Fatalf("claimed %d: %v", len(records), err)
			}
			var back []gobridge.Release
			for _, i := range settle {
				back = append(back, gobridge.Release{Ref: gobridge.Ref{Partition: partition, EnvelopeID: fmt.Sprintf("id-%d", i), Binding: "b"}})
			}
			if err := store.Release(w.Context(), token, back); err != nil {
				t.Fatal(err)
			}
		}
		for v := range int64(6) {
			if v < 4 {
				claim(v+1, 1, 2, 3, 4, 5, 6, 7)
			} else {
				claim(v+1, 1, 2, 4, 5, 6, 7)
			}
		}
		defer w.run(w.bridge)()
		w.after(time.Minute)
		if n := suspectWith.Load(); n != 1 {
			t.Errorf("id-3 was sent with %d others", n-1)
		}
		if most.Load() < 2 {
			t.Error("nothing was sent side by side")
		}
		if n := dest.tries("id-8"); n != 0 {
			t.Errorf("id-8 was sent %d times", n)
		}
		w.wantState("id-8", gobridge.StateDead)
		if r := w.get("id-8"); r.Reason != gobridge.ReasonCrashed {
			t.Errorf("id-8 is dead for %q", r.Reason)
		}
		w.wantState("id-3", gobridge.StateDelivered)
	})
}

func TestFullDeadLettersHaltTheKey(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error { return gobridge.Permanent(errBoom) })
	inWorldOf(t, memory.Options{MaxDead: 1}, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("a", 3)
		w.after(time.Minute)
		w.wantState("a-1", gobridge.StateDead)
		w.wantState("a-2", gobridge.StatePending)
		w.wantState("a-3", gobridge.StatePending)
		controls, err := w.store.ListControls(w.Context())
		if err != nil || len(controls) != 1 || controls[0].Kind != gobridge.Halt || controls[0].OrderingKey != "a" {
			t.Errorf("controls: %+v, %v", controls, err)
		}
		if n := dest.tries("a-2"); n != 1 {
			t.Errorf("a-2 was sent %d times", n)
		}
	})
}

func TestAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		clock := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
		dest := &target{}
		dest.answers(func(_ context.Context, d gobridge.Delivery) error {
			if dest.tries("bad-1") < 3 && d.Envelope.OrderingKey == "bad" {
				return errBoom
			}
			return nil
		})
		w := &world{T: t, store: memory.New(memory.Options{Now: clock})}
		opts := one(bridge.Binding{Sender: dest})
		opts.Now = clock
		w.bridge = w.open(w.store, opts)
		defer w.run(w.bridge)()
		w.publish("a", 1)
		w.publish("bad", 2)
		w.after(time.Millisecond)
		for i, step := range []time.Duration{-time.Hour, 365 * 24 * time.Hour, -365 * 24 * time.Hour} {
			offset.Add(int64(step))
			w.publishFrom("a", i+2, i+2)
			w.after(time.Second)
			w.wantOrder(dest, "a", i+2)
		}
		w.after(6 * time.Minute) // the longest backoff, however far ahead the due time was
		w.wantOrder(dest, "bad", 2)
		w.wantOrder(dest, "a", 4)
	})
}
