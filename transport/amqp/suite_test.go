package amqp_test

import (
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
	"gobridge/internal/fakeamqp"
	"gobridge/messaging"
	"gobridge/transport/amqp"
	"gobridge/transporttest"
)

func TestReceiverKeepsThePromises(t *testing.T) {
	transporttest.RunSource(t, func(t testing.TB) transporttest.Source {
		return source(t, newRig(t, fakeamqp.Options{Heartbeat: 2 * time.Second}))
	})
}

func TestSenderKeepsThePromises(t *testing.T) {
	transporttest.RunSender(t, func(t testing.TB) transporttest.Destination {
		r := newRig(t, fakeamqp.Options{MaxMessage: 4 << 20})
		d := destination(t, r)
		d.TooLarge = 5 << 20
		return d
	})
}

// source is a queue of its own for the suite.
func source(t testing.TB, r *rig) transporttest.Source {
	t.Helper()
	q := r.queue(t)
	s := transporttest.Source{
		Receiver: func(t testing.TB) gobridge.Receiver {
			receiver, err := r.connect(t).Receiver(amqp.ReceiverOptions{Queue: q, Logger: logger(t)})
			if err != nil {
				t.Fatal(err)
			}
			return receiver
		},
		Publish: func(t testing.TB, messages ...messaging.Envelope) { r.put(t, q, publishings(messages...)...) },
		PublishBad: func(t testing.TB) []byte {
			r.put(t, q, amqp091.Publishing{ContentType: "application/cloudevents+json", Body: []byte("{no event")})
			return []byte("{no event")
		},
		Cut:        func(testing.TB) { r.proxy.Cut() },
		Hold:       5 * time.Second, // more than two heartbeats
		MaxPayload: 2 << 20,
		MaxHeld:    1000,
	}
	if r.fake != nil { // a real server does not tell at once what is with consumers
		s.Left = func(testing.TB) int {
			ready, unacked := r.fake.Depth(q)
			return ready + unacked
		}
	}
	return s
}

// destination is a queue of its own for the suite.
func destination(t testing.TB, r *rig) transporttest.Destination {
	t.Helper()
	q := r.queue(t)
	sender, err := r.connect(t).Sender(amqp.SenderOptions{RoutingKey: q, Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	reader := r.read(t, q)
	return transporttest.Destination{
		Sender: sender,
		Received: func(testing.TB) []messaging.Envelope {
			var out []messaging.Envelope
			for _, d := range reader.all() {
				e := messaging.Envelope{ContentType: d.ContentType, Payload: d.Body, Headers: messaging.Headers{}}
				for name, value := range d.Headers {
					text, _ := value.(string)
					e.Headers[name] = text
				}
				e.ID, e.OrderingKey = e.Headers["gobridge-id"], e.Headers[messaging.HeaderOrderingKey]
				out = append(out, e)
			}
			return out
		},
		Cut: func(testing.TB) { r.proxy.Cut() },
		Down: func(_ testing.TB, down bool) {
			r.proxy.Refuse(down)
			if down {
				r.proxy.Cut()
			}
		},
		Stall:      func(_ testing.TB, stall bool) { r.proxy.Stall(stall) },
		MaxPayload: 2 << 20,
	}
}
