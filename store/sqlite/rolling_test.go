package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
)

// arrivals is a destination that notes what came.
type arrivals struct {
	mu    sync.Mutex
	first map[string][]int // by key: the numbers in the order of their first arrival
	seen  map[string]bool
}

func (a *arrivals) take(_ context.Context, d gobridge.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[d.Envelope.ID] {
		return nil
	}
	a.seen[d.Envelope.ID] = true
	var n int
	if _, err := fmt.Sscanf(string(d.Envelope.Payload), "%d", &n); err != nil {
		return gobridge.Permanent(err)
	}
	a.first[d.Envelope.OrderingKey] = append(a.first[d.Envelope.OrderingKey], n)
	return nil
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// TestRollingRestartOverASchemaChange starts a process with a newer schema on
// the file while the old one delivers, and ends the old one; messages keep
// coming all the time.
func TestRollingRestartOverASchemaChange(t *testing.T) {
	const keys, each = 8, 60
	path := filepath.Join(t.TempDir(), "outbox.db")
	target := &arrivals{first: map[string][]int{}, seen: map[string]bool{}}
	start := func() (*bridge.RouteHandle, func()) {
		b, err := bridge.New(open1(t, path, Options{}), bridge.Options{LeaseTerm: time.Second, Routes: []bridge.Route{{
			Name: "r", Bindings: []bridge.Binding{{Name: "b", Sender: gobridge.HandlerFunc(target.take)}}}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		return b.Route("r"), func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	publish := func(route *bridge.RouteHandle, from, to int) {
		var all sync.WaitGroup
		for k := range keys {
			all.Go(func() {
				for n := from; n < to; n++ {
					_, err := route.Publish(t.Context(), messaging.Envelope{ID: fmt.Sprintf("%d-%d", k, n),
						OrderingKey: fmt.Sprint("k", k), Payload: fmt.Append(nil, n)})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}

	old, stopOld := start()
	publish(old, 0, each/3)
	raise(t, path, later(t, map[string]string{
		"1.1000.sql": "ALTER TABLE gobridge_record ADD COLUMN later INTEGER NOT NULL DEFAULT 7; CREATE TABLE gobridge_later (x)",
	}))
	next, stopNext := start()
	publish(old, each/3, 2*each/3)
	stopOld()
	publish(next, 2*each/3, each)
	deadline := time.Now().Add(time.Minute)
	for target.count() < keys*each && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	stopNext()

	for k := range keys {
		got := target.first[fmt.Sprint("k", k)]
		if len(got) != each {
			t.Errorf("key %d: %d of %d arrived", k, len(got), each)
		}
		for i, n := range got {
			if n != i {
				t.Fatalf("key %d arrived in the order %v", k, got)
			}
		}
	}
}
