package jsonlines_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/jsonlines"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

// lineOf returns the line that a delivery becomes.
func lineOf(t testing.TB, d gobridge.Delivery) string {
	t.Helper()
	var out bytes.Buffer
	for _, err := range jsonlines.Stdout(&out).Send(t.Context(), []gobridge.Delivery{d}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	line, ok := strings.CutSuffix(out.String(), "\n")
	if !ok || strings.ContainsAny(line, "\n\r") {
		t.Fatalf("not one line: %q", out.String())
	}
	return line
}

func delivery(id, payload string) gobridge.Delivery {
	return gobridge.Delivery{
		Envelope:  messaging.Envelope{ID: id, ContentType: "application/json", Payload: []byte(payload)},
		Route:     "orders",
		Binding:   "audit",
		Partition: gobridge.NewPartition("orders", "audit", 0),
		Attempt:   1,
		Token:     gobridge.Token{Version: 3},
		Seq:       42,
	}
}

func TestLineHasTheDocumentedMembers(t *testing.T) {
	d := delivery("m1", `{"total": 12.50}`)
	d.Envelope.Subject = "order.placed"
	d.Envelope.OrderingKey = "cust-7"
	d.Envelope.Headers = messaging.Headers{"b": "2", "a": ""}
	d.Envelope.CreatedAt = at
	d.Envelope.ExpiresAt = at.Add(time.Hour)
	d.Redrives = 2
	line := lineOf(t, d)
	want := `{"id":"m1","subject":"order.placed","key":"cust-7","content_type":"application/json",` +
		`"headers":{"a":"","b":"2"},"route":"orders","binding":"audit","partition":"orders/audit/0",` +
		`"attempt":1,"redrives":2,"seq":42,"version":3,` +
		`"created_at":"2026-01-02T03:04:05.678Z","expires_at":"2026-01-02T04:04:05.678Z","delivered_at":"`
	if !strings.HasPrefix(line, want) || !strings.HasSuffix(line, `","data":{"total": 12.50}}`) {
		t.Errorf("line is\n%s\nwant\n%s...", line, want)
	}
}

func TestPayloadStandsWhereItsBytesSurvive(t *testing.T) {
	deep := strings.Repeat("[", 9_500) + strings.Repeat("]", 9_500)
	wide := "[" + strings.Repeat("{},", 9_500) + "{}]"
	for _, c := range []struct{ name, contentType, payload, member string }{
		{"object", "application/json", `{"a": 1,  "a":1.0}`, `"data":`},
		{"null", "application/json", `null`, `"data":`},
		{"suffix and parameter", "application/vnd.x+json; charset=utf-8", `[1]`, `"data":`},
		{"many shallow values", "application/json", wide, `"data":`},
		{"trailing line end", "application/json", "{}\n", `"data_text":`},
		{"leading space", "application/json", " {}", `"data_text":`},
		{"several lines", "application/json", "{\n \"a\": 1\n}", `"data_text":`},
		{"deep", "application/json", deep, `"data_text":`},
		{"invalid", "application/json", `{"a":`, `"data_text":`},
		{"member smuggled in", "application/json", `1,"attempt":9`, `"data_text":`},
		{"invalid UTF-8 in a string", "application/json", "\"\xff\"", `"data_base64":`},
		{"JSON without its type", "text/plain", `{}`, `"data_text":`},
		{"text", "text/plain", "a\x00\"\\\r\n\t\u2028\u2029\x7fé😀", `"data_text":`},
		{"bytes", "", "\x00\xff\xfe", `"data_base64":`},
		{"empty", "application/json", "", `"data_text":""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := delivery("m1", c.payload)
			d.Envelope.ContentType = c.contentType
			line := lineOf(t, d)
			if !strings.Contains(line, c.member) {
				t.Errorf("no %s in %.300s", c.member, line)
			}
			if !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %.300s", line)
			}
			back, _, err := jsonlines.Decode([]byte(line))
			if err != nil || string(back.Envelope.Payload) != c.payload {
				t.Errorf("read back %.100q, %v", back.Envelope.Payload, err)
			}
			if strings.ContainsAny(line, "\u2028\u2029\x7f") {
				t.Errorf("a line separator stands in %q", line)
			}
		})
	}
}

func FuzzLine(f *testing.F) {
	f.Add("m1", "s", "k", "application/json", "h", "v", "o\xff", "\x00", []byte(`{"a":1}`), int64(1), int64(7))
	f.Add("\xff", "\u2028", "\"\\", "text/plain", "H", "\xc3\x28", "", "", []byte("\xff"), int64(-5), int64(-1))
	f.Add("", "", "", "a/b+json", "", "", "", "", []byte("null"), int64(1<<62), int64(0))
	f.Fuzz(func(t *testing.T, id, subject, key, contentType, n1, v1, n2, v2 string, payload []byte, ns, seq int64) {
		d := gobridge.Delivery{
			Envelope: messaging.Envelope{
				ID: id, Subject: subject, OrderingKey: key, ContentType: contentType,
				Headers: messaging.Headers{n1: v1, n2: v2}, Payload: payload,
			},
			Route: subject, Binding: id, Partition: gobridge.Partition(key),
			Attempt: 2, Token: gobridge.Token{Version: seq}, Seq: seq,
		}
		if ns > 0 {
			d.Envelope.ExpiresAt = time.Unix(0, ns).UTC()
		}
		if d.Envelope.Payload == nil {
			d.Envelope.Payload = []byte{}
		}
		line := lineOf(t, d)
		back, _, err := jsonlines.Decode([]byte(line))
		if err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if !reflect.DeepEqual(back, d) {
			t.Fatalf("wrote\n%#v, read\n%#v from\n%q", d, back, line)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":"a","data":1}`))
	f.Add([]byte(`{"headers_base64":[["",""],["AA=="]],"id_base64":null}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _, _ = jsonlines.Decode(data) // must not panic
	})
}
