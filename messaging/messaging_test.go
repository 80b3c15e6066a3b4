package messaging_test

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"gobridge/messaging"
)

func TestNewIDIsUUIDv7AndSortsByTime(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	before := time.Now().UnixMilli()
	for range 1000 {
		id := messaging.NewID()
		if !form.MatchString(id) {
			t.Fatalf("ID %q is no version 7 UUID", id)
		}
		if seen[id] {
			t.Fatalf("ID %q twice", id)
		}
		seen[id] = true
	}
	ids := slices.Sorted(maps.Keys(seen))
	var first int64
	for _, c := range ids[0][:8] + ids[0][9:13] {
		digit := int64(c - '0')
		if c >= 'a' {
			digit = int64(c-'a') + 10
		}
		first = first<<4 | digit
	}
	if first < before || first > time.Now().UnixMilli() {
		t.Fatalf("the smallest ID %q carries %d, want a time since %d", ids[0], first, before)
	}
}

func TestJSON(t *testing.T) {
	e, err := messaging.JSON("order.placed", map[string]int{"n": 1})
	if err != nil {
		t.Fatal(err)
	}
	if string(e.Payload) != `{"n":1}` || e.Subject != "order.placed" || !e.IsJSON() || e.ID == "" {
		t.Fatalf("got %+v", e)
	}
	if _, err := messaging.JSON("bad", func() {}); err == nil {
		t.Fatal("a function encoded as JSON without an error")
	}
}

func TestIsJSON(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/json":                true,
		"Application/JSON; charset=utf-8": true,
		"application/cloudevents+json":    true,
		" application/problem+json ; a=b": true,
		"":                                false,
		"text/json-but-not":               false,
		"application/jsonlines":           false,
		"application/octet-stream; +json": false,
	} {
		e := messaging.Envelope{ContentType: contentType}
		if got := e.IsJSON(); got != want {
			t.Errorf("%q: IsJSON = %v, want %v", contentType, got, want)
		}
	}
}

func TestContentHashTellsContentApart(t *testing.T) {
	base := messaging.Envelope{
		ID: "a", Subject: "s", OrderingKey: "k", ContentType: "t",
		Headers: messaging.Headers{"x": "1"}, Payload: []byte("p"),
	}
	same := map[string]func(*messaging.Envelope){
		"another ID": func(e *messaging.Envelope) { e.ID = "b" },
		"other times": func(e *messaging.Envelope) {
			e.CreatedAt, e.ExpiresAt, e.NotBefore = time.Now(), time.Now(), time.Now()
		},
		"trace context": func(e *messaging.Envelope) {
			e.Headers = messaging.Headers{"x": "1", messaging.HeaderTraceParent: "00-1"}
		},
		"delivery count": func(e *messaging.Envelope) {
			e.Headers = messaging.Headers{"x": "1", messaging.HeaderDeliveryCount: "3"}
		},
		"time of receipt": func(e *messaging.Envelope) {
			e.Headers = messaging.Headers{"x": "1", messaging.HeaderReceivedAt: "now"}
		},
	}
	other := map[string]func(*messaging.Envelope){
		"payload":                     func(e *messaging.Envelope) { e.Payload = []byte("q") },
		"subject":                     func(e *messaging.Envelope) { e.Subject = "S" },
		"key":                         func(e *messaging.Envelope) { e.OrderingKey = "K" },
		"content type":                func(e *messaging.Envelope) { e.ContentType = "T" },
		"header value":                func(e *messaging.Envelope) { e.Headers = messaging.Headers{"x": "2"} },
		"header name":                 func(e *messaging.Envelope) { e.Headers = messaging.Headers{"y": "1"} },
		"empty header":                func(e *messaging.Envelope) { e.Headers = messaging.Headers{"x": "1", "y": ""} },
		"a byte moved between fields": func(e *messaging.Envelope) { e.Subject, e.OrderingKey = "sk", "" },
	}
	want := messaging.ContentHash(&base)
	for name, change := range same {
		e := base
		change(&e)
		if messaging.ContentHash(&e) != want {
			t.Errorf("%s changed the hash", name)
		}
	}
	for name, change := range other {
		e := base
		change(&e)
		if messaging.ContentHash(&e) == want {
			t.Errorf("%s did not change the hash", name)
		}
	}
}

func TestHeadersComeBackExactly(t *testing.T) {
	for _, h := range []messaging.Headers{
		nil,
		{"": "", "\x00": "\xff\xfe", "a": "", "ü": "\n"},
		{"long": string(bytes.Repeat([]byte("x"), 1<<17))},
	} {
		data, err := h.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var got messaging.Headers
		if err := got.UnmarshalBinary(data); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, h) {
			t.Errorf("%q came back as %q", h, got)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	seed, _ := messaging.Headers{"a": "1", "b": ""}.MarshalBinary()
	f.Add(seed)
	f.Add([]byte{1, 0x80, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var h messaging.Headers
		if h.UnmarshalBinary(data) != nil {
			return
		}
		again, err := h.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, data) {
			t.Fatalf("%x decodes to %q, which encodes to %x", data, h, again)
		}
	})
}
