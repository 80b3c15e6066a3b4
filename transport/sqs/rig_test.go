package sqs_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/internal/awsclient"
	"gobridge/internal/fakeaws"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/transport/sqs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait.
const patience = 30 * time.Second

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s has not happened", patience, what)
		}
	}
}

func text(s string) func() (string, error) { return func() (string, error) { return s, nil } }

// server starts a fake.
func server(t testing.TB) *fakeaws.Server {
	s := fakeaws.Start()
	t.Cleanup(s.Close)
	return s
}

// connect makes a connection to an endpoint.
func connect(t testing.TB, endpoint string) *sqs.Connection {
	t.Helper()
	config, closeIdle, err := awsclient.Load(awsclient.Options{
		Region: fakeaws.Region, Endpoint: endpoint, AccessKey: text("AKIA"), SecretKey: text("secret"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeIdle)
	log := io.Discard
	if testing.Verbose() {
		log = os.Stderr
	}
	conn, err := sqs.New(config, sqs.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// proxied is a connection that can be broken.
func proxied(t testing.TB, s *fakeaws.Server) (*sqs.Connection, *faultproxy.Proxy) {
	t.Helper()
	proxy, err := faultproxy.Start(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return connect(t, "http://"+proxy.Addr()), proxy
}

func sender(t testing.TB, c *sqs.Connection, o sqs.SenderOptions) *sqs.Sender {
	t.Helper()
	s, err := c.Sender(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func receiver(t testing.TB, c *sqs.Connection, o sqs.ReceiverOptions) *sqs.Receiver {
	t.Helper()
	r, err := c.Receiver(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// deliveries are first attempts of messages.
func deliveries(all ...messaging.Envelope) []gobridge.Delivery {
	out := make([]gobridge.Delivery, len(all))
	for i, e := range all {
		out[i] = gobridge.Delivery{
			Envelope: e, Route: "r", Binding: "b", Partition: "r/b/0", Attempt: 1,
			Token: gobridge.Token{Owner: "o", Version: 3}, Seq: int64(i + 1),
		}
	}
	return out
}

func send(t testing.TB, s gobridge.Sender, all ...gobridge.Delivery) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := s.Send(ctx, all)
	if len(errs) != len(all) {
		t.Fatalf("%d answers for %d deliveries", len(errs), len(all))
	}
	return errs
}

func outcome(err error) gobridge.Outcome {
	kind, _ := gobridge.Classify(err)
	return kind
}

// outbox is what a receiver hands over to.
type outbox struct {
	mu    sync.Mutex
	got   []gobridge.Incoming
	takes int
	// before, unless nil, is called by each take before it stores.
	before func(ctx context.Context, batch []gobridge.Incoming) error
}

func (o *outbox) take(ctx context.Context, batch []gobridge.Incoming) error {
	o.mu.Lock()
	o.takes++
	before := o.before
	o.mu.Unlock()
	if before != nil {
		if err := before(ctx, batch); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, batch...)
	return nil
}

func (o *outbox) all() []gobridge.Incoming {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got)
}

func (o *outbox) bodies() []string {
	var out []string
	for _, in := range o.all() {
		out = append(out, string(in.Envelope.Payload))
	}
	return out
}

// receive runs a receiver until the function returned is called.
func receive(t testing.TB, r *sqs.Receiver, take gobridge.Take) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Receive(ctx, take) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Receive ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
