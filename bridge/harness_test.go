package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is a destination that remembers what it got and answers as told.
type target struct {
	mu     sync.Mutex
	got    []gobridge.Delivery // taken
	tried  []gobridge.Delivery
	answer func(ctx context.Context, d gobridge.Delivery) error // nil takes all
}

func (s *target) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	out := make([]error, len(batch))
	for i, d := range batch {
		out[i] = s.one(ctx, d)
	}
	return out
}

func (s *target) one(ctx context.Context, d gobridge.Delivery) error {
	s.mu.Lock()
	s.tried = append(s.tried, d)
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, d); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, d)
	return nil
}

func (s *target) answers(f func(ctx context.Context, d gobridge.Delivery) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// ids returns the envelope IDs that were taken, of one key, or of all for "*".
func (s *target) ids(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, d := range s.got {
		if key == "*" || d.Envelope.OrderingKey == key {
			out = append(out, d.Envelope.ID)
		}
	}
	return out
}

// taken returns what was taken.
func (s *target) taken() []gobridge.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// sends counts how often anything was tried.
func (s *target) sends() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tried)
}

// tries counts how often an envelope was tried.
func (s *target) tries(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, d := range s.tried {
		if d.Envelope.ID == id {
			n++
		}
	}
	return n
}

// world is a bridge over a memory store, in a bubble of fake time.
type world struct {
	*testing.T
	store  *memory.Store
	bridge *bridge.Bridge
	stop   func() // stops Run and waits for it
}

func (w *world) run(b *bridge.Bridge) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("Run: %v", err)
		}
	})
}

// inWorld runs f in fake time with a running bridge.
func inWorld(t *testing.T, opts bridge.Options, f func(w *world)) {
	t.Helper()
	inWorldOf(t, memory.Options{}, opts, f)
}

func inWorldOf(t *testing.T, store memory.Options, opts bridge.Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New(store)}
		w.bridge = w.open(w.store, opts)
		w.stop = w.run(w.bridge)
		defer w.stop()
		f(w)
	})
}

func (w *world) open(store gobridge.Store, opts bridge.Options) *bridge.Bridge {
	w.Helper()
	if opts.Logger == nil && testing.Verbose() && os.Getenv("BRIDGE_LOG") != "" {
		opts.Logger = slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	b, err := bridge.New(store, opts)
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// one is a route "r" with one binding "b".
func one(b bridge.Binding) bridge.Options {
	b.Name = "b"
	return bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{b}}}}
}

var partition = gobridge.NewPartition("r", "b", 0)

// publish publishes n messages of a key, with IDs key-1 to key-n, or id-1 and so on
// for the empty key.
func (w *world) publish(key string, n int) {
	w.Helper()
	w.publishFrom(key, 1, n)
}

func (w *world) publishFrom(key string, from, to int) {
	w.Helper()
	for i := from; i <= to; i++ {
		id := key
		if key == "" {
			id = "id"
		}
		w.put(messaging.Envelope{ID: fmt.Sprintf("%s-%d", id, i), OrderingKey: key, Payload: []byte("x")})
	}
}

func (w *world) put(e messaging.Envelope) {
	w.Helper()
	if _, err := w.bridge.Route("r").Publish(w.Context(), e); err != nil {
		w.Fatalf("publish %s: %v", e.ID, err)
	}
}

func (w *world) stats(p gobridge.Partition) gobridge.Stats {
	w.Helper()
	s, err := w.store.Stats(w.Context(), p)
	if err != nil {
		w.Fatal(err)
	}
	return s[0]
}

func (w *world) get(id string) gobridge.Record {
	w.Helper()
	r, err := w.store.Get(w.Context(), gobridge.Ref{Partition: partition, EnvelopeID: id, Binding: "b"})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) wantState(id string, state gobridge.State) {
	w.Helper()
	if r := w.get(id); r.State != state {
		w.Errorf("%s is %s (%s: %s, %d attempts), want %s", id, r.State, r.Reason, r.Error, r.Attempts, state)
	}
}

// wantOrder checks that a key's messages arrived, each once, in order.
func (w *world) wantOrder(s *target, key string, n int) {
	w.Helper()
	var want []string
	for i := 1; i <= n; i++ {
		want = append(want, fmt.Sprintf("%s-%d", key, i))
	}
	if got := s.ids(key); !slices.Equal(got, want) {
		w.Errorf("key %s arrived as %d messages %v, want %v", key, len(got), trim(got), trim(want))
	}
}

func trim(ids []string) []string { return ids[:min(len(ids), 20)] }

// after lets time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errBoom = errors.New("boom")
