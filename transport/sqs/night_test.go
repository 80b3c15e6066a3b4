package sqs_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/store/sqlite"
	"gobridge/transport/sqs"
)

// sendAll sends messages in order, again where they fail.
func sendAll(t *testing.T, s gobridge.Sender, all []messaging.Envelope) {
	t.Helper()
	for _, d := range deliveries(all...) {
		eventually(t, "sending "+d.Envelope.ID, func() bool { return send(t, s, d)[0] == nil })
	}
}

// night is a bridge from queue to queue whose connections break again and again: all
// that was accepted arrives, each key in its order.
type night struct {
	from, consumer *sqs.Receiver
	to, producer   *sqs.Sender
	proxy          *faultproxy.Proxy
}

func (n night) run(t *testing.T) {
	const keys, each = 8, 15
	store, err := sqlite.OpenFile(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	engine, err := bridge.New(store, bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{{
		Name: "b", Sender: n.to, Retry: bridge.Retry{Attempts: 1000, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { _ = engine.Run(ctx) })
	parts.Go(func() { _ = engine.Route("r").Receive(ctx, n.from) })
	parts.Go(func() {
		for range 15 {
			n.proxy.Cut()
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	for i := range each {
		var row []messaging.Envelope
		for k := range keys {
			row = append(row, messaging.Envelope{ID: fmt.Sprintf("%d-%03d", k, i), OrderingKey: fmt.Sprint(k), Payload: []byte("p")})
		}
		sendAll(t, n.producer, row)
	}
	box := &outbox{}
	receive(t, n.consumer, box.take)
	first := func() (byKey map[string][]string, count int) { // first arrivals
		seen := map[string]bool{}
		byKey = map[string][]string{}
		for _, in := range box.all() {
			if e := in.Envelope; !seen[e.ID] {
				seen[e.ID] = true
				byKey[e.OrderingKey] = append(byKey[e.OrderingKey], e.ID)
			}
		}
		return byKey, len(seen)
	}
	eventually(t, "the arrival of all", func() bool { _, count := first(); return count == keys*each })
	byKey, _ := first()
	for key, ids := range byKey {
		if !slices.IsSorted(ids) {
			t.Errorf("key %s arrived as %v", key, ids)
		}
	}
}

func TestNight(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.CreateQueue("in.fifo")
	s.CreateQueue("out.fifo")
	conn, proxy := proxied(t, s)
	straight := connect(t, s.URL())
	night{
		from: receiver(t, conn, sqs.ReceiverOptions{Queue: "in.fifo", Visibility: 3 * time.Second}),
		to:   sender(t, conn, sqs.SenderOptions{Queue: "out.fifo"}), proxy: proxy,
		producer: sender(t, straight, sqs.SenderOptions{Queue: "in.fifo"}),
		consumer: receiver(t, straight, sqs.ReceiverOptions{Queue: "out.fifo"}),
	}.run(t)
}
