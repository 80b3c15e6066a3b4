package httpsource_test

import (
	"maps"
	"net/http/httptest"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/httpsource"
	"gobridge/transport/webhook"
)

// chain is a bridge's webhook that posts to another bridge.
type chain struct {
	t      *testing.T
	sender *webhook.Sender
	box    *outbox
}

func chained(t *testing.T, options webhook.Options, route httpsource.RouteOptions) *chain {
	t.Helper()
	s, box := serving(t, httpsource.Options{Now: time.Now}, route)
	second := httptest.NewServer(s)
	t.Cleanup(second.Close)
	options.URL = second.URL + "/orders"
	sender, err := webhook.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sender.Close() })
	return &chain{t: t, sender: sender, box: box}
}

// pass sends the delivery and returns what the second bridge makes of it.
func (c *chain) pass(d gobridge.Delivery) messaging.Envelope {
	c.t.Helper()
	d.Route, d.Binding, d.Partition = "orders", "next", gobridge.NewShard("orders", "next", 2, 4)
	if answers := c.sender.Send(c.t.Context(), []gobridge.Delivery{d}); len(answers) != 1 || answers[0] != nil {
		c.t.Fatalf("answered %v", answers)
	}
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	return c.box.got[len(c.box.got)-1]
}

var travellers = map[string]messaging.Envelope{
	"a message": {
		ID: "m 1.ö\n", Subject: "order placed", OrderingKey: "Köln/7\x00", ContentType: "application/json", Payload: []byte(`{"n":1.0}`),
		CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		Headers: messaging.Headers{
			"x-tenant": "t1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"x-city": "Köln", "content-type": "odd", "Cookie": "a=b", "empty\n": "", "ce-lonely": "1", "content-encoding": "gzip",
		},
	},
	"one that can be an event": {
		ID: "m 1.ö", OrderingKey: "Köln/7", ContentType: "text/plain", Payload: []byte("p"), CreatedAt: now,
		Headers: messaging.Headers{"x-tenant": "t1", "tenant": "Köln 7", "id": "other"},
	},
	"odd content":                   {ID: "m1", Subject: "s", ContentType: "text/plain\r\nX-Evil: 1", Payload: []byte{0xff}},
	"content that is no media type": {ID: "m1", Subject: "s", ContentType: "application/json charset=utf-8", Payload: []byte("{}")},
	"an event": {
		ID: "/shop 7", Subject: "order.placed", OrderingKey: "k", ContentType: "application/json", Payload: []byte(`{"n":1.0}`), CreatedAt: now,
		Headers: messaging.Headers{
			"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.placed", "ce-partitionkey": "k",
			"ce-time": "2026-01-02T03:04:05Z", "ce-note": "Köln 7", "x-tenant": "t1",
		},
	},
	"an event that was changed": {
		ID: "other", Subject: "changed", OrderingKey: "changed", ContentType: "application/json", Payload: []byte(`{}`),
		Headers: messaging.Headers{
			"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.placed", "ce-partitionkey": "k",
			"ce-time": "2026-01-02T03:04:05Z",
		},
	},
	"an event that lost its key and time": {
		ID: "other", Subject: "changed",
		Headers: messaging.Headers{
			"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.placed", "ce-partitionkey": "k",
			"ce-time": "2026-01-02T03:04:05Z",
		},
	},
	"an event that nobody opened": {ID: "m1", Subject: "s", ContentType: "application/cloudevents+json", Payload: []byte("no event")},
	"a batch that nobody opened":  {ID: "m1", Subject: "s", ContentType: "application/cloudevents-batch+json", Payload: []byte("[]")},
}

// What goes from one bridge to another arrives as it was, in every format, once
// for each time that it is meant to: a repeat is known by ID and content, and a
// redrive is another message.
func TestBridgesCanBeChained(t *testing.T) {
	for _, format := range []string{"plain", "cloudevents", "cloudevents_structured"} {
		c := chained(t, webhook.Options{Format: format}, httpsource.RouteOptions{Headers: []string{"x-tenant", "id", "tenant"}})
		for name, e := range travellers {
			if c.sender.Carry(&e) != nil {
				continue // an ID with a line break is none of an event
			}
			first := c.pass(gobridge.Delivery{Envelope: e, Attempt: 1, Seq: 42, Token: gobridge.Token{Owner: "o", Version: 5}})
			wantSubject := e.Subject
			if wantSubject == "" {
				wantSubject = "orders" // the second route's own
			}
			if first.ID != e.ID || first.Subject != wantSubject || first.OrderingKey != e.OrderingKey || first.ContentType != e.ContentType ||
				string(first.Payload) != string(e.Payload) || !first.CreatedAt.Equal(e.CreatedAt) || !first.ExpiresAt.Equal(e.ExpiresAt) ||
				!maps.Equal(first.Headers, e.Headers) {
				t.Errorf("%s, %s: arrived as %+v, sent %+v", format, name, first, e)
			}
			repeat := c.pass(gobridge.Delivery{Envelope: e, Attempt: 3, Seq: 43, Token: gobridge.Token{Owner: "p", Version: 6}})
			if repeat.ID != first.ID || messaging.ContentHash(&repeat) != messaging.ContentHash(&first) {
				t.Errorf("%s, %s: a repeat is another message: %+v", format, name, repeat)
			}
			redriven := c.pass(gobridge.Delivery{Envelope: e, Attempt: 1, Redrives: 1})
			if redriven.ID != e.ID+"~1" || messaging.ContentHash(&redriven) != messaging.ContentHash(&first) {
				t.Errorf("%s, %s: a redrive is %+v", format, name, redriven)
			}
		}
	}
}

// On a route with signatures only what is signed can be the ID.
func TestChainWithSignatures(t *testing.T) {
	for _, format := range []string{"plain", "cloudevents_structured"} {
		c := chained(t, webhook.Options{Format: format, Secrets: []string{secret("a")}}, httpsource.RouteOptions{Secrets: []string{secret("a")}})
		e := travellers["an event"]
		if got := c.pass(gobridge.Delivery{Envelope: e, Attempt: 2}); got.ID != "/shop%207" {
			t.Errorf("%s: the ID is %q", format, got.ID)
		}
		if got := c.pass(gobridge.Delivery{Envelope: e, Redrives: 1}); got.ID != "/shop%207~1" {
			t.Errorf("%s: the ID of a redrive is %q", format, got.ID)
		}
	}
}

// What a source of the first bridge said of a delivery is not the message's.
func TestChainLeavesOutWhatDiffersBetweenDeliveries(t *testing.T) {
	c := chained(t, webhook.Options{}, httpsource.RouteOptions{})
	got := c.pass(gobridge.Delivery{Envelope: messaging.Envelope{ID: "m1", Headers: messaging.Headers{
		messaging.HeaderDeliveryCount: "2", messaging.HeaderReceivedAt: "2026-01-02T03:04:05Z",
	}}})
	if got.Headers != nil {
		t.Errorf("headers are %v", got.Headers)
	}
}

func TestHeadersOfABridgeThatAreRefused(t *testing.T) {
	for _, c := range [][2]string{
		{"Gobridge-Headers", "a"},
		{"Gobridge-Headers", "a=%zz"},
		{"Gobridge-Headers", "=1"},
		{"Gobridge-Headers", "a=1&a=2"},
		{"Gobridge-Headers", "x-tenant=2"},
		{"Gobridge-Headers", "gobridge-ordering-key=k"},
		{"Gobridge-Event", "other"},
		{"Gobridge-Content-Type", "%"},
		{"Gobridge-Id", ""},
		{"Gobridge-Dedupe-Id", ""},
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{Headers: []string{"x-tenant"}})
		if d := problem(t, post(s, "x", c[0], c[1], "X-Tenant", "1"), 400); len(box.got) != 0 || d.Field != c[0] && d.Field != "gobridge-headers" {
			t.Errorf("%s: %s: %+v", c[0], c[1], d)
		}
	}
	s, _ := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	problem(t, post(s, "x", "Gobridge-Headers", "a=1", "Gobridge-Headers", "b=1"), 400)
}
