package nats

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// wire is a message as it comes out at the other end of a server: the client trims
// values and makes spaces of line ends.
func wire(m *client.Msg, subject string) *client.Msg {
	out := &client.Msg{Subject: subject, Data: m.Data, Header: client.Header{}}
	for name, values := range m.Header {
		for _, v := range values {
			v = strings.Trim(strings.NewReplacer("\r", " ", "\n", " ").Replace(v), " \t\r\n")
			out.Header[name] = append(out.Header[name], v)
		}
	}
	return out
}

func meta(stream string, seq uint64, at time.Time) *client.MsgMetadata {
	return &client.MsgMetadata{Stream: stream, Sequence: client.SequencePair{Stream: seq}, Timestamp: at}
}

// FuzzHeaders checks that a message comes out as it went in, in every format that
// takes it, and that no message writes headers of its own making.
func FuzzHeaders(f *testing.F) {
	f.Add("id", "key", "sub", "x-a", "1", "text/plain")
	f.Add("a\r\nb", " k ", "ü", "Nats-Msg-Id", "x\r\ny: z", "application/json")
	f.Add("%", "100%", "a%20b", "Status", "503", "")
	f.Add("i", "k", "s", "X-Upper", "\x00\xff", "a b")
	f.Add("i", "k", "s", "a:b", " edge ", "text/plain")
	f.Fuzz(func(t *testing.T, id, key, subject, name, value, media string) {
		if id == "" || subject == "" || name == messaging.HeaderOrderingKey || name == messaging.HeaderDeliveryCount || name == messaging.HeaderReceivedAt {
			return
		}
		d := gobridge.Delivery{Route: "r", Binding: "b", Attempt: 2, Seq: 7, Envelope: messaging.Envelope{
			ID: id, OrderingKey: key, Subject: subject, ContentType: media, Payload: []byte(value),
			Headers: messaging.Headers{name: value, "x-other": "o"}, CreatedAt: time.Unix(1, 2).UTC(),
		}}
		m, err := encode(&d, mapping.Plain)
		if err != nil {
			if plain(media) {
				t.Errorf("not encoded: %v", err)
			}
			return
		}
		for name, values := range m.Header {
			if !headerName(name) || len(values) != 1 || !plain(values[0]) || reserved(name) && name != contentType {
				t.Errorf("header %q: %q", name, values)
			}
		}
		in := incoming(wire(m, "s"), meta("S", 1, time.Now()))
		if in.Reject != nil {
			t.Fatalf("rejected: %v", in.Reject)
		}
		want := maps.Clone(d.Envelope.Headers)
		delete(want, "")
		got := in.Envelope
		if got.ID != id || got.OrderingKey != key || got.Subject != subject || got.ContentType != media ||
			!bytes.Equal(got.Payload, d.Envelope.Payload) || !maps.Equal(got.Headers, want) || !got.CreatedAt.Equal(d.Envelope.CreatedAt) {
			t.Errorf("%+v came out as %+v", d.Envelope, got)
		}
	})
}

// TestNamesInSeveralSpellings: NATS tells Site and site apart, and a redelivery has
// the content of the first.
func TestNamesInSeveralSpellings(t *testing.T) {
	m := client.NewMsg("s")
	m.Header["site"], m.Header["Site"], m.Header["SITE"] = []string{"a", "b"}, []string{"c"}, []string{"d"}
	m.Header["content-type"], m.Header["Content-Type"] = []string{"a/a"}, []string{"b/b"}
	first := incoming(m, meta("S", 1, time.Unix(1, 0)))
	if got := first.Envelope.Headers["site"]; got != "d,c,a,b" {
		t.Errorf("site is %q", got)
	}
	for range 50 {
		again := incoming(m, meta("S", 1, time.Unix(1, 0)))
		if messaging.ContentHash(&again.Envelope) != messaging.ContentHash(&first.Envelope) {
			t.Fatalf("%+v, and then %+v", first.Envelope, again.Envelope)
		}
	}
}

func TestWhatAForeignProducerSends(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	m := &client.Msg{Subject: "orders.eu", Data: []byte("{}"), Header: client.Header{
		"Content-Type": {"application/json"}, "X-Tenant": {"blue"}, "Nats-Msg-Id": {"42"}, "X-Many": {"a", "b"},
		"Gobridge-Ordering-Key": {"100% Köln"},
	}}
	got := incoming(m, meta("ORDERS", 17, at)).Envelope
	if got.ID != "ORDERS/17/1767323045000000006" || got.Subject != "orders.eu" || got.ContentType != "application/json" ||
		got.OrderingKey != "100% Köln" || !got.CreatedAt.Equal(at) {
		t.Errorf("got %+v", got)
	}
	if want := (messaging.Headers{"x-tenant": "blue", "nats-msg-id": "42", "x-many": "a,b"}); !maps.Equal(got.Headers, want) {
		t.Errorf("headers %q, want %q", got.Headers, want)
	}
	if again := incoming(m, meta("ORDERS", 17, at)).Envelope; again.ID != got.ID || messaging.ContentHash(&again) != messaging.ContentHash(&got) {
		t.Error("a redelivery is another message")
	}
	for name, other := range map[string]*client.MsgMetadata{
		"another number": meta("ORDERS", 18, at), "a stream made anew": meta("ORDERS", 17, at.Add(1)), "another stream": meta("ORDERS2", 17, at),
	} {
		if incoming(m, other).Envelope.ID == got.ID {
			t.Errorf("%s has the same ID", name)
		}
	}
	m.Header["gobridge-id"] = []string{"mine"}
	if id := incoming(m, meta("ORDERS", 17, at)).Envelope.ID; id != "mine" {
		t.Errorf("ID %q, want that of the producer", id)
	}
	m.Header["gobridge-dedupe-id"] = []string{"mine~1"}
	if id := incoming(m, meta("ORDERS", 17, at)).Envelope.ID; id != "mine~1" {
		t.Errorf("ID %q, want that of the redrive", id)
	}
}

func TestCloudEvents(t *testing.T) {
	m := &client.Msg{Subject: "s", Data: []byte("{}"), Header: client.Header{
		"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/shop"}, "ce-type": {"order%20placed"}, "content-type": {"application/json"},
		"ce-partitionkey": {"c-7"},
	}}
	in := incoming(m, meta("S", 1, time.Now()))
	if in.Reject != nil {
		t.Fatal(in.Reject)
	}
	if e := in.Envelope; e.ID != "/shop 1" || e.Subject != "order placed" || e.OrderingKey != "c-7" || e.Headers["ce-type"] != "order placed" {
		t.Errorf("got %+v", e)
	}
	out, err := encode(&gobridge.Delivery{Envelope: in.Envelope, Route: "r"}, mapping.Binary)
	if err != nil {
		t.Fatal(err)
	}
	if out.Header.Get("ce-type") != "order%20placed" || out.Header.Get("ce-id") != "1" {
		t.Errorf("went out as %v", out.Header)
	}
	m.Header.Del("ce-id")
	if in := incoming(m, meta("S", 1, time.Now())); in.Reject == nil || in.Envelope.Headers["ce-source"] != "/shop" || string(in.Envelope.Payload) != "{}" {
		t.Errorf("an event without an ID: %+v, want it rejected and kept as it came", in)
	}
}
