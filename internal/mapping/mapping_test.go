package mapping_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

var protocols = map[string]mapping.Protocol{
	"kafka": {CloudEvents: "ce_"},
	"nats": {CloudEvents: "ce-", Carries: func(name, value string) bool {
		return !strings.HasPrefix(strings.ToLower(name), "nats-") && !strings.ContainsAny(name+value, "\r\n\x00")
	}},
	"amqp":            {CloudEvents: "cloudEvents:"},
	"amqp underscore": {CloudEvents: "cloudEvents_"},
	"mqtt":            {CloudEvents: ""},
}

var formats = []mapping.Format{mapping.Plain, mapping.Binary, mapping.Structured}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

func delivery(e messaging.Envelope) *gobridge.Delivery {
	return &gobridge.Delivery{
		Envelope: e, Route: "orders", Binding: "lake", Partition: "orders/lake/0", Attempt: 2, Seq: 9,
		Token: gobridge.Token{Owner: "a", Version: 3},
	}
}

func ceHeaders(more ...string) messaging.Headers {
	h := messaging.Headers{"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.placed"}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// envelopes are the messages that have to come back, and whether they can go as
// a CloudEvent.
var envelopes = map[string]messaging.Envelope{
	"bare": {ID: "1"},
	"full": {
		ID: "1", Subject: "order.placed", OrderingKey: "K\xc3\xb6ln/7", ContentType: "application/json",
		Payload: []byte(`{"n": 12345678901234567890.10, "n2":1e400}`), CreatedAt: at("2026-01-02T03:04:05.000000006Z"),
		ExpiresAt: at("2026-02-02T03:04:05Z"),
		Headers: messaging.Headers{
			"tenant": "acme", "Tenant": "other", "x-empty": "", "empty": "", "traceparent": traceparent, "tracestate": "a=b",
			"baggage": "c=d", "id": "header's", "data": "d", "partitionkey": "q", "content-type": "text/html", "Content-Type": "x",
			"gobridge-id": "no", "Gobridge-Attempt": "9", "gobridge-received-at": "now", "ce-x": "1", "ce_x": "2",
			"content-encoding": "gzip", "cloudEvents:x": "3", "cloudEvents_x": "4", "Nats-Msg-Id": "5", "specversion": "1.0", "line": "a\r\nb", "a=b&c": "%+ ",
		},
	},
	"bytes":          {ID: "1", OrderingKey: "\x00\xff", Payload: []byte{0, 0xff, 0xfe}, Headers: messaging.Headers{"\xff\x00": "\xff\x00"}},
	"JSON in space":  {ID: "1", ContentType: "application/json", Payload: []byte(" {}\n")},
	"broken JSON":    {ID: "1", ContentType: "application/json", Payload: []byte(`{"a":1},"id":"other"`)},
	"null":           {ID: "1", ContentType: "application/json", Payload: []byte(`null`)},
	"text in JSON":   {ID: "1", ContentType: "application/vnd.x+json; charset=utf-8", Payload: []byte(`"text"`)},
	"text":           {ID: "1", ContentType: "text/plain", Payload: []byte(`"text"`)},
	"JSON by half":   {ID: "1", ContentType: "application+json", Payload: []byte(`"text"`)},
	"JSON as text":   {ID: "1", ContentType: "text/json", Payload: []byte(`"text"`)},
	"deep":           {ID: "1", ContentType: "application/json", Payload: []byte(strings.Repeat("[", 10000) + strings.Repeat("]", 10000))},
	"not UTF-8 JSON": {ID: "1", ContentType: "application/json", Payload: []byte("\"\xff\"")},
	"an event": {
		ID: "/shop 7", Subject: "order.placed", OrderingKey: "k", ContentType: "application/json", Payload: []byte(`{"b":1.0}`),
		CreatedAt: at("2026-01-02T03:04:05Z"),
		Headers: ceHeaders("ce-partitionkey", "k", "ce-time", "2026-01-02T03:04:05+00:00", "ce-traceparent", traceparent,
			"ce-subject", "s \"q\" \\", "traceparent", strings.ReplaceAll(traceparent, "b7", "b8"), "tenant", "acme", "Ce-Odd", "x"),
	},
	"an event that was changed": {ID: "/shop 7", Subject: "other", Headers: ceHeaders("ce-partitionkey", "k", "ce-time", "2026-01-02T03:04:05Z")},
	"an event less its fields":  {ID: "x", Headers: ceHeaders("ce-partitionkey", "k", "ce-time", "2026-01-02T03:04:05Z")},
	"half an event":             {ID: "1", Headers: messaging.Headers{"ce-specversion": "1.0", "ce-id": "7"}},
	"an event of another time":  {ID: "1", Headers: ceHeaders("ce-specversion", "0.3")},
	"an event unread":           {ID: "1", ContentType: "application/cloudevents+json", Payload: []byte(`{"id":"7"}`)},
	"an event in an event":      {ID: "/shop 7", Subject: "order.placed", ContentType: "application/cloudevents+json", Payload: []byte(`{}`), Headers: ceHeaders()},
	"an event as odd content":   {ID: "/shop 7", Subject: "order.placed", ContentType: "application/cloudevents; a=b", Payload: []byte(`{}`), Headers: ceHeaders()},
	"events unread":             {ID: "1", ContentType: "application/cloudevents-batch+json", Payload: []byte(`[]`)},
}

func TestEveryMessageComesBack(t *testing.T) {
	for protocolName, p := range protocols {
		for name, e := range envelopes {
			for _, f := range formats {
				m, err := p.Encode(delivery(e), f)
				if err != nil {
					t.Errorf("%s, %s, %s: %v", protocolName, name, f, err)
					continue
				}
				got, err := p.Decode(m)
				if err != nil {
					t.Errorf("%s, %s, %s: %v\n%q", protocolName, name, f, err, m)
					continue
				}
				if diff := differs(got, e); diff != "" {
					t.Errorf("%s, %s, %s: %s\n%q", protocolName, name, f, diff, m)
				}
			}
		}
	}
}

func differs(got, want messaging.Envelope) string {
	switch {
	case got.ID != want.ID:
		return fmt.Sprintf("ID is %q, want %q", got.ID, want.ID)
	case got.Subject != want.Subject:
		return fmt.Sprintf("subject is %q, want %q", got.Subject, want.Subject)
	case got.OrderingKey != want.OrderingKey:
		return fmt.Sprintf("key is %q, want %q", got.OrderingKey, want.OrderingKey)
	case got.ContentType != want.ContentType:
		return fmt.Sprintf("content type is %q, want %q", got.ContentType, want.ContentType)
	case !got.CreatedAt.Equal(want.CreatedAt) || !got.ExpiresAt.Equal(want.ExpiresAt):
		return fmt.Sprintf("times are %s and %s, want %s and %s", got.CreatedAt, got.ExpiresAt, want.CreatedAt, want.ExpiresAt)
	case string(got.Payload) != string(want.Payload):
		return fmt.Sprintf("payload is %q, want %q", got.Payload, want.Payload)
	case !maps.Equal(got.Headers, want.Headers):
		return fmt.Sprintf("headers are %q, want %q", got.Headers, want.Headers)
	case messaging.ContentHash(&got) != messaging.ContentHash(&want):
		return "the content hash is another"
	}
	return ""
}

// A repeat and a redrive of the bridge before have the content of the first
// delivery; only a redrive is another message.
func TestRepeatsAreTheSameMessage(t *testing.T) {
	p := protocols["kafka"]
	for name, e := range envelopes {
		for _, f := range formats {
			decoded := func(change func(*gobridge.Delivery)) messaging.Envelope {
				d := delivery(e)
				change(d)
				m, err := p.Encode(d, f)
				if err != nil {
					t.Fatal(err)
				}
				got, err := p.Decode(m)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			first := decoded(func(d *gobridge.Delivery) { d.Attempt = 1 })
			repeat := decoded(func(d *gobridge.Delivery) { d.Attempt, d.Seq, d.Token.Version = 7, 8, 9 })
			redriven := decoded(func(d *gobridge.Delivery) { d.Redrives = 2 })
			if repeat.ID != first.ID || messaging.ContentHash(&repeat) != messaging.ContentHash(&first) {
				t.Errorf("%s, %s: a repeat is another message: %q, first %q", name, f, repeat, first)
			}
			if redriven.ID != e.ID+"~2" || messaging.ContentHash(&redriven) != messaging.ContentHash(&first) {
				t.Errorf("%s, %s: a redrive is %q, first %q", name, f, redriven, first)
			}
		}
	}
}

func pairs(list ...string) []mapping.Pair {
	var out []mapping.Pair
	for i := 0; i < len(list); i += 2 {
		out = append(out, mapping.Pair{Name: list[i], Value: list[i+1]})
	}
	return out
}

func TestEncodePlain(t *testing.T) {
	d := delivery(messaging.Envelope{
		ID: "1", Subject: "s", OrderingKey: "k", ContentType: "text/plain", Payload: []byte("p"),
		CreatedAt: at("2026-01-02T03:04:05+01:00"), ExpiresAt: at("2026-01-03T03:04:05Z"),
		Headers: messaging.Headers{"b": "2", "a": "1", "content-type": "x"},
	})
	d.Redrives = 1
	m, err := protocols["kafka"].Encode(d, mapping.Plain)
	if err != nil {
		t.Fatal(err)
	}
	want := pairs("a", "1", "b", "2", "gobridge-id", "1", "gobridge-dedupe-id", "1~1", "gobridge-subject", "s",
		"gobridge-ordering-key", "k", "gobridge-created-at", "2026-01-02T02:04:05Z", "gobridge-expires-at", "2026-01-03T03:04:05Z",
		"gobridge-headers", "content-type=x", "gobridge-route", "orders", "gobridge-binding", "lake",
		"gobridge-partition", "orders/lake/0", "gobridge-seq", "9", "gobridge-token-version", "3", "gobridge-attempt", "2",
		"gobridge-redrives", "1")
	if m.ContentType != "text/plain" || string(m.Payload) != "p" || !slices.Equal(m.Pairs, want) {
		t.Errorf("got  %q\nwant %q", m, want)
	}
}

func TestEncodeMakesAnEvent(t *testing.T) {
	d := delivery(messaging.Envelope{
		ID: "1", OrderingKey: "k", ContentType: "text/plain", Payload: []byte("p"), CreatedAt: at("2026-01-02T03:04:05Z"),
		Headers: messaging.Headers{"tenant": "acme", "X-Other": "o", "traceparent": traceparent},
	})
	m, err := protocols["amqp"].Encode(d, mapping.Binary)
	if err != nil {
		t.Fatal(err)
	}
	want := pairs("cloudEvents:id", "1", "cloudEvents:partitionkey", "k", "cloudEvents:source", "/gobridge/orders",
		"cloudEvents:specversion", "1.0", "cloudEvents:tenant", "acme", "cloudEvents:time", "2026-01-02T03:04:05Z",
		"cloudEvents:traceparent", traceparent, "cloudEvents:type", "gobridge.message", "X-Other", "o",
		"traceparent", traceparent, "gobridge-id", "1")
	if len(m.Pairs) < len(want) || !slices.Equal(m.Pairs[:len(want)], want) {
		t.Errorf("got  %q\nwant %q", m.Pairs, want)
	}
	if m, err = protocols["amqp"].Encode(d, mapping.Structured); err != nil {
		t.Fatal(err)
	}
	const body = `{"id":"1","partitionkey":"k","source":"/gobridge/orders","specversion":"1.0","tenant":"acme",` +
		`"time":"2026-01-02T03:04:05Z","traceparent":"` + traceparent + `","type":"gobridge.message",` +
		`"datacontenttype":"text/plain","data_base64":"cA=="}`
	if m.ContentType != "application/cloudevents+json" || string(m.Payload) != body {
		t.Errorf("%s\ngot  %s\nwant %s", m.ContentType, m.Payload, body)
	}
}

// An independent implementation reads what is written, and finds it valid.
func TestTheSDKReadsEvents(t *testing.T) {
	for name, e := range envelopes {
		m, err := protocols["kafka"].Encode(delivery(e), mapping.Structured)
		if err != nil {
			t.Fatal(err)
		}
		var ev event.Event
		if err := json.Unmarshal(m.Payload, &ev); err != nil {
			t.Errorf("%s: %v\n%.300s", name, err, m.Payload)
			continue
		}
		if err := ev.Validate(); err != nil {
			t.Errorf("%s: %v\n%.300s", name, err, m.Payload)
		}
		if name == "text in JSON" {
			continue // the SDK takes +json for no JSON, and hands over the text
		}
		if string(ev.Data()) != string(e.Payload) {
			t.Errorf("%s: the data is %.300q, want %.300q", name, ev.Data(), e.Payload)
		}
	}
}

func TestEventsOfTheSDKAreRead(t *testing.T) {
	ev := event.New()
	ev.SetID("7 x")
	ev.SetSource("https://example.com/shop?a=<&>")
	ev.SetType("order.placed")
	ev.SetTime(at("2026-01-02T03:04:05.5Z"))
	ev.SetExtension("partitionkey", "k")
	ev.SetExtension("count", 30)
	ev.SetExtension("yes", true)
	if err := ev.SetData("application/json", json.RawMessage(`{"n":1.50}`)); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	got, err := protocols["kafka"].Decode(mapping.Message{ContentType: "application/cloudevents+json; charset=UTF-8", Payload: body})
	if err != nil {
		t.Fatal(err)
	}
	want := messaging.Envelope{
		ID: "https://example.com/shop?a=<&> 7 x", Subject: "order.placed", OrderingKey: "k", ContentType: "application/json",
		Payload: []byte(`{"n":1.50}`), CreatedAt: at("2026-01-02T03:04:05.5Z"),
		Headers: messaging.Headers{
			"ce-specversion": "1.0", "ce-id": "7 x", "ce-source": "https://example.com/shop?a=<&>", "ce-type": "order.placed",
			"ce-time": "2026-01-02T03:04:05.5Z", "ce-partitionkey": "k", "ce-count": "30", "ce-yes": "true",
		},
	}
	if diff := differs(got, want); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeOfOthers(t *testing.T) {
	const ce = `"specversion":"1.0","id":"7","source":"/shop","type":"t"`
	for name, c := range map[string]struct {
		protocol string
		in       mapping.Message
		want     messaging.Envelope
	}{
		"nothing but a payload": {"kafka", mapping.Message{Payload: []byte("p")}, messaging.Envelope{Payload: []byte("p")}},
		"a repeated header is a list": {
			"kafka", mapping.Message{Pairs: pairs("a", "1", "A", "x", "a", "2")},
			messaging.Envelope{Headers: messaging.Headers{"a": "1,2", "A": "x"}},
		},
		"names of gobridge in another case": {
			"nats", mapping.Message{Pairs: pairs("Gobridge-Id", "1", "GOBRIDGE-ORDERING-KEY", "k", "Gobridge-Not-Before", "2026-01-02T03:04:05Z")},
			messaging.Envelope{ID: "1", OrderingKey: "k", NotBefore: at("2026-01-02T03:04:05Z")},
		},
		"binary": {
			"nats", mapping.Message{Pairs: pairs("Ce-Specversion", "1.0", "ce-id", "7", "ce-source", "/shop", "ce-type", "t", "tenant", "acme"), ContentType: "a/b"},
			messaging.Envelope{ID: "/shop 7", Subject: "t", ContentType: "a/b", Headers: messaging.Headers{
				"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "t", "tenant": "acme",
			}},
		},
		"AMQP with the other prefix": {
			"amqp", mapping.Message{Pairs: pairs("cloudEvents_specversion", "1.0", "cloudEvents_id", "7", "cloudEvents_source", "/shop", "cloudEvents_type", "t")},
			messaging.Envelope{ID: "/shop 7", Subject: "t", Headers: messaging.Headers{
				"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "t",
			}},
		},
		"MQTT": {
			"mqtt", mapping.Message{Pairs: pairs("specversion", "1.0", "id", "7", "source", "/shop", "type", "t", "X-Tenant", "acme", "traceparent", traceparent)},
			messaging.Envelope{ID: "/shop 7", Subject: "t", Headers: messaging.Headers{
				"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "t", "X-Tenant": "acme", "traceparent": traceparent,
			}},
		},
		"user properties without specversion": {
			"mqtt", mapping.Message{Pairs: pairs("id", "7", "type", "t")},
			messaging.Envelope{Headers: messaging.Headers{"id": "7", "type": "t"}},
		},
		"the producer's own ID counts": {
			"kafka", mapping.Message{Pairs: pairs("gobridge-id", "mine"), ContentType: "application/cloudevents+json", Payload: []byte(`{` + ce + `}`)},
			messaging.Envelope{ID: "mine", Subject: "t", Headers: messaging.Headers{
				"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "t",
			}},
		},
		"attributes beside JSON": {
			"kafka", mapping.Message{
				Pairs: pairs("ce_id", "7", "ce_other", "x", "a", "1"), ContentType: "application/cloudevents+json",
				Payload: []byte(` { ` + ce + `, "ext": null, "data" : [ 1.0, "\u00e4" ] } `),
			},
			messaging.Envelope{ID: "/shop 7", Subject: "t", ContentType: "application/json", Payload: []byte(`[ 1.0, "\u00e4" ]`), Headers: messaging.Headers{
				"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "t", "ce_other": "x", "a": "1",
			}},
		},
		"text as data": {
			"kafka", mapping.Message{ContentType: "application/cloudevents+json", Payload: []byte(`{` + ce + `,"datacontenttype":"text/plain","data":"a\n\"b\""}`)},
			messaging.Envelope{ID: "/shop 7", Subject: "t", ContentType: "text/plain", Payload: []byte("a\n\"b\""), Headers: messaging.Headers{
				"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "t",
			}},
		},
		"an event in another format is a payload": {
			"kafka", mapping.Message{ContentType: "application/cloudevents+avro", Payload: []byte("\x00")},
			messaging.Envelope{ContentType: "application/cloudevents+avro", Payload: []byte("\x00")},
		},
	} {
		got, err := protocols[c.protocol].Decode(c.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := differs(got, c.want); diff != "" || !got.NotBefore.Equal(c.want.NotBefore) {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	const ce = `"specversion":"1.0","id":"7","source":"/shop","type":"t"`
	json := func(body string) mapping.Message {
		return mapping.Message{ContentType: "application/cloudevents+json", Payload: []byte(body)}
	}
	beside := func(list ...string) mapping.Message { return mapping.Message{Pairs: pairs(list...)} }
	binary := func(list ...string) mapping.Message {
		all := map[string]string{"ce_specversion": "1.0", "ce_id": "7", "ce_source": "/shop", "ce_type": "t"}
		for i := 0; i < len(list); i += 2 {
			all[list[i]] = list[i+1]
		}
		var m mapping.Message
		for name, value := range all {
			if value != "-" {
				m.Pairs = append(m.Pairs, mapping.Pair{Name: name, Value: value})
			}
		}
		return m
	}
	for want, m := range map[string]mapping.Message{
		"Gobridge-Orderingkey is no header of gobridge; the nearest is gobridge-ordering-key":                beside("Gobridge-Orderingkey", "k"),
		"gobridge-colour is no header of gobridge; those that say something of a message are gobridge-id,":   beside("gobridge-colour", "k"),
		"gobridge-id is there more than once":                                                                beside("gobridge-id", "1", "Gobridge-Id", "1"),
		"gobridge-id is empty":                                                                               beside("gobridge-id", ""),
		"gobridge-dedupe-id is empty":                                                                        beside("gobridge-id", "1", "gobridge-dedupe-id", ""),
		`gobridge-created-at is "yesterday", which is no time as RFC 3339 has it, like 2026-01-02T03:04:05Z`: beside("gobridge-created-at", "yesterday"),
		`gobridge-created-at is "", which is no time`:                                                        beside("gobridge-created-at", ""),
		"gobridge-expires-at is outside 1970 to 2261":                                                        beside("gobridge-expires-at", "2300-01-01T00:00:00Z"),
		"gobridge-expires-at is not after gobridge-not-before":                                               beside("gobridge-expires-at", "2026-01-01T00:00:00Z", "gobridge-not-before", "2026-01-01T00:00:00Z"),
		`gobridge-event is "other"; it is none or made`:                                                      beside("gobridge-event", "other"),
		`gobridge-headers has "a"; it is name=value&name=value`:                                              beside("gobridge-headers", "a"),
		`gobridge-headers has "a=%zz"; it is name=value`:                                                     beside("gobridge-headers", "a=%zz"),
		`gobridge-headers has a header without a name: "=1"`:                                                 beside("gobridge-headers", "=1"),
		"gobridge-headers has Gobridge-Ordering-Key, which stands by itself":                                 beside("gobridge-headers", "Gobridge-Ordering-Key=k"),
		`gobridge-headers has "a" twice`:                                                                     beside("gobridge-headers", "a=1&a=2"),
		`gobridge-headers has "a", which is there by itself too`:                                             beside("gobridge-headers", "a=1", "a", "2"),
		"ce_id is missing; a CloudEvent has":                                                                 binary("ce_id", "-"),
		"ce_source is empty":                                                                                 binary("ce_source", ""),
		`ce_specversion is "0.3"; version 1.0 is understood`:                                                 binary("ce_specversion", "0.3"),
		"ce_source has white space":                                                                          binary("ce_source", "/a b"),
		"ce_source is no URI reference":                                                                      binary("ce_source", "%zz"),
		`ce_time is "noon", which is no time`:                                                                binary("ce_time", "noon"),
		"ce_subject is empty; leave it out":                                                                  binary("ce_subject", ""),
		"ce_dataschema is no absolute URI":                                                                   binary("ce_dataschema", "/relative"),
		"ce_a-b is no attribute name":                                                                        binary("ce_a-b", "1"),
		"ce_data is no attribute":                                                                            binary("ce_data", "1"),
		"ce_a is not valid UTF-8, or has control":                                                            binary("ce_a", "\x00"),
		"CE_ID is there more than once":                                                                      {Pairs: pairs("ce_specversion", "1.0", "ce_id", "1", "CE_ID", "1")},
		"the event is no JSON:":                                                                              json(`{"specversion":`),
		"the event is no JSON object":                                                                        json(`[]`),
		"the event is no JSON: invalid character 'x' after top-level value":                                  json(`{` + ce + `}x`),
		"the event is not valid UTF-8":                                                                       json("{\"id\":\"\xff\"}"),
		"id is there more than once":                                                                         json(`{` + ce + `,"id":"8"}`),
		"Ext is no attribute name":                                                                           json(`{` + ce + `,"Ext":"8"}`),
		"specversion is missing":                                                                             json(`{}`),
		"ext is an object or an array":                                                                       json(`{` + ce + `,"ext":{}}`),
		`ext is "1.5"; a number among the attributes is a whole one`:                                         json(`{` + ce + `,"ext":1.5}`),
		"data_base64 is there beside data":                                                                   json(`{` + ce + `,"data":1,"data_base64":""}`),
		"data_base64 is no text":                                                                             json(`{` + ce + `,"data_base64":1}`),
		"data_base64 is not base64":                                                                          json(`{` + ce + `,"data_base64":"???"}`),
		`datacontenttype is "so/", which is no media type, like application/`:                                json(`{` + ce + `,"datacontenttype":"so/","data":1}`),
	} {
		_, err := protocols["kafka"].Decode(m)
		var fe *mapping.FieldError
		if !errors.As(err, &fe) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %s", m, err, want)
		}
	}
}

// What is no message is given back as it came, but for what no store takes.
func TestDecodeGivesBackWhatItRefuses(t *testing.T) {
	e, err := protocols["kafka"].Decode(mapping.Message{
		ContentType: "text/plain", Payload: []byte("p"),
		Pairs: pairs("gobridge-expires-at", "soon", "a", "1", "a", "2", "", "nameless", "Gobridge-Ordering-Key", "k"),
	})
	want := messaging.Envelope{
		ContentType: "text/plain", Payload: []byte("p"),
		Headers: messaging.Headers{"gobridge-expires-at": "soon", "a": "1,2"},
	}
	if err == nil || !reflect.DeepEqual(e, want) {
		t.Errorf("got %+v, %v, want %+v and why it is none", e, err, want)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, c := range []struct {
		envelope messaging.Envelope
		want     string
	}{
		{messaging.Envelope{ID: "a\x00"}, `the message's ID is "a\x00", which no CloudEvent`},
		{messaging.Envelope{ID: "a", Subject: "\xff"}, `the subject is "\xff", which no CloudEvent`},
		{messaging.Envelope{ID: "a", ContentType: "no type"}, `the content type is "no type", which no CloudEvent`},
	} {
		_, err := protocols["kafka"].Encode(delivery(c.envelope), mapping.Structured)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: the error is %v, want %s", c.envelope, err, c.want)
		}
		if early := mapping.Carry(&c.envelope, mapping.Structured); early == nil || early.Error() != err.Error() {
			t.Errorf("%q: beforehand the error is %v, then %v", c.envelope, early, err)
		}
		if err := mapping.Carry(&c.envelope, mapping.Plain); err != nil {
			t.Errorf("%q: %v", c.envelope, err)
		}
	}
	if _, err := protocols["kafka"].Encode(delivery(messaging.Envelope{ID: "a"}), mapping.Format(9)); err == nil {
		t.Error("a format that does not exist was taken")
	}
}

func TestFormats(t *testing.T) {
	for _, f := range formats {
		if got, err := mapping.ParseFormat(f.String()); got != f || err != nil {
			t.Errorf("%s is read as %s, %v", f, got, err)
		}
	}
	if got, err := mapping.ParseFormat(""); got != mapping.Plain || err != nil {
		t.Errorf("no format is %s, %v", got, err)
	}
	if _, err := mapping.ParseFormat("avro"); err == nil || !strings.Contains(err.Error(), "cloudevents_structured") {
		t.Errorf("the error of an unknown format is %v", err)
	}
}
