package mqtt_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"gobridge"
)

// collector is an outbox that keeps what it takes.
type collector struct {
	mu   sync.Mutex
	got  []gobridge.Incoming
	gate chan struct{} // takes wait until it is closed; nil for not at all
}

func (k *collector) take(ctx context.Context, batch []gobridge.Incoming) error {
	k.mu.Lock()
	gate := k.gate
	k.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got = append(k.got, batch...)
	return nil
}

// run runs a receiver until the function returned is called, or the test ends.
func (k *collector) run(t testing.TB, r gobridge.Receiver) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Receive(ctx, k.take) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Receive ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (k *collector) all() []gobridge.Incoming {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]gobridge.Incoming(nil), k.got...)
}

// await waits until what has come is as it is to be.
func (k *collector) await(t testing.TB, what string, ok func([]gobridge.Incoming) bool) {
	t.Helper()
	eventually(t, what, func() bool { return ok(k.all()) })
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %s has not happened", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
