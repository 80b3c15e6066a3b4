package testbroker

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka is a cluster of one broker. Its places are topics, of three partitions.
type Kafka struct {
	proxied
	cluster *kfake.Cluster
	direct  string
	client  *kgo.Client
}

// StartKafka runs a broker that says that it is where the proxy is.
func StartKafka(t testing.TB) *Kafka {
	t.Helper()
	k := &Kafka{}
	listen := func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address) //nolint:noctx // a test's
		if err != nil {
			return nil, err
		}
		k.direct = l.Addr().String()
		k.proxied = before(t, k.direct)
		shown, err := net.ResolveTCPAddr("tcp", k.Address())
		return front{l, shown}, err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(listen))
	must(t, err)
	t.Cleanup(cluster.Close)
	k.cluster = cluster
	k.client = k.connect(t, kgo.ProducerLinger(0))
	return k
}

// front is a listener that is reached through a proxy, and says so.
type front struct {
	net.Listener
	addr net.Addr
}

func (f front) Addr() net.Addr { return f.addr }

// connect returns a client that dials the broker and not the proxy.
func (k *Kafka) connect(t testing.TB, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(k.Address()), kgo.DisableClientMetrics(),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, k.direct)
		}),
	}, options...)...)
	must(t, err)
	t.Cleanup(client.Close)
	return client
}

// Make makes a topic.
func (k *Kafka) Make(t testing.TB, name string) {
	t.Helper()
	must(t, k.cluster.CreateTopic(name, 3, nil))
}

// Put produces to a topic; the record's key is the message's.
func (k *Kafka) Put(t testing.TB, topic string, messages ...Message) {
	t.Helper()
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = &kgo.Record{Topic: topic, Value: m.Body}
		if m.Key != "" {
			records[i].Key = []byte(m.Key)
		}
	}
	must(t, k.client.ProduceSync(t.Context(), records...).FirstErr())
}

// Watch reads a topic; of one partition the messages are in order.
func (k *Kafka) Watch(t testing.TB, topic string, f func(Message)) {
	t.Helper()
	client := k.connect(t, kgo.ConsumeTopics(topic))
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { f(Message{string(r.Key), r.Value}) })
		}
	})
	t.Cleanup(func() {
		cancel()
		loop.Wait()
	})
}
