package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transporttest"
)

func TestReceiverConforms(t *testing.T) {
	f := startFake(t, kfake.GroupMinSessionTimeout(time.Second))
	transporttest.RunSource(t, func(t testing.TB) transporttest.Source {
		topic := f.topic(t, 4, nil)
		conn := f.connect(t)
		conn.extra = append(conn.extra, kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(200*time.Millisecond),
			kgo.RebalanceTimeout(time.Second))
		return transporttest.Source{
			Receiver: func(t testing.TB) gobridge.Receiver {
				r, err := conn.Receiver(ReceiverOptions{Topics: []string{topic}, Group: topic})
				if err != nil {
					t.Fatal(err)
				}
				return r
			},
			Publish: func(t testing.TB, messages ...messaging.Envelope) {
				records := make([]*kgo.Record, len(messages))
				for i, m := range messages {
					records[i] = record(t, topic, m)
				}
				f.produce(t, records...)
			},
			PublishBad: func(t testing.TB) []byte {
				payload := []byte("what is this")
				f.produce(t, &kgo.Record{Topic: topic, Value: payload, Headers: []kgo.RecordHeader{{Key: "gobridge-expires-at", Value: []byte("soon")}}})
				return payload
			},
			Left:       func(testing.TB) int { return f.left(topic, topic) },
			Cut:        func(testing.TB) { f.proxy.Cut() },
			Hold:       3 * time.Second,
			MaxPayload: 900_000,
		}
	})
}

func TestSenderConforms(t *testing.T) {
	f := startFake(t)
	transporttest.RunSender(t, func(t testing.TB) transporttest.Destination {
		topic := f.topic(t, 4, nil)
		sender, err := f.connect(t).Sender(SenderOptions{Topic: topic})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.Destination{
			Sender: sender,
			Received: func(t testing.TB) []messaging.Envelope {
				var out []messaging.Envelope
				for _, r := range f.all(t, topic) {
					e := incoming(r, [16]byte{1}, ByKey).Envelope
					e.ID = idOf(r)
					out = append(out, e)
				}
				return out
			},
			Cut:        func(testing.TB) { f.proxy.Cut() },
			Down:       func(_ testing.TB, down bool) { f.proxy.Refuse(down); f.proxy.Cut() },
			Stall:      func(_ testing.TB, stall bool) { f.proxy.Stall(stall) },
			TooLarge:   2 << 20,
			MaxPayload: 900_000,
			Timeout:    5 * time.Second,
		}
	})
}
