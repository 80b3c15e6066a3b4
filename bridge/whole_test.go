package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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
	"gobridge/store/sqlite"
)

// onEachStore runs f on every store of one machine, with the given clock.
func onEachStore(t *testing.T, now func() time.Time, f func(t *testing.T, store gobridge.Store)) {
	t.Run("memory", func(t *testing.T) { f(t, memory.New(memory.Options{Now: now})) })
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.OpenFile(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		f(t, s)
	})
}

// bridgeOn makes a bridge with the given clock. A slow disk must not cost it the
// lease, and a second delivery of what was under way.
func bridgeOn(t *testing.T, store gobridge.Store, now func() time.Time, opts bridge.Options) *bridge.Bridge {
	t.Helper()
	opts.Now, opts.LeaseTerm = now, time.Minute
	b, err := bridge.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func drainAll(t *testing.T, b *bridge.Bridge) {
	t.Helper()
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantOnceInOrder checks that every message arrived once, and those of a key in
// the order of their numbers, which follow the last dash of an ID.
func wantOnceInOrder(t *testing.T, got []gobridge.Delivery, total int) {
	t.Helper()
	if len(got) != total {
		t.Errorf("%d deliveries, want %d", len(got), total)
	}
	last := map[string]int{}
	seen := map[string]bool{}
	for _, d := range got {
		id, key := d.Envelope.ID, d.Envelope.OrderingKey
		if seen[id] {
			t.Fatalf("%s arrived twice", id)
		}
		seen[id] = true
		var n int
		if _, err := fmt.Sscan(id[strings.LastIndexByte(id, '-')+1:], &n); err != nil {
			t.Fatal(err)
		}
		if key != "" && n != last[key]+1 {
			t.Fatalf("%s arrived after number %d of key %s", id, last[key], key)
		}
		last[key] = n
	}
}

func TestTenThousandRecordsInOneMillisecond(t *testing.T) {
	frozen := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	now := func() time.Time { return frozen }
	onEachStore(t, now, func(t *testing.T, store gobridge.Store) {
		dest := &target{}
		b := bridgeOn(t, store, now, one(bridge.Binding{Sender: dest}))
		const producers, keys, each, calls = 20, 5, 100, 5
		var wg sync.WaitGroup
		for p := range producers {
			wg.Go(func() {
				for c := range calls {
					var call []messaging.Envelope
					for i := range each / calls * keys {
						n, k := c*each/calls+i/keys+1, i%keys
						call = append(call, messaging.Envelope{ID: fmt.Sprintf("%d-%d-%d", p, k, n), OrderingKey: fmt.Sprintf("%d-%d", p, k)})
					}
					if _, err := b.Route("r").Publish(t.Context(), call...); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		drainAll(t, b)
		wantOnceInOrder(t, dest.taken(), producers*keys*each)
	})
}

func TestEveryByteArrivesAsItWas(t *testing.T) {
	onEachStore(t, time.Now, func(t *testing.T, store gobridge.Store) {
		dest := &target{}
		b := bridgeOn(t, store, nil, one(bridge.Binding{Sender: dest}))
		var every strings.Builder
		want := map[string]messaging.Envelope{}
		add := func(s string) {
			e := messaging.Envelope{
				ID: s, OrderingKey: s, Subject: s, ContentType: s, Payload: []byte(s),
				Headers: messaging.Headers{s: s, "x" + s: "", "y": s + s},
			}
			want[s] = e
			if _, err := b.Route("r").Publish(t.Context(), e); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
		}
		for c := range 256 {
			every.WriteByte(byte(c))
			add(string([]byte{byte(c)}))
			add("a" + string([]byte{byte(c)}) + "b")
		}
		for _, s := range []string{
			every.String(), "#", "a#b", "a/b", "a\x00", "a\x00\x00", "\x00a", "..", "'; DROP TABLE gobridge_record; --",
			"\xff\xfe", "\xed\xa0\x80", "\u202e", "\ufeff", "e\u0301", "\u00e9", " ", "\r\n", "%00", "NULL",
			strings.Repeat("\xf0\x9f\xa6\x86", 200),
		} {
			if _, have := want[s]; !have {
				add(s)
			}
		}
		drainAll(t, b)
		got := dest.taken()
		if len(got) != len(want) {
			t.Errorf("%d deliveries, want %d", len(got), len(want))
		}
		for _, d := range got {
			if e := want[d.Envelope.ID]; messaging.ContentHash(&e) != messaging.ContentHash(&d.Envelope) || d.Attempt != 1 {
				t.Errorf("%q arrived as %+v, attempt %d", e.ID, d.Envelope, d.Attempt)
			}
		}
	})
}

func TestPayloadsOfEverySizeArrive(t *testing.T) {
	onEachStore(t, time.Now, func(t *testing.T, store gobridge.Store) {
		dest := &target{}
		b := bridgeOn(t, store, nil, one(bridge.Binding{Sender: dest}))
		most := store.Limits().MaxPayload
		payload := func(n int) []byte {
			out := make([]byte, n)
			for i := range out {
				out[i] = byte(i*7 + i>>8)
			}
			return out
		}
		sizes := []int{0, 1, 1023, 1024, 1025, 1<<20 - 1, 1 << 20, 1<<20 + 1, most}
		for _, n := range sizes {
			if _, err := b.Route("r").Publish(t.Context(), messaging.Envelope{ID: fmt.Sprint(n), OrderingKey: "k", Payload: payload(n)}); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
		_, err := b.Route("r").Publish(t.Context(), messaging.Envelope{ID: "beside"}, messaging.Envelope{ID: "over", Payload: payload(most + 1)})
		var field *gobridge.FieldError
		if !errors.Is(err, gobridge.ErrTooLarge) || !errors.As(err, &field) || field.Size != int64(most+1) || field.Limit != int64(most) {
			t.Errorf("one byte over the limit: %v", err)
		}
		drainAll(t, b)
		got := dest.taken()
		if len(got) != len(sizes) {
			t.Fatalf("%d deliveries, want %d", len(got), len(sizes))
		}
		for i, d := range got {
			if !slices.Equal(d.Envelope.Payload, payload(sizes[i])) {
				t.Errorf("delivery %d has %d bytes, want the %d that were sent", i, len(d.Envelope.Payload), sizes[i])
			}
		}
	})
}

func TestAHundredThousandKeys(t *testing.T) {
	keys := 100_000
	if raceDetector || testing.Short() {
		keys = 5_000
	}
	onEachStore(t, time.Now, func(t *testing.T, store gobridge.Store) {
		var mu sync.Mutex
		var got []gobridge.Delivery
		sender := gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d)
			return nil
		})
		b := bridgeOn(t, store, nil, one(bridge.Binding{Sender: sender}))
		total := 0
		publish := func(step, n int) {
			var call []messaging.Envelope
			for k := 0; k < keys; k += step {
				call = append(call, messaging.Envelope{ID: fmt.Sprintf("k%d-%d", k, n), OrderingKey: fmt.Sprint("k", k)})
				if len(call) == 1000 || k+step >= keys {
					if _, err := b.Route("r").Publish(t.Context(), call...); err != nil {
						t.Fatal(err)
					}
					total += len(call)
					call = call[:0]
				}
			}
		}
		publish(1, 1)
		publish(10, 2)
		publish(100, 3)
		drainAll(t, b)
		wantOnceInOrder(t, got, total)
	})
}

func TestAFilterThatFailsOnOneMessage(t *testing.T) {
	for name, fail := range map[string]func() (bool, error){
		"error": func() (bool, error) { return false, errBoom },
		"panic": func() (bool, error) { panic("no such field") },
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, time.Now, func(t *testing.T, store gobridge.Store) {
				plain, filtered := &target{}, &target{}
				b := bridgeOn(t, store, nil, bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{
					{Name: "plain", Sender: plain},
					{Name: "filtered", Sender: filtered, Filter: func(e *messaging.Envelope) (bool, error) {
						if e.ID == "bad" {
							return fail()
						}
						return e.ID != "out", nil
					}},
				}}}})
				publish := func(ids ...string) error {
					call := make([]messaging.Envelope, len(ids))
					for i, id := range ids {
						call[i] = messaging.Envelope{ID: id, OrderingKey: "k"}
					}
					_, err := b.Route("r").Publish(t.Context(), call...)
					return err
				}
				if err := publish("a"); err != nil {
					t.Fatal(err)
				}
				if err := publish("b", "bad", "c"); !errors.Is(err, gobridge.ErrRejected) {
					t.Errorf("published with a message that fails the filter: %v", err)
				}
				for _, id := range []string{"b", "out", "c"} {
					if err := publish(id); err != nil {
						t.Fatal(err)
					}
				}
				drainAll(t, b)
				if got := strings.Join(plain.ids("k"), " "); got != "a b out c" {
					t.Errorf("the binding without a filter got %s", got)
				}
				if got := strings.Join(filtered.ids("k"), " "); got != "a b c" {
					t.Errorf("the binding with the filter got %s", got)
				}
			})
		})
	}
}

func TestClocksThatStepBackAnHourAndForwardAYear(t *testing.T) {
	var offset atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	onEachStore(t, now, func(t *testing.T, store gobridge.Store) {
		offset.Store(0)
		dest := &target{}
		dest.answers(func(_ context.Context, d gobridge.Delivery) error {
			if strings.HasPrefix(d.Envelope.ID, "late") && dest.tries(d.Envelope.ID) < 2 {
				return errBoom
			}
			return nil
		})
		b := bridgeOn(t, store, now, one(bridge.Binding{Sender: dest,
			Retry: bridge.Retry{MinBackoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond}}))
		number := 0
		publish := func() {
			number++
			for _, key := range []string{"a", fmt.Sprint("late", number)} {
				n := number
				if key != "a" {
					n = 1
				}
				if _, err := b.Route("r").Publish(t.Context(), messaging.Envelope{ID: fmt.Sprintf("%s-%d", key, n), OrderingKey: key}); err != nil {
					t.Fatal(err)
				}
			}
		}
		const year = 365 * 24 * time.Hour
		for _, step := range []time.Duration{0, -time.Hour, year, -year, year, -year - time.Hour} {
			offset.Add(int64(step))
			publish()
			publish()
			drainAll(t, b) // what failed waits, by a clock that is about to change
			publish()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		for deadline := time.Now().Add(time.Minute); len(dest.taken()) < 2*number && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantOnceInOrder(t, dest.taken(), 2*number)
	})
}
