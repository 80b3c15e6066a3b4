package nats_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge/bridge"
	"gobridge/store/sqlite"
	"gobridge/transport/nats"
)

const (
	benchMessages = 20_000
	benchKeys     = 200
)

// BenchmarkBridge moves messages from one stream to another, at first by a plain loop
// that consumes, publishes and acknowledges, and then through an outbox in SQLite, and
// reports the rates and how many times longer durability takes.
func BenchmarkBridge(b *testing.B) {
	var plain, durable time.Duration
	for b.Loop() {
		plain += move(b, movePlainly)
		durable += move(b, moveThroughOutbox)
	}
	rate := func(d time.Duration) float64 { return float64(b.N*benchMessages) / d.Seconds() }
	b.ReportMetric(rate(plain), "loop-msg/s")
	b.ReportMetric(rate(durable), "msg/s")
	b.ReportMetric(durable.Seconds()/plain.Seconds(), "times-slower")
}

// move times how long it takes until the second stream has everything.
func move(b *testing.B, how func(b *testing.B, url string) (stop func())) time.Duration {
	b.Helper()
	broker := startBroker(b, nil)
	_, js := dial(b, broker.url())
	makeStream(b, js, "IN", nil)
	out := makeStream(b, js, "OUT", nil)
	for i := range benchMessages {
		m := client.NewMsg("IN.x")
		m.Data = fmt.Appendf(nil, `{"customer":%d,"number":%d,"text":"%0200d"}`, i%benchKeys, i, i)
		m.Header.Set("gobridge-ordering-key", fmt.Sprint(i%benchKeys))
		if _, err := js.PublishMsgAsync(m); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	began := time.Now()
	stop := how(b, broker.url())
	for {
		info, err := out.Info(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if info.State.Msgs >= benchMessages {
			break
		}
		if time.Since(began) > 5*time.Minute {
			b.Fatalf("only %d messages arrived", info.State.Msgs)
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	stop()
	broker.stop()
	return took
}

func movePlainly(b *testing.B, url string) (stop func()) {
	_, js := dial(b, url)
	consumer, err := js.CreateConsumer(b.Context(), "IN", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		b.Fatal(err)
	}
	running, err := consumer.Consume(func(m jetstream.Msg) {
		confirmed, err := js.PublishMsgAsync(&client.Msg{Subject: "OUT.x", Header: m.Headers(), Data: m.Data()})
		if err != nil {
			b.Error(err)
			return
		}
		go func() {
			<-confirmed.Ok()
			_ = m.Ack()
		}()
	})
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		running.Stop()
		<-running.Closed()
	}
}

func moveThroughOutbox(b *testing.B, url string) (stop func()) {
	conn := connect(b, url, nil)
	out := sender(b, conn, nats.SenderOptions{Subject: "OUT.x"})
	in, err := conn.Receiver(nats.ReceiverOptions{Stream: "IN", Consumer: "c", Declare: true})
	if err != nil {
		b.Fatal(err)
	}
	store, err := sqlite.OpenFile(b.Context(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	bridge, err := bridge.New(store, bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{{Name: "b", Sender: out}}}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = bridge.Run(ctx) })
	running.Go(func() { _ = bridge.Route("r").Receive(ctx, in) })
	return func() {
		cancel()
		running.Wait()
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	}
}
