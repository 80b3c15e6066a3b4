package amqp_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge/bridge"
	"gobridge/internal/fakeamqp"
	"gobridge/store/sqlite"
	"gobridge/transport/amqp"
)

const (
	benchMessages = 20_000
	benchKeys     = 200
)

// BenchmarkBridge moves messages from one queue to another, at first by a plain loop
// that consumes, publishes and acknowledges, and then through an outbox in SQLite, and
// reports the rates and how many times longer durability takes. The broker is the one
// in memory, and once more the real one if there is one.
func BenchmarkBridge(b *testing.B) {
	b.Run("fake", func(b *testing.B) {
		benchmarkBridge(b, func(b *testing.B) *rig { return newRig(b, fakeamqp.Options{}) })
	})
	if os.Getenv("GOBRIDGE_AMQP_URL") != "" {
		b.Run("live", func(b *testing.B) { benchmarkBridge(b, func(b *testing.B) *rig { return liveRig(b) }) })
	}
}

func benchmarkBridge(b *testing.B, open func(*testing.B) *rig) {
	var plain, durable time.Duration
	for b.Loop() {
		plain += move(b, open(b), movePlainly)
		durable += move(b, open(b), moveThroughOutbox)
	}
	rate := func(d time.Duration) float64 { return float64(b.N*benchMessages) / d.Seconds() }
	b.ReportMetric(rate(plain), "loop-msg/s")
	b.ReportMetric(rate(durable), "msg/s")
	b.ReportMetric(durable.Seconds()/plain.Seconds(), "times-slower")
}

// move times how long it takes until the second queue has everything.
func move(b *testing.B, r *rig, how func(b *testing.B, r *rig, in, out string) (stop func())) time.Duration {
	b.Helper()
	in, out := r.queue(b), r.queue(b)
	messages := make([]amqp091.Publishing, benchMessages)
	for i := range messages {
		messages[i] = amqp091.Publishing{
			MessageId: fmt.Sprint(i), Headers: amqp091.Table{"gobridge-ordering-key": fmt.Sprint(i % benchKeys)},
			Body: fmt.Appendf(nil, `{"customer":%d,"number":%d,"text":"%0200d"}`, i%benchKeys, i, i),
		}
	}
	r.put(b, in, messages...)
	ch := r.channel(b)
	began := time.Now()
	stop := how(b, r, in, out)
	for {
		state, err := ch.QueueDeclarePassive(out, true, false, false, false, nil)
		if err != nil {
			b.Fatal(err)
		}
		if state.Messages >= benchMessages {
			break
		}
		if time.Since(began) > 5*time.Minute {
			b.Fatalf("only %d messages arrived", state.Messages)
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	stop()
	return took
}

func movePlainly(b *testing.B, r *rig, in, out string) (stop func()) {
	b.Helper()
	from, to := r.channel(b), r.channel(b)
	if err := to.Confirm(false); err != nil {
		b.Fatal(err)
	}
	if err := from.Qos(1000, 0, false); err != nil {
		b.Fatal(err)
	}
	deliveries, err := from.Consume(in, "", false, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	type moved struct {
		delivery  amqp091.Delivery
		confirmed *amqp091.DeferredConfirmation
	}
	pending := make(chan moved, 1000)
	var running sync.WaitGroup
	running.Go(func() {
		defer close(pending)
		for d := range deliveries {
			c, err := to.PublishWithDeferredConfirm("", out, true, false, amqp091.Publishing{
				MessageId: d.MessageId, Headers: d.Headers, Body: d.Body, DeliveryMode: amqp091.Persistent,
			})
			if err != nil {
				return
			}
			pending <- moved{d, c}
		}
	})
	running.Go(func() {
		for m := range pending {
			if m.confirmed.Wait() {
				_ = m.delivery.Ack(false)
			}
		}
	})
	return func() {
		_ = from.Close()
		_ = to.Close()
		running.Wait()
	}
}

func moveThroughOutbox(b *testing.B, r *rig, in, out string) (stop func()) {
	b.Helper()
	c := r.connect(b, func(o *amqp.Options) { o.Addresses = []string{r.direct} })
	receiver, err := c.Receiver(amqp.ReceiverOptions{Queue: in})
	if err != nil {
		b.Fatal(err)
	}
	store, err := sqlite.OpenFile(b.Context(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	binding := bridge.Binding{Name: "b", Sender: sender(b, c, amqp.SenderOptions{RoutingKey: out})}
	bridge, err := bridge.New(store, bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{binding}}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = bridge.Run(ctx) })
	running.Go(func() { _ = bridge.Route("r").Receive(ctx, receiver) })
	return func() {
		cancel()
		running.Wait()
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	}
}
