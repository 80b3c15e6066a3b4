package httpsource_test

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"gobridge/transport/httpsource"
)

func TestBearer(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{Tokens: []string{"new", "", "old"}})
	for _, good := range []string{"Bearer new", "bearer old", "Bearer  new"} {
		if w := post(s, "x", "Authorization", good); w.Code != http.StatusAccepted {
			t.Errorf("%q: %d %s", good, w.Code, w.Body)
		}
	}
	taken := len(box.got)
	for _, lines := range [][]string{
		{},
		{"Authorization", ""},
		{"Authorization", "Bearer"},
		{"Authorization", "Bearer "},
		{"Authorization", "Bearer newer"},
		{"Authorization", "Bearer ne"},
		{"Authorization", "Basic new"},
		{"Authorization", "new"},
		{"Authorization", "Bearer new", "Authorization", "Bearer new"},
	} {
		w := post(s, "x", lines...)
		problem(t, w, http.StatusUnauthorized)
		if !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer ") {
			t.Errorf("%q: challenge %q", lines, w.Header().Get("WWW-Authenticate"))
		}
	}
	if len(box.got) != taken {
		t.Error("accepted without a token")
	}
}

func secret(fill string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

// signed are the headers that the specification's own library makes.
func signed(t *testing.T, key, id string, at time.Time, body string) []string {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(key)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := hook.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"webhook-id", id, "webhook-timestamp", strconv.FormatInt(at.Unix(), 10), "webhook-signature", signature}
}

func TestSignature(t *testing.T) {
	route := httpsource.RouteOptions{Secrets: []string{secret("b"), secret("a"), ""}, ReplayWindow: time.Minute}
	for _, c := range []struct {
		name   string
		lines  []string
		body   string
		status int
	}{
		{"good", signed(t, secret("a"), "m1", now, "x"), "x", 202},
		{"other secret", signed(t, secret("b"), "m1", now, "x"), "x", 202},
		{"empty body", signed(t, secret("a"), "m1", now, ""), "", 202},
		{"another ID beside it", append(signed(t, secret("a"), "m1", now, "x"), "Idempotency-Key", "m2"), "x", 202},
		{"unknown secret", signed(t, secret("c"), "m1", now, "x"), "x", 401},
		{"other body", signed(t, secret("a"), "m1", now, "y"), "x", 401},
		{"too old", signed(t, secret("a"), "m1", now.Add(-61*time.Second), "x"), "x", 401},
		{"too new", signed(t, secret("a"), "m1", now.Add(61*time.Second), "x"), "x", 401},
		{"dotted ID", signed(t, secret("a"), "m.1", now, "x"), "x", 401},
		{"none", nil, "x", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, box := serving(t, httpsource.Options{}, route)
			w := post(s, c.body, c.lines...)
			if c.status == http.StatusAccepted {
				if e := box.one(t); w.Code != c.status || e.ID != "m1" || e.Headers != nil {
					t.Errorf("answer %d, message %+v", w.Code, e)
				}
				return
			}
			problem(t, w, c.status)
			if w.Header().Get("WWW-Authenticate") == "" || len(box.got) != 0 {
				t.Errorf("challenge %q, accepted %d", w.Header().Get("WWW-Authenticate"), len(box.got))
			}
		})
	}
}

func TestIDOfAMessage(t *testing.T) {
	event := []string{"ce-specversion", "1.0", "ce-id", "e1", "ce-source", "/a", "ce-type", "t"}
	for _, c := range []struct {
		want  string
		lines []string
	}{
		{"k", []string{"Idempotency-Key", "k"}},
		{"k", []string{"Idempotency-Key", `"k"`}},
		{`k"\k`, []string{"Idempotency-Key", `"k\"\\k"`}},
		{"k k;v", []string{"Idempotency-Key", "k k;v"}},
		{"k", append([]string{"Idempotency-Key", "k", "Webhook-Id", "w"}, event...)},
		{"/a e1", append([]string{"Webhook-Id", "w"}, event...)},
		{"w", []string{"Webhook-Id", "w"}},
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		post(s, "", c.lines...)
		if e := box.one(t); e.ID != c.want {
			t.Errorf("%q: ID %q, want %q", c.lines, e.ID, c.want)
		}
	}
}
