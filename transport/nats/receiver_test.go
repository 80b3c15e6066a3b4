package nats_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	server "github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
	"gobridge/transport/nats"
)

// outbox is a take that keeps what it gets.
type outbox struct {
	mu   sync.Mutex
	got  []gobridge.Incoming
	gate chan struct{} // takes wait until it is closed
	held int           // with a take that waits
}

func (o *outbox) take(ctx context.Context, batch []gobridge.Incoming) error {
	o.mu.Lock()
	gate := o.gate
	o.held += len(batch)
	o.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held -= len(batch)
	o.got = append(o.got, batch...)
	return nil
}

func (o *outbox) payloads() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]string, len(o.got))
	for i := range o.got {
		out[i] = string(o.got[i].Envelope.Payload)
	}
	return out
}

func (o *outbox) ids() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string]bool{}
	for i := range o.got {
		out[o.got[i].Envelope.ID] = true
	}
	return out
}

func (o *outbox) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

// receive runs a receiver, again when it gives up, as the engine does, until stop is
// called, which returns what it ended with.
func receive(t testing.TB, conn *nats.Connection, o *outbox, options nats.ReceiverOptions) (stop func() error) {
	t.Helper()
	r, err := conn.Receiver(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			err := r.Receive(ctx, o.take)
			if ctx.Err() != nil {
				done <- err
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("it does not end")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// publish publishes the numbers from..to-1.
func publish(t testing.TB, js jetstream.JetStream, subject string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := js.PublishAsync(subject, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("the stream does not confirm")
	}
}

func numbers(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// await waits for the numbers, which come in this order and no others.
func (o *outbox) await(t testing.TB, want []string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the arrival of %d messages", len(want)), func() bool { return len(o.payloads()) >= len(want) })
	if got := o.payloads(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func options() nats.ReceiverOptions {
	return nats.ReceiverOptions{Stream: "S", Consumer: "c", Declare: true, AckWait: time.Second}
}

// lose pulls n messages of a consumer, with every second one acknowledged if told
// so, and is gone, as a process that was killed.
func lose(t testing.TB, url string, n int, acknowledge bool) {
	t.Helper()
	nc, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	request := fmt.Appendf(nil, `{"batch":%d}`, n)
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.c", sub.Subject, request); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if acknowledge && i%2 == 1 {
			if err := m.AckSync(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func declared(t testing.TB, js jetstream.JetStream, set func(*jetstream.ConsumerConfig)) jetstream.Consumer {
	t.Helper()
	config := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: -1}
	if set != nil {
		set(&config)
	}
	c, err := js.CreateConsumer(t.Context(), "S", config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// noReset lets nobody reset a consumer, as with a server that can't.
func noReset(o *server.Options) {
	o.Users = []*server.User{
		{Username: "test", Password: "x"},
		{Username: "gw", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.RESET.>"}}}},
	}
	o.NoAuthUser = "test"
}

func asGateway(o *nats.Options) {
	o.User, o.Password = "gw", func() (string, error) { return "x", nil }
}

func TestWhatWasDeliveredToADeadProcessComesFirst(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*server.Options)
		as   func(*nats.Options)
		wait time.Duration
	}{
		{"by a reset", nil, nil, time.Hour},
		{"by waiting, where a reset is not possible", noReset, asGateway, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBroker(t, c.set)
			_, js := dial(t, b.url())
			makeStream(t, js, "S", nil)
			declared(t, js, func(cc *jetstream.ConsumerConfig) { cc.AckWait = c.wait })
			publish(t, js, "S.x", 0, 100)
			lose(t, b.url(), 10, false)
			o := &outbox{}
			receive(t, connect(t, b.url(), c.as), o, options())
			o.await(t, numbers(0, 100))
		})
	}
}

func TestHolesInWhatIsAcknowledged(t *testing.T) {
	b := startBroker(t, noReset)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	declared(t, js, nil)
	publish(t, js, "S.x", 0, 30)
	lose(t, b.url(), 10, true)
	o := &outbox{}
	receive(t, connect(t, b.url(), asGateway), o, options())
	o.await(t, append([]string{"0", "2", "4", "6", "8"}, numbers(10, 30)...))
}

func TestAStoppedReceiverGivesBackAtOnce(t *testing.T) {
	b := startBroker(t, noReset) // so that it depends on what is given back alone
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	declared(t, js, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour })
	publish(t, js, "S.x", 0, 1000)
	first := &outbox{gate: make(chan struct{})}
	stop := receive(t, connect(t, b.url(), asGateway), first, options())
	eventually(t, "a first take", func() bool { return first.waiting() > 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	o := &outbox{}
	receive(t, connect(t, b.url(), asGateway), o, options())
	o.await(t, numbers(0, 1000))
}

func TestAConsumerThatIsDeletedGoesOnWhereItWas(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	o := &outbox{}
	receive(t, connect(t, b.url(), nil), o, options())
	publish(t, js, "S.x", 0, 20)
	o.await(t, numbers(0, 20))
	if err := js.DeleteConsumer(t.Context(), "S", "c"); err != nil {
		t.Fatal(err)
	}
	publish(t, js, "S.x", 20, 40)
	o.await(t, numbers(0, 40))
}

func TestAConsumerThatIsDeletedBeforeItsFirstMessage(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	publish(t, js, "S.x", 0, 5)
	r := options()
	r.Start = "new"
	o := &outbox{}
	receive(t, connect(t, b.url(), nil), o, r)
	made := func() bool { // with a request that stands
		c, err := js.Consumer(t.Context(), "S", "c")
		return err == nil && c.CachedInfo().NumWaiting > 0
	}
	eventually(t, "the consumer", made)
	if err := js.DeleteConsumer(t.Context(), "S", "c"); err != nil {
		t.Fatal(err)
	}
	publish(t, js, "S.x", 5, 10)
	o.await(t, numbers(5, 10))
}

func TestAStreamThatIsMadeAnewIsConsumedFromItsBeginning(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	r := options()
	r.Start = "new"
	o := &outbox{}
	receive(t, connect(t, b.url(), nil), o, r)
	eventually(t, "the consumer", func() bool { _, err := js.Consumer(t.Context(), "S", "c"); return err == nil })
	publish(t, js, "S.x", 0, 5)
	o.await(t, numbers(0, 5))
	if err := js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	makeStream(t, js, "S", nil)
	publish(t, js, "S.x", 0, 5) // the same numbers and payloads again
	eventually(t, "the arrival of the new ones", func() bool { return len(o.payloads()) >= 10 })
	if n := len(o.ids()); n != 10 {
		t.Errorf("%d IDs for 10 messages: some would be taken for duplicates", n)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	conn := connect(t, b.url(), nil)
	for want, r := range map[string]nats.ReceiverOptions{
		"there is no stream NONE":                                   {Stream: "NONE", Consumer: "c", Declare: true},
		"stream S has no consumer c; make it, or set declare: true": {Stream: "S", Consumer: "c"},
		"there is no stream NOPE":                                   {Stream: "NOPE", Consumer: "c"},
	} {
		receiver, err := conn.Receiver(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.Receive(t.Context(), (&outbox{}).take); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Receive ended with %v, want %q", err, want)
		}
		if _, err := receiver.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Connect: %v, want %q", err, want)
		}
	}
	receiver, err := conn.Receiver(options())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := receiver.Connect(t.Context()); err != nil || !strings.Contains(text, "makes consumer c of stream S") {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := js.Consumer(t.Context(), "S", "c"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("Connect has made the consumer: %v", err)
	}
	declared(t, js, nil)
	publish(t, js, "S.x", 0, 3)
	eventually(t, "the consumer's own count", func() bool {
		text, err := receiver.Connect(t.Context())
		if err != nil || !strings.Contains(text, "by consumer c") {
			t.Fatalf("%q, %v", text, err)
		}
		return strings.Contains(text, "3 messages waiting")
	})
}

func TestConsumersThatCannotBeUsed(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	conn := connect(t, b.url(), nil)
	for want, set := range map[string]func(*jetstream.ConsumerConfig){
		"ack_policy is not explicit": func(c *jetstream.ConsumerConfig) { c.AckPolicy, c.AckWait = jetstream.AckNonePolicy, 0 },
		"max_deliver is 5":           func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 },
		"headers only":               func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true },
		"priority groups": func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"g"}
		},
		"it takes [S.a], and subjects is [S.b]": func(c *jetstream.ConsumerConfig) { c.FilterSubject = "S.a" },
	} {
		makeStream(t, js, "S", nil)
		declared(t, js, set)
		r := options()
		if strings.Contains(want, "subjects") {
			r.Subjects = []string{"S.b"}
		}
		receiver, err := conn.Receiver(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := receiver.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err := receiver.Receive(t.Context(), (&outbox{}).take); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Receive: %v, want %q", err, want)
		}
		if err := js.DeleteStream(t.Context(), "S"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConsumersWithNarrowLimits(t *testing.T) {
	for name, set := range map[string]func(*jetstream.ConsumerConfig){
		"one at a time":       func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 },
		"small requests":      func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch, c.MaxRequestExpires = 3, time.Second },
		"few bytes at a time": func(c *jetstream.ConsumerConfig) { c.MaxRequestMaxBytes = 1000 },
		"one request":         func(c *jetstream.ConsumerConfig) { c.MaxWaiting = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, nil)
			_, js := dial(t, b.url())
			makeStream(t, js, "S", nil)
			declared(t, js, set)
			publish(t, js, "S.x", 0, 50)
			o := &outbox{}
			receive(t, connect(t, b.url(), nil), o, options())
			o.await(t, numbers(0, 50))
		})
	}
}

func TestMessagesLargerThanARequest(t *testing.T) {
	b := startBroker(t, func(o *server.Options) { o.MaxPayload = 16 << 20 })
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	large := bytes.Repeat([]byte("x"), 5<<20)
	publish(t, js, "S.x", 0, 3)
	for range 2 {
		if _, err := js.Publish(t.Context(), "S.x", large); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, js, "S.x", 3, 6)
	o := &outbox{}
	receive(t, connect(t, b.url(), nil), o, options())
	o.await(t, slices.Concat(numbers(0, 3), []string{string(large), string(large)}, numbers(3, 6)))
}

func TestSubjectsAndStart(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	publish(t, js, "S.a", 0, 5)
	conn := connect(t, b.url(), nil)
	r := options()
	r.Subjects, r.Start = []string{"S.b.*", "S.c"}, "new"
	o := &outbox{}
	receive(t, conn, o, r)
	eventually(t, "the consumer", func() bool { _, err := js.Consumer(t.Context(), "S", "c"); return err == nil })
	publish(t, js, "S.a", 5, 10)
	publish(t, js, "S.b.x", 10, 12)
	publish(t, js, "S.c", 12, 14)
	o.await(t, numbers(10, 14))
}

func TestAPurgeLosesWhatItPurgesOnly(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	stream := makeStream(t, js, "S", nil)
	publish(t, js, "S.x", 0, 10)
	o := &outbox{gate: make(chan struct{})}
	receive(t, connect(t, b.url(), nil), o, options())
	eventually(t, "a take of all", func() bool { return o.waiting() > 0 })
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, js, "S.x", 10, 20)
	close(o.gate)
	eventually(t, "the arrival of what came afterwards", func() bool {
		return slices.Equal(last(o.payloads(), 10), numbers(10, 20))
	})
}

func last(all []string, n int) []string { return all[max(0, len(all)-n):] }

func TestAServerThatIsStartedAgain(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
	publish(t, js, "S.x", 0, 2000)
	o := &outbox{gate: make(chan struct{})}
	receive(t, connect(t, b.url(), nil), o, options())
	eventually(t, "a first take", func() bool { return o.waiting() > 0 })
	b.stop()
	b.start()
	close(o.gate)
	eventually(t, "the arrival of all", func() bool { return len(o.ids()) == 2000 })
	seen := map[string]bool{}
	next := 0
	for _, p := range o.payloads() {
		if !seen[p] && p != fmt.Sprint(next) {
			t.Fatalf("%s came first when it was %d's turn", p, next)
		} else if !seen[p] {
			seen[p] = true
			next++
		}
	}
}

func TestSharedConsumers(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	r := options()
	r.Shared, r.AckWait = true, time.Minute // a slow machine is no reason to deliver again
	var all [2]*outbox
	for i := range all {
		all[i] = &outbox{gate: make(chan struct{})}
		receive(t, connect(t, b.url(), nil), all[i], r)
	}
	eventually(t, "the consumer", func() bool { _, err := js.Consumer(t.Context(), "S", "c"); return err == nil })
	publish(t, js, "S.x", 0, 3000)
	for _, o := range all {
		eventually(t, "a part for each", func() bool { return o.waiting() > 0 })
	}
	for _, o := range all {
		close(o.gate)
	}
	eventually(t, "the arrival of all", func() bool { return len(all[0].ids())+len(all[1].ids()) >= 3000 })
	if n := len(all[0].payloads()) + len(all[1].payloads()); n != 3000 {
		t.Errorf("%d messages came, want each once", n)
	}
	for shared, solo := range map[bool]bool{true: false, false: true} {
		receiver, err := connect(t, b.url(), nil).Receiver(nats.ReceiverOptions{Stream: "S", Consumer: "c", Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		if receiver.Solo() != solo {
			t.Errorf("shared %v: solo %v", shared, receiver.Solo())
		}
	}
}

// lines keeps what is logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

func TestSomebodyElseConsumesToo(t *testing.T) {
	b := startBroker(t, noReset)
	nc, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	declared(t, js, func(c *jetstream.ConsumerConfig) { c.AckWait = 200 * time.Millisecond })
	publish(t, js, "S.x", 0, 20)
	// Somebody who holds on to what he got.
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.c", sub.Subject, []byte(`{"batch":5}`)); err != nil {
		t.Fatal(err)
	}
	var theirs []*client.Msg
	for range 5 {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		theirs = append(theirs, m)
	}
	stop := make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				for _, m := range theirs {
					_ = m.InProgress()
				}
			}
		}
	})
	defer holding.Wait()
	defer close(stop)
	log := &lines{}
	r := options()
	r.Logger = slog.New(slog.NewTextHandler(log, nil))
	o := &outbox{}
	receive(t, connect(t, b.url(), asGateway), o, r)
	eventually(t, "the arrival of the rest", func() bool { return len(o.payloads()) >= 15 })
	if !log.has("somebody else consumes with this consumer") {
		t.Error("nothing is said of the one who consumes too")
	}
}

func TestReceiverOptionsThatAreWrong(t *testing.T) {
	conn := connect(t, "nats://127.0.0.1:1", nil)
	for want, r := range map[string]nats.ReceiverOptions{
		"stream is empty":   {Consumer: "c"},
		"consumer is empty": {Stream: "S"},
		"no such name":      {Stream: "S.x", Consumer: "c"},
		"empty token":       {Stream: "S", Consumer: "c", Subjects: []string{"a..b"}},
		"it is all or new":  {Stream: "S", Consumer: "c", Start: "last"},
		"below 100ms":       {Stream: "S", Consumer: "c", AckWait: time.Millisecond},
	} {
		if _, err := conn.Receiver(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
}
