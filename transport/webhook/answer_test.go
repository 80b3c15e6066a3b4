package webhook

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gobridge"
	"gobridge/messaging"
)

func FuzzRetryAfter(f *testing.F) {
	for _, v := range []string{"", "0", "120", "-1", "+5", "1e9", " 7 ", "Fri, 02 Jan 2026 03:05:05 GMT", "99999999999999999999", "Friday"} {
		f.Add(v)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value string) {
		if after, ok := parseRetryAfter(value, now); after < 0 || after > maxRetryAfter || !ok && after != 0 {
			t.Errorf("%q is %v, %v", value, after, ok)
		}
	})
}

func FuzzSanitise(f *testing.F) {
	f.Add([]byte("a\r\nb\xff"))
	f.Add([]byte(strings.Repeat("é", 101)))
	f.Fuzz(func(t *testing.T, body []byte) {
		text := sanitise(body)
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n\t\x00\x1b\u2028") || len(text) > 3*shownBody {
			t.Errorf("%q becomes %q", body, text)
		}
	})
}

// FuzzHeaders checks that no message can write headers of its own making, and
// that different headers make different requests.
func FuzzHeaders(f *testing.F) {
	f.Add("x-a", "1", "host", "evil")
	f.Add("a b", "\r\nx: y", "ce-x", "Köln")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		d := gobridge.Delivery{Envelope: messaging.Envelope{
			ID: v1, OrderingKey: v2, ContentType: n2, Headers: messaging.Headers{n1: v1, n2: v2},
		}}
		s, err := New(Options{URL: "http://localhost", Headers: map[string]string{"X-Ours": "ours"}})
		if err != nil {
			t.Fatal(err)
		}
		h, _, err := s.header(&d)
		if err != nil {
			t.Fatal(err)
		}
		if len(h["X-Ours"]) != 1 || h["X-Ours"][0] != "ours" {
			t.Errorf("our header became %q", h["X-Ours"])
		}
		for name, values := range h {
			if !token(name) || len(values) != 1 || !plain(values[0]) {
				t.Errorf("header %q: %q", name, values)
			}
		}
	})
}
