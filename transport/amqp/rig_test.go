package amqp_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"gobridge/internal/fakeamqp"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/transport/amqp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for something that is sure to happen.
const patience = 30 * time.Second

// rig is a broker, a proxy before it, and a client of the test's own past the proxy.
type rig struct {
	fake   *fakeamqp.Broker // nil for a real server
	proxy  *faultproxy.Proxy
	direct string // address past the proxy
	admin  *amqp091.Connection
	user   string
	pass   string
}

// newRig starts a fake broker.
func newRig(t testing.TB, o fakeamqp.Options) *rig {
	t.Helper()
	broker, err := fakeamqp.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	r := &rig{fake: broker, direct: broker.Addr(), user: "guest", pass: "guest"}
	r.start(t)
	return r
}

// liveRig uses the server that the environment names.
func liveRig(t testing.TB) *rig {
	t.Helper()
	target, err := url.Parse(os.Getenv("GOBRIDGE_AMQP_URL"))
	if err != nil || target.Host == "" {
		t.Fatalf("GOBRIDGE_AMQP_URL: %v", err)
	}
	pass, _ := target.User.Password()
	r := &rig{direct: target.Host, user: target.User.Username(), pass: pass}
	r.start(t)
	return r
}

func (r *rig) start(t testing.TB) {
	t.Helper()
	r.proxied(t)
	r.dial(t)
	t.Cleanup(func() { _ = r.admin.Close() })
}

func (r *rig) proxied(t testing.TB) {
	t.Helper()
	proxy, err := faultproxy.Start(r.direct)
	if err != nil {
		t.Fatal(err)
	}
	r.proxy = proxy
	t.Cleanup(proxy.Close)
}

func (r *rig) dial(t testing.TB) {
	t.Helper()
	conn, err := amqp091.Dial(fmt.Sprintf("amqp://%s:%s@%s/", r.user, r.pass, r.direct))
	if err != nil {
		t.Fatal(err)
	}
	r.admin = conn
}

func fixed(text string) func() (string, error) { return func() (string, error) { return text, nil } }

// connect makes a connection through the proxy.
func (r *rig) connect(t testing.TB, change ...func(*amqp.Options)) *amqp.Connection {
	t.Helper()
	o := amqp.Options{
		Addresses: []string{r.proxy.Addr()}, Username: fixed(r.user), Password: fixed(r.pass),
		Heartbeat: 2 * time.Second, Logger: logger(t),
	}
	for _, f := range change {
		f(&o)
	}
	c, err := amqp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// logger writes to the test's log while the test runs.
func logger(t testing.TB) *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	w := &testWriter{t: t}
	t.Cleanup(func() { w.over.Store(true) })
	return slog.New(slog.NewTextHandler(w, nil))
}

type testWriter struct {
	t    testing.TB
	over atomic.Bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	if !w.over.Load() {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

var names atomic.Int64

// name is one that no other test has.
func name(what string) string {
	return fmt.Sprintf("%s-%d-%d", what, os.Getpid(), names.Add(1))
}

// channel is one of the test's own client.
func (r *rig) channel(t testing.TB) *amqp091.Channel {
	t.Helper()
	ch, err := r.admin.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// queue makes a queue of its own, a quorum queue unless arguments say otherwise.
func (r *rig) queue(t testing.TB, arguments ...amqp091.Table) string {
	t.Helper()
	q := name("queue")
	table := amqp091.Table{"x-queue-type": "quorum"}
	if len(arguments) > 0 {
		table = arguments[0]
	}
	ch := r.channel(t)
	defer func() { _ = ch.Close() }()
	if _, err := ch.QueueDeclare(q, true, false, false, false, table); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if ch, err := r.admin.Channel(); err == nil {
			_, _ = ch.QueueDelete(q, false, false, false)
			_ = ch.Close()
		}
	})
	return q
}

// exchange makes an exchange of its own.
func (r *rig) exchange(t testing.TB, kind string) string {
	t.Helper()
	x := name("exchange")
	ch := r.channel(t)
	defer func() { _ = ch.Close() }()
	if err := ch.ExchangeDeclare(x, kind, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if ch, err := r.admin.Channel(); err == nil {
			_ = ch.ExchangeDelete(x, false, false)
			_ = ch.Close()
		}
	})
	return x
}

func (r *rig) bind(t testing.TB, q, x, key string) {
	t.Helper()
	ch := r.channel(t)
	defer func() { _ = ch.Close() }()
	if err := ch.QueueBind(q, key, x, false, nil); err != nil {
		t.Fatal(err)
	}
}

// put publishes to a queue and waits for the confirms.
func (r *rig) put(t testing.TB, q string, messages ...amqp091.Publishing) {
	t.Helper()
	ch := r.channel(t)
	defer func() { _ = ch.Close() }()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	var all []*amqp091.DeferredConfirmation
	for _, m := range messages {
		m.DeliveryMode = amqp091.Persistent
		c, err := ch.PublishWithDeferredConfirm("", q, true, false, m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, c := range all {
		if ok, err := c.WaitContext(ctx); !ok || err != nil {
			t.Fatalf("a message of the test's own was not confirmed: %v", err)
		}
	}
}

// reader consumes a queue and keeps what came.
type reader struct {
	mu  sync.Mutex
	got []amqp091.Delivery
}

func (r *rig) read(t testing.TB, q string) *reader {
	t.Helper()
	ch := r.channel(t)
	deliveries, err := ch.Consume(q, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := &reader{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := range deliveries {
			out.mu.Lock()
			out.got = append(out.got, d)
			out.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = ch.Close()
		<-done
	})
	return out
}

func (r *reader) all() []amqp091.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]amqp091.Delivery(nil), r.got...)
}

func (r *reader) await(t testing.TB, n int) []amqp091.Delivery {
	t.Helper()
	eventually(t, fmt.Sprintf("the arrival of %d messages", n), func() bool { return len(r.all()) >= n })
	return r.all()
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s has not happened", patience, what)
		}
	}
}

// publishings are messages as another producer sends them.
func publishings(all ...messaging.Envelope) []amqp091.Publishing {
	out := make([]amqp091.Publishing, len(all))
	for i, e := range all {
		table := amqp091.Table{}
		for name, value := range e.Headers {
			table[name] = value
		}
		if e.OrderingKey != "" {
			table[messaging.HeaderOrderingKey] = e.OrderingKey
		}
		out[i] = amqp091.Publishing{MessageId: e.ID, ContentType: e.ContentType, Headers: table, Body: e.Payload}
	}
	return out
}
