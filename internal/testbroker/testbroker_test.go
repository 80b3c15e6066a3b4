package testbroker_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge/internal/testbroker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsPutArrivesInOrder(t *testing.T) {
	const messages = 300
	for name, start := range map[string]func(testing.TB) testbroker.Broker{
		"nats":  func(t testing.TB) testbroker.Broker { return testbroker.StartNATS(t) },
		"kafka": func(t testing.TB) testbroker.Broker { return testbroker.StartKafka(t) },
		"amqp":  func(t testing.TB) testbroker.Broker { return testbroker.StartAMQP(t) },
		"mqtt":  func(t testing.TB) testbroker.Broker { return testbroker.StartMQTT(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.Make(t, "place")
			arrived := make(chan testbroker.Message, messages)
			b.Watch(t, "place", func(m testbroker.Message) { arrived <- m })
			sent := make([]testbroker.Message, messages)
			for i := range sent {
				sent[i] = testbroker.Message{Key: "k", Body: fmt.Append(nil, i)}
			}
			b.Put(t, "place", sent...)
			for i := range sent {
				select {
				case m := <-arrived:
					if m.Key != "k" || string(m.Body) != fmt.Sprint(i) {
						t.Fatalf("message %d is %q of key %q", i, m.Body, m.Key)
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("only %d of %d arrived", i, messages)
				}
			}
		})
	}
}
