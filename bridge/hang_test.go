package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// slowPersist is a store whose Persist takes as long as its caller allows.
type slowPersist struct{ gobridge.Store }

func (s slowPersist) Persist(ctx context.Context, _ []gobridge.Record) error {
	<-ctx.Done()
	return ctx.Err()
}

// A call that waits for the store does not keep others beyond their deadlines.
func TestABoundOnDepthKeepsToDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		opts := one(bridge.Binding{Sender: &target{}, MaxOutboxDepth: 10})
		opts.Leases = store.Leases()
		w := &world{T: t, store: store}
		b := w.open(slowPersist{store}, opts)
		publish := func(d time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			began := time.Now()
			if _, err := b.Route("r").Publish(ctx, messaging.Envelope{ID: d.String()}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("published: %v", err)
			}
			return time.Since(began)
		}
		go publish(time.Hour)
		w.after(2 * time.Second)
		if took := publish(3 * time.Second); took > 3*time.Second {
			t.Errorf("a call with 3 s took %s", took)
		}
		w.after(2 * time.Hour)
	})
}

// A send that never returns is spoken of, and holds up its key only.
func TestASendThatNeverReturnsIsSpokenOf(t *testing.T) {
	var log bytes.Buffer
	let := make(chan struct{})
	dest := &target{}
	synctest.Test(t, func(t *testing.T) {
		let = make(chan struct{})
		dest.answers(func(_ context.Context, d gobridge.Delivery) error {
			if d.Envelope.ID == "bad-1" {
				<-let
			}
			return nil
		})
		w := &world{T: t, store: memory.New(memory.Options{})}
		opts := one(bridge.Binding{Sender: dest})
		opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		w.bridge = w.open(w.store, opts)
		stop := w.run(w.bridge)
		w.publish("bad", 2)
		w.publish("good", 5)
		w.after(5 * time.Minute)
		w.wantOrder(dest, "good", 5)
		if n := strings.Count(log.String(), "does not return"); n != 1 {
			t.Errorf("spoken of %d times:\n%s", n, log.String())
		}
		close(let)
		w.after(time.Second)
		w.wantOrder(dest, "bad", 2)
		stop()
	})
}
