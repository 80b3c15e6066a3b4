package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// incoming are n messages of a key as a source hands them over.
func incoming(key string, n int) []gobridge.Incoming {
	out := make([]gobridge.Incoming, n)
	for i := range out {
		out[i].Envelope = messaging.Envelope{ID: fmt.Sprintf("%s-%d", key, i+1), OrderingKey: key, Payload: []byte("x")}
	}
	return out
}

func (w *world) take(batch ...gobridge.Incoming) {
	w.Helper()
	if err := w.bridge.Route("r").Take(w.Context(), batch); err != nil {
		w.Fatalf("take: %v", err)
	}
}

func (w *world) dead() []gobridge.Record {
	w.Helper()
	page, err := w.store.QueryDead(w.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{Partition: partition}})
	if err != nil {
		w.Fatal(err)
	}
	return page.Records
}

func TestTakeDeliversInOrder(t *testing.T) {
	s := &target{}
	inWorld(t, one(bridge.Binding{Sender: s}), func(w *world) {
		batch := append(incoming("k", 30), incoming("l", 30)...)
		w.take(batch...)
		w.take(batch[10:40]...) // redelivered
		w.after(time.Second)
		w.wantOrder(s, "k", 30)
		w.wantOrder(s, "l", 30)
	})
}

// TestTakeWaitsForRoom: with room for fewer than a batch, what fits goes in, the
// rest waits, and nothing is taken twice or out of order.
func TestTakeWaitsForRoom(t *testing.T) {
	s := &target{}
	down := errors.New("down")
	s.answers(func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(down) })
	inWorld(t, one(bridge.Binding{Sender: s, MaxOutboxDepth: 7}), func(w *world) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.take(incoming("k", 50)...)
		}()
		w.after(time.Minute)
		if got := w.stats(partition); got.Pending+got.Claimed != 7 {
			t.Errorf("while the destination is down %d pending and %d claimed, want 7 in all", got.Pending, got.Claimed)
		}
		select {
		case <-done:
			t.Fatal("the take returned with most of its messages not stored")
		default:
		}
		s.answers(nil)
		w.after(5 * time.Minute)
		<-done
		w.after(time.Minute)
		w.wantOrder(s, "k", 50)
	})
}

// TestTakeEndsWithItsContext: a take that waits for room ends when it is told to,
// with an error, so that nothing is acknowledged.
func TestTakeEndsWithItsContext(t *testing.T) {
	s := &target{}
	s.answers(func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(errBoom) })
	inWorld(t, one(bridge.Binding{Sender: s, MaxOutboxDepth: 1}), func(w *world) {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		if err := w.bridge.Route("r").Take(ctx, incoming("k", 3)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("take gave %v, want the end of its context", err)
		}
	})
}

// TestLongIDsThatAreReused: two messages under one ID that has no room for more are two
// messages still, whether they are delivered or rejected.
func TestLongIDsThatAreReused(t *testing.T) {
	s := &target{}
	inWorld(t, one(bridge.Binding{Sender: s}), func(w *world) {
		most := w.store.Limits().MaxID
		batch := incoming("k", 3)
		for i := range batch {
			batch[i].Envelope.ID = strings.Repeat("i", most)
			batch[i].Envelope.Payload = fmt.Append(nil, i)
		}
		w.take(batch...)
		w.take(batch...) // redelivered
		w.after(time.Second)
		if got := s.ids("k"); len(got) != 3 {
			t.Errorf("delivered %d messages, want 3: %.40q", len(got), got)
		}
		for i := range batch {
			batch[i].Envelope.ID = strings.Repeat("l", most+1)
		}
		w.take(batch...)
		w.take(batch...)
		if n := len(w.dead()); n != 3 {
			t.Errorf("%d dead letters, want 3", n)
		}
	})
}

// picky is a sender that knows of some messages that it can't deliver them.
type picky struct{ target }

func (*picky) Carry(e *messaging.Envelope) error {
	if strings.Contains(e.Subject, "\n") {
		return errors.New("the subject has a line break, which no topic has")
	}
	return nil
}

// TestRejectedMessagesRest: what can't be taken becomes a dead letter as it came,
// with the reason, and its neighbours go on.
func TestRejectedMessagesRest(t *testing.T) {
	s := &picky{}
	opts := one(bridge.Binding{Sender: s})
	opts.Routes[0].OrderingKey = func(e *messaging.Envelope) (string, error) {
		if e.ContentType == "text/odd" {
			return "", errors.New("no such key: customer")
		}
		return e.OrderingKey, nil
	}
	inWorld(t, opts, func(w *world) {
		batch := incoming("k", 5)
		batch[1].Reject = errors.New("not a CloudEvent: no type")
		batch[1].Envelope.Payload = []byte{0xff, 0, 'x'}
		batch[2].Envelope.ContentType = "text/odd"
		batch[3].Envelope.Subject = "a\nb"
		w.take(batch...)
		w.take(batch...) // the source delivers it again
		w.after(time.Second)
		if got := s.ids("k"); !slices.Equal(got, []string{"k-1", "k-5"}) {
			t.Errorf("delivered %v, want k-1 and k-5", got)
		}
		dead := w.dead()
		want := map[string]string{"k-2": "no type", "k-3": "no such key", "k-4": "line break"}
		if len(dead) != len(want) {
			t.Fatalf("%d dead letters, want %d", len(dead), len(want))
		}
		for _, r := range dead {
			if r.Reason != gobridge.ReasonRejected || !strings.Contains(r.Error, want[r.Envelope.ID]) {
				t.Errorf("%s rests for %s: %s; want rejected with %q", r.Envelope.ID, r.Reason, r.Error, want[r.Envelope.ID])
			}
			if r.Envelope.ID == "k-2" && string(r.Envelope.Payload) != "\xff\x00x" {
				t.Errorf("the payload is %q, not what came", r.Envelope.Payload)
			}
		}
		// Over the front door the caller is told.
		if _, err := w.bridge.Route("r").Publish(w.Context(), batch[3].Envelope); !errors.Is(err, gobridge.ErrRejected) {
			t.Errorf("publish gave %v, want ErrRejected", err)
		}
	})
}

func TestRejectedMessagesCanBeDiscarded(t *testing.T) {
	s := &target{}
	opts := one(bridge.Binding{Sender: s})
	opts.Routes[0].OnReject = bridge.RejectDiscard
	inWorld(t, opts, func(w *world) {
		batch := incoming("k", 2)
		batch[0].Reject = errBoom
		w.take(batch...)
		w.after(time.Second)
		if got := s.ids("k"); !slices.Equal(got, []string{"k-2"}) || len(w.dead()) != 0 {
			t.Errorf("delivered %v with %d dead letters, want k-2 and none", got, len(w.dead()))
		}
	})
}

// TestMuchTooLarge: a message that no store can hold rests with as much of it as
// fits, and says what is missing.
func TestMuchTooLarge(t *testing.T) {
	s := &target{}
	inWorld(t, one(bridge.Binding{Sender: s}), func(w *world) {
		limits := w.store.Limits()
		e := messaging.Envelope{
			ID: strings.Repeat("i", limits.MaxID+1), OrderingKey: strings.Repeat("k", limits.MaxKey+1),
			Subject: strings.Repeat("s", limits.MaxSubject+1), Payload: make([]byte, limits.MaxPayload+1),
			Headers: messaging.Headers{}, NotBefore: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
		}
		for i := range limits.MaxHeaders + 10 {
			e.Headers[fmt.Sprint("h", i)] = "v"
		}
		e.Headers[""] = "nameless"
		w.take(gobridge.Incoming{Envelope: e}, incoming("k", 1)[0])
		w.after(time.Second)
		w.wantOrder(s, "k", 1)
		dead := w.dead()
		if len(dead) != 1 {
			t.Fatalf("%d dead letters, want 1", len(dead))
		}
		for _, part := range []string{"payload of", "ID of", "headers", "ordering key of", "subject of"} {
			if cut := dead[0].Envelope.Headers[bridge.HeaderCut]; !strings.Contains(cut, part) {
				t.Errorf("what was cut off is said to be %q, without %q", cut, part)
			}
		}
		if n := len(dead[0].Envelope.Payload); n < limits.MaxPayload/2 {
			t.Errorf("%d bytes of the payload were kept; there was room for about %d", n, limits.MaxPayload)
		}
	})
}

// TestReusedIDIsAnotherMessage: an ID that a source gives to two messages does not
// make one of them vanish.
func TestReusedIDIsAnotherMessage(t *testing.T) {
	s := &target{}
	inWorld(t, one(bridge.Binding{Sender: s}), func(w *world) {
		batch := incoming("k", 3)
		other := batch[1]
		other.Envelope.Payload = []byte("another message altogether")
		w.take(batch...)
		w.take(other)
		w.take(other)
		w.take(append(incoming("l", 2), other, incoming("l", 3)[2])...)
		w.after(time.Second)
		w.wantOrder(s, "l", 3)
		payloads := 0
		for _, d := range s.taken() {
			if string(d.Envelope.Payload) == "another message altogether" {
				payloads++
			}
		}
		if payloads != 1 || len(s.ids("k")) != 4 {
			t.Errorf("the other message arrived %d times, and %v of the key; want it once among 4", payloads, s.ids("k"))
		}
	})
}

// TestTakeOutlivesTheStore: a store that can't be used is waited for.
func TestTakeOutlivesTheStore(t *testing.T) {
	s := &target{}
	inWorld(t, one(bridge.Binding{Sender: s}), func(w *world) {
		var calls atomic.Int64
		broken := &brokenPersist{Store: w.store, fail: func(half bool) error {
			if n := calls.Add(1); n < 6 {
				if half && n%2 == 0 {
					return nil
				}
				return errBoom
			}
			return nil
		}}
		opts := one(bridge.Binding{Sender: s})
		opts.Owner = "taker"
		b := w.open(broken, opts)
		if err := b.Route("r").Take(w.Context(), incoming("k", 20)); err != nil {
			t.Fatal(err)
		}
		w.after(2 * time.Second)
		w.wantOrder(s, "k", 20)
	})
}

// brokenPersist fails some calls, some after having done the first half.
type brokenPersist struct {
	*memory.Store
	fail func(half bool) error
}

func (b *brokenPersist) Persist(ctx context.Context, records []gobridge.Record) error {
	if err := b.fail(false); err != nil {
		half := len(records) / 2
		if b.fail(true) == nil && half > 0 {
			_ = b.Store.Persist(ctx, records[:half])
		}
		return err
	}
	return b.Store.Persist(ctx, records)
}

// feed is a receiver that counts how many of it run at a time.
type feed struct {
	solo    bool
	running *atomic.Int64
	most    *atomic.Int64
	started chan string
	name    string
	fail    func() error
}

func (f *feed) Solo() bool { return f.solo }

func (f *feed) Receive(ctx context.Context, _ gobridge.Take) error {
	n := f.running.Add(1)
	defer f.running.Add(-1)
	f.most.Store(max(n, f.most.Load()))
	f.started <- f.name
	if f.fail != nil {
		if err := f.fail(); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// TestSoloSourceRunsOnce: of three processes one runs the source; when it ends
// another takes over, at once after an orderly end, and within a term and the time
// of a look after a death.
func TestSoloSourceRunsOnce(t *testing.T) {
	inWorld(t, one(bridge.Binding{Sender: &target{}}), func(w *world) {
		var running, most atomic.Int64
		started := make(chan string, 10)
		var stops sync.Map
		var group sync.WaitGroup
		for i := range 3 {
			name := fmt.Sprint("p", i)
			opts := one(bridge.Binding{Sender: &target{}})
			opts.Owner = name
			b := w.open(w.store, opts)
			ctx, cancel := context.WithCancel(w.Context())
			stops.Store(name, cancel)
			group.Go(func() {
				_ = b.Route("r").Receive(ctx, &feed{solo: true, running: &running, most: &most, started: started, name: name})
			})
		}
		seen := map[string]bool{}
		for range 3 {
			began := time.Now()
			name := <-started
			if took := time.Since(began); took > time.Second {
				t.Errorf("after an orderly end the next took %s to take over", took)
			}
			if seen[name] {
				t.Errorf("%s ran twice", name)
			}
			seen[name] = true
			w.after(20 * time.Second)
			if n := running.Load(); n != 1 {
				t.Errorf("%d run, want 1", n)
			}
			stop, _ := stops.Load(name)
			stop.(context.CancelFunc)()
		}
		group.Wait()
		if n := most.Load(); n != 1 {
			t.Errorf("up to %d ran at a time, want 1", n)
		}
	})
}

// TestSourceIsRunAgain: a receiver that gives up or panics is run again.
func TestSourceIsRunAgain(t *testing.T) {
	inWorld(t, one(bridge.Binding{Sender: &target{}}), func(w *world) {
		var running, most atomic.Int64
		started := make(chan string, 10)
		tries := 0
		f := &feed{running: &running, most: &most, started: started, name: "r", fail: func() error {
			switch tries++; tries {
			case 1:
				return errBoom
			case 2:
				panic("odd")
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = w.bridge.Route("r").Receive(ctx, f) }()
		w.after(time.Minute)
		if len(started) != 3 || running.Load() != 1 {
			t.Errorf("run %d times, %d running; want 3 and 1", len(started), running.Load())
		}
		cancel()
		<-done
	})
}

// together is a batch sender that wants one record of a key at a time, and takes
// what comes behind a record that fails.
type together struct {
	target
	t       *testing.T
	largest int
}

func (*together) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: 20, OnePerKey: true}
}

func (s *together) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	seen := map[string]bool{}
	for _, d := range batch {
		if k := d.Envelope.OrderingKey; k != "" && seen[k] {
			s.t.Errorf("two of key %s in a batch", k)
		}
		seen[d.Envelope.OrderingKey] = true
	}
	s.mu.Lock()
	s.largest = max(s.largest, len(batch))
	s.mu.Unlock()
	return s.target.Send(ctx, batch)
}

func TestOnePerKey(t *testing.T) {
	s := &together{t: t}
	var failed sync.Map
	s.answers(func(_ context.Context, d gobridge.Delivery) error {
		if _, again := failed.LoadOrStore(d.Envelope.ID, true); !again && strings.HasSuffix(d.Envelope.ID, "3") {
			return errBoom
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: s, Concurrency: 2}), func(w *world) {
		var batch []gobridge.Incoming
		for _, key := range []string{"a", "b", "c", "d", ""} {
			batch = append(batch, incoming(key, 25)...)
		}
		w.take(batch...)
		w.after(time.Minute)
		for _, key := range []string{"a", "b", "c", "d"} {
			w.wantOrder(&s.target, key, 25)
		}
		if got := len(s.ids("")); got != 25 {
			t.Errorf("%d without a key arrived, want 25", got)
		}
		if s.largest < 5 {
			t.Errorf("the largest batch had %d records; those of other keys go together", s.largest)
		}
	})
}
