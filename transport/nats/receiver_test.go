package nats_test

import (
	"bytes"
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

	"gobridge/transport/nats"
)

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
