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
		e, p := rt.envelope(t.Context(), header)
		if p != nil {
			if p.Status < 400 || p.Status > 499 || p.Detail == "" {
				t.Errorf("problem %+v", p)
			}
			return
		}
		if e.ID == "" {
			t.Error("a message without an ID")
		}
		for name := range e.Headers {
			if name != strings.ToLower(name) || name == "" {
				t.Errorf("header %q", name)
			}
		}
		if strings.HasPrefix(e.ID, "\"") && header.Get("Idempotency-Key") == "" && header.Get("Webhook-Id") == "" {
			t.Errorf("ID %q out of nowhere", e.ID)
		}
		// The store refuses times that it can't hold; nothing else may be wrong.
		e.CreatedAt, e.NotBefore, e.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
		if err := limits.CheckEnvelope(&e); err != nil {
			t.Errorf("message %+v: %v", e, err)
		}
		if header["Ce-Id"] != nil && header["Idempotency-Key"] == nil && !utf8.ValidString(e.ID) {
			t.Errorf("event with ID %q", e.ID)
		}
	})
}
