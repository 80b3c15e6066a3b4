package httpsource_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/httpsource"
	"gobridge/transport/webhook"
)

func TestMisspeltHeadersOfGobridgeAreRefused(t *testing.T) {
	const all = "Gobridge-Ordering-Key, Gobridge-Subject, Gobridge-Created-At, Gobridge-Not-Before, Gobridge-Expires-At."
	for _, c := range []struct{ sent, field, detail string }{
		{"gobridge-ordring-key", "Gobridge-Ordring-Key", "the nearest is Gobridge-Ordering-Key."},
		{"Gobridge-OrderingKey", "Gobridge-Orderingkey", "the nearest is Gobridge-Ordering-Key."},
		{"Gobridge-Ordering_Key", "Gobridge-Ordering_key", "the nearest is Gobridge-Ordering-Key."},
		{"GOBRIDGE-ORDER-KEY", "Gobridge-Order-Key", "the nearest is Gobridge-Ordering-Key."},
		{"Gobridge-Subjekt", "Gobridge-Subjekt", "the nearest is Gobridge-Subject."},
		{"Gobridge-Expire-At", "Gobridge-Expire-At", "the nearest is Gobridge-Expires-At."},
		{"Gobridge-Tenant", "Gobridge-Tenant", all},
		{"Gobridge-", "Gobridge-", all},
		{"Gobridge-" + strings.Repeat("X", 1000), "Gobridge-X" + strings.Repeat("x", 999), all},
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		d := problem(t, post(s, "x", c.sent, "a", "Gobridge-Subject", "s"), http.StatusBadRequest)
		if d.Field != c.field || !strings.HasPrefix(d.Detail, c.field+" is no header of gobridge; ") || !strings.HasSuffix(d.Detail, c.detail) {
			t.Errorf("%s: field %q, %s", c.sent, d.Field, d.Detail)
		}
		if len(box.got) != 0 {
			t.Errorf("%s: accepted", c.sent)
		}
	}
}

func TestOfSeveralMisspeltHeadersTheSameIsNamed(t *testing.T) {
	s, _ := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	for range 20 {
		d := problem(t, post(s, "x", "Gobridge-C", "1", "Gobridge-A", "1", "Gobridge-B", "1"), http.StatusBadRequest)
		if d.Field != "Gobridge-A" {
			t.Fatalf("names %s", d.Field)
		}
	}
}

func TestNamesThatOnlyLookAlikeAreLetIn(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{Headers: []string{"x-gobridge-a"}})
	post(s, "x", "X-Gobridge-A", "1", "Gobridgekey", "2")
	if e := box.one(t); len(e.Headers) != 1 || e.Headers["x-gobridge-a"] != "1" {
		t.Errorf("headers are %v", e.Headers)
	}
}

// A bridge posts to another one, with everything that a delivery can carry.
func TestBridgesCanBeChained(t *testing.T) {
	s, box := serving(t, httpsource.Options{Now: time.Now}, httpsource.RouteOptions{
		Secrets: []string{secret("a")}, Headers: []string{"x-tenant"},
	})
	second := httptest.NewServer(s)
	defer second.Close()
	first, err := webhook.New(webhook.Options{URL: second.URL + "/orders", Secrets: []string{secret("a")}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	sent := messaging.Envelope{
		ID: "m1", Subject: "order placed", OrderingKey: "Köln/7", ContentType: "application/json", Payload: []byte(`{"n":1}`),
		CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		Headers: messaging.Headers{
			"x-tenant": "t1", messaging.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"x-city": "Köln", // it goes into Gobridge-Headers
			// a source's own, from before the first bridge
			messaging.HeaderDeliveryCount: "2", messaging.HeaderReceivedAt: "2026-01-02T03:04:05Z",
		},
	}
	answers := first.Send(t.Context(), []gobridge.Delivery{{
		Envelope: sent, Route: "orders", Binding: "next", Partition: gobridge.NewShard("orders", "next", 2, 4),
		Attempt: 3, Seq: 42, Redrives: 1, Token: gobridge.Token{Owner: "o", Version: 5},
	}})
	if len(answers) != 1 || answers[0] != nil {
		t.Fatalf("answered %v", answers)
	}
	got := box.one(t)
	if got.ID != "m1~1" { // redriven: it is meant to come through once more
		t.Errorf("ID %q", got.ID)
	}
	if got.Subject != sent.Subject || got.OrderingKey != sent.OrderingKey || got.ContentType != sent.ContentType ||
		string(got.Payload) != string(sent.Payload) || !got.CreatedAt.Equal(sent.CreatedAt) || !got.ExpiresAt.Equal(sent.ExpiresAt) {
		t.Errorf("message is %+v", got)
	}
	if len(got.Headers) != 2 || got.Headers["x-tenant"] != "t1" || got.Headers[messaging.HeaderTraceParent] == "" {
		t.Errorf("headers are %v", got.Headers)
	}
}
