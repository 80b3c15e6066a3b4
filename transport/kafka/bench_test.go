package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

const benchSize = 256 // bytes of payload

// BenchmarkBridge moves messages from one topic to another twice: by the bridge, each
// through an outbox on disk, and by a loop of the client library alone that produces
// what it polled, waits for it and commits. It reports both in messages per second,
// and how many times as many the loop moves. The broker is one in this process, or
// that of scripts/kafka-live.sh.
//
//	go test -run - -bench Bridge -benchtime 50000x ./transport/kafka
func BenchmarkBridge(b *testing.B) {
	address := os.Getenv("GOBRIDGE_KAFKA_BROKER")
	if address == "" {
		address = startFake(b).upstream
	}
	bridged := move(b, address, throughBridge)
	looped := move(b, address, throughLoop)
	b.ReportMetric(float64(b.N)/bridged.Seconds(), "msg/s")
	b.ReportMetric(float64(b.N)/looped.Seconds(), "loop-msg/s")
	b.ReportMetric(bridged.Seconds()/looped.Seconds(), "times-slower")
	b.ReportMetric(0, "ns/op")
}

func benchClient(b *testing.B, address string, options ...kgo.Opt) *kgo.Client {
	b.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(address), kgo.DisableClientMetrics()}, options...)...)
	if err != nil {
		b.Fatal(err)
	}
	return client
}

// move has b.N messages waiting in a topic, and returns how long it takes until all
// have come to another.
func move(b *testing.B, address string, run func(b *testing.B, address, from, to string) (stop func())) time.Duration {
	b.Helper()
	from, to := fmt.Sprintf("from-%d", time.Now().UnixNano()), fmt.Sprintf("to-%d", time.Now().UnixNano())
	client := benchClient(b, address)
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopics(b.Context(), 4, 1, nil, from, to); err != nil {
		b.Fatal(err)
	}
	var records []*kgo.Record
	for i := range b.N {
		records = append(records, record(b, from, messaging.Envelope{ID: fmt.Sprint(i), OrderingKey: fmt.Sprint(i % 500), Payload: make([]byte, benchSize)}))
	}
	if err := client.ProduceSync(b.Context(), records...).FirstErr(); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	stop := run(b, address, from, to)
	for arrived := int64(0); arrived < int64(b.N); {
		arrived = 0
		ends, err := admin.ListEndOffsets(b.Context(), to)
		if err != nil {
			b.Fatal(err)
		}
		ends.Each(func(o kadm.ListedOffset) { arrived += o.Offset })
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	stop()
	return took
}

func throughBridge(b *testing.B, address, from, to string) func() {
	b.Helper()
	store, err := sqlite.OpenFile(b.Context(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	conn, err := New(Options{Brokers: []string{address}})
	if err != nil {
		b.Fatal(err)
	}
	sender, err := conn.Sender(SenderOptions{Topic: to})
	if err != nil {
		b.Fatal(err)
	}
	receiver, err := conn.Receiver(ReceiverOptions{Topics: []string{from}, Group: from})
	if err != nil {
		b.Fatal(err)
	}
	engine, err := bridge.New(store, bridge.Options{
		Logger: slog.New(slog.DiscardHandler),
		Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{{Name: "b", Sender: sender, Concurrency: 16}}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = engine.Run(ctx) })
	group.Go(func() { _ = engine.Route("r").Receive(ctx, receiver) })
	return func() {
		cancel()
		group.Wait()
		_ = conn.Close()
		_ = store.Close()
	}
}

func throughLoop(b *testing.B, address, from, to string) func() {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client := benchClient(b, address, kgo.ConsumerGroup(from), kgo.ConsumeTopics(from), kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(fetchWait), kgo.ProducerLinger(0))
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			fetches := client.PollRecords(ctx, takeRecords)
			var out []*kgo.Record
			fetches.EachRecord(func(r *kgo.Record) {
				out = append(out, &kgo.Record{Topic: to, Key: r.Key, Value: r.Value, Headers: r.Headers})
			})
			if client.ProduceSync(ctx, out...).FirstErr() == nil {
				_ = client.CommitUncommittedOffsets(ctx)
			}
		}
	})
	return func() {
		cancel()
		loop.Wait()
		client.Close()
	}
}
