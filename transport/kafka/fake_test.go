package kafka

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"gobridge"
	"gobridge/internal/faultproxy"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for what must happen.
const patience = 60 * time.Second

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s has not happened", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fake is a cluster in this process, of one broker, behind a proxy.
type fake struct {
	*kfake.Cluster
	proxy    *faultproxy.Proxy
	upstream string
	direct   *kgo.Client // past the proxy
}

// front is a listener that is reached through a proxy, and says so.
type front struct {
	net.Listener
	addr net.Addr
}

func (f front) Addr() net.Addr { return f.addr }

func startFake(t testing.TB, options ...kfake.Opt) *fake {
	t.Helper()
	f := &fake{}
	listen := func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		f.upstream = l.Addr().String()
		if f.proxy, err = faultproxy.Start(f.upstream); err != nil {
			return nil, err
		}
		addr, err := net.ResolveTCPAddr("tcp", f.proxy.Addr())
		return front{l, addr}, err
	}
	all := append([]kfake.Opt{kfake.NumBrokers(1), kfake.ListenFn(listen)}, options...)
	var err error
	if f.Cluster, err = kfake.NewCluster(all...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.proxy.Close()
		f.Close()
	})
	f.direct = f.past(t)
	return f
}

// past returns a client that the proxy does not touch: it dials the broker itself.
func (f *fake) past(t testing.TB, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(f.ListenAddrs()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, f.upstream)
		}),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

var topics atomic.Int64

// topic makes a topic of its own.
func (f *fake) topic(t testing.TB, partitions int32, configs map[string]string) string {
	t.Helper()
	name := fmt.Sprintf("topic-%d", topics.Add(1))
	if err := f.CreateTopic(name, partitions, configs); err != nil {
		t.Fatal(err)
	}
	return name
}

// connect makes a connection that gives up early, so that tests need not wait.
func (f *fake) connect(t testing.TB, change ...func(*Options)) *Connection {
	t.Helper()
	options := Options{Brokers: f.ListenAddrs()}
	for _, c := range change {
		c(&options)
	}
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	c.extra = []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond), kgo.RecordRetries(1)}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (f *fake) produce(t testing.TB, records ...*kgo.Record) {
	t.Helper()
	if err := f.direct.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// all returns what a topic has, by partition and offset.
func (f *fake) all(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	info := f.TopicInfo(topic)
	if info == nil {
		t.Fatalf("there is no topic %s", topic)
	}
	ends := map[int32]int64{}
	starts := map[int32]kgo.Offset{}
	for _, p := range f.PartitionInfos(topic) {
		if p.LastStableOffset > p.LogStartOffset {
			ends[p.Partition] = p.LastStableOffset
			starts[p.Partition] = kgo.NewOffset().AtStart()
		}
	}
	if len(ends) == 0 {
		return nil
	}
	client := f.past(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}))
	defer client.Close()
	var out []*kgo.Record
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(ends) > 0 {
		fetches := client.PollFetches(deadline)
		if err := deadline.Err(); err != nil {
			t.Fatalf("reading %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			out = append(out, r)
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
	return out
}

// left is how many records of a topic a group has not committed.
func (f *fake) left(topic, group string) int {
	info := f.GroupInfo(group)
	n := 0
	for _, p := range f.PartitionInfos(topic) {
		from := p.LogStartOffset
		if info != nil {
			if c, ok := info.Commits[topic][p.Partition]; ok {
				from = c.Offset
			}
		}
		n += int(p.HighWatermark - from)
	}
	return n
}

// record is an envelope as another bridge would produce it.
func record(t testing.TB, topic string, e messaging.Envelope) *kgo.Record {
	t.Helper()
	s := &Sender{options: SenderOptions{Topic: topic, Format: mapping.Plain}}
	r, err := s.record(&gobridge.Delivery{Envelope: e})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// idOf is the message's ID, as it stands beside it.
func idOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "gobridge-id" {
			return string(h.Value)
		}
	}
	return ""
}
