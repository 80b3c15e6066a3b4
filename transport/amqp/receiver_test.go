package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
	"gobridge/internal/fakeamqp"
	"gobridge/messaging"
	"gobridge/transport/amqp"
)

// each runs a test against a real server if there is one (scripts/amqp-live.sh), and
// the fake otherwise.
func each(t *testing.T, test func(t *testing.T, r *rig)) {
	if os.Getenv("GOBRIDGE_AMQP_URL") != "" {
		t.Run("live", func(t *testing.T) { test(t, liveRig(t)) })
		return
	}
	t.Run("fake", func(t *testing.T) { test(t, newRig(t, fakeamqp.Options{MaxMessage: 4 << 20})) })
}

// outbox takes what a receiver hands over.
type outbox struct {
	mu    sync.Mutex
	got   []gobridge.Incoming
	gate  chan struct{} // unless nil, takes wait until it is closed
	takes atomic.Int32  // that have begun
}

func (o *outbox) take(ctx context.Context, batch []gobridge.Incoming) error {
	o.takes.Add(1)
	o.mu.Lock()
	gate := o.gate
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
	o.got = append(o.got, batch...)
	return nil
}

func (o *outbox) all() []gobridge.Incoming {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]gobridge.Incoming(nil), o.got...)
}

func (o *outbox) await(t testing.TB, n int) []gobridge.Incoming {
	t.Helper()
	eventually(t, "take", func() bool { return len(o.all()) >= n })
	return o.all()
}

// receive runs a receiver until the test ends, or the function returned is called.
func receive(t testing.TB, c *amqp.Connection, o amqp.ReceiverOptions) (*outbox, func()) {
	t.Helper()
	box := &outbox{}
	return box, run(t, c, o, box)
}

func run(t testing.TB, c *amqp.Connection, o amqp.ReceiverOptions, box *outbox) (stop func()) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = logger(t)
	}
	receiver, err := c.Receiver(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- receiver.Receive(ctx, box.take) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Receive ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// logs keeps what is logged.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestWhatAMessageBecomes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		r.put(t, q, amqp091.Publishing{
			ContentType: "text/plain", ContentEncoding: "gzip", Priority: 7, CorrelationId: "c-1", ReplyTo: "answers",
			Expiration: "3600000", MessageId: "m-1", Timestamp: time.Unix(1767323045, 0), Type: "order.placed", UserId: r.user, AppId: "shop",
			Headers: amqp091.Table{
				"string": "grün \xff", "bytes": []byte("\x00b"), "empty": "", "nothing": nil, "yes": true, "no": false,
				"int8": int8(-8), "byte": byte(200), "int16": int16(-300), "uint16": uint16(65535), "int32": int32(-70000),
				"uint32": uint32(1 << 31), "int64": int64(1) << 60, "float32": float32(0.1), "float64": -2.5e300,
				"decimal": amqp091.Decimal{Scale: 3, Value: -5}, "whole": amqp091.Decimal{Scale: 0, Value: 12}, "time": time.Unix(1767323045, 0),
				"table":       amqp091.Table{"b": []any{int32(1), "x", nil}, "a": amqp091.Decimal{Scale: 1, Value: 25}, "f": 1.5, "t": time.Unix(0, 0)},
				"array":       []any{true, amqp091.Table{}},
				"amqp-app-id": "forged", "gobridge-ordering-key": "k", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			},
			Body: []byte("\x00payload"),
		})
		box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q})
		in := box.await(t, 1)[0]
		if in.Reject != nil {
			t.Fatal(in.Reject)
		}
		want := messaging.Headers{
			"content-encoding": "gzip", "amqp-priority": "7", "amqp-correlation-id": "c-1", "amqp-reply-to": "answers",
			"amqp-type": "order.placed", "amqp-user-id": r.user, "amqp-app-id": "shop",
			"string": "grün \xff", "bytes": "\x00b", "empty": "", "nothing": "", "yes": "true", "no": "false",
			"int8": "-8", "byte": "200", "int16": "-300", "uint16": "65535", "int32": "-70000", "uint32": "2147483648",
			"int64": "1152921504606846976", "float32": "0.1", "float64": "-2.5e+300", "decimal": "-0.005", "whole": "12", "time": "2026-01-02T03:04:05Z",
			"table": `{"a":2.5,"b":[1,"x",null],"f":1.5,"t":"1970-01-01T00:00:00Z"}`, "array": `[true,{}]`,
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}
		e := in.Envelope
		for name, value := range want {
			if e.Headers[name] != value {
				t.Errorf("header %s is %q, want %q", name, e.Headers[name], value)
			}
			delete(e.Headers, name)
		}
		if len(e.Headers) > 0 {
			t.Errorf("and headers %v", e.Headers)
		}
		if e.ID != "m-1" || e.Subject != q || e.OrderingKey != "k" || e.ContentType != "text/plain" || string(e.Payload) != "\x00payload" ||
			!e.CreatedAt.Equal(time.Unix(1767323045, 0)) || !e.ExpiresAt.IsZero() {
			t.Errorf("got %+v", e)
		}
	})
}

func TestIdentity(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			what   string
			dedupe amqp.Dedupe
			m      amqp091.Publishing
			want   string
		}{
			{"message-id", amqp.ByMessageID, amqp091.Publishing{MessageId: "7"}, "7"},
			{"message-id that names nothing", amqp.ByNothing, amqp091.Publishing{MessageId: "7"}, ""},
			{"nothing", amqp.ByMessageID, amqp091.Publishing{}, ""},
			{"gobridge's own", amqp.ByNothing, amqp091.Publishing{MessageId: "7", Headers: amqp091.Table{"gobridge-id": "g"}}, "g"},
			{"after a redrive", amqp.ByMessageID, amqp091.Publishing{MessageId: "g~1", Headers: amqp091.Table{"gobridge-id": "g", "gobridge-dedupe-id": "g~1"}}, "g~1"},
			{"event", amqp.ByMessageID, amqp091.Publishing{MessageId: "7", Headers: amqp091.Table{
				"cloudEvents:specversion": "1.0", "cloudEvents:id": "e", "cloudEvents:source": "/s", "cloudEvents:type": "t",
			}}, "/s e"},
		} {
			q := r.queue(t)
			r.put(t, q, c.m)
			box, stop := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Dedupe: c.dedupe})
			if in := box.await(t, 1)[0]; in.Envelope.ID != c.want || in.Reject != nil {
				t.Errorf("%s: ID %q (%v), want %q", c.what, in.Envelope.ID, in.Reject, c.want)
			}
			stop()
		}
	})
}

// TestProducersThatCount: two producers give the same numbers to their messages.
// Content tells them apart, and who they are is part of it.
func TestProducersThatCount(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		r.put(t, q,
			amqp091.Publishing{MessageId: "1", AppId: "north", Body: []byte("on")},
			amqp091.Publishing{MessageId: "1", AppId: "south", Body: []byte("on")})
		box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q})
		got := box.await(t, 2)
		if got[0].Envelope.ID != "1" || got[1].Envelope.ID != "1" {
			t.Errorf("IDs %q and %q", got[0].Envelope.ID, got[1].Envelope.ID)
		}
		if messaging.ContentHash(&got[0].Envelope) == messaging.ContentHash(&got[1].Envelope) {
			t.Error("messages of two producers have the same ID and content: the second would be lost")
		}
	})
}

// TestRedeliveryIsTheSameMessage: also where the server counts deliveries.
func TestRedeliveryIsTheSameMessage(t *testing.T) {
	for kind, arguments := range map[string]amqp091.Table{"classic": {}, "quorum": {"x-queue-type": "quorum"}} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				q := r.queue(t, arguments)
				r.put(t, q, publishings(messaging.Envelope{ID: "a", OrderingKey: "k", Headers: messaging.Headers{"x": "y"}, Payload: []byte("p")})...)
				held := &outbox{gate: make(chan struct{})}
				stop := run(t, r.connect(t), amqp.ReceiverOptions{Queue: q}, held)
				ch := r.channel(t)
				eventually(t, "the first delivery", func() bool {
					state, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
					return err == nil && state.Messages == 0 && state.Consumers == 1
				})
				stop()
				box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q})
				again := box.await(t, 1)[0].Envelope
				if n := again.Headers[messaging.HeaderDeliveryCount]; n != "2" {
					t.Errorf("the second delivery has the count %q", n)
				}
				first := again
				first.Headers = maps.Clone(again.Headers)
				delete(first.Headers, messaging.HeaderDeliveryCount)
				if again.ID != "a" || messaging.ContentHash(&first) != messaging.ContentHash(&again) || len(first.Headers) != 1 {
					t.Errorf("the redelivery is %+v", again)
				}
			})
		})
	}
}

func TestQueueThatComesAndGoes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		var log logs
		box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Logger: log.logger()})
		r.put(t, q, amqp091.Publishing{Body: []byte("1")})
		box.await(t, 1)
		ch := r.channel(t)
		if _, err := ch.QueueDelete(q, false, false, false); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the report of the cancel", func() bool { return log.has("cancelled the consumer") })
		eventually(t, "the report of the missing queue", func() bool { return log.has("NOT_FOUND - no queue '" + q) })
		if _, err := ch.QueueDeclare(q, true, false, false, false, amqp091.Table{"x-queue-type": "quorum"}); err != nil {
			t.Fatal(err)
		}
		r.put(t, q, amqp091.Publishing{Body: []byte("2")})
		if got := box.await(t, 2); string(got[1].Envelope.Payload) != "2" {
			t.Errorf("got %+v", got)
		}
	})
}

// TestQueueThatAnotherHas: another consumer holds the first messages, perhaps one of
// ours whose connection is dead. Nothing is taken from behind it.
func TestQueueThatAnotherHas(t *testing.T) {
	for kind, arguments := range map[string]amqp091.Table{
		"classic": {}, "quorum": {"x-queue-type": "quorum"}, "single active": {"x-queue-type": "quorum", "x-single-active-consumer": true},
	} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				q := r.queue(t, arguments)
				all := make([]amqp091.Publishing, 10)
				for i := range all {
					all[i].MessageId = fmt.Sprint(i)
				}
				r.put(t, q, all...)
				ch := r.channel(t)
				if err := ch.Qos(5, 0, false); err != nil {
					t.Fatal(err)
				}
				if _, err := ch.Consume(q, "", false, false, false, false, nil); err != nil {
					t.Fatal(err)
				}
				var log logs
				box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Logger: log.logger()})
				eventually(t, "the report", func() bool { return log.has("has 1 other consumers") })
				if err := ch.Close(); err != nil {
					t.Fatal(err)
				}
				for i, in := range box.await(t, 10) {
					if in.Envelope.ID != fmt.Sprint(i) {
						t.Errorf("place %d has message %s", i, in.Envelope.ID)
					}
				}
			})
		})
	}
}

func TestQueueInExclusiveUse(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t, amqp091.Table{})
		ch := r.channel(t)
		if _, err := ch.Consume(q, "", false, true, false, false, nil); err != nil {
			t.Fatal(err)
		}
		var log logs
		box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Shared: true, Logger: log.logger()})
		eventually(t, "the report", func() bool { return log.has("ACCESS_REFUSED") && log.has("exclusive use") })
		if err := ch.Close(); err != nil {
			t.Fatal(err)
		}
		r.put(t, q, amqp091.Publishing{Body: []byte("1")})
		box.await(t, 1)
	})
}

func TestDeclaredQueue(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		x, q := r.exchange(t, "topic"), name("declared")
		declare := &amqp.Queue{Bindings: []amqp.Binding{{Exchange: x, RoutingKey: "order.*"}}}
		c := r.connect(t)
		receiver, err := c.Receiver(amqp.ReceiverOptions{Queue: q, Declare: declare})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := receiver.Connect(t.Context()); err != nil || !strings.Contains(found, "declares and consumes queue "+q) {
			t.Errorf("Connect says %q, %v", found, err)
		}
		receiver, err = c.Receiver(amqp.ReceiverOptions{Queue: q, Declare: &amqp.Queue{Bindings: []amqp.Binding{{Exchange: x}, {Exchange: "nowhere"}, {Exchange: "nowhere", RoutingKey: "k"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := receiver.Connect(t.Context()); err != nil || !strings.HasSuffix(found, "to be bound to: exchange nowhere") {
			t.Errorf("Connect says %q, %v", found, err)
		}
		box, stop := receive(t, c, amqp.ReceiverOptions{Queue: q, Declare: declare})
		ch := r.channel(t)
		eventually(t, "the queue", func() bool {
			look := r.channel(t)
			_, err := look.QueueDeclarePassive(q, true, false, false, false, nil)
			_ = look.Close()
			return err == nil
		})
		t.Cleanup(func() { _, _ = r.channel(t).QueueDelete(q, false, false, false) })
		// It is as declared: a quorum queue with a single active consumer.
		if _, err := ch.QueueDeclare(q, true, false, false, false, amqp091.Table{"x-queue-type": "quorum", "x-single-active-consumer": true}); err != nil {
			t.Error(err)
		}
		eventually(t, "a message through the binding", func() bool {
			if err := ch.PublishWithContext(t.Context(), x, "order.placed", false, false, amqp091.Publishing{Body: []byte("m")}); err != nil {
				t.Fatal(err)
			}
			return len(box.all()) > 0
		})
		if got := box.all()[0].Envelope; got.Subject != "order.placed" || got.Headers["amqp-exchange"] != x {
			t.Errorf("got %+v", got)
		}
		stop()
		var log logs
		receive(t, c, amqp.ReceiverOptions{Queue: q, Declare: &amqp.Queue{Classic: true}, Logger: log.logger()})
		eventually(t, "the report of another queue", func() bool { return log.has("PRECONDITION_FAILED") && log.has("other properties") })
	})
}

func TestReceiverConnect(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		r.put(t, q, amqp091.Publishing{}, amqp091.Publishing{})
		c := r.connect(t)
		look := func(q string) (string, error) {
			receiver, err := c.Receiver(amqp.ReceiverOptions{Queue: q})
			if err != nil {
				t.Fatal(err)
			}
			return receiver.Connect(t.Context())
		}
		eventually(t, "both messages", func() bool {
			found, err := look(q)
			return err == nil && strings.Contains(found, "consumes queue "+q) && strings.Contains(found, "2 messages waiting, 0 consumers")
		})
		if _, err := look("nowhere"); err == nil || !strings.Contains(err.Error(), "no queue 'nowhere'") {
			t.Errorf("a missing queue: %v", err)
		}
		r.proxy.Refuse(true)
		r.proxy.Cut()
		eventually(t, "the report of a server that is not there", func() bool {
			_, err := look(q)
			return err != nil && strings.Contains(err.Error(), "connect to "+r.proxy.Addr())
		})
	})
}

func TestSoloUnlessShared(t *testing.T) {
	c := newRig(t, fakeamqp.Options{}).connect(t)
	for _, shared := range []bool{false, true} {
		receiver, err := c.Receiver(amqp.ReceiverOptions{Queue: "q", Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		if receiver.Solo() == shared {
			t.Errorf("shared %v: Solo is %v", shared, receiver.Solo())
		}
	}
}

// TestSharedQueue: two receivers get everything between them.
func TestSharedQueue(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	one, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Shared: true, Prefetch: 5})
	two, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Shared: true, Prefetch: 5})
	ch := r.channel(t)
	eventually(t, "both consumers", func() bool {
		state, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
		return err == nil && state.Consumers == 2
	})
	r.put(t, q, make([]amqp091.Publishing, 100)...)
	eventually(t, "all messages", func() bool { return len(one.all())+len(two.all()) == 100 })
	if len(one.all()) == 0 || len(two.all()) == 0 {
		t.Errorf("they got %d and %d", len(one.all()), len(two.all()))
	}
}

// TestChannelThatTheServerCloses while take holds messages, as RabbitMQ does when
// an acknowledgement takes longer than its consumer_timeout: they come again.
func TestChannelThatTheServerCloses(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	r.put(t, q, publishings(messaging.Envelope{ID: "1"}, messaging.Envelope{ID: "2"})...)
	box := &outbox{gate: make(chan struct{})}
	var log logs
	run(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Logger: log.logger()}, box)
	eventually(t, "the delivery", func() bool {
		_, unacked := r.fake.Depth(q)
		return unacked == 2 && box.takes.Load() > 0
	})
	r.fake.CloseChannels(406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out")
	eventually(t, "their return to the queue", func() bool { ready, _ := r.fake.Depth(q); return ready == 2 })
	close(box.gate)
	eventually(t, "the report", func() bool { return log.has("timed out") })
	eventually(t, "the acknowledgement", func() bool { ready, unacked := r.fake.Depth(q); return ready+unacked == 0 })
	got := box.all() // the first take had one of them or both
	if n := len(got); n < 3 || got[0].Envelope.ID != "1" || got[n-2].Envelope.ID != "1" || got[n-1].Envelope.ID != "2" {
		t.Errorf("taken %+v, want the first and then both again", got)
	}
}

func TestTakeThatFailsIsTriedAgain(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	r.put(t, q, amqp091.Publishing{MessageId: "1"})
	receiver, err := r.connect(t).Receiver(amqp.ReceiverOptions{Queue: q})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	if err := receiver.Receive(ctx, func(context.Context, []gobridge.Incoming) error {
		if calls++; calls == 1 {
			return errors.New("no room")
		}
		cancel()
		return nil
	}); err != nil {
		t.Error(err)
	}
	if ready, unacked := r.fake.Depth(q); calls != 2 || ready+unacked != 0 {
		t.Errorf("%d takes, %d and %d messages left", calls, ready, unacked)
	}
}
