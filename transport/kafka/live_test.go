package kafka

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/transporttest"
)

// live is a real broker, which scripts/kafka-live.sh starts, behind a proxy.
type live struct {
	broker string
	proxy  *faultproxy.Proxy
	direct *kgo.Client
	admin  *kadm.Client
}

func openLive(t *testing.T) *live {
	t.Helper()
	l := &live{broker: os.Getenv("GOBRIDGE_KAFKA_BROKER")}
	if l.broker == "" {
		t.Skip("run by scripts/kafka-live.sh")
	}
	var err error
	if l.proxy, err = faultproxy.Start(l.broker); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Close)
	l.direct = l.client(t)
	l.admin = kadm.NewClient(l.direct)
	return l
}

// client is one that the proxy does not touch.
func (l *live) client(t testing.TB, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(l.broker), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// connect makes a connection through the proxy.
func (l *live) connect(t testing.TB) *Connection {
	t.Helper()
	c, err := New(Options{Brokers: []string{l.broker}})
	if err != nil {
		t.Fatal(err)
	}
	through := &dialer{reset: true}
	c.extra = []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return through.dial(ctx, network, l.proxy.Addr())
	})}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// topic makes a topic of its own.
func (l *live) topic(t testing.TB, partitions int32, configs map[string]*string) string {
	t.Helper()
	name := fmt.Sprintf("live-%d-%d", time.Now().UnixNano(), topics.Add(1))
	l.make(t, name, partitions, configs)
	return name
}

func (l *live) make(t testing.TB, name string, partitions int32, configs map[string]*string) {
	t.Helper()
	if _, err := l.admin.CreateTopic(t.Context(), partitions, 1, configs, name); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a topic", func() bool {
		ends, err := l.admin.ListEndOffsets(t.Context(), name)
		return err == nil && ends.Error() == nil && len(ends[name]) == int(partitions)
	})
}

// all returns what a topic has.
func (l *live) all(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	ends, err := l.admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	client := l.client(t, kgo.ConsumeTopics(topic))
	defer client.Close()
	var out []*kgo.Record
	open := map[int32]bool{}
	for _, o := range ends[topic] {
		if o.Offset > 0 {
			open[o.Partition] = true
		}
	}
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(open) > 0 {
		fetches := client.PollFetches(deadline)
		if err := deadline.Err(); err != nil {
			t.Fatalf("reading %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			out = append(out, r)
			if r.Offset+1 >= ends[topic][r.Partition].Offset {
				delete(open, r.Partition)
			}
		})
	}
	return out
}

func (l *live) left(t testing.TB, topic, group string) int {
	t.Helper()
	ends, err := l.admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	commits, err := l.admin.FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, o := range ends[topic] {
		at, _ := commits.Lookup(topic, o.Partition)
		n += int(o.Offset - max(at.At, 0))
	}
	return n
}

// process returns the broker's.
func (l *live) process(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(os.Getenv("GOBRIDGE_KAFKA_PID"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func (l *live) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(l.process(t), s); err != nil {
		t.Fatal(err)
	}
}

// restart kills the broker, and waits until there is another that has the topic.
func (l *live) restart(t testing.TB, topic string) {
	t.Helper()
	before := l.process(t)
	l.signal(t, syscall.SIGKILL)
	eventually(t, "another broker", func() bool {
		if text, err := os.ReadFile(os.Getenv("GOBRIDGE_KAFKA_PID")); err != nil || strings.TrimSpace(string(text)) == strconv.Itoa(before) {
			return false
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ends, err := l.admin.ListEndOffsets(ctx, topic)
		return err == nil && ends.Error() == nil
	})
}

func TestLiveReceiverConforms(t *testing.T) {
	l := openLive(t)
	transporttest.RunSource(t, func(t testing.TB) transporttest.Source {
		topic := l.topic(t, 4, nil)
		conn := l.connect(t)
		conn.extra = append(conn.extra, kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(200*time.Millisecond), kgo.RebalanceTimeout(time.Second))
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
				if err := l.direct.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
					t.Fatal(err)
				}
			},
			Left:       func(t testing.TB) int { return l.left(t, topic, topic) },
			Cut:        func(testing.TB) { l.proxy.Cut() },
			Hold:       3 * time.Second,
			MaxPayload: 900_000,
		}
	})
}

func TestLiveSenderConforms(t *testing.T) {
	l := openLive(t)
	transporttest.RunSender(t, func(t testing.TB) transporttest.Destination {
		topic := l.topic(t, 4, nil)
		sender, err := l.connect(t).Sender(SenderOptions{Topic: topic})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.Destination{
			Sender: sender,
			Received: func(t testing.TB) []messaging.Envelope {
				var out []messaging.Envelope
				for _, r := range l.all(t, topic) {
					e := incoming(r, [16]byte{1}, ByKey).Envelope
					e.ID = idOf(r)
					out = append(out, e)
				}
				return out
			},
			Cut:        func(testing.TB) { l.proxy.Cut() },
			Down:       func(_ testing.TB, down bool) { l.proxy.Refuse(down); l.proxy.Cut() },
			Stall:      func(_ testing.TB, stall bool) { l.proxy.Stall(stall) },
			TooLarge:   2 << 20,
			MaxPayload: 900_000,
			Timeout:    5 * time.Second,
		}
	})
}

// load sends numbered messages of several keys as the engine does: one of a key at
// a time, and again until it is delivered. It returns when all are.
func load(t *testing.T, s *Sender, keys, each int, timeout time.Duration) {
	t.Helper()
	var running sync.WaitGroup
	for key := range keys {
		running.Go(func() {
			for n := range each {
				for attempt := 1; ; attempt++ {
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					err := s.Send(ctx, []gobridge.Delivery{{Envelope: messaging.Envelope{
						ID: fmt.Sprintf("%d-%d", key, n), OrderingKey: fmt.Sprint(key), Payload: fmt.Appendf(nil, "%d %d", key, n),
					}, Attempt: attempt}})[0]
					cancel()
					if err == nil {
						break
					}
					if outcome, _ := gobridge.Classify(err); outcome == gobridge.OutcomePermanent || t.Context().Err() != nil {
						t.Errorf("%d-%d: %v", key, n, err)
						return
					}
				}
			}
		})
	}
	running.Wait()
}

// wantInOrder checks that the first deliveries of each key are complete and in
// order, and returns how many were repeats.
func wantInOrder(t *testing.T, what string, payloads []string, keys, each int) (repeats int) {
	t.Helper()
	next := map[int]int{}
	for _, p := range payloads {
		var key, n int
		if _, err := fmt.Sscanf(p, "%d %d", &key, &n); err != nil {
			t.Fatalf("%s: %q came", what, p)
		}
		switch {
		case n == next[key]:
			next[key]++
		case n < next[key]:
			repeats++
		default:
			t.Fatalf("%s: %d of key %d came, want %d", what, n, key, next[key])
		}
	}
	for key := range keys {
		if next[key] != each {
			t.Errorf("%s: %d messages of key %d, want %d", what, next[key], key, each)
		}
	}
	return repeats
}

// The broker is killed and frozen, and connections are cut, while messages go through
// a topic and back.
func TestLiveBrokerComesAndGoes(t *testing.T) {
	l := openLive(t)
	topic := l.topic(t, 4, nil)
	conn := l.connect(t)
	o := &outbox{}
	receive(t, conn, o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	s := newSender(t, conn, SenderOptions{Topic: topic})
	s.settle = 500 * time.Millisecond
	const keys, each = 40, 150
	done := make(chan struct{})
	go func() {
		defer close(done)
		load(t, s, keys, each, 2*time.Second)
	}()
	progress := func(n int) {
		eventually(t, fmt.Sprintf("the arrival of %d", n), func() bool {
			seen := map[string]bool{}
			for _, p := range o.payloads() {
				seen[p] = true
			}
			return len(seen) >= n
		})
	}
	progress(500)
	l.restart(t, topic)
	progress(1000)
	l.proxy.Cut()
	l.signal(t, syscall.SIGSTOP)
	stalled := time.AfterFunc(4*time.Second, func() { l.signal(t, syscall.SIGCONT) })
	defer stalled.Stop()
	progress(2000)
	l.proxy.CutAfter(faultproxy.FromClient, 20_000)
	l.proxy.Cut()
	progress(3000)
	l.proxy.CutAfter(faultproxy.FromClient, -1)
	l.proxy.CutAfter(faultproxy.FromServer, 5_000) // answers are lost
	l.proxy.Cut()
	time.AfterFunc(2*time.Second, func() { l.proxy.CutAfter(faultproxy.FromServer, -1) })
	progress(4000)
	l.proxy.Cut()
	<-done
	progress(keys * each)
	var there []string
	for _, r := range l.all(t, topic) {
		there = append(there, string(r.Value))
	}
	t.Logf("%d repeats in the topic", wantInOrder(t, "in the topic", there, keys, each))
	t.Logf("%d repeats came", wantInOrder(t, "what came", o.payloads(), keys, each)-(len(there)-keys*each))
	eventually(t, "the commit of all", func() bool { return l.left(t, topic, topic) == 0 })
}

// One that is too large for the topic is refused alone, in the middle of its key and
// of a batch.
func TestLiveMessageThatIsTooLarge(t *testing.T) {
	l := openLive(t)
	topic := l.topic(t, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("3000")})
	s := newSender(t, l.connect(t), SenderOptions{Topic: topic, Compression: "none"})
	size := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	for round, want := range []gobridge.Outcome{gobridge.OutcomeDelivered, gobridge.OutcomePermanent, gobridge.OutcomeDelivered} {
		batch := []messaging.Envelope{{ID: fmt.Sprint("middle-", round), OrderingKey: "middle", Payload: size(1000)}}
		if want == gobridge.OutcomePermanent {
			batch[0].Payload = size(5000)
		}
		for i := range 20 {
			batch = append(batch, messaging.Envelope{ID: fmt.Sprintf("%d-%d", round, i), OrderingKey: fmt.Sprint(i), Payload: size(1000)})
		}
		got := outcomes(send(t, s, batch...))
		if got[0] != want {
			t.Errorf("round %d: outcome %d, want %d", round, got[0], want)
		}
		if i := slices.IndexFunc(got[1:], func(o gobridge.Outcome) bool { return o != gobridge.OutcomeDelivered }); i >= 0 {
			t.Errorf("round %d: its neighbour %d has the outcome %d", round, i, got[1+i])
		}
	}
	seen := map[string]bool{}
	for _, r := range l.all(t, topic) {
		seen[idOf(r)] = true
	}
	if len(seen) != 62 || seen["middle-1"] {
		t.Errorf("%d messages are there, want 62, without the one that is too large", len(seen))
	}
	if _, err := s.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "3000") {
		t.Errorf("looking at the topic finds %v, want its limit", err)
	}
}

// A record without a key, where the topic is compacted, is its own fault only.
func TestLiveRecordWithoutAKeyInACompactedTopic(t *testing.T) {
	l := openLive(t)
	topic := l.topic(t, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")})
	s := newSender(t, l.connect(t), SenderOptions{Topic: topic})
	errs := send(t, s, messaging.Envelope{ID: "a", OrderingKey: "a"}, messaging.Envelope{ID: "b"}, messaging.Envelope{ID: "c", OrderingKey: "c"})
	if got := outcomes(errs); !slices.Equal(got, []gobridge.Outcome{gobridge.OutcomeDelivered, gobridge.OutcomePermanent, gobridge.OutcomeDelivered}) {
		t.Errorf("got %v", errs)
	}
}

func TestLiveTopicThatIsMadeAgain(t *testing.T) {
	l := openLive(t)
	topic := l.topic(t, 2, nil)
	conn := l.connect(t)
	o := &outbox{}
	receive(t, conn, o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	s := newSender(t, conn, SenderOptions{Topic: topic})
	for round := range 2 {
		if round > 0 {
			if _, err := l.admin.DeleteTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			l.make(t, topic, 2, nil)
		}
		for i := range 10 {
			id := fmt.Sprintf("%d-%d", round, i)
			eventually(t, "a delivery", func() bool {
				return send(t, s, messaging.Envelope{ID: id, OrderingKey: fmt.Sprint(i), Payload: []byte(id)})[0] == nil
			})
		}
		eventually(t, "the arrival of all", func() bool {
			seen := map[string]bool{}
			for _, p := range o.payloads() {
				seen[p] = true
			}
			return len(seen) == 10*(round+1)
		})
	}
}

func TestLiveSASL(t *testing.T) {
	l := openLive(t)
	topic := l.topic(t, 1, nil)
	part := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	token := part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":"gw","iat":%d,"exp":%d}`, time.Now().Unix()-60, time.Now().Unix()+3600)) + "."
	for _, c := range []struct {
		mechanism    Mechanism
		user, secret string
		ok           bool
	}{
		{Plain, "gw", "secret-horse", true},
		{Plain, "gw", "another-horse", false},
		{ScramSHA256, "gw", "secret-horse", true},
		{ScramSHA256, "gw", "another-horse", false},
		{ScramSHA512, "gw", "secret-horse", true},
		{OAuthBearer, "", token, true},
		{OAuthBearer, "", "x" + token, false},
	} {
		conn, err := New(Options{Brokers: []string{os.Getenv("GOBRIDGE_KAFKA_SASL")}, SASL: &SASL{
			Mechanism: c.mechanism, Username: c.user, Secret: func() (string, error) { return c.secret, nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		conn.extra = []kgo.Opt{kgo.RecordRetries(1), kgo.MetadataMinAge(100 * time.Millisecond)}
		err = sendOne(t, conn, topic)
		if c.ok && err != nil {
			t.Errorf("%s: %v", c.mechanism, err)
		}
		if !c.ok {
			wantUnavailable(t, err)
			t.Logf("%s with a wrong secret: %v", c.mechanism, err)
			if err != nil && strings.Contains(err.Error(), c.secret) {
				t.Errorf("%s: %v shows the secret", c.mechanism, err)
			}
		}
		_ = conn.Close()
	}
}
