package testbroker

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATS is a server with JetStream. Its places are streams to watch, and subjects to
// put to.
type NATS struct {
	proxied
	js jetstream.JetStream
}

// StartNATS runs a server.
func StartNATS(t testing.TB) *NATS {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	must(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server does not become ready")
	}
	return UseNATS(t, s.ClientURL())
}

// UseNATS uses the server at a URL.
func UseNATS(t testing.TB, address string) *NATS {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	conn, err := nats.Connect(address)
	must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4000))
	must(t, err)
	return &NATS{before(t, u.Host), js}
}

// Make makes a stream with the subject of its name. It drops no repeats but within
// 100 ms, the least there is, so that a test sees them.
func (n *NATS) Make(t testing.TB, name string) {
	t.Helper()
	n.Stream(t, name, name)
}

// Stream makes a stream with subjects.
func (n *NATS) Stream(t testing.TB, name string, subjects ...string) {
	t.Helper()
	if err := n.js.DeleteStream(t.Context(), name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Fatal(err)
	}
	_, err := n.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: subjects, Duplicates: 100 * time.Millisecond})
	must(t, err)
}

// Put publishes to a subject.
func (n *NATS) Put(t testing.TB, subject string, messages ...Message) {
	t.Helper()
	futures := make([]jetstream.PubAckFuture, 0, len(messages))
	for _, m := range messages {
		out := &nats.Msg{Subject: subject, Data: m.Body}
		if m.Key != "" {
			out.Header = nats.Header{headerKey: {m.Key}}
		}
		f, err := n.js.PublishMsgAsync(out, jetstream.WithStallWait(patience))
		must(t, err)
		futures = append(futures, f)
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			t.Fatal(err)
		}
	}
}

// Watch reads a stream.
func (n *NATS) Watch(t testing.TB, stream string, f func(Message)) {
	t.Helper()
	consumer, err := n.js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{})
	must(t, err)
	running, err := consumer.Consume(func(m jetstream.Msg) { f(Message{m.Headers().Get(headerKey), m.Data()}) })
	must(t, err)
	t.Cleanup(func() {
		running.Stop()
		<-running.Closed()
	})
}

// Unread is how many messages of a stream its consumer has not been given yet, and
// Unacknowledged how many it was given and has not acknowledged.
func (n *NATS) Unread(t testing.TB, stream, consumer string) (unread, unacknowledged int) {
	t.Helper()
	c, err := n.js.Consumer(t.Context(), stream, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return -1, 0
	}
	must(t, err)
	info := c.CachedInfo()
	return int(info.NumPending), info.NumAckPending //nolint:gosec // counts of a test
}
