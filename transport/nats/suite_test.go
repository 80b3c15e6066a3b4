package nats_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
	"gobridge/internal/faultproxy"
	"gobridge/internal/percent"
	"gobridge/messaging"
	"gobridge/transport/nats"
	"gobridge/transporttest"
)

func startProxy(t testing.TB, upstream string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Start(upstream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestSource(t *testing.T) {
	transporttest.RunSource(t, func(t testing.TB) transporttest.Source { return source(t, startBroker(t, nil).address(), nil) })
}

// TestSourceOfAnOldServer runs the suite where a consumer can't be reset.
func TestSourceOfAnOldServer(t *testing.T) {
	transporttest.RunSource(t, func(t testing.TB) transporttest.Source {
		return source(t, startBroker(t, noReset).address(), asGateway)
	})
}

// source is a stream of its own with a consumer that is declared.
func source(t testing.TB, address string, as func(*nats.Options)) transporttest.Source {
	t.Helper()
	_, js := dial(t, "nats://"+address)
	stream := freshStream(t, js)
	p := startProxy(t, address)
	receiver := func(t testing.TB) gobridge.Receiver {
		conn := connect(t, "nats://"+p.Addr(), as)
		r, err := conn.Receiver(nats.ReceiverOptions{Stream: stream, Consumer: "suite", Declare: true, AckWait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	return transporttest.Source{
		Receiver: receiver,
		Publish: func(t testing.TB, messages ...messaging.Envelope) {
			for _, e := range messages {
				if _, err := js.PublishMsgAsync(message(stream, e)); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-js.PublishAsyncComplete():
			case <-time.After(patience):
				t.Fatal("the stream does not confirm")
			}
		},
		PublishBad: func(t testing.TB) []byte {
			bad := client.NewMsg(stream + ".bad")
			bad.Data = []byte("no message")
			bad.Header.Set("gobridge-expires-at", "tomorrow")
			if _, err := js.PublishMsg(t.Context(), bad); err != nil {
				t.Fatal(err)
			}
			return bad.Data
		},
		Left: func(t testing.TB) int {
			consumer, err := js.Consumer(context.Background(), stream, "suite")
			if err != nil {
				t.Fatal(err)
			}
			info := consumer.CachedInfo()
			return int(info.NumPending) + info.NumAckPending
		},
		Cut:  func(testing.TB) { p.Cut() },
		Hold: 3 * time.Second,
	}
}

// freshStream makes a stream with a name of its own.
func freshStream(t testing.TB, js jetstream.JetStream) string {
	t.Helper()
	name := "S" + strings.ReplaceAll(messaging.NewID(), "-", "")
	makeStream(t, js, name, nil)
	t.Cleanup(func() { _ = js.DeleteStream(context.Background(), name) })
	return name
}

// message is what a producer publishes of a message.
func message(stream string, e messaging.Envelope) *client.Msg {
	m := client.NewMsg(stream + ".x")
	m.Data = e.Payload
	set := func(name, value string) {
		if value != "" {
			m.Header[name] = []string{value}
		}
	}
	set("Gobridge-Id", percent.Encode(e.ID, ""))
	set("Gobridge-Ordering-Key", percent.Encode(e.OrderingKey, ""))
	set("Content-Type", e.ContentType)
	for name, value := range e.Headers {
		set(name, value)
	}
	return m
}

func TestDestination(t *testing.T) {
	transporttest.RunSender(t, func(t testing.TB) transporttest.Destination {
		return destination(t, startBroker(t, nil).address())
	})
}

// destination is a stream of its own.
func destination(t testing.TB, address string) transporttest.Destination {
	t.Helper()
	_, js := dial(t, "nats://"+address)
	stream := freshStream(t, js)
	consumer, err := js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	p := startProxy(t, address)
	sender, err := connect(t, "nats://"+p.Addr(), nil).Sender(nats.SenderOptions{Subject: stream + ".x", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var got []messaging.Envelope
	return transporttest.Destination{
		Sender: sender,
		Received: func(t testing.TB) []messaging.Envelope {
			batch, err := consumer.FetchNoWait(1000)
			if err != nil {
				t.Fatal(err)
			}
			for m := range batch.Messages() {
				got = append(got, envelope(t, m.Headers(), m.Data()))
			}
			if err := batch.Error(); err != nil {
				t.Fatal(err)
			}
			return slices.Clone(got)
		},
		Cut: func(testing.TB) { p.Cut() },
		Down: func(_ testing.TB, down bool) {
			p.Refuse(down)
			if down {
				p.Cut()
			}
		},
		Stall:    func(_ testing.TB, stall bool) { p.Stall(stall) },
		TooLarge: 2 << 20,
		Swallows: true,
	}
}

// envelope is what a consumer makes of a message.
func envelope(t testing.TB, header client.Header, payload []byte) messaging.Envelope {
	t.Helper()
	own := func(name string) string {
		value, err := percent.Decode(header.Get(name))
		if err != nil {
			t.Errorf("header %s: %v", name, err)
		}
		return value
	}
	e := messaging.Envelope{
		ID: own("gobridge-id"), OrderingKey: own("gobridge-ordering-key"), ContentType: header.Get("content-type"),
		Payload: payload, Headers: messaging.Headers{},
	}
	for name, values := range header {
		if !strings.HasPrefix(name, "gobridge-") {
			e.Headers[name] = values[0]
		}
	}
	return e
}
