package httpsource_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"gobridge/transport/httpsource"
)

func TestCloudEventOfTheSDK(t *testing.T) {
	ev := cloudevents.NewEvent()
	ev.SetID("e-1")
	ev.SetSource("https://shop.example/orders")
	ev.SetType("order.placed")
	ev.SetSubject("o-17")
	ev.SetTime(now)
	ev.SetExtension("partitionkey", "cust-7")
	if err := ev.SetData("application/json", map[string]int{"total": 12}); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	if err := cehttp.WriteRequest(t.Context(), binding.ToMessage(&ev), r); err != nil {
		t.Fatal(err)
	}
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusAccepted {
		t.Fatalf("answer %d %s", w.Code, w.Body)
	}
	e := box.one(t)
	if e.ID != "https://shop.example/orders e-1" || e.Subject != "order.placed" || e.OrderingKey != "cust-7" ||
		!e.CreatedAt.Equal(now) || e.ContentType != "application/json" || string(e.Payload) != `{"total":12}` {
		t.Errorf("message is %+v", e)
	}
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "https://shop.example/orders", "ce-type": "order.placed",
		"ce-subject": "o-17", "ce-time": "2026-01-02T03:04:05Z", "ce-partitionkey": "cust-7",
	} {
		if e.Headers[name] != want {
			t.Errorf("%s is %q, want %q", name, e.Headers[name], want)
		}
	}
	if len(e.Headers) != 7 {
		t.Errorf("headers are %v", e.Headers)
	}
}

func attributes(lines ...string) []string {
	return append([]string{"ce-specversion", "1.0", "ce-id", "e1", "ce-source", "/a", "ce-type", "t"}, lines...)
}

func TestCloudEventValuesAreDecoded(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	post(s, "", attributes("ce-subject", "K%C3%B6ln%20%22x%22", "ce-rate", "50%", "ce-partitionkey", "a%2Fb",
		"Gobridge-Ordering-Key", "a/b", "Gobridge-Subject", "mine")...)
	e := box.one(t)
	if e.Headers["ce-subject"] != `Köln "x"` || e.Headers["ce-rate"] != "50%" || e.OrderingKey != "a/b" || e.Subject != "mine" {
		t.Errorf("message is %+v", e)
	}
}

func TestIdentitiesOfCloudEventsDoNotMeet(t *testing.T) {
	seen := make(map[string]string)
	for _, c := range [][2]string{
		{"/a", "b"}, {"/a", "%20b"}, {"/a%2520b", "c"}, {"/a", "b%20c"}, {"/ab", "c"}, {"/a#b", "c"}, {"/a", "#b c"},
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		post(s, "", "ce-specversion", "1.0", "ce-type", "t", "ce-source", c[0], "ce-id", c[1])
		id := box.one(t).ID
		if other, met := seen[id]; met {
			t.Errorf("%v and %v are both %q", c, other, id)
		}
		seen[id] = strings.Join(c[:], " ")
	}
}

func TestCloudEventsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		field string
		lines []string
	}{
		{"ce-specversion", []string{"ce-id", "e1", "ce-source", "/a", "ce-type", "t"}},
		{"ce-specversion", []string{"ce-specversion", "0.3", "ce-id", "e1", "ce-source", "/a", "ce-type", "t"}},
		{"ce-specversion", []string{"ce-specversion", "", "ce-id", "e1", "ce-source", "/a", "ce-type", "t"}},
		{"ce-specversion", []string{"ce-specversion", "9.9", "ce-id", "e1", "ce-source", "/a", "ce-type", "t"}},
		{"ce-id", []string{"ce-specversion", "1.0"}},
		{"ce-id", []string{"ce-specversion", "1.0", "ce-id", "", "ce-source", "/a", "ce-type", "t"}},
		{"ce-source", []string{"ce-specversion", "1.0", "ce-id", "e1", "ce-type", "t"}},
		{"ce-type", []string{"ce-specversion", "1.0", "ce-id", "e1", "ce-source", "/a"}},
		{"ce-source", []string{"ce-specversion", "1.0", "ce-id", "e1", "ce-source", "/a b", "ce-type", "t"}},
		{"ce-source", []string{"ce-specversion", "1.0", "ce-id", "e1", "ce-source", "%zz:", "ce-type", "t"}},
		{"ce-time", attributes("ce-time", "tomorrow")},
		{"Content-Type", attributes("Content-Type", "text/plain; a=b; a=c")},
		{"ce-id", attributes("ce-id", "e2")},
		{"ce-subject", attributes("ce-subject", "%FF")},
		{"ce-subject", attributes("ce-subject", "a%0Ab")},
		{"ce-", attributes("ce-", "x")},
		{"ce-a-b", attributes("ce-a-b", "x")},
		{"Gobridge-Ordering-Key", attributes("ce-partitionkey", "a", "Gobridge-Ordering-Key", "b")},
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		if d := problem(t, post(s, "x", c.lines...), http.StatusBadRequest); d.Field != c.field {
			t.Errorf("%q: field %q, want %q: %s", c.lines, d.Field, c.field, d.Detail)
		}
		if len(box.got) != 0 {
			t.Errorf("%q: accepted", c.lines)
		}
	}
	for _, contentType := range []string{
		"application/cloudevents+avro", "application/cloudevents", "application/cloudevents+json; charset=latin1",
		"Application/CloudEvents-Batch+JSON", // this route takes none
	} {
		s, _ := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		problem(t, post(s, "{}", "Content-Type", contentType), http.StatusUnsupportedMediaType)
	}
}

func TestEventWithoutTimeHasNone(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	post(s, "", attributes()...)
	if e := box.one(t); e.CreatedAt != (time.Time{}) {
		t.Errorf("created at %v", e.CreatedAt)
	}
}
