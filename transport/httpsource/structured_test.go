package httpsource_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"gobridge"
	"gobridge/internal/signature"
	"gobridge/messaging"
	"gobridge/transport/httpsource"
)

const (
	structuredType = "application/cloudevents+json"
	batchType      = "application/cloudevents-batch+json"
)

// publish stands for a route's own: all or none.
func (o *outbox) publish(ctx context.Context, all ...messaging.Envelope) ([]gobridge.Receipt, error) {
	var receipts []gobridge.Receipt
	for _, e := range all {
		r, err := o.accept(ctx, e)
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, r)
	}
	return receipts, nil
}

func servingBatches(t testing.TB, route httpsource.RouteOptions) (*httpsource.Server, *outbox) {
	t.Helper()
	s, box := newServer(t, httpsource.Options{}), &outbox{}
	route.Publish = box.publish
	if err := s.Handle("/orders", route, box.accept); err != nil {
		t.Fatal(err)
	}
	return s, box
}

func ceJSON(id, more string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/shop","type":"order.placed"%s}`, id, more)
}

func TestStructuredEventOfTheSDK(t *testing.T) {
	ev := cloudevents.NewEvent()
	ev.SetID("e 1")
	ev.SetSource("https://shop.example/orders")
	ev.SetType("order.placed")
	ev.SetTime(now)
	ev.SetExtension("partitionkey", "cust-7")
	ev.SetExtension("count", 30)
	if err := ev.SetData("application/json", json.RawMessage(`{"total":12.50,"big":12345678901234567890}`)); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	if err := cehttp.WriteRequest(binding.WithForceStructured(t.Context()), binding.ToMessage(&ev), r); err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("Ce-Id", "other") // the body counts
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{Headers: []string{"x-tenant"}})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusAccepted || w.Body.String() != `{"id":"https://shop.example/orders e 1"}`+"\n" {
		t.Fatalf("answer %d %s", w.Code, w.Body)
	}
	e := box.one(t)
	if e.ID != "https://shop.example/orders e 1" || e.Subject != "order.placed" || e.OrderingKey != "cust-7" || !e.CreatedAt.Equal(now) ||
		e.ContentType != "application/json" || string(e.Payload) != `{"total":12.50,"big":12345678901234567890}` {
		t.Errorf("message is %+v", e)
	}
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-id": "e 1", "ce-source": "https://shop.example/orders", "ce-type": "order.placed",
		"ce-count": "30", "ce-time": "2026-01-02T03:04:05Z", "ce-partitionkey": "cust-7", "x-tenant": "acme",
	} {
		if e.Headers[name] != want {
			t.Errorf("%s is %q, want %q", name, e.Headers[name], want)
		}
	}
	if len(e.Headers) != 8 {
		t.Errorf("headers are %v", e.Headers)
	}
}

// The same event is the same message in binary mode, structured mode and a batch.
func TestModesAgree(t *testing.T) {
	s, box := servingBatches(t, httpsource.RouteOptions{})
	post(s, `{"a":1}`, "Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/shop", "ce-type", "order.placed", "ce-n", "5")
	event := ceJSON("1", `,"n":5,"datacontenttype":"application/json","data":{"a":1}`)
	post(s, event, "Content-Type", structuredType+"; charset=UTF-8")
	post(s, "["+event+"]", "Content-Type", batchType)
	if len(box.got) != 3 {
		t.Fatalf("%d messages", len(box.got))
	}
	for _, e := range box.got[1:] {
		if e.ID != box.got[0].ID || messaging.ContentHash(&e) != messaging.ContentHash(&box.got[0]) {
			t.Errorf("message is %+v, in binary mode %+v", e, box.got[0])
		}
	}
}

func TestStructuredEventsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ field, body string }{
		{"the event", ``},
		{"the event", `{`},
		{"the event", `[]`},
		{"the event", "{\"id\":\"\xff\"}"},
		{"specversion", `{}`},
		{"id", `{"specversion":"1.0","source":"/a","type":"t"}`},
		{"id", ceJSON("", "")},
		{"source", ceJSON("1", `,"source":"/b"`)},
		{"time", ceJSON("1", `,"time":"noon"`)},
		{"Bad", ceJSON("1", `,"Bad":"x"`)},
		{"ext", ceJSON("1", `,"ext":[]`)},
		{"data_base64", ceJSON("1", `,"data_base64":"?"`)},
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		if d := problem(t, post(s, c.body, "Content-Type", structuredType), http.StatusBadRequest); d.Field != c.field {
			t.Errorf("%s: field %q, want %q: %s", c.body, d.Field, c.field, d.Detail)
		}
		if len(box.got) != 0 {
			t.Errorf("%s: accepted", c.body)
		}
	}
	s, _ := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	problem(t, post(s, ceJSON("1", ""), "Content-Type", structuredType, "Content-Encoding", "gzip"), http.StatusUnsupportedMediaType)
	d := problem(t, post(s, ceJSON("1", `,"partitionkey":"a"`), "Content-Type", structuredType, "Gobridge-Ordering-Key", "b"), http.StatusBadRequest)
	if d.Field != "Gobridge-Ordering-Key" {
		t.Errorf("field %q: %s", d.Field, d.Detail)
	}
}

func TestBatch(t *testing.T) {
	s, box := servingBatches(t, httpsource.RouteOptions{Headers: []string{"x-tenant"}})
	body := " [ " + ceJSON("2", `,"partitionkey":"k","data":1`) + "," + ceJSON("1", `,"partitionkey":"k","datacontenttype":"a/b","data_base64":"AP8="`) + "," + ceJSON("2", `,"partitionkey":"k","data":1`) + "] "
	w := post(s, body, "Content-Type", batchType, "X-Tenant", "acme")
	if w.Code != http.StatusAccepted || w.Body.String() != `{"ids":["/shop 2","/shop 1","/shop 2"]}`+"\n" {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
	var got []string
	for _, e := range box.got {
		got = append(got, fmt.Sprintf("%s/%s/%s/%x/%s", e.ID, e.OrderingKey, e.ContentType, e.Payload, e.Headers["x-tenant"]))
	}
	if want := "[/shop 2/k/application/json/31/acme /shop 1/k/a/b/00ff/acme /shop 2/k/application/json/31/acme]"; fmt.Sprint(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	box.duplicate = true
	if w := post(s, body, "Content-Type", batchType); w.Code != http.StatusOK || !strings.HasSuffix(w.Body.String(), `"/shop 2"],"duplicate":true}`+"\n") {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
	if w := post(s, "[]", "Content-Type", batchType); w.Code != http.StatusOK || w.Body.String() != `{"ids":[]}`+"\n" {
		t.Errorf("an empty batch: answer %d %s", w.Code, w.Body)
	}
}

func TestBatchesThatAreRefusedAreSoWhole(t *testing.T) {
	good := ceJSON("1", "")
	for _, c := range []struct {
		field, body string
		status      int
		lines       []string
	}{
		{"batch", ``, 400, nil},
		{"batch", `{}`, 400, nil},
		{"batch", `[` + good, 400, nil},
		{"batch", `[` + good + `,`, 400, nil},
		{"batch", `[` + good + `]x`, 400, nil},
		{"events[1].the event", `[` + good + `,1]`, 400, nil},
		{"events[1].id", `[` + good + `,` + ceJSON("", "") + `]`, 400, nil},
		{"batch", `[` + good + `,` + good + `,` + good + `,` + good + `]`, 413, nil},
		{"payload", `[` + strings.Repeat(" ", 500) + `]`, 413, nil},
		{"Idempotency-Key", `[` + good + `]`, 400, []string{"Idempotency-Key", "a"}},
		{"Gobridge-Ordering-Key", `[` + good + `]`, 400, []string{"Gobridge-Ordering-Key", "a"}},
	} {
		s, box := servingBatches(t, httpsource.RouteOptions{MaxBatch: 3, MaxBody: 400})
		if d := problem(t, post(s, c.body, append(c.lines, "Content-Type", batchType)...), c.status); d.Field != c.field {
			t.Errorf("%s: field %q, want %q: %s", c.body, d.Field, c.field, d.Detail)
		}
		if len(box.got) != 0 {
			t.Errorf("%s: %d accepted", c.body, len(box.got))
		}
	}
}

func TestErrorsOfABatch(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		says   string
	}{
		{gobridge.ErrOutboxFull, 503, "no room"},
		{errors.New("hunter2"), 503, "Repeating it under the same ID is safe"},
		{gobridge.ErrRejected, 422, "expressions failed"},
		{&gobridge.Error{Ref: gobridge.Ref{EnvelopeID: "/shop 2"}, Err: gobridge.ErrIdentityReused}, 422, "It is events[1] of the batch."},
	} {
		s, box := servingBatches(t, httpsource.RouteOptions{})
		box.err = c.err
		d := problem(t, post(s, "["+ceJSON("1", "")+","+ceJSON("2", "")+"]", "Content-Type", batchType), c.status)
		if !strings.Contains(d.Detail, c.says) || strings.Contains(d.Detail, "hunter2") {
			t.Errorf("%v: %s", c.err, d.Detail)
		}
	}
}

// Who may post is asked for events in JSON too, and a signature is over the
// whole body. The events of a batch are known by their own IDs, which it covers.
func TestEventsInJSONAreAuthenticated(t *testing.T) {
	keys, err := signature.New([]string{secret("a")})
	if err != nil {
		t.Fatal(err)
	}
	signed := func(id, body string) []string {
		value, err := keys.Sign(id, now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return []string{"Webhook-Id", id, "Webhook-Timestamp", signature.Timestamp(now), "Webhook-Signature", value}
	}
	for contentType, c := range map[string]struct{ body, id string }{
		structuredType: {ceJSON("1", ""), "w1"},
		batchType:      {"[" + ceJSON("1", "") + "]", "/shop 1"},
	} {
		s, box := servingBatches(t, httpsource.RouteOptions{Secrets: []string{secret("a")}})
		problem(t, post(s, c.body, "Content-Type", contentType), http.StatusUnauthorized)
		problem(t, post(s, c.body+" ", append(signed("w1", c.body), "Content-Type", contentType)...), http.StatusUnauthorized)
		if w := post(s, c.body, append(signed("w1", c.body), "Content-Type", contentType)...); w.Code != http.StatusAccepted {
			t.Errorf("%s: answer %d %s", contentType, w.Code, w.Body)
		}
		if e := box.one(t); e.ID != c.id {
			t.Errorf("%s: ID %q, want %q", contentType, e.ID, c.id)
		}
		s, _ = servingBatches(t, httpsource.RouteOptions{Tokens: []string{"t"}})
		problem(t, post(s, c.body, "Content-Type", contentType), http.StatusUnauthorized)
	}
}
