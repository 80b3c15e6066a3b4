package nats_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	server "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge/transport/nats"
)

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
