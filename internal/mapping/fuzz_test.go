package mapping_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gobridge/internal/mapping"
	"gobridge/messaging"
)

func FuzzRoundTrip(f *testing.F) {
	for _, e := range envelopes {
		for name, value := range e.Headers {
			f.Add(e.ID, e.Subject, e.OrderingKey, e.ContentType, e.Payload, name, value, "b", "c", int64(1), true)
		}
	}
	f.Add("1", "s", "k", "application/json", []byte(`{}`), "partitionkey", "q", "time", "noon", int64(-1), true)
	f.Fuzz(func(t *testing.T, id, subject, key, contentType string, payload []byte, n1, v1, n2, v2 string, created int64, asEvent bool) {
		if id == "" || n1 == "" || n2 == "" || strings.EqualFold(n1, messaging.HeaderOrderingKey) || strings.EqualFold(n2, messaging.HeaderOrderingKey) {
			return // no message has that
		}
		e := messaging.Envelope{
			ID: id, Subject: subject, OrderingKey: key, ContentType: contentType, Payload: payload,
			Headers: messaging.Headers{n1: v1, n2: v2},
		}
		if created > 0 {
			e.CreatedAt = time.Unix(0, created).UTC()
		}
		if asEvent {
			e.Headers = ceHeaders(n1, v1, n2, v2)
		}
		for name, p := range protocols {
			for _, format := range formats {
				m, err := p.Encode(delivery(e), format)
				if early := mapping.Carry(&e, format); (early == nil) != (err == nil) {
					t.Fatalf("%s, %s: beforehand %v, then %v", name, format, early, err)
				}
				if err != nil {
					continue
				}
				got, err := p.Decode(m)
				if err != nil {
					t.Fatalf("%s, %s: %v\n%q", name, format, err, m)
				}
				if diff := differs(got, e); diff != "" {
					t.Fatalf("%s, %s: %s\n%q", name, format, diff, m)
				}
			}
		}
	})
}

// What others send is a message or an error; and what is a message goes on as
// one, and arrives.
func FuzzDecode(f *testing.F) {
	f.Add("application/cloudevents+json", []byte(`{"specversion":"1.0","id":"7","source":"/shop","type":"t","n":3,"data":{"a":1}}`), "a", "1", "b", "2")
	f.Add("text/plain", []byte("p"), "gobridge-headers", "a=1&b=%20", "gobridge-id", "1")
	f.Add("text/plain", []byte("p"), "gobridge-created-at", "2026-01-02T03:04:05Z", "gobridge-event", "made")
	f.Add("text/plain", []byte("p"), "ce_specversion", "1.0", "ce_id", "1")
	f.Fuzz(func(t *testing.T, contentType string, payload []byte, n1, v1, n2, v2 string) {
		for _, list := range [][]string{{n1, v1, n2, v2}, {"specversion", "1.0", "id", "1", "source", "/a", "type", "b", n1, v1, n2, v2}} {
			for name, p := range protocols {
				in := mapping.Message{ContentType: contentType, Payload: payload, Pairs: pairs(list...)}
				if len(list) > 4 {
					for i := range 4 {
						in.Pairs[i].Name = p.CloudEvents + in.Pairs[i].Name
					}
				}
				e, err := p.Decode(in)
				if err != nil {
					continue
				}
				if e.ID == "" {
					e.ID = "given"
				}
				for _, format := range formats {
					m, err := p.Encode(delivery(e), format)
					if err != nil {
						continue
					}
					again, err := p.Decode(m)
					if err != nil {
						t.Fatalf("%s, %s: %v\n%q", name, format, err, m)
					}
					if diff := differs(again, e); diff != "" {
						t.Fatalf("%s, %s: %s\n%q", name, format, diff, m)
					}
				}
			}
		}
	})
}

// The members of an event are those that the standard library finds.
func FuzzUnstructure(f *testing.F) {
	f.Add([]byte(` { "a" : "\"}" , "b":[{"}":"]"}], "\u0063":-1 ,"d": null,"data":{"x" : [1.0,"\\"]} } `))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte(`{"data_base64":"AA\u003d=","t":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		attributes, payload, err := mapping.Unstructure(body)
		if err != nil {
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("no JSON object was read: %v", err)
		}
		if data, there := members["data"]; there && members["datacontenttype"] == nil && string(data) != string(payload) {
			t.Errorf("the payload is %q, want %q", payload, data)
		}
		for name, raw := range members {
			var want any
			_ = json.Unmarshal(raw, &want)
			if got, there := attributes[name]; there != (want != nil && !strings.HasPrefix(name, "data")) && name != "datacontenttype" {
				if name != "data" && name != "data_base64" && strings.HasPrefix(name, "data") {
					continue // an attribute with a name like that
				}
				t.Errorf("attribute %q is %q, %v; it was %s", name, got, there, raw)
			} else if text, is := want.(string); is && there && got != text {
				t.Errorf("attribute %q is %q, want %q", name, got, text)
			}
		}
	})
}
