package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/operate"
)

// TestClientAnswersAsTheDesk asks both for the same.
func TestClientAnswersAsTheDesk(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Desk = still{o.Desk} })
	w.fill()
	w.old()
	ann := operate.Who{By: "ann", Reason: "because"}
	here, there := w.server.options.Desk, w.client(operateToken)
	orders := target(t, "orders/crm")
	w.must(there.Pause(t.Context(), target(t, "orders"), ann))
	w.must(there.Halt(t.Context(), orders, "k\xff", "", ann))
	dead := gobridge.Filter{Route: "orders", States: []gobridge.State{gobridge.StateDead}}
	day := time.Now().Add(24 * time.Hour)
	for name, ask := range map[string]func(Desk) (any, error){
		"status":        func(d Desk) (any, error) { return d.Status(t.Context()) },
		"explain":       func(d Desk) (any, error) { return d.Explain(t.Context(), operate.Question{Text: "m-1"}) },
		"explain a key": func(d Desk) (any, error) { return d.Explain(t.Context(), operate.Question{Text: "k", OnlyKey: true}) },
		"explain an ID": func(d Desk) (any, error) { return d.Explain(t.Context(), operate.Question{Text: "k", OnlyID: true}) },
		"known":         func(d Desk) (any, error) { return nil, d.Known(t.Context(), orders) },
		"unknown":       func(d Desk) (any, error) { return nil, d.Known(t.Context(), target(t, "ordrs")) },
		"removed":       func(d Desk) (any, error) { return d.Removed("old", ""), nil },
		"not removed":   func(d Desk) (any, error) { return d.Removed("orders", "crm"), nil },
		"get":           func(d Desk) (any, error) { return d.Get(t.Context(), orders, "m-3") },
		"get odd": func(d Desk) (any, error) {
			r, err := d.Get(t.Context(), orders, "m-\xff")
			return fmt.Sprintf("%q", []string{r.Envelope.ID, r.Envelope.OrderingKey, string(r.Envelope.Payload)}), err
		},
		"get nothing": func(d Desk) (any, error) { return d.Get(t.Context(), orders, "m-99") },
		"waiting":     func(d Desk) (any, error) { return d.Waiting(t.Context(), orders) },
		"pauses":      func(d Desk) (any, error) { return d.Holding(t.Context(), target(t, "orders"), "", "") },
		"halts":       func(d Desk) (any, error) { return d.Holding(t.Context(), orders, "k\xff", "") },
		"no halts":    func(d Desk) (any, error) { return d.Holding(t.Context(), orders, "", "m-1") },
		"audit":       func(d Desk) (any, error) { return d.Audit(t.Context(), 2) },
		"dead":        func(d Desk) (any, error) { return d.Dead(t.Context(), gobridge.DeadQuery{Filter: dead, Limit: 2}) },
		"dead by error": func(d Desk) (any, error) {
			return d.Dead(t.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{Error: "500*", Reason: "exhausted", EndedBefore: day}})
		},
		"dead of a time": func(d Desk) (any, error) {
			return d.Dead(t.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{EndedFrom: day}})
		},
		"dead without key": func(d Desk) (any, error) {
			return d.Dead(t.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{HasKey: true}})
		},
		"dead by odd key": func(d Desk) (any, error) {
			return d.Dead(t.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{OrderingKey: "k\xff"}})
		},
		"a dry run": func(d Desk) (any, error) {
			return d.Do(t.Context(), operate.Job{Kind: operate.Discard, Filter: dead, Max: 2, DryRun: true}, operate.Who{}, nil)
		},
		"export": func(d Desk) (any, error) {
			var out bytes.Buffer
			n, err := d.Export(t.Context(), dead, &out, func(r gobridge.Ref) bool { return r.EnvelopeID == "m-3" }, nil)
			return fmt.Sprint(n, out.String()), err
		},
		"an import": func(d Desk) (any, error) {
			var out bytes.Buffer
			if _, err := d.Export(t.Context(), dead, &out, nil, nil); err != nil {
				return nil, err
			}
			return d.Import(t.Context(), &out, target(t, "orders/billing"), operate.Who{}, true, nil)
		},
	} {
		want, wantErr := ask(here)
		got, err := ask(there)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || errors.Is(err, gobridge.ErrNotFound) != errors.Is(wantErr, gobridge.ErrNotFound) {
			t.Errorf("%s: error %v, want %v", name, err, wantErr)
		}
		if wantJSON, gotJSON := asJSON(t, want), asJSON(t, got); wantErr == nil && gotJSON != wantJSON {
			t.Errorf("%s:\n%s, want\n%s", name, gotJSON, wantJSON)
		}
	}
}

// still is a desk whose clock stands still between two looks.
type still struct{ Desk }

func (s still) Status(ctx context.Context) (operate.Status, error) {
	out, err := s.Desk.Status(ctx)
	out.At = time.Time{}
	for i := range out.Bindings {
		out.Bindings[i].OldestAgeSeconds = 0
	}
	return out, err
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	// A list without anything, and what is no UTF-8, has two ways to be written.
	return strings.NewReplacer("[]", "null", `\ufffd`, "\ufffd").Replace(string(out))
}

func TestClientActs(t *testing.T) {
	w := newWorld(t, reloading)
	w.fill()
	w.old()
	ann := operate.Who{By: "ann", Reason: "because"}
	c := w.client(operateToken)
	orders, old := target(t, "orders/crm"), target(t, "old/crm")
	w.must(c.Pause(t.Context(), target(t, "orders"), ann))
	w.must(c.Resume(t.Context(), target(t, "orders"), "", "", ann))
	if err := c.Resume(t.Context(), target(t, "orders"), "", "", ann); !errors.Is(err, gobridge.ErrNotFound) {
		t.Errorf("nothing to resume: %v", err)
	}
	if n, err := c.Retry(t.Context(), orders.Filter(), ann); err != nil || n != 0 {
		t.Errorf("retry: %d, %v", n, err)
	}
	moved, err := c.Move(t.Context(), old, orders, ann)
	if err != nil || moved.Moved != 1 || moved.Left.Dead != 1 {
		t.Errorf("move: %+v, %v", moved, err)
	}
	if n, err := c.EndRemoved(t.Context(), old, ann); err != nil || n != 1 {
		t.Errorf("end: %d, %v", n, err)
	}
	said := 0
	report, err := c.Do(t.Context(), operate.Job{Kind: operate.Redrive, Filter: orders.Filter(), Max: 3}, ann, func(int) { said++ })
	if err != nil || report.Count != 3 || !report.More || report.Before.IsZero() {
		t.Errorf("redrive: %+v, %v", report, err)
	}
	var letter bytes.Buffer
	line, err := operate.EncodeLetter(&gobridge.Record{Partition: crm, Binding: "crm", Envelope: messaging.Envelope{ID: "new", Payload: bytes.Repeat([]byte("p"), 1<<20)}})
	w.must(err)
	for range 3 {
		letter.Write(append(line, '\n'))
	}
	imported, err := c.Import(t.Context(), &letter, operate.Target{}, ann, false, nil)
	if err != nil || imported != (operate.ImportReport{Read: 3, Imported: 1, Held: 2}) {
		t.Errorf("import: %+v, %v", imported, err)
	}
	letter.Write(append(bytes.ReplaceAll(line, []byte(`"id":"new"`), []byte(`"id":"newer"`)), "\nnonsense\n"...))
	imported, err = c.Import(t.Context(), &letter, operate.Target{}, ann, false, nil)
	if err == nil || !strings.Contains(err.Error(), "line 2: no dead letter") || imported.Imported != 1 {
		t.Errorf("a broken import: %+v, %v", imported, err)
	}
	if changed, err := c.Reload(t.Context(), ann); err != nil || changed != "nothing" {
		t.Errorf("reload: %q, %v", changed, err)
	}
	entries, err := c.Audit(t.Context(), 100)
	w.must(err)
	for _, e := range entries {
		if e.By != "ann (operate token)" {
			t.Errorf("audit: %+v", e)
		}
	}
	if len(entries) < 6 {
		t.Errorf("audit: %+v", entries)
	}
}

func TestClientErrors(t *testing.T) {
	w := newWorld(t, nil)
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	w.must(err)
	w.must(closed.Close())
	other := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	for name, tt := range map[string]struct {
		url, token string
		is         error
		want       string
	}{
		"wrong token":  {w.url, "some-other-token", ErrUnreachable, "The token is wrong"},
		"wrong name":   {strings.Replace(w.url, "127.0.0.1", "127.0.0.2", 1), readToken, ErrUnreachable, "127.0.0.2"},
		"nobody there": {"http://" + closed.Addr().String(), readToken, ErrUnreachable, "connection refused"},
		"another":      {other(func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }), readToken, ErrUnreachable, "answers 404 Not Found, and not as an admin listener does"},
		"redirecting": {other(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example", http.StatusFound)
		}), readToken, ErrUnreachable, "answers 302"},
		"no JSON":       {other(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), readToken, ErrUnreachable, "its answer breaks off or is not as expected"},
		"TLS or no TLS": {strings.Replace(w.url, "http", "https", 1), readToken, ErrUnreachable, "HTTP response to HTTPS client"},
	} {
		c, err := NewClient(ClientOptions{URL: tt.url, Token: tt.token})
		w.must(err)
		_, err = c.Status(t.Context())
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), tt.token) {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.Close()
	}
	if err := w.client(readToken).Pause(t.Context(), target(t, "orders"), operate.Who{By: "a", Reason: "r"}); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "role read; this needs operate") {
		t.Errorf("a pause with the role read: %v", err)
	}
	if _, err := w.client(readToken).Dead(t.Context(), gobridge.DeadQuery{Cursor: "nonsense"}); !errors.Is(err, gobridge.ErrInvalidCursor) {
		t.Errorf("a cursor of nobody: %v", err)
	}
	for _, url := range []string{"", "127.0.0.1:9090", "ftp://h", "http://", "http://user:secret@h", "http://user:secret@h:x", "http://h/path", "http://h?x=y"} {
		if _, err := NewClient(ClientOptions{URL: url, Token: readToken}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.client(readToken).Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
