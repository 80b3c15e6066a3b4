package httpsource

import (
	"context"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gobridge"
	"gobridge/messaging"
)

func FuzzIdempotencyKey(f *testing.F) {
	for _, v := range []string{"", "a", `"a"`, `"a\"\\b"`, `"a" `, `"`, `"\`, "a\x00", "é"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, value string) {
		id, err := parseIdempotencyKey(value)
		if err != nil {
			return
		}
		if id == "" {
			t.Errorf("%q is taken for an empty ID", value)
		}
		// The quoted spelling of an ID names the same ID.
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(id) + `"`
		if again, err := parseIdempotencyKey(quoted); err != nil || again != id {
			t.Errorf("%q is %q, but %q is %q, %v", value, id, quoted, again, err)
		}
	})
}

// FuzzHeaders feeds any headers, a line each, and checks what comes of them.
func FuzzHeaders(f *testing.F) {
	f.Add("Idempotency-Key: a\nGobridge-Ordering-Key: %C3%B6\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("Ce-Specversion: 1.0\nCe-Id: 1\nCe-Source: /a\nCe-Type: t\nCe-Time: 2026-01-02T03:04:05Z\nCe-Partitionkey: k")
	f.Add("Ce-: x\nCe-Specversion: 1.0\nCe-Id: \nCe-Source: %zz\nContent-Type: a/b; c")
	f.Add("Content-Type: text/plain\nGobridge-Not-Before: 0000-00-00T00:00:00Z\nGobridge-Expires-At: 9999-12-31T23:59:59Z")
	f.Add("Gobridge-Headers: x=%C3%B6&Y=1\nGobridge-Id: a%20b\nGobridge-Dedupe-Id: a~1\nGobridge-Content-Type: a%0A")
	f.Add("Gobridge-Event: made\nCe-Specversion: 1.0\nCe-Id: 1\nCe-Source: /a\nCe-Type: t\nCe-Tenant: x")
	f.Add("Gobridge-Event: none\nContent-Type: application/cloudevents+json")
	server, err := New(Options{Address: ":0"})
	if err != nil {
		f.Fatal(err)
	}
	rt, err := server.newRoute("/a", RouteOptions{Headers: []string{"x-tenant"}}, func(context.Context, messaging.Envelope) (gobridge.Receipt, error) {
		return gobridge.Receipt{}, nil
	})
	if err != nil {
		f.Fatal(err)
	}
	limits := gobridge.Limits{}
	f.Fuzz(func(t *testing.T, text string) {
		header := http.Header{}
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, ":")
			header.Add(textproto.TrimString(name), textproto.TrimString(value))
		}
		in, p := rt.read(header)
		e := in.envelope
		if p != nil {
			if p.Status < 400 || p.Status > 499 || p.Detail == "" {
				t.Errorf("problem %+v", p)
			}
			return
		}
		if in.mode != modeBinary {
			return
		}
		if e.ID == "" {
			t.Error("a message without an ID")
		}
		for name := range e.Headers {
			if name != strings.ToLower(name) && header["Gobridge-Headers"] == nil || name == "" {
				t.Errorf("header %q", name)
			}
		}
		if strings.HasPrefix(e.ID, "\"") && header.Get("Idempotency-Key") == "" && header.Get("Webhook-Id") == "" && header.Get("Gobridge-Id") == "" && header.Get("Gobridge-Dedupe-Id") == "" {
			t.Errorf("ID %q out of nowhere", e.ID)
		}
		// The store refuses times that it can't hold; nothing else may be wrong.
		e.CreatedAt, e.NotBefore, e.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
		if err := limits.CheckEnvelope(&e); err != nil {
			t.Errorf("message %+v: %v", e, err)
		}
		if header["Ce-Id"] != nil && header["Idempotency-Key"] == nil && header["Gobridge-Id"] == nil && header["Gobridge-Dedupe-Id"] == nil && !utf8.ValidString(e.ID) {
			t.Errorf("event with ID %q", e.ID)
		}
	})
}

// FuzzJSON feeds bodies that are events in JSON, one or a batch.
func FuzzJSON(f *testing.F) {
	const event = `{"specversion":"1.0","id":"1","source":"/a","type":"t","partitionkey":"k","n":3,"data":{"a":1.0}}`
	f.Add(event, false)
	f.Add("["+event+" , "+event+"]", true)
	f.Add(`[{"specversion":"1.0","id":"1","source":"/a","type":"t","data_base64":"AA=="},{}]`, true)
	f.Add(`[[[`, true)
	server, err := New(Options{Address: ":0"})
	if err != nil {
		f.Fatal(err)
	}
	most := 3
	rt, err := server.newRoute("/a", RouteOptions{
		MaxBatch: most,
		Publish:  func(context.Context, ...messaging.Envelope) ([]gobridge.Receipt, error) { return nil, nil },
	}, func(context.Context, messaging.Envelope) (gobridge.Receipt, error) { return gobridge.Receipt{}, nil })
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string, batch bool) {
		header := http.Header{"Content-Type": {structuredType}}
		if batch {
			header["Content-Type"] = []string{batchType}
		}
		in, p := rt.read(header)
		if p != nil {
			t.Fatal(p.Detail)
		}
		all, p := rt.messages(&in, []byte(body))
		if p != nil {
			if p.Status != 400 && p.Status != 413 || p.Detail == "" {
				t.Errorf("problem %+v", p)
			}
			return
		}
		if len(all) > most || !batch && len(all) != 1 {
			t.Errorf("%d messages", len(all))
		}
		for i := range all {
			e := &all[i]
			if e.ID != e.Headers["ce-source"]+" "+e.Headers["ce-id"] || e.Subject != e.Headers["ce-type"] {
				t.Errorf("message %+v", e)
			}
			if len(e.Payload) > len(body) {
				t.Errorf("a payload of %d bytes in a body of %d", len(e.Payload), len(body))
			}
		}
	})
}
