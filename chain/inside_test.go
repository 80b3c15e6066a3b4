package chain

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/internal/faultproxy"
	"gobridge/internal/testbroker"
	"gobridge/store/sqlite"
	"gobridge/transport/amqp"
	"gobridge/transport/kafka"
	"gobridge/transport/mqtt"
	"gobridge/transport/nats"
)

// span is a bridge in this process that is stopped and started again on its file.
type span struct {
	t    *testing.T
	path string
	// open makes the ends, and what closes their connections.
	open func(t *testing.T) (gobridge.Receiver, gobridge.Sender, func())
	stop func()
}

func (s *span) start() {
	s.t.Helper()
	store, err := sqlite.OpenFile(context.Background(), s.path, sqlite.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	receiver, sender, closeEnds := s.open(s.t)
	b, err := bridge.New(store, bridge.Options{
		// Who stops gives its leases back. On a busy machine a short term would end in
		// the midst, again and again, and take with it what is under way.
		LeaseTerm: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Routes: []bridge.Route{{
			Name: "r",
			Bindings: []bridge.Binding{{
				Name: "b", Sender: sender,
				Retry: bridge.Retry{Attempts: 100_000, MinBackoff: 10 * time.Millisecond, MaxBackoff: 300 * time.Millisecond},
			}},
		}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	run := func(what string, f func() error) {
		running.Go(func() {
			if err := f(); err != nil {
				s.t.Errorf("%s: %v", what, err)
			}
		})
	}
	run("run", func() error { return b.Run(ctx) })
	run("receive", func() error { return b.Route("r").Receive(ctx, receiver) })
	s.stop = func() {
		cancel()
		running.Wait()
		closeEnds()
		if err := store.Close(); err != nil {
			s.t.Error(err)
		}
		s.stop = func() {}
	}
}

// newSpan starts a bridge that ends with the test.
func newSpan(t *testing.T, open func(*testing.T) (gobridge.Receiver, gobridge.Sender, func())) *span {
	t.Helper()
	s := &span{t: t, path: filepath.Join(t.TempDir(), "outbox.db"), open: open}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// must fails the test on an error: must(f())(t).
func must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestChainOfStoppedBridges sends messages through three bridges and four brokers in
// this process, while bridges are stopped and started and connections cut.
func TestChainOfStoppedBridges(t *testing.T) {
	const messages, keys, faults = 480, 40, 12
	rng := seeded(t)
	tally := newTally(messages, keys, 50)
	stream, topic, queue, end := testbroker.StartNATS(t), testbroker.StartKafka(t), testbroker.StartAMQP(t), testbroker.StartMQTT(t)
	stream.Make(t, "in")
	topic.Make(t, "hop")
	queue.Make(t, "hop")
	end.Watch(t, "out", tally.arrive)

	spans := []*span{
		newSpan(t, func(t *testing.T) (gobridge.Receiver, gobridge.Sender, func()) {
			in := must(nats.New(nats.Options{Servers: []string{"nats://" + stream.Address()}}))(t)
			out := must(kafka.New(kafka.Options{Brokers: []string{topic.Address()}}))(t)
			return must(in.Receiver(nats.ReceiverOptions{Stream: "in", Consumer: "c", Declare: true}))(t),
				must(out.Sender(kafka.SenderOptions{Topic: "hop"}))(t), closing(in, out)
		}),
		newSpan(t, func(t *testing.T) (gobridge.Receiver, gobridge.Sender, func()) {
			in := must(kafka.New(kafka.Options{Brokers: []string{topic.Address()}}))(t)
			out := must(amqp.New(guest(queue.Address())))(t)
			return must(in.Receiver(kafka.ReceiverOptions{Topics: []string{"hop"}, Group: "g"}))(t),
				must(out.Sender(amqp.SenderOptions{RoutingKey: "hop"}))(t), closing(in, out)
		}),
		newSpan(t, func(t *testing.T) (gobridge.Receiver, gobridge.Sender, func()) {
			in := must(amqp.New(guest(queue.Address())))(t)
			out := must(mqtt.New(mqtt.Options{URLs: []string{"mqtt://" + end.Address()}, ClientID: "gw"}))(t)
			return must(in.Receiver(amqp.ReceiverOptions{Queue: "hop"}))(t),
				must(out.Sender(mqtt.SenderOptions{ClientID: "gw-out", Topic: "out", QoS: 1}))(t), closing(in, out)
		}),
	}
	links := []*faultproxy.Proxy{stream.Proxy(), topic.Proxy(), queue.Proxy(), end.Proxy()}
	for i := range faults {
		stream.Put(t, "in", tally.slice(messages*i/faults, messages*(i+1)/faults)...)
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond) // so that the fault comes in the midst of it
		if i%2 == 0 {
			l := links[rng.IntN(len(links))]
			l.CutAfter(faultproxy.FromServer, 200+rng.Int64N(3000)) // answers are lost
			l.Cut()
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			l.CutAfter(faultproxy.FromServer, -1)
			l.Cut() // so that none is left with a limit
			continue
		}
		s := spans[i/2%len(spans)]
		s.stop()
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		s.start()
	}
	tally.await(t, func() string { return "" })
	_, repeats, _ := tally.count()
	t.Logf("%d messages, %d repeats", messages, repeats)
}

func guest(address string) amqp.Options {
	return amqp.Options{
		Addresses: []string{address},
		Username:  func() (string, error) { return "guest", nil },
		Password:  func() (string, error) { return "guest", nil },
	}
}

func closing(ends ...interface{ Close() error }) func() {
	return func() {
		for _, e := range ends {
			_ = e.Close()
		}
	}
}
