package mqtt_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
	"gobridge/transport/mqtt"
)

const benchSize = 256 // bytes of payload

// BenchmarkBridge moves messages from one topic to another twice: by the bridge, each
// through an outbox on disk, and by a loop of the client library alone that publishes
// what it gets, as many at a time, and acknowledges it then. It reports both in
// messages per second, and how many times as many the loop moves.
//
//	go test -run - -bench Bridge -benchtime 20000x ./transport/mqtt
func BenchmarkBridge(b *testing.B) {
	var bridged, looped time.Duration
	bridged = move(b, throughBridge)
	looped = move(b, throughLoop)
	b.ReportMetric(float64(b.N)/bridged.Seconds(), "msg/s")
	b.ReportMetric(float64(b.N)/looped.Seconds(), "loop-msg/s")
	b.ReportMetric(bridged.Seconds()/looped.Seconds(), "times-slower")
	b.ReportMetric(0, "ns/op")
}

// move has b.N messages waiting in a session of in/#, and returns how long it takes
// until all have come to out/a.
func move(b *testing.B, run func(b *testing.B, broker *broker) (stop func())) time.Duration {
	b.Helper()
	broker := newBroker(b)
	places := uint16(1000)
	broker.greeting = packets.Properties{ReceiveMaximum: &places}
	broker.sessions[client] = &session{filters: map[string]packets.SubOptions{"in/#": {Topic: "in/#", QoS: 1}}, most: 1}
	var arrived atomic.Int64
	all := make(chan struct{})
	var once sync.Once
	broker.onPublish = func(*packets.Publish) verdict {
		if arrived.Add(1) >= int64(b.N) {
			once.Do(func() { close(all) })
		}
		return verdict{}
	}
	for i := range b.N {
		broker.publish(asPublished(messaging.Envelope{
			ID: fmt.Sprint(i), OrderingKey: fmt.Sprint(i % 500), Payload: make([]byte, benchSize),
		}, "in/x", 1))
	}
	began := time.Now()
	stop := run(b, broker)
	<-all
	took := time.Since(began)
	stop()
	return took
}

func throughBridge(b *testing.B, broker *broker) func() {
	b.Helper()
	store, err := sqlite.OpenFile(b.Context(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	c, err := mqtt.New(mqtt.Options{URLs: []string{broker.url()}, ClientID: "gw"})
	if err != nil {
		b.Fatal(err)
	}
	engine, err := bridge.New(store, bridge.Options{
		Logger: slog.New(slog.DiscardHandler),
		Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{{Name: "b", Sender: sender(b, c), Concurrency: 16}}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = engine.Run(ctx) })
	group.Go(func() { _ = engine.Route("r").Receive(ctx, receiver(b, c)) })
	return func() {
		cancel()
		group.Wait()
		_ = c.Close()
		_ = store.Close()
	}
}

func throughLoop(b *testing.B, broker *broker) func() {
	b.Helper()
	connect := func(id string, manual bool, got func(paho.PublishReceived) (bool, error)) *paho.Client {
		conn, err := net.Dial("tcp", broker.listen.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		c := paho.NewClient(paho.ClientConfig{
			Conn: conn, EnableManualAcknowledgment: manual, SendAcksInterval: time.Millisecond,
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){got},
		})
		hour, most := uint32(3600), uint16(1000)
		if _, err := c.Connect(context.Background(), &paho.Connect{ClientID: id, KeepAlive: 60,
			Properties: &paho.ConnectProperties{SessionExpiryInterval: &hour, ReceiveMaximum: &most}}); err != nil {
			b.Fatal(err)
		}
		return c
	}
	out := connect("out", false, func(paho.PublishReceived) (bool, error) { return true, nil })
	var publishing sync.WaitGroup
	room := make(chan struct{}, 256) // as many as in a batch of the sender
	in := connect(client, true, func(p paho.PublishReceived) (bool, error) {
		room <- struct{}{}
		publishing.Go(func() {
			defer func() { <-room }()
			message := *p.Packet
			message.Topic = "out/a"
			if _, err := out.Publish(context.Background(), &message); err == nil {
				_ = p.Client.Ack(p.Packet)
			}
		})
		return true, nil
	})
	return func() {
		publishing.Wait()
		_ = in.Disconnect(&paho.Disconnect{})
		_ = out.Disconnect(&paho.Disconnect{})
	}
}
