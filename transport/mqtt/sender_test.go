package mqtt_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
	"gobridge/transport/mqtt"
)

func deliver(t testing.TB, s *mqtt.Sender, all ...messaging.Envelope) []error {
	t.Helper()
	batch := make([]gobridge.Delivery, len(all))
	for i, e := range all {
		batch[i] = gobridge.Delivery{Envelope: e, Route: "r", Binding: "b", Attempt: 1}
	}
	return s.Send(t.Context(), batch)
}

// TestAnswers: what each reason code means, for a topic that all messages share and
// for one that is computed.
func TestAnswers(t *testing.T) {
	b := newBroker(t)
	c := open(t, b.url())
	fixed := sender(t, c)
	computed := sender(t, c, func(o *mqtt.SenderOptions) {
		o.Topic, o.TopicFrom = "", func(e *messaging.Envelope) (string, error) { return "out/" + e.ID, nil }
	})
	const delivered, transient, permanent, unavailable = gobridge.OutcomeDelivered, gobridge.OutcomeTransient, gobridge.OutcomePermanent, gobridge.OutcomeUnavailable
	for _, one := range []struct {
		code            byte
		fixed, computed gobridge.Outcome
		after           bool
	}{
		{0x00, delivered, delivered, false},
		{0x10, delivered, delivered, false},
		{0x80, transient, transient, false},
		{0x83, transient, transient, false},
		{0x87, unavailable, transient, false},
		{0x88, unavailable, unavailable, false},
		{0x90, permanent, permanent, false},
		{0x91, transient, transient, false},
		{0x95, permanent, permanent, false},
		{0x97, unavailable, unavailable, true},
		{0x99, permanent, permanent, false},
		{0x9a, unavailable, unavailable, false},
		{0xfe, transient, transient, false},
	} {
		for _, qos := range []byte{1, 2} {
			b.set(func() { b.onPublish = func(*packets.Publish) verdict { return verdict{code: one.code} } })
			for s, want := range map[*mqtt.Sender]gobridge.Outcome{fixed: one.fixed, computed: one.computed} {
				err := deliver(t, s, messaging.Envelope{ID: "a"})[0]
				got, after := gobridge.Classify(err)
				if got != want || (after > 0) != one.after {
					t.Errorf("0x%02X at QoS %d: %v: outcome %d after %s, want %d", one.code, qos, err, got, after, want)
				}
				if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("(0x%02X)", one.code)) {
					t.Errorf("0x%02X: the error does not name it: %v", one.code, err)
				}
			}
		}
	}
}

// TestDisconnects: a connection that ends for the sake of one publish condemns it if
// it was the only one, and nobody if there were others.
func TestDisconnects(t *testing.T) {
	b := newBroker(t)
	b.onPublish = func(p *packets.Publish) verdict {
		switch string(p.Payload) {
		case "bad":
			return verdict{disconnect: 0x95}
		case "malformed":
			return verdict{disconnect: 0x81}
		}
		return verdict{silent: true}
	}
	s := sender(t, open(t, b.url()))
	err := deliver(t, s, messaging.Envelope{ID: "a", Payload: []byte("bad")})[0]
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomePermanent || !strings.Contains(err.Error(), "packet too large (0x95)") {
		t.Errorf("alone: %v, outcome %d", err, outcome)
	}
	again(t, func() []error { return deliver(t, s, messaging.Envelope{ID: "a", Payload: []byte("malformed")}) }, func(errs []error) {
		if outcome, _ := gobridge.Classify(errs[0]); outcome != gobridge.OutcomeTransient {
			t.Errorf("malformed: %v, outcome %d", errs[0], outcome)
		}
	})
	again(t, func() []error {
		return deliver(t, s, messaging.Envelope{ID: "a"}, messaging.Envelope{ID: "b", Payload: []byte("bad")})
	}, func(errs []error) {
		for i, err := range errs {
			if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeTransient {
				t.Errorf("%d of two: %v, outcome %d", i, err, outcome)
			}
		}
	})
}

// again repeats a send until there is a connection for it.
func again(t testing.TB, send func() []error, look func([]error)) {
	t.Helper()
	eventually(t, "a send on a new connection", func() bool {
		errs := send()
		if outcome, _ := gobridge.Classify(errs[0]); outcome == gobridge.OutcomeUnavailable {
			return false // between two connections
		}
		look(errs)
		return true
	})
}

// TestUnconfirmed: with QoS 0 nothing is waited for.
func TestUnconfirmed(t *testing.T) {
	b := newBroker(t)
	s := sender(t, open(t, b.url()), func(o *mqtt.SenderOptions) { o.QoS = 0 })
	for _, err := range deliver(t, s, messaging.Envelope{ID: "a"}, messaging.Envelope{ID: "b"}) {
		if err != nil {
			t.Error(err)
		}
	}
	eventually(t, "both messages", func() bool { return len(b.got()) == 2 })
}

// TestWhatTheBrokerDoesNotOffer.
func TestWhatTheBrokerDoesNotOffer(t *testing.T) {
	b := newBroker(t)
	one, none := byte(1), byte(0)
	b.greeting = packets.Properties{MaximumQOS: &one, RetainAvailable: &none}
	c := open(t, b.url())
	for want, s := range map[string]*mqtt.Sender{
		"the broker takes QoS 1 at most, not 2": sender(t, c, func(o *mqtt.SenderOptions) { o.QoS = 2 }),
		"the broker keeps no retained messages": sender(t, c, func(o *mqtt.SenderOptions) { o.Retain = true }),
	} {
		err := deliver(t, s, messaging.Envelope{ID: "a"})[0]
		if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, outcome %d, want %q", err, outcome, want)
		}
		if _, err := s.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Connect: %v, want %q", err, want)
		}
	}
}

// TestReceiveMaximumOfTheBroker: no more are on their way than the broker takes.
func TestReceiveMaximumOfTheBroker(t *testing.T) {
	b := newBroker(t)
	places := uint16(3)
	b.greeting = packets.Properties{ReceiveMaximum: &places}
	b.onPublish = func(*packets.Publish) verdict { return verdict{silent: true} }
	s := sender(t, open(t, b.url()), func(o *mqtt.SenderOptions) { o.Timeout = 300 * time.Millisecond })
	var all []messaging.Envelope
	for i := range 5 {
		all = append(all, messaging.Envelope{ID: fmt.Sprint(i)})
	}
	got := 0
	b.set(func() {
		b.onPublish = func(*packets.Publish) verdict { got++; return verdict{silent: true} }
	})
	errs := deliver(t, s, all...)
	b.set(func() {
		if got != 3 {
			t.Errorf("%d publishes are on their way, want 3", got)
		}
	})
	for i, err := range errs {
		want := gobridge.OutcomeTransient
		if i >= 3 {
			want = gobridge.OutcomeUnavailable // never sent
		}
		if outcome, _ := gobridge.Classify(err); outcome != want || !strings.Contains(err.Error(), "not confirmed within 300ms") {
			t.Errorf("%d: %v, outcome %d, want %d", i, err, outcome, want)
		}
	}
}

// TestGivenUpWithQoS2: a message that was given up is not released later.
func TestGivenUpWithQoS2(t *testing.T) {
	b := newBroker(t)
	b.onPublish = func(*packets.Publish) verdict { return verdict{silent: true} }
	s := sender(t, open(t, b.url()), func(o *mqtt.SenderOptions) { o.QoS, o.Timeout = 2, 200*time.Millisecond })
	if err := deliver(t, s, messaging.Envelope{ID: "a"})[0]; err == nil {
		t.Fatal("a message that nobody confirmed was delivered")
	}
	b.set(func() { b.onPublish = nil })
	eventually(t, "a send on another connection", func() bool { return deliver(t, s, messaging.Envelope{ID: "b"})[0] == nil })
	if n := b.connected(); n < 2 {
		t.Error("the connection was kept, and with it the message")
	}
}

// TestSilentToPublishes: a broker that answers pings and no publish is left, once a
// send has waited for long.
func TestSilentToPublishes(t *testing.T) {
	t.Parallel() // it takes as long as a broker may be silent
	b := newBroker(t)
	b.onPublish = func(*packets.Publish) verdict { return verdict{silent: true} }
	s := sender(t, open(t, b.url()), func(o *mqtt.SenderOptions) { o.Timeout = 6 * time.Second })
	err := deliver(t, s, messaging.Envelope{ID: "a"})[0]
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeTransient {
		t.Errorf("%v, outcome %d", err, outcome)
	}
	b.set(func() { b.onPublish = nil })
	eventually(t, "a send on another connection", func() bool { return deliver(t, s, messaging.Envelope{ID: "a"})[0] == nil })
	if b.connected() < 2 {
		t.Error("the connection was kept")
	}
}

// TestOwnPlaces: what MQTT has properties for goes there, and comes from there.
func TestOwnPlaces(t *testing.T) {
	b := newBroker(t)
	c := open(t, b.url())
	s := sender(t, c, func(o *mqtt.SenderOptions) {
		o.Topic, o.Retain = "in/reply", true
		o.Headers = map[string]mqtt.Text{
			"x-kind":  func(e *messaging.Envelope) (string, error) { return e.Subject, nil },
			"x-empty": func(*messaging.Envelope) (string, error) { return "", nil },
		}
	})
	k := &collector{}
	started(t, b, k)
	e := messaging.Envelope{
		ID: "a", Subject: "order.placed", ContentType: "text/plain", Payload: []byte("ü"), ExpiresAt: time.Now().Add(90*time.Second + time.Millisecond),
		Headers: messaging.Headers{
			"mqtt-response-topic": "answers/7", "mqtt-correlation-data": "AAH/", "mqtt-payload-format": "utf-8", "mqtt-retained": "true", "odd": "a\x00b",
		},
	}
	if err := errors.Join(deliver(t, s, e)...); err != nil {
		t.Fatal(err)
	}
	p := b.got()[0]
	q := p.Properties
	if !p.Retain || q.ResponseTopic != "answers/7" || string(q.CorrelationData) != "\x00\x01\xff" || q.PayloadFormat == nil || *q.PayloadFormat != 1 {
		t.Errorf("published %s", p)
	}
	if q.MessageExpiry == nil || *q.MessageExpiry < 80 || *q.MessageExpiry > 91 || q.ContentType != "text/plain" {
		t.Errorf("published %s", p)
	}
	if userProperty(p, "x-kind") != "order.placed" {
		t.Error("the computed header is not there")
	}
	for _, u := range q.User {
		if u.Key == "x-empty" || strings.HasPrefix(u.Key, "mqtt-") {
			t.Errorf("user property %s", u.Key)
		}
	}
	k.await(t, "the message", count(1))
	in := k.all()[0].Envelope
	if in.Subject != "in/reply" || in.Headers["mqtt-subject"] != "order.placed" || in.ID != "a" || !in.ExpiresAt.Equal(e.ExpiresAt) {
		t.Errorf("it came as %+v", in)
	}
	for _, name := range []string{"mqtt-response-topic", "mqtt-correlation-data", "mqtt-payload-format", "odd"} {
		if in.Headers[name] != e.Headers[name] {
			t.Errorf("header %s came as %q, want %q", name, in.Headers[name], e.Headers[name])
		}
	}
}

// TestForeignExpiry: the interval of a producer that knows nothing of gobridge.
func TestForeignExpiry(t *testing.T) {
	b := newBroker(t)
	k := &collector{}
	started(t, b, k)
	p := asPublished(messaging.Envelope{Payload: []byte("x")}, "in/x", 1)
	seconds := uint32(3600)
	p.Properties.MessageExpiry = &seconds
	p.Properties.User = append(p.Properties.User, packets.User{Key: "tag", Value: "a"}, packets.User{Key: "tag", Value: "b"})
	before := time.Now()
	b.publish(p)
	k.await(t, "the message", count(1))
	in := k.all()[0].Envelope
	if in.ExpiresAt.Before(before.Add(time.Hour)) || in.ExpiresAt.After(time.Now().Add(time.Hour)) {
		t.Errorf("expires at %s, want an hour from now", in.ExpiresAt)
	}
	if in.Headers["tag"] != "a,b" {
		t.Errorf("a property that is there twice came as %q", in.Headers["tag"])
	}
}

func TestCloudEvents(t *testing.T) {
	for _, format := range []mapping.Format{mapping.Binary, mapping.Structured} {
		b := newBroker(t)
		c := open(t, b.url())
		s := sender(t, c, func(o *mqtt.SenderOptions) { o.Topic, o.Format = "in/x", format })
		k := &collector{}
		started(t, b, k)
		e := messaging.Envelope{ID: "a", Subject: "order.placed", ContentType: "application/json", Payload: []byte(`{"n":1}`)}
		if err := errors.Join(deliver(t, s, e)...); err != nil {
			t.Fatal(err)
		}
		p := b.got()[0]
		if format == mapping.Binary && (userProperty(p, "specversion") != "1.0" || userProperty(p, "id") != "a" || userProperty(p, "type") != "order.placed") {
			t.Errorf("binary: %s", p)
		}
		if format == mapping.Structured && p.Properties.ContentType != "application/cloudevents+json" {
			t.Errorf("structured: content type %s", p.Properties.ContentType)
		}
		k.await(t, "the message", count(1))
		if in := k.all()[0].Envelope; in.ID != "a" || string(in.Payload) != string(e.Payload) || in.ContentType != e.ContentType {
			t.Errorf("%s: it came as %+v", format, in)
		}
	}
}

// TestCarry refuses at the door what can never be published.
func TestCarry(t *testing.T) {
	b := newBroker(t)
	limit := uint32(1000)
	b.greeting = packets.Properties{MaximumPacketSize: &limit}
	c := open(t, b.url())
	fixed := sender(t, c)
	computed := sender(t, c, func(o *mqtt.SenderOptions) {
		o.Topic, o.TopicFrom = "", func(e *messaging.Envelope) (string, error) {
			if e.Subject == "fails" {
				return "", errors.New("no such key: site")
			}
			return e.Subject, nil
		}
	})
	if err := fixed.Carry(&messaging.Envelope{ID: "a", Payload: make([]byte, 2000)}); err != nil {
		t.Errorf("before the broker was reached: %v", err)
	}
	if err := errors.Join(deliver(t, fixed, messaging.Envelope{ID: "a"})...); err != nil {
		t.Fatal(err)
	}
	for want, one := range map[string]struct {
		s *mqtt.Sender
		e messaging.Envelope
	}{
		"2000 of them payload; the broker takes 1000":         {fixed, messaging.Envelope{ID: "a", Payload: make([]byte, 2000)}},
		"gobridge-ordering-key is not valid UTF-8":            {fixed, messaging.Envelope{ID: "a", OrderingKey: "\xff"}},
		"gobridge-id has the character U+0000":                {fixed, messaging.Envelope{ID: "a\x00"}},
		"the content type has the character U+000A":           {fixed, messaging.Envelope{ID: "a", ContentType: "a\nb"}},
		"header mqtt-correlation-data is not base64":          {fixed, messaging.Envelope{ID: "a", Headers: messaging.Headers{"mqtt-correlation-data": "?"}}},
		"header mqtt-response-topic: the topic":               {fixed, messaging.Envelope{ID: "a", Headers: messaging.Headers{"mqtt-response-topic": "a/#"}}},
		"compute the topic: no such key: site":                {computed, messaging.Envelope{ID: "a", Subject: "fails"}},
		"the topic is empty":                                  {computed, messaging.Envelope{ID: "a"}},
		`the topic "a/+" has a wildcard`:                      {computed, messaging.Envelope{ID: "a", Subject: "a/+"}},
		"the topic has 70000 bytes; MQTT can carry 65535":     {computed, messaging.Envelope{ID: "a", Subject: strings.Repeat("x", 70000)}},
		"the topic has the character U+0000, which brokers r": {computed, messaging.Envelope{ID: "a", Subject: "a\x00"}},
	} {
		if err := one.s.Carry(&one.e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Carry: %v, want %q", err, want)
		}
		err := deliver(t, one.s, one.e)[0]
		if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomePermanent {
			t.Errorf("Send: %v, outcome %d, want permanent", err, outcome)
		}
	}
	if n := len(b.got()); n != 1 {
		t.Errorf("%d messages were published, want the first alone", n)
	}
}

// TestConfiguredPacketSize: a limit that the broker does not tell.
func TestConfiguredPacketSize(t *testing.T) {
	b := newBroker(t)
	s := sender(t, open(t, b.url(), func(o *mqtt.Options) { o.MaxPacket = 500 }))
	e := messaging.Envelope{ID: "a", Payload: make([]byte, 600)}
	if err := s.Carry(&e); err == nil || !strings.Contains(err.Error(), "the broker takes 500") {
		t.Errorf("Carry: %v", err)
	}
	err := deliver(t, s, e)[0]
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomePermanent {
		t.Errorf("Send: %v", err)
	}
}

// TestGivenUpWhileConnecting: a send does not wait longer than it may.
func TestGivenUpWhileConnecting(t *testing.T) {
	b := newBroker(t)
	b.greet = func(*packets.Connect) *packets.Connack {
		return &packets.Connack{ReasonCode: 0x86, Properties: &packets.Properties{}}
	}
	s := sender(t, open(t, b.url()))
	err := deliver(t, s, messaging.Envelope{ID: "a"})[0]
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable || !strings.Contains(err.Error(), "bad user name or password (0x86)") {
		t.Errorf("%v, outcome %d", err, outcome)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if errs := s.Send(ctx, []gobridge.Delivery{{Envelope: messaging.Envelope{ID: "a"}}}); errs[0] == nil {
		t.Error("a send without time was delivered")
	}
}

// TestComputedInThePlaceOfAHeader: a computed user property is there once, whatever the
// message has under its name, and the other end can read it.
func TestComputedInThePlaceOfAHeader(t *testing.T) {
	for _, format := range []mapping.Format{mapping.Plain, mapping.Binary, mapping.Structured} {
		b := newBroker(t)
		s := sender(t, open(t, b.url()), func(o *mqtt.SenderOptions) {
			o.Format = format
			o.Headers = map[string]mqtt.Text{
				"site": func(e *messaging.Envelope) (string, error) { return "of " + e.Headers["site"][:3], nil },
				"gone": func(*messaging.Envelope) (string, error) { return "", nil },
			}
		})
		for i, own := range []string{"old", "old\x01"} {
			e := messaging.Envelope{ID: fmt.Sprint(i), Headers: messaging.Headers{"site": own, "gone": "x", "other": "y"}}
			if err := errors.Join(deliver(t, s, e)...); err != nil {
				t.Fatal(err)
			}
			if e.Headers["site"] != own {
				t.Fatal("the message was changed")
			}
			got := asReceived(t, b.got()[i]).Headers
			if got["site"] != "of old" || got["other"] != "y" || got["gone"] != "" {
				t.Errorf("%s: headers %q, want the computed ones and the other", format, got)
			}
		}
	}
}

func TestSenderRefuses(t *testing.T) {
	c := open(t, "mqtt://127.0.0.1:1")
	computes := map[string]mqtt.Text{"id": nil}
	for want, change := range map[string]func(*mqtt.SenderOptions){
		"give either a topic or what computes it": func(o *mqtt.SenderOptions) { o.Topic = "" },
		`the topic "a/#" has a wildcard`:          func(o *mqtt.SenderOptions) { o.Topic = "a/#" },
		"QoS is 3":                                func(o *mqtt.SenderOptions) { o.QoS = 3 },
		"names that begin with gobridge-":         func(o *mqtt.SenderOptions) { o.Headers = map[string]mqtt.Text{"gobridge-id": nil} },
		"client ID \"\"":                          func(o *mqtt.SenderOptions) { o.ClientID = "" },
		`"specversion" is an attribute`:           func(o *mqtt.SenderOptions) { o.Headers = map[string]mqtt.Text{"specversion": nil} },
		`"id" is an attribute of a CloudEvent`:    func(o *mqtt.SenderOptions) { o.Headers, o.Format = computes, mapping.Binary },
	} {
		options := mqtt.SenderOptions{ClientID: "gw", Topic: "a", QoS: 1}
		change(&options)
		if _, err := c.Sender(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
