package webhook_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/webhook"
)

// received sends a delivery and returns what the SDK makes of the request.
func received(t *testing.T, options webhook.Options, d gobridge.Delivery) (event.Event, http.Header, string) {
	t.Helper()
	header, body, _ := capture(t, options, d)
	request := &http.Request{Method: http.MethodPost, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
	ev, err := cehttp.NewEventFromHTTPRequest(request)
	if err != nil {
		t.Fatalf("the SDK takes %v and %q for no event: %v", header, body, err)
	}
	if err := ev.Validate(); err != nil {
		t.Fatal(err)
	}
	return *ev, header, body
}

func TestEveryMessageCanGoOutAsAnEvent(t *testing.T) {
	for _, format := range []string{"cloudevents", "cloudevents_structured"} {
		d := delivery()
		d.Redrives = 1
		d.Envelope.CreatedAt = now
		d.Envelope.Headers["tenant"] = "Köln \"7\""
		d.Envelope.Headers["x-other"] = "o"
		d.Envelope.Headers["content-encoding"] = "identity"
		ev, header, body := received(t, webhook.Options{Format: format, Secrets: []string{secret("a")}}, d)
		if ev.ID() != "m1" || ev.Source() != "/gobridge/orders" || ev.Type() != "order.placed" || !ev.Time().Equal(now) ||
			ev.DataContentType() != "application/json" || string(ev.Data()) != `{"total":12.5}` {
			t.Errorf("%s: the event is %s", format, ev)
		}
		for name, want := range map[string]string{
			"partitionkey": "cust-7", "traceparent": d.Envelope.Headers["traceparent"], "tenant": "Köln \"7\"",
		} {
			got := ev.Extensions()[name]
			if format == "cloudevents" && name == "tenant" {
				want = `K%C3%B6ln%20%227%22` // the SDK leaves it to its caller
			}
			if got != want {
				t.Errorf("%s: %s is %q, want %q", format, name, got, want)
			}
		}
		if header.Get("Webhook-Id") != "m1~1" || header.Get("Gobridge-Dedupe-Id") != "m1~1" || header.Get("Gobridge-Event") != "made" ||
			header.Get("Traceparent") == "" || header.Get("X-Other") != "o" {
			t.Errorf("%s: headers are %v", format, header)
		}
		if format == "cloudevents_structured" && (header.Get("Content-Encoding") != "" || header.Get("Content-Type") != "application/cloudevents+json") {
			t.Errorf("the headers say of the event what is true of its data: %v", header)
		}
		hook, err := standardwebhooks.NewWebhook(secret("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify([]byte(body), header); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// A message that came as an event is the same event in every format.
func TestEventsStayTheyAre(t *testing.T) {
	for _, format := range []string{"", "plain", "cloudevents", "cloudevents_structured"} {
		d := delivery()
		d.Attempt, d.Redrives = 3, 2
		d.Envelope.ID, d.Envelope.Subject = "/shop 7", "changed"
		d.Envelope.Headers = messaging.Headers{
			"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.placed", "ce-partitionkey": "k",
			"ce-count": "30", "tenant": "acme",
		}
		ev, header, _ := received(t, webhook.Options{Format: format}, d)
		if ev.ID() != "7" || ev.Source() != "/shop" || ev.Type() != "order.placed" || string(ev.Data()) != `{"total":12.5}` ||
			len(ev.Extensions()) != 2 || ev.Extensions()["partitionkey"] != "k" || ev.Extensions()["count"] != "30" {
			t.Errorf("%q: the event is %s", format, ev)
		}
		if header.Get("Webhook-Id") != "/shop%207~2" || header.Get("Tenant") != "acme" ||
			header.Get("Gobridge-Subject") != "changed" || header.Get("Gobridge-Event") != "" {
			t.Errorf("%q: headers are %v", format, header)
		}
	}
}

func TestWhatNoEventCanCarryIsRefused(t *testing.T) {
	bad := delivery()
	bad.Envelope.ID = "a\n"
	for _, format := range []string{"cloudevents", "cloudevents_structured"} {
		s := sender(t, webhook.Options{URL: "http://127.0.0.1:1/", Format: format})
		if err := s.Carry(&bad.Envelope); err == nil || !strings.Contains(err.Error(), `the message's ID is "a\n"`) {
			t.Errorf("%s: beforehand: %v", format, err)
		}
		if outcome, _ := gobridge.Classify(send(t, s, bad)); outcome != gobridge.OutcomePermanent {
			t.Errorf("%s: the outcome is %v", format, outcome)
		}
	}
	s := sender(t, webhook.Options{URL: "http://127.0.0.1:1/"})
	if err := s.Carry(&bad.Envelope); err != nil {
		t.Errorf("plain: %v", err)
	}
	if _, err := webhook.New(webhook.Options{URL: "http://127.0.0.1:1/", Format: "avro"}); err == nil || !strings.Contains(err.Error(), "cloudevents_structured") {
		t.Errorf("a format that does not exist: %v", err)
	}
}
