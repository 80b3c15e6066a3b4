package fakeamqp_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"gobridge/internal/fakeamqp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// server is the fake or a real one: the same holds for both.
type server struct {
	address, user, password string
	maxMessage              int
}

// each runs a test against a real server if there is one (scripts/amqp-live.sh), and
// the fake otherwise.
func each(t *testing.T, test func(t *testing.T, s server)) {
	if target := os.Getenv("GOBRIDGE_AMQP_URL"); target != "" {
		t.Run("live", func(t *testing.T) {
			u, err := url.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			password, _ := u.User.Password()
			test(t, server{u.Host, u.User.Username(), password, 4 << 20})
		})
		return
	}
	t.Run("fake", func(t *testing.T) {
		b, err := fakeamqp.Start(fakeamqp.Options{MaxMessage: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		test(t, server{b.Addr(), "guest", "guest", 4 << 20})
	})
}

func (s server) connect(t *testing.T) *amqp091.Connection {
	t.Helper()
	c, err := amqp091.Dial("amqp://" + s.user + ":" + s.password + "@" + s.address + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func channel(t *testing.T, c *amqp091.Connection) *amqp091.Channel {
	t.Helper()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

var names atomic.Int64

func name(what string) string {
	return fmt.Sprintf("fake-%s-%d-%d", what, os.Getpid(), names.Add(1))
}

// queue declares a queue, which is deleted in the end.
func (s server) queue(t *testing.T, ch *amqp091.Channel, arguments amqp091.Table) string {
	t.Helper()
	q := name("queue")
	if _, err := ch.QueueDeclare(q, true, false, false, false, arguments); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c, err := amqp091.Dial("amqp://" + s.user + ":" + s.password + "@" + s.address + "/")
		if err != nil {
			return // the fake has gone already
		}
		_, _ = channel(t, c).QueueDelete(q, false, false, false)
		_ = c.Close()
	})
	return q
}

// put publishes texts to a queue and waits until the server has them.
func put(t *testing.T, ch *amqp091.Channel, q string, texts ...string) {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		c, err := ch.PublishWithDeferredConfirm("", q, false, false, amqp091.Publishing{Body: []byte(text), DeliveryMode: 2})
		if err != nil {
			t.Fatal(err)
		}
		if !wait(t, c) {
			t.Fatalf("%q was refused", text)
		}
	}
}

func wait(t *testing.T, c *amqp091.DeferredConfirmation) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ok, err := c.WaitContext(ctx)
	if err != nil {
		t.Fatal("no confirm")
	}
	return ok
}

// next returns what is delivered next.
func next(t *testing.T, from <-chan amqp091.Delivery) amqp091.Delivery {
	t.Helper()
	select {
	case d, ok := <-from:
		if !ok {
			t.Fatal("the consumer has ended")
		}
		return d
	case <-time.After(patience):
		t.Fatal("nothing is delivered")
	}
	panic("unreachable")
}

func consume(t *testing.T, ch *amqp091.Channel, q string, exclusive bool) <-chan amqp091.Delivery {
	t.Helper()
	d, err := ch.Consume(q, "", false, exclusive, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRoutes(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		ch := channel(t, s.connect(t))
		for _, c := range []struct {
			kind, pattern, key string
			gets               bool
		}{
			{"direct", "a.b", "a.b", true}, {"direct", "a.b", "a", false}, {"fanout", "", "x", true},
			{"topic", "a.*", "a.b", true}, {"topic", "a.*", "a.b.c", false}, {"topic", "a.#", "a", true},
			{"topic", "#.c", "a.b.c", true}, {"topic", "#", "", true}, {"topic", "*", "", false}, {"topic", "a.*.c", "a.c", false},
		} {
			q, x := s.queue(t, ch, nil), name("exchange")
			if err := ch.ExchangeDeclare(x, c.kind, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := ch.QueueBind(q, c.pattern, x, false, nil); err != nil {
				t.Fatal(err)
			}
			returns := ch.NotifyReturn(make(chan amqp091.Return, 1))
			if err := ch.Confirm(false); err != nil {
				t.Fatal(err)
			}
			confirmed, err := ch.PublishWithDeferredConfirm(x, c.key, true, false, amqp091.Publishing{Body: []byte("m"), MessageId: "i"})
			if err != nil {
				t.Fatal(err)
			}
			if !wait(t, confirmed) {
				t.Errorf("%s: refused", c.kind)
			}
			select {
			case r := <-returns: // it comes before the confirm
				if c.gets || r.ReplyCode != 312 || r.MessageId != "i" || string(r.Body) != "m" || r.RoutingKey != c.key || r.Exchange != x {
					t.Errorf("%s %q with key %q: returned %+v", c.kind, c.pattern, c.key, r)
				}
			default:
				if !c.gets {
					t.Errorf("%s %q with key %q: not returned", c.kind, c.pattern, c.key)
				}
			}
			if d, got, err := ch.Get(q, true); got != c.gets || err != nil || got && (d.Exchange != x || d.RoutingKey != c.key) {
				t.Errorf("%s %q with key %q: got %v %+v %v", c.kind, c.pattern, c.key, got, d, err)
			}
			if err := ch.ExchangeDelete(x, false, false); err != nil {
				t.Fatal(err)
			}
			ch = channel(t, s.connect(t)) // the listener for returns stays with the other
		}
	})
}

func TestRequeuedMessagesAreInTheirPlaces(t *testing.T) {
	for kind, arguments := range map[string]amqp091.Table{"classic": nil, "quorum": {"x-queue-type": "quorum"}} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, s server) {
				conn := s.connect(t)
				ch := channel(t, conn)
				q := s.queue(t, ch, arguments)
				put(t, ch, q, "1", "2", "3", "4", "5", "6")
				if err := ch.Qos(4, 0, false); err != nil {
					t.Fatal(err)
				}
				first := consume(t, ch, q, false)
				var held []amqp091.Delivery
				for range 4 {
					held = append(held, next(t, first))
				}
				if err := held[0].Ack(false); err != nil { // then the fifth comes
					t.Fatal(err)
				}
				fifth := next(t, first)
				if string(fifth.Body) != "5" || fifth.Redelivered {
					t.Errorf("got %q %+v", fifth.Body, fifth)
				}
				if err := ch.Close(); err != nil { // 2 to 5 go back
					t.Fatal(err)
				}
				ch = channel(t, conn)
				again := consume(t, ch, q, false)
				for i, want := range []string{"2", "3", "4", "5", "6"} {
					d := next(t, again)
					if string(d.Body) != want || d.Redelivered != (i < 4) {
						t.Errorf("place %d has %q, redelivered %v, want %q", i, d.Body, d.Redelivered, want)
					}
					count := any(nil)
					if kind == "quorum" && i < 4 {
						count = int64(1)
					}
					if d.Headers["x-delivery-count"] != count {
						t.Errorf("%q: x-delivery-count is %v, want %v", want, d.Headers["x-delivery-count"], count)
					}
					if i == 4 {
						if err := d.Nack(true, true); err != nil { // all go back
							t.Fatal(err)
						}
					}
				}
				if d := next(t, again); string(d.Body) != "2" || !d.Redelivered {
					t.Errorf("after a nack of all %q comes, redelivered %v", d.Body, d.Redelivered)
				}
			})
		})
	}
}

// TestMoreCameBackThanIsDelivered: a quorum queue knows no places. What comes back is
// behind what came back before.
func TestMoreCameBackThanIsDelivered(t *testing.T) {
	for kind, want := range map[string][]string{"classic": {"1", "2", "3", "4", "5", "6"}, "quorum": {"3", "4", "1", "2", "5", "6"}} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, s server) {
				conn := s.connect(t)
				ch := channel(t, conn)
				q := s.queue(t, ch, amqp091.Table{"x-queue-type": kind})
				put(t, ch, q, "1", "2", "3", "4", "5", "6")
				for _, prefetch := range []int{4, 2} {
					if err := ch.Qos(prefetch, 0, false); err != nil {
						t.Fatal(err)
					}
					got := consume(t, ch, q, false)
					for range prefetch {
						next(t, got)
					}
					if err := ch.Close(); err != nil {
						t.Fatal(err)
					}
					ch = channel(t, conn)
				}
				got := consume(t, ch, q, false)
				for i, text := range want {
					if d := next(t, got); string(d.Body) != text {
						t.Errorf("place %d has %q, want %q", i, d.Body, text)
					}
				}
			})
		})
	}
}

func TestPrefetchBoundsWhatIsDelivered(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		ch := channel(t, s.connect(t))
		q := s.queue(t, ch, nil)
		put(t, ch, q, "1", "2", "3")
		if err := ch.Qos(2, 0, false); err != nil {
			t.Fatal(err)
		}
		got := consume(t, ch, q, false)
		next(t, got)
		second := next(t, got)
		state, err := ch.QueueDeclarePassive(q, true, false, false, false, nil) // answered after deliveries
		if err != nil || state.Messages != 1 || state.Consumers != 1 {
			t.Errorf("%+v %v, want a message waiting", state, err)
		}
		select {
		case d := <-got:
			t.Errorf("%q came in spite of the prefetch", d.Body)
		default:
		}
		if err := second.Ack(true); err != nil {
			t.Fatal(err)
		}
		if third := next(t, got); string(third.Body) != "3" {
			t.Errorf("%q came", third.Body)
		}
	})
}

func TestConfirms(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		ch := channel(t, s.connect(t))
		q := s.queue(t, ch, amqp091.Table{"x-max-length": int32(2), "x-overflow": "reject-publish"})
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		var got []bool
		for range 3 { // one by one: a queue may be over its bound for a moment
			c, err := ch.PublishWithDeferredConfirm("", q, true, false, amqp091.Publishing{Body: []byte("m")})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, wait(t, c))
		}
		if fmt.Sprint(got) != "[true true false]" {
			t.Errorf("confirmed %v", got)
		}
		c, err := ch.PublishWithDeferredConfirm("", name("nowhere"), false, false, amqp091.Publishing{})
		if err != nil {
			t.Fatal(err)
		}
		if !wait(t, c) {
			t.Error("a message that goes nowhere, and need not go anywhere, was refused")
		}
	})
}

// TestChannelsAreClosed looks at what the server closes a channel for, and with
// which reply code.
func TestChannelsAreClosed(t *testing.T) {
	publish := func(x, key string, m amqp091.Publishing) func(*amqp091.Channel) error {
		return func(ch *amqp091.Channel) error {
			if err := ch.Confirm(false); err != nil {
				return err
			}
			if _, err := ch.PublishWithDeferredConfirm(x, key, false, false, m); err != nil {
				return err
			}
			_, err := ch.QueueDeclarePassive("amq.none", true, false, false, false, nil) // so that there is an answer
			return err
		}
	}
	each(t, func(t *testing.T, s server) {
		conn := s.connect(t)
		admin := channel(t, conn)
		q := s.queue(t, admin, nil)
		taken := s.queue(t, admin, nil)
		consume(t, admin, taken, true)
		x := name("internal")
		if err := admin.ExchangeDeclare(x, "topic", true, false, true, false, nil); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = admin.ExchangeDelete(x, false, false) }()
		for what, c := range map[string]struct {
			code int
			text string
			do   func(*amqp091.Channel) error
		}{
			"publish to no exchange":          {404, "no exchange 'nowhere'", publish("nowhere", "k", amqp091.Publishing{})},
			"publish to an internal exchange": {403, "ACCESS_REFUSED", publish(x, "k", amqp091.Publishing{})},
			"publish too much": {406, fmt.Sprintf("message size %d is larger than configured max size %d", s.maxMessage+1, s.maxMessage),
				publish("", q, amqp091.Publishing{Body: make([]byte, s.maxMessage+1)})},
			"expiration": {406, "invalid expiration", publish("", q, amqp091.Publishing{Expiration: "soon"})},
			"user":       {406, "user_id", publish("", q, amqp091.Publishing{UserId: "other"})},
			"CC as text": {406, "PRECONDITION_FAILED", publish("", q, amqp091.Publishing{Headers: amqp091.Table{"CC": "k"}})},
			"look at no queue": {404, "no queue 'nowhere'", func(ch *amqp091.Channel) error {
				_, err := ch.QueueDeclarePassive("nowhere", true, false, false, false, nil)
				return err
			}},
			"look at no exchange": {404, "no exchange 'nowhere'", func(ch *amqp091.Channel) error {
				return ch.ExchangeDeclarePassive("nowhere", "topic", true, false, false, false, nil)
			}},
			"consume no queue": {404, "no queue 'nowhere'", func(ch *amqp091.Channel) error {
				_, err := ch.Consume("nowhere", "", false, false, false, false, nil)
				return err
			}},
			"consume what another has": {403, "exclusive", func(ch *amqp091.Channel) error {
				_, err := ch.Consume(taken, "", false, false, false, false, nil)
				return err
			}},
			"another queue of the name": {406, "inequivalent arg", func(ch *amqp091.Channel) error {
				_, err := ch.QueueDeclare(q, true, false, false, false, amqp091.Table{"x-queue-type": "quorum"})
				return err
			}},
			"another exchange of the name": {406, "inequivalent arg 'type'", func(ch *amqp091.Channel) error {
				return ch.ExchangeDeclare("amq.topic", "direct", true, false, false, false, nil)
			}},
			"bind to no exchange": {404, "no exchange 'nowhere'", func(ch *amqp091.Channel) error {
				return ch.QueueBind(q, "k", "nowhere", false, nil)
			}},
			"unknown tag": {406, "unknown delivery tag 7", func(ch *amqp091.Channel) error {
				if err := ch.Ack(7, false); err != nil {
					return err
				}
				_, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
				return err
			}},
		} {
			ch := channel(t, conn)
			closes := ch.NotifyClose(make(chan *amqp091.Error, 1))
			if c.do(ch) == nil {
				t.Errorf("%s: no error", what)
				continue
			}
			err := <-closes
			if e := err; e == nil || e.Code != c.code || !strings.Contains(e.Reason, c.text) {
				t.Errorf("%s: %v, want %d with %q", what, err, c.code, c.text)
			}
		}
		if conn.IsClosed() {
			t.Error("the connection is closed, too")
		}
		if state, err := admin.QueueDeclarePassive(q, true, false, false, false, nil); err != nil || state.Messages != 0 {
			t.Errorf("the queue has %+v, %v", state, err)
		}
	})
}

func TestDeletedQueueCancelsItsConsumers(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		conn := s.connect(t)
		ch := channel(t, conn)
		q := s.queue(t, ch, nil)
		cancelled := ch.NotifyCancel(make(chan string, 1))
		got := consume(t, ch, q, false)
		if _, err := channel(t, conn).QueueDelete(q, false, false, false); err != nil {
			t.Fatal(err)
		}
		select {
		case <-cancelled:
		case <-time.After(patience):
			t.Fatal("the consumer is not told")
		}
		if _, ok := <-got; ok {
			t.Error("something was delivered")
		}
		if ch.IsClosed() {
			t.Error("the channel is closed, too")
		}
	})
}

func TestSingleActiveConsumer(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		conn := s.connect(t)
		one, two := channel(t, conn), channel(t, conn)
		q := s.queue(t, one, amqp091.Table{"x-single-active-consumer": true})
		first, second := consume(t, one, q, false), consume(t, two, q, false)
		put(t, channel(t, conn), q, "1", "2", "3")
		for _, want := range []string{"1", "2", "3"} {
			if d := next(t, first); string(d.Body) != want {
				t.Errorf("%q came, want %q", d.Body, want)
			}
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"1", "2", "3"} {
			if d := next(t, second); string(d.Body) != want || !d.Redelivered {
				t.Errorf("%q came to the second, redelivered %v, want %q", d.Body, d.Redelivered, want)
			}
		}
	})
}

func TestPropertiesComeBack(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		ch := channel(t, s.connect(t))
		q := s.queue(t, ch, amqp091.Table{"x-queue-type": "quorum"})
		want := amqp091.Publishing{
			ContentType: "a/b", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 3, CorrelationId: "c", ReplyTo: "r",
			Expiration: "60000", MessageId: "m", Timestamp: time.Unix(1700000000, 0), Type: "t", UserId: s.user, AppId: "app",
			Headers: amqp091.Table{
				"string": "ü\xff", "bytes": []byte("\x00\xff"), "bool": true, "int8": int8(-8), "byte": byte(200), "int16": int16(-16),
				"int32": int32(-32), "int64": int64(-64), "uint16": uint16(65535), "uint32": uint32(1 << 31), "float32": float32(1.5), "float64": 2.5,
				"decimal": amqp091.Decimal{Scale: 2, Value: 1234}, "time": time.Unix(1700000001, 0), "nil": nil,
				"table": amqp091.Table{"a": "b"}, "array": []any{"x", int32(1), amqp091.Table{"y": true}},
			},
			Body: []byte("body"),
		}
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		c, err := ch.PublishWithDeferredConfirm("", q, true, false, want)
		if err != nil || !wait(t, c) {
			t.Fatal(err)
		}
		for returned := range 2 {
			d, ok, err := ch.Get(q, false)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			got := amqp091.Publishing{
				ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
				CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId, Timestamp: d.Timestamp,
				Type: d.Type, UserId: d.UserId, AppId: d.AppId, Headers: d.Headers, Body: d.Body,
			}
			if n := d.Headers["x-delivery-count"]; n != int64(returned) {
				t.Errorf("x-delivery-count is %v at delivery %d", n, returned+1)
			}
			delete(got.Headers, "x-delivery-count")
			if a, b := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want); a != b {
				t.Errorf("got  %s\nwant %s", a, b)
			}
			if err := d.Reject(true); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestLoginIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for target, code := range map[string]int{
			"amqp://" + s.user + ":wrong@" + s.address + "/":                  403,
			"amqp://" + s.user + ":" + s.password + "@" + s.address + "/none": 530,
		} {
			c, err := amqp091.Dial(target)
			var e *amqp091.Error
			if !errors.As(err, &e) || e.Code != code {
				t.Errorf("%v, want %d", err, code)
			}
			if err == nil {
				_ = c.Close()
			}
		}
	})
}
