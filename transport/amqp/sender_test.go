package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
	"gobridge/internal/fakeamqp"
	"gobridge/internal/mapping"
	"gobridge/messaging"
	"gobridge/transport/amqp"
)

func sender(t testing.TB, c *amqp.Connection, o amqp.SenderOptions) *amqp.Sender {
	t.Helper()
	o.Logger = logger(t)
	s, err := c.Sender(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// deliveries are first attempts of messages.
func deliveries(all ...messaging.Envelope) []gobridge.Delivery {
	out := make([]gobridge.Delivery, len(all))
	for i, e := range all {
		if e.ID == "" {
			e.ID = fmt.Sprint("m", i+1)
		}
		out[i] = gobridge.Delivery{
			Envelope: e, Route: "orders", Binding: "out", Partition: "orders/out/0", Attempt: 1, Seq: int64(i + 1),
			Token: gobridge.Token{Owner: "o", Version: 3},
		}
	}
	return out
}

func send(t testing.TB, s gobridge.Sender, all ...messaging.Envelope) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Send(ctx, deliveries(all...))
}

// wantOutcome checks what an answer means and what it says.
func wantOutcome(t testing.TB, what string, err error, want gobridge.Outcome, text string) {
	t.Helper()
	if got, _ := gobridge.Classify(err); got != want {
		t.Errorf("%s: outcome %d of %v, want %d", what, got, err, want)
	}
	if err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; it should say %q", what, err, text)
	}
}

func text(s string) amqp.Text { return func(*messaging.Envelope) (string, error) { return s, nil } }

func subject(e *messaging.Envelope) (string, error) { return e.Subject, nil }

func TestWhatIsPublished(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		x, q := r.exchange(t, "topic"), r.queue(t)
		r.bind(t, q, x, "order.#")
		reader := r.read(t, q)
		s := sender(t, r.connect(t), amqp.SenderOptions{
			Exchange: x, RoutingKeyFrom: subject, Headers: map[string]amqp.Text{"x-region": text("eu"), "x-over": text("ours")},
		})
		created := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
		d := deliveries(messaging.Envelope{
			ID: "id-1", Subject: "order.placed", OrderingKey: "c-7", ContentType: "application/json", Payload: []byte(`{"n":1}`),
			CreatedAt: created, ExpiresAt: time.Now().Add(time.Hour),
			Headers: messaging.Headers{
				"content-encoding": "gzip", "amqp-correlation-id": "c", "amqp-reply-to": "answers", "amqp-type": "T", "amqp-app-id": "shop",
				"amqp-priority": "9", "amqp-user-id": "them", "amqp-exchange": "theirs", "x-tenant": "blue", "x-over": "theirs", "CC": "other", "x-bytes": "\x00\xff",
			},
		})
		d[0].Redrives = 2
		if err := s.Send(t.Context(), d)[0]; err != nil {
			t.Fatal(err)
		}
		got := reader.await(t, 1)[0]
		if got.Exchange != x || got.RoutingKey != "order.placed" || got.MessageId != "id-1~2" || got.ContentType != "application/json" ||
			got.ContentEncoding != "gzip" || got.CorrelationId != "c" || got.ReplyTo != "answers" || got.Type != "T" || got.AppId != "shop" ||
			got.Priority != 9 || got.UserId != "" || got.DeliveryMode != amqp091.Persistent || !got.Timestamp.Equal(created.Truncate(time.Second)) ||
			string(got.Body) != `{"n":1}` {
			t.Errorf("got %+v", got)
		}
		var ms int
		if _, err := fmt.Sscan(got.Expiration, &ms); err != nil || ms < 3500000 || ms > 3600000 {
			t.Errorf("expiration %q", got.Expiration)
		}
		for name, want := range map[string]string{
			"x-region": "eu", "x-over": "ours", "x-tenant": "blue", "x-bytes": "\x00\xff", "gobridge-id": "id-1", "gobridge-dedupe-id": "id-1~2",
			"gobridge-ordering-key": "c-7", "gobridge-subject": "order.placed", "gobridge-created-at": "2026-01-02T03:04:05.0000006Z",
			"gobridge-attempt": "1", "gobridge-redrives": "2", "gobridge-route": "orders", "gobridge-binding": "out", "gobridge-seq": "1", "gobridge-token-version": "3",
			"gobridge-headers": "CC=other&amqp-exchange=theirs&amqp-user-id=them",
		} {
			if got.Headers[name] != want {
				t.Errorf("header %s is %q, want %q", name, got.Headers[name], want)
			}
		}
	})
}

// TestFormats sends to a queue that a receiver of ours consumes.
func TestFormats(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, format := range []mapping.Format{mapping.Plain, mapping.Binary, mapping.Structured} {
			q := r.queue(t)
			c := r.connect(t)
			s := sender(t, c, amqp.SenderOptions{RoutingKey: q, Format: format})
			want := messaging.Envelope{
				ID: "id-1", Subject: "order.placed", OrderingKey: "c-7", ContentType: "application/json", Payload: []byte(`{"n":1}`),
				Headers: messaging.Headers{"x-tenant": "blue", "content-encoding": "identity", "amqp-type": "T", "CC": "other"},
			}
			if err := send(t, s, want)[0]; err != nil {
				t.Fatal(format, err)
			}
			box, stop := receive(t, c, amqp.ReceiverOptions{Queue: q})
			in := box.await(t, 1)[0]
			stop()
			if in.Reject != nil || messaging.ContentHash(&in.Envelope) != messaging.ContentHash(&want) || in.Envelope.ID != want.ID {
				t.Errorf("%s: got %+v (%v)", format, in.Envelope, in.Reject)
			}
		}
	})
}

func TestMissingExchange(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.connect(t)
		q := r.queue(t)
		reader := r.read(t, q)
		x := name("missing")
		s := sender(t, c, amqp.SenderOptions{Exchange: x, RoutingKey: "k"})
		for _, err := range send(t, s, messaging.Envelope{}, messaging.Envelope{}) {
			wantOutcome(t, "fixed", err, gobridge.OutcomeUnavailable, "no exchange '"+x+"'")
		}
		// Messages that choose an exchange answer for their choice, and for no other's.
		s = sender(t, c, amqp.SenderOptions{ExchangeFrom: subject, RoutingKey: q})
		there := r.exchange(t, "direct")
		r.bind(t, q, there, q)
		errs := send(t, s, messaging.Envelope{Subject: there}, messaging.Envelope{Subject: x}, messaging.Envelope{Subject: there})
		wantOutcome(t, "one before", errs[0], gobridge.OutcomeDelivered, "")
		wantOutcome(t, "chosen", errs[1], gobridge.OutcomeTransient, "no exchange '"+x+"'")
		wantOutcome(t, "one behind", errs[2], gobridge.OutcomeDelivered, "")
		reader.await(t, 2)
		// It works again by itself.
		x = r.exchange(t, "fanout")
		s = sender(t, c, amqp.SenderOptions{Exchange: x, DropUnroutable: true})
		wantOutcome(t, "nobody has to get it", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
	})
}

func TestUnroutable(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.connect(t)
		x, q := r.exchange(t, "topic"), r.queue(t)
		r.bind(t, q, x, "here")
		s := sender(t, c, amqp.SenderOptions{Exchange: x, RoutingKey: "nowhere"})
		wantOutcome(t, "fixed", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "no queue gets")
		s = sender(t, c, amqp.SenderOptions{Exchange: x, RoutingKeyFrom: subject})
		for range 2 { // on the same channel
			errs := send(t, s, messaging.Envelope{Subject: "here"}, messaging.Envelope{Subject: "nowhere"}, messaging.Envelope{Subject: "here"})
			wantOutcome(t, "routed", errs[0], gobridge.OutcomeDelivered, "")
			wantOutcome(t, "unroutable", errs[1], gobridge.OutcomeTransient, `no queue gets what is published to exchange "`+x+`" with routing key "nowhere"`)
			wantOutcome(t, "routed", errs[2], gobridge.OutcomeDelivered, "")
		}
		s = sender(t, c, amqp.SenderOptions{Exchange: x, RoutingKey: "nowhere", DropUnroutable: true})
		wantOutcome(t, "need not go anywhere", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
		s = sender(t, c, amqp.SenderOptions{RoutingKey: name("no-queue")})
		wantOutcome(t, "missing queue", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "no queue gets")
	})
}

func TestRefusedByTheQueue(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t, amqp091.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
		s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
		wantOutcome(t, "room", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
		wantOutcome(t, "full", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeTransient, "nack")
		if _, err := r.channel(t).QueuePurge(q, false); err != nil {
			t.Fatal(err)
		}
		eventually(t, "room again", func() bool { return send(t, s, messaging.Envelope{})[0] == nil })
	})
}

func TestForbidden(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		x := name("internal") // nobody may publish to it
		ch := r.channel(t)
		if err := ch.ExchangeDeclare(x, "topic", true, false, true, false, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.channel(t).ExchangeDelete(x, false, false) })
		s := sender(t, r.connect(t), amqp.SenderOptions{Exchange: x, RoutingKey: "k"})
		wantOutcome(t, "fixed", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "ACCESS_REFUSED")
		s = sender(t, r.connect(t), amqp.SenderOptions{Exchange: x, RoutingKeyFrom: subject})
		wantOutcome(t, "chosen", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeTransient, "ACCESS_REFUSED")
	})
}

// TestTooLargeForTheBroker, which says so by closing the channel under all that was
// published on it.
func TestTooLargeForTheBroker(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		reader := r.read(t, q)
		s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
		large := make([]byte, 4<<20+1)
		errs := send(t, s, messaging.Envelope{ID: "a"}, messaging.Envelope{ID: "b", Payload: large}, messaging.Envelope{ID: "c"}, messaging.Envelope{ID: "d", Payload: large})
		for i, want := range []gobridge.Outcome{gobridge.OutcomeDelivered, gobridge.OutcomePermanent, gobridge.OutcomeDelivered, gobridge.OutcomePermanent} {
			wantOutcome(t, fmt.Sprint("message ", i), errs[i], want, "message size 4194305 is larger than configured max size 4194304")
		}
		seen := map[string]bool{}
		eventually(t, "the others", func() bool {
			for _, d := range reader.all() {
				seen[d.MessageId] = true
			}
			return seen["a"] && seen["c"]
		})
		if seen["b"] || seen["d"] {
			t.Errorf("arrived: %v", seen)
		}
	})
}

func TestCarry(t *testing.T) {
	c := newRig(t, fakeamqp.Options{}).connect(t)
	s := sender(t, c, amqp.SenderOptions{
		Exchange: "x", RoutingKeyFrom: subject, MaxMessageSize: 1000,
		Headers: map[string]amqp.Text{"x-note": func(e *messaging.Envelope) (string, error) {
			if e.Subject == "fails" {
				return "", errors.New("no such field")
			}
			return "", nil
		}},
	})
	long := strings.Repeat("ü", 128)
	many := messaging.Headers{}
	for i := range 8192 {
		many[fmt.Sprint(i)] = ""
	}
	for what, e := range map[string]messaging.Envelope{
		"":                           {ID: long[:255-1], Subject: long[:254], Payload: make([]byte, 1000), Headers: messaging.Headers{"x": strings.Repeat("v", 100<<10)}},
		"routing key has 256 bytes":  {ID: "1", Subject: long},
		"routing key is not UTF-8":   {ID: "1", Subject: "\xff"},
		"content type has 256 bytes": {ID: "1", ContentType: long},
		"payload has 1001 bytes; the broker takes 1000": {ID: "1", Payload: make([]byte, 1001)},
		"headers and properties have":                   {ID: "1", Headers: messaging.Headers{"x": strings.Repeat("v", 130<<10)}},
		"header x-note: no such field":                  {ID: "1", Subject: "fails"},
		"there are 8193 headers":                        {ID: "1", Headers: many},
	} {
		err := s.Carry(&e)
		if (err == nil) != (what == "") || err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", what, err)
		}
		errs := send(t, s, e)
		if outcome, _ := gobridge.Classify(errs[0]); what != "" && outcome != gobridge.OutcomePermanent {
			t.Errorf("%q: sent all the same, it is %v", what, errs[0])
		}
	}
}

// TestFrameSmallerThanUsual: the server's own bound of a frame counts.
func TestFrameSmallerThanUsual(t *testing.T) {
	r := newRig(t, fakeamqp.Options{FrameMax: 8192})
	q := r.queue(t)
	reader := r.read(t, q)
	s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
	errs := send(t, s, messaging.Envelope{ID: "a", Headers: messaging.Headers{"x": strings.Repeat("v", 9000)}},
		messaging.Envelope{ID: "b", Payload: []byte(strings.Repeat("p", 20000))})
	wantOutcome(t, "large headers", errs[0], gobridge.OutcomePermanent, "an AMQP frame of this broker has 8192")
	wantOutcome(t, "large payload", errs[1], gobridge.OutcomeDelivered, "")
	if got := reader.await(t, 1); got[0].MessageId != "b" || len(got[0].Body) != 20000 {
		t.Errorf("got %+v", got[0])
	}
}

func TestDeclaredExchange(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c, x := r.connect(t), name("declared")
		s := sender(t, c, amqp.SenderOptions{Exchange: x, RoutingKey: "k", DeclareExchange: "topic"})
		if found, err := s.Connect(t.Context()); err != nil || !strings.Contains(found, "declares topic exchange "+x) {
			t.Errorf("Connect says %q, %v", found, err)
		}
		wantOutcome(t, "nothing bound", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "no queue gets")
		t.Cleanup(func() { _ = r.channel(t).ExchangeDelete(x, false, false) })
		q := r.queue(t)
		r.bind(t, q, x, "k")
		wantOutcome(t, "bound", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
		s = sender(t, c, amqp.SenderOptions{Exchange: x, RoutingKey: "k", DeclareExchange: "direct"})
		wantOutcome(t, "another type", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "inequivalent arg 'type'")
	})
}

func TestSenderConnect(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c, x, q := r.connect(t), r.exchange(t, "topic"), r.queue(t)
		for want, o := range map[string]amqp.SenderOptions{
			"publishes to exchange " + x + " at":        {Exchange: x, RoutingKey: "k"},
			"publishes to queue " + q + " at":           {RoutingKey: q},
			"publishes to queues that messages name":    {RoutingKeyFrom: subject},
			"publishes to exchanges that messages name": {ExchangeFrom: subject},
		} {
			if found, err := sender(t, c, o).Connect(t.Context()); err != nil || !strings.Contains(found, want) {
				t.Errorf("%q, %v; want %q", found, err, want)
			}
		}
		for want, o := range map[string]amqp.SenderOptions{
			"no exchange 'nowhere'": {Exchange: "nowhere", RoutingKey: "k"},
			"no queue 'nowhere'":    {RoutingKey: "nowhere"},
		} {
			if found, err := sender(t, c, o).Connect(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q, %v; want %q", found, err, want)
			}
		}
	})
}

func TestBlockedBroker(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	blockedBroker(t, r, func() { r.fake.Block("low on memory") }, r.fake.Unblock)
}

// blockedBroker checks what becomes of sends while the server has an alarm.
func blockedBroker(t *testing.T, r *rig, block, unblock func()) {
	q := r.queue(t)
	reader := r.read(t, q)
	s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
	wantOutcome(t, "before", send(t, s, messaging.Envelope{ID: "0"})[0], gobridge.OutcomeDelivered, "")
	block()
	n := 0
	brief := func() error { // each under an ID of its own, for a second
		n++
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return s.Send(ctx, deliveries(messaging.Envelope{ID: fmt.Sprint(n)}))[0]
	}
	var given []string // what was given up, or not even sent
	eventually(t, "the alarm", func() bool {
		err := brief()
		if err != nil {
			given = append(given, fmt.Sprint(n))
		}
		outcome, after := gobridge.Classify(err)
		return outcome == gobridge.OutcomeUnavailable && after > 0 && strings.Contains(err.Error(), "takes no messages for now")
	})
	for range 3 {
		err := brief()
		given = append(given, fmt.Sprint(n))
		wantOutcome(t, "during the alarm", err, gobridge.OutcomeUnavailable, "")
	}
	unblock()
	eventually(t, "the end of the alarm", func() bool { return brief() == nil })
	last := fmt.Sprint(n)
	eventually(t, "the last message", func() bool {
		all := reader.all()
		return len(all) > 0 && all[len(all)-1].MessageId == last
	})
	// What was given up may have arrived, before what came after it.
	place := map[string]int{}
	for i, d := range reader.all() {
		place[d.MessageId] = i
	}
	for _, id := range given {
		if i, arrived := place[id]; arrived && i > place[last] {
			t.Errorf("message %s was given up and came after %s", id, last)
		}
	}
}

// TestGivenUpInTime: the server has not confirmed in time. The send answers, and the
// channel is closed before the next may publish.
func TestGivenUpInTime(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
	r.fake.HoldConfirms(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	errs := s.Send(ctx, deliveries(messaging.Envelope{}, messaging.Envelope{}))
	for _, err := range errs {
		wantOutcome(t, "not confirmed", err, gobridge.OutcomeTransient, "not confirmed")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it is %v", err)
		}
	}
	r.fake.HoldConfirms(false)
	wantOutcome(t, "the next", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
}

// TestGivenUpAndNotAnswered: the broker does nothing about a channel for now, and the
// send is given up. Nothing is published before the broker has closed the channel, or
// it would overtake what is still to come from there.
func TestGivenUpAndNotAnswered(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
	wantOutcome(t, "before", send(t, s, messaging.Envelope{ID: "0"})[0], gobridge.OutcomeDelivered, "")
	r.fake.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantOutcome(t, "given up", s.Send(ctx, deliveries(messaging.Envelope{ID: "1"}))[0], gobridge.OutcomeTransient, "not confirmed")
	wantOutcome(t, "behind it", send(t, s, messaging.Envelope{ID: "2"})[0], gobridge.OutcomeUnavailable, "has not answered an earlier publish")
	r.fake.Thaw()
	eventually(t, "the next delivery", func() bool { return send(t, s, messaging.Envelope{ID: "2"})[0] == nil })
	ch := r.channel(t)
	for _, want := range []string{"0", "1", "2"} {
		if d, ok, err := ch.Get(q, true); d.MessageId != want || !ok || err != nil {
			t.Errorf("%q arrived (%v, %v), want %s", d.MessageId, ok, err, want)
		}
	}
}

// TestCutInTheMiddle: what was confirmed is delivered, the rest is nobody's fault.
func TestCutInTheMiddle(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
	r.fake.CutAfter(30)
	all := make([]messaging.Envelope, 60)
	errs := send(t, s, all...)
	failed := 0
	for i, err := range errs {
		if err != nil {
			failed++
			wantOutcome(t, fmt.Sprint("message ", i), err, gobridge.OutcomeUnavailable, "the connection")
		}
	}
	if failed < 31 {
		t.Errorf("%d of 60 failed, the 30th and all after it were not confirmed", failed)
	}
	for _, err := range send(t, s, all...) {
		wantOutcome(t, "again", err, gobridge.OutcomeDelivered, "")
	}
}

func TestStopsWithTheServer(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	c := r.connect(t)
	s := sender(t, c, amqp.SenderOptions{RoutingKey: q})
	box, _ := receive(t, c, amqp.ReceiverOptions{Queue: q})
	wantOutcome(t, "before", send(t, s, messaging.Envelope{ID: "1"})[0], gobridge.OutcomeDelivered, "")
	box.await(t, 1)
	r.fake.Stop()
	eventually(t, "the end of the connection", func() bool {
		err := send(t, s, messaging.Envelope{ID: "2"})[0]
		outcome, _ := gobridge.Classify(err)
		return outcome == gobridge.OutcomeUnavailable
	})
	if err := r.fake.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next delivery", func() bool { return send(t, s, messaging.Envelope{ID: "3"})[0] == nil })
	eventually(t, "its arrival", func() bool {
		all := box.all()
		return all[len(all)-1].Envelope.ID == "3"
	})
	r.dial(t)
}

func TestAfterClose(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	c := r.connect(t)
	s := sender(t, c, amqp.SenderOptions{RoutingKey: r.queue(t)})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, "closed", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "closed")
	if err := c.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestSenderOptionsAreChecked(t *testing.T) {
	c := newRig(t, fakeamqp.Options{}).connect(t)
	for want, o := range map[string]amqp.SenderOptions{
		"neither an exchange nor a queue": {},
		"both fixed and from the message": {Exchange: "x", ExchangeFrom: subject},
		"exchange type":                   {Exchange: "x", DeclareExchange: "magic"},
		"only if it has a fixed name":     {ExchangeFrom: subject, DeclareExchange: "topic"},
		"has 300 bytes":                   {RoutingKey: strings.Repeat("q", 300)},
		`header "CC"`:                     {RoutingKey: "q", Headers: map[string]amqp.Text{"CC": subject}},
		`header "Gobridge-Id"`:            {RoutingKey: "q", Headers: map[string]amqp.Text{"Gobridge-Id": subject}},
		"can't be negative":               {RoutingKey: "q", MaxMessageSize: -1},
	} {
		if _, err := c.Sender(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, o := range map[string]amqp.ReceiverOptions{
		"no queue": {}, "prefetch -1": {Queue: "q", Prefetch: -1}, "prefetch 70000": {Queue: "q", Prefetch: 70000},
		"binding 1: no exchange": {Queue: "q", Declare: &amqp.Queue{Bindings: []amqp.Binding{{}}}},
	} {
		if _, err := c.Receiver(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
