package sqs_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/internal/awsmessage"
	"gobridge/internal/fakeaws"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/transport/sqs"
	"gobridge/transporttest"
)

// visibility is short, so that what is held for long is held beyond it.
const visibility = 4 * time.Second

func TestSource(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"orders.fifo", "orders"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			transporttest.RunSource(t, func(t testing.TB) transporttest.Source {
				s := server(t)
				address := s.CreateQueue(queue)
				conn, proxy := proxied(t, s)
				producer := sender(t, connect(t, s.URL()), sqs.SenderOptions{Queue: address})
				return transporttest.Source{
					Receiver: func(t testing.TB) gobridge.Receiver {
						return receiver(t, conn, sqs.ReceiverOptions{Queue: queue, Visibility: visibility})
					},
					Publish: func(t testing.TB, messages ...messaging.Envelope) { publish(t, producer, messages) },
					PublishBad: func(testing.TB) []byte {
						s.Put(queue, group(queue, "bad"), group(queue, "bad"), "not base64!", "gobridge-encoding", "base64")
						return []byte("not base64!")
					},
					Left:      func(testing.TB) int { return s.Left(queue) },
					Cut:       func(testing.TB) { proxy.Cut() },
					Unordered: !strings.HasSuffix(queue, ".fifo"),
					Hold:      visibility + visibility/2,
					Patience:  3 * time.Minute,
				}
			})
		})
	}
}

// group is a group ID or deduplication ID for a queue that needs them.
func group(queue, id string) string {
	if strings.HasSuffix(queue, ".fifo") {
		return id
	}
	return ""
}

func publish(t testing.TB, s *sqs.Sender, messages []messaging.Envelope) {
	t.Helper()
	for i := 0; i < len(messages); i += 10 {
		for _, err := range send(t, s, deliveries(messages[i:min(i+10, len(messages))]...)...) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSender(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"orders.fifo", "orders"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			transporttest.RunSender(t, func(t testing.TB) transporttest.Destination {
				s := server(t)
				s.CreateQueue(queue)
				conn, proxy := proxied(t, s)
				return transporttest.Destination{
					Sender:     sender(t, conn, sqs.SenderOptions{Queue: queue}),
					Received:   func(t testing.TB) []messaging.Envelope { return sent(t, s, queue) },
					Cut:        func(testing.TB) { proxy.Cut() },
					Down:       func(_ testing.TB, down bool) { proxy.Refuse(down); proxy.Cut() },
					Stall:      stall(proxy),
					TooLarge:   1 << 20,
					MaxPayload: 700 << 10,
					Unordered:  !strings.HasSuffix(queue, ".fifo"),
					Swallows:   strings.HasSuffix(queue, ".fifo"),
				}
			})
		})
	}
}

// stall makes a black hole of a proxy. What was sent into it is lost when it ends: a
// service that got a request late would carry it out, whatever the sender does.
func stall(proxy *faultproxy.Proxy) func(testing.TB, bool) {
	return func(_ testing.TB, on bool) {
		if !on {
			proxy.Cut()
		}
		proxy.Stall(on)
	}
}

// sent is what a queue has taken, in its order, as a consumer sees it who knows
// nothing of gobridge but its attributes.
func sent(t testing.TB, s *fakeaws.Server, queue string) []messaging.Envelope {
	t.Helper()
	var out []messaging.Envelope
	for _, m := range s.Sent(queue) {
		e, _, err := awsmessage.Decode(awsmessage.Message{Body: m.Body, Attributes: m.Attributes})
		if err != nil {
			t.Fatal(err)
		}
		meta, err := url.ParseQuery(m.Attributes["gobridge"])
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.OrderingKey = meta.Get("id"), meta.Get("ordering-key")
		out = append(out, e)
	}
	return out
}
