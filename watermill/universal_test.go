package mill_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"gobridge"
	"gobridge/bridge"
	"gobridge/store/memory"
	"gobridge/store/sqlite"
	mill "gobridge/watermill"
)

// running runs a bridge with one route until the test ends.
func running(t *testing.T, store gobridge.Store, sender gobridge.Sender) *bridge.RouteHandle {
	t.Helper()
	b, err := bridge.New(store, bridge.Options{
		Routes: []bridge.Route{{Name: "mill", Bindings: []bridge.Binding{{Name: "out", Sender: sender, Concurrency: 64}}}},
		Grace:  time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		group.Wait()
	})
	return b.Route("mill")
}

func publisher(t *testing.T, publish mill.PublishFunc, options mill.PublisherOptions) *mill.Publisher {
	t.Helper()
	p, err := mill.NewPublisher(publish, options)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sender(t *testing.T, p message.Publisher, options mill.SenderOptions) *mill.Sender {
	t.Helper()
	s, err := mill.NewSender(p, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// throughOutbox is a Pub/Sub of Watermill with an outbox in it.
func throughOutbox(t *testing.T) (message.Publisher, message.Subscriber) {
	channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10000, Persistent: true}, watermill.NopLogger{})
	route := running(t, memory.New(memory.Options{}), sender(t, channel, mill.SenderOptions{}))
	return publisher(t, mill.Into(route), mill.PublisherOptions{}), channel
}

// Watermill's own tests of what a Pub/Sub has to do: publisher, outbox, sender,
// and a channel of Watermill at the end. The features are the channel's.
func TestPubSub(t *testing.T) {
	tests.TestPubSub(t, tests.Features{
		ExactlyOnceDelivery:   true,
		RequireSingleInstance: true,
	}, throughOutbox, nil)
}

// held is a publisher that takes a topic's messages only once there is somebody
// for them: the channel that keeps the order keeps nothing else.
type held struct {
	*gochannel.GoChannel
	mu    sync.Mutex
	gates map[string]chan struct{}
}

func (h *held) gate(topic string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gates[topic] == nil {
		h.gates[topic] = make(chan struct{})
	}
	return h.gates[topic]
}

func (h *held) Publish(topic string, messages ...*message.Message) error {
	select {
	case <-h.gate(topic):
		return h.GoChannel.Publish(topic, messages...)
	case <-messages[0].Context().Done():
		return messages[0].Context().Err()
	}
}

func (h *held) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out, err := h.GoChannel.Subscribe(ctx, topic)
	close(h.gate(topic))
	return out, err
}

// ordered is a Pub/Sub whose channel keeps the order that it is given, which the
// persistent one of the tests above would lose.
func ordered(key func(topic string, m *message.Message) string) tests.PubSubConstructor {
	return func(t *testing.T) (message.Publisher, message.Subscriber) {
		channel := &held{
			GoChannel: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{}),
			gates:     make(map[string]chan struct{}),
		}
		store, err := sqlite.OpenFile(context.Background(), t.TempDir()+"/outbox.db", sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // after the bridge
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		route := running(t, store, sender(t, channel, mill.SenderOptions{}))
		return publisher(t, mill.Into(route), mill.PublisherOptions{OrderingKey: key}), channel
	}
}

func inOrder() tests.TestContext {
	return tests.TestContext{
		TestID:   tests.NewTestID(),
		Features: tests.Features{GuaranteedOrder: true, RequireSingleInstance: true, ExactlyOnceDelivery: true},
	}
}

func TestPublishSubscribeInOrder(t *testing.T) {
	tests.TestPublishSubscribeInOrder(t, inOrder(), ordered(func(_ string, m *message.Message) string { return string(m.Payload) }))
}

func TestNoAck(t *testing.T) {
	tests.TestNoAck(t, inOrder(), ordered(func(topic string, _ *message.Message) string { return topic }))
}
