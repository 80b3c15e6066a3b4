package httpsource_test

import (
	"net/http"
	"strings"
	"testing"

	"gobridge/transport/httpsource"
)

func TestMisspeltHeadersOfGobridgeAreRefused(t *testing.T) {
	const all = "Gobridge-Id, Gobridge-Ordering-Key, Gobridge-Subject, Gobridge-Created-At, Gobridge-Not-Before, Gobridge-Expires-At."
	for _, c := range []struct{ sent, field, detail string }{
		{"gobridge-ordring-key", "Gobridge-Ordring-Key", "the nearest is Gobridge-Ordering-Key."},
		{"Gobridge-OrderingKey", "Gobridge-Orderingkey", "the nearest is Gobridge-Ordering-Key."},
		{"Gobridge-Ordering_Key", "Gobridge-Ordering_key", "the nearest is Gobridge-Ordering-Key."},
		{"GOBRIDGE-ORDER-KEY", "Gobridge-Order-Key", "the nearest is Gobridge-Ordering-Key."},
		{"Gobridge-Subjekt", "Gobridge-Subjekt", "the nearest is Gobridge-Subject."},
		{"Gobridge-Expire-At", "Gobridge-Expire-At", "the nearest is Gobridge-Expires-At."},
		{"Gobridge-Tenant", "Gobridge-Tenant", all},
		{"Gobridge-", "Gobridge-", all},
		{"Gobridge-" + strings.Repeat("X", 1000), "Gobridge-X" + strings.Repeat("x", 999), all},
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		d := problem(t, post(s, "x", c.sent, "a", "Gobridge-Subject", "s"), http.StatusBadRequest)
		if d.Field != c.field || !strings.HasPrefix(d.Detail, c.field+" is no header of gobridge; ") || !strings.HasSuffix(d.Detail, c.detail) {
			t.Errorf("%s: field %q, %s", c.sent, d.Field, d.Detail)
		}
		if len(box.got) != 0 {
			t.Errorf("%s: accepted", c.sent)
		}
	}
}

func TestOfSeveralMisspeltHeadersTheSameIsNamed(t *testing.T) {
	s, _ := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	for range 20 {
		d := problem(t, post(s, "x", "Gobridge-C", "1", "Gobridge-A", "1", "Gobridge-B", "1"), http.StatusBadRequest)
		if d.Field != "Gobridge-A" {
			t.Fatalf("names %s", d.Field)
		}
	}
}

func TestNamesThatOnlyLookAlikeAreLetIn(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{Headers: []string{"x-gobridge-a"}})
	post(s, "x", "X-Gobridge-A", "1", "Gobridgekey", "2")
	if e := box.one(t); len(e.Headers) != 1 || e.Headers["x-gobridge-a"] != "1" {
		t.Errorf("headers are %v", e.Headers)
	}
}
