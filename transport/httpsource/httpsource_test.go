package httpsource_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/httpsource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// outbox stands for a route: it remembers what it was given.
type outbox struct {
	mu  sync.Mutex
	got []messaging.Envelope
	err error
	// duplicate is what the receipt says.
	duplicate bool
}

func (o *outbox) accept(_ context.Context, e messaging.Envelope) (gobridge.Receipt, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return gobridge.Receipt{}, o.err
	}
	o.got = append(o.got, e)
	return gobridge.Receipt{EnvelopeID: e.ID, Duplicate: o.duplicate, Bindings: 1}, nil
}

// one returns the only message accepted.
func (o *outbox) one(t *testing.T) messaging.Envelope {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.got) != 1 {
		t.Fatalf("accepted %d messages, want one", len(o.got))
	}
	return o.got[0]
}

func newServer(t testing.TB, options httpsource.Options) *httpsource.Server {
	t.Helper()
	if options.Address == "" {
		options.Address = "127.0.0.1:0"
	}
	if options.Now == nil {
		options.Now = func() time.Time { return now }
	}
	s, err := httpsource.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// serving returns a server with one route at /orders, and what it accepts.
func serving(t testing.TB, options httpsource.Options, route httpsource.RouteOptions) (*httpsource.Server, *outbox) {
	t.Helper()
	s, box := newServer(t, options), &outbox{}
	if err := s.Handle("/orders", route, box.accept); err != nil {
		t.Fatal(err)
	}
	return s, box
}

// lines are headers as name, value, name, value.
func post(s http.Handler, body string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

type details struct {
	Type, Title, Detail, Field string
	Status                     int
}

// problem checks that the answer is an RFC 9457 problem with the status.
func problem(t *testing.T, w *httptest.ResponseRecorder, status int) details {
	t.Helper()
	var d details
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatalf("answer %d %q: %v", w.Code, w.Body, err)
	}
	if w.Code != status || d.Status != status || w.Header().Get("Content-Type") != "application/problem+json" ||
		d.Type == "" || d.Title == "" || d.Detail == "" {
		t.Errorf("answer %d %s, want a problem with status %d", w.Code, w.Body, status)
	}
	return d
}

func TestAcceptedMessage(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{Headers: []string{"X-Tenant", "x-list", "x-none"}})
	w := post(s, `{"total":12.5}`,
		"Content-Type", "application/json; charset=utf-8",
		"Content-Encoding", "gzip",
		"Idempotency-Key", "k-1",
		"Gobridge-Ordering-Key", "K%C3%B6ln/7",
		"Gobridge-Created-At", "2026-01-02T04:04:05.5+01:00",
		"Gobridge-Not-Before", "2026-01-02T03:05:00Z",
		"Gobridge-Expires-At", "2026-01-02T04:00:00Z",
		"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Tracestate", "a=1", "Tracestate", "b=2",
		"Baggage", "user=7",
		"X-Tenant", "acme", "X-List", "a", "X-List", "b", "X-Other", "c",
		"Cookie", "session=1",
	)
	if w.Code != http.StatusAccepted || w.Body.String() != `{"id":"k-1"}`+"\n" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("answer %d %q", w.Code, w.Body)
	}
	e := box.one(t)
	want := messaging.Headers{
		"content-encoding": "gzip", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"tracestate": "a=1,b=2", "baggage": "user=7", "x-tenant": "acme", "x-list": "a, b",
	}
	for name := range want {
		if e.Headers[name] != want[name] {
			t.Errorf("header %s is %q, want %q", name, e.Headers[name], want[name])
		}
	}
	if len(e.Headers) != len(want) {
		t.Errorf("headers are %v", e.Headers)
	}
	if e.ID != "k-1" || e.Subject != "orders" || e.OrderingKey != "Köln/7" || string(e.Payload) != `{"total":12.5}` ||
		e.ContentType != "application/json; charset=utf-8" || !e.CreatedAt.Equal(now.Add(time.Second/2)) ||
		!e.NotBefore.Equal(now.Add(55*time.Second)) || !e.ExpiresAt.Equal(now.Add(55*time.Minute+55*time.Second)) {
		t.Errorf("message is %+v", e)
	}
}

func TestBareMessage(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{Subject: "order.new"})
	w := post(s, "")
	e := box.one(t)
	if w.Code != http.StatusAccepted || w.Body.String() != `{"id":"`+e.ID+`"}`+"\n" {
		t.Errorf("answer %d %q", w.Code, w.Body)
	}
	if len(e.ID) != 36 || e.Subject != "order.new" || e.ContentType != "" || len(e.Payload) != 0 || e.Headers != nil ||
		e.OrderingKey != "" || !e.CreatedAt.IsZero() {
		t.Errorf("message is %+v", e)
	}
}

func TestDuplicate(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	box.duplicate = true
	w := post(s, "x", "Idempotency-Key", `"a\"b"`)
	if w.Code != http.StatusOK || w.Body.String() != `{"id":"a\"b","duplicate":true}`+"\n" {
		t.Errorf("answer %d %q", w.Code, w.Body)
	}
}

func TestErrorsOfAccept(t *testing.T) {
	secret := errors.New("dial tcp 10.0.0.7: hunter2")
	wrap := func(err error) error { return &gobridge.Error{Op: "persist hunter2", Err: errors.Join(err, secret)} }
	for _, c := range []struct {
		name          string
		err           error
		status        int
		field, detail string
		retry         string
	}{
		{"field", &gobridge.FieldError{Field: "Envelope.ExpiresAt", Problem: "is 1920, outside 1970 to 2261"},
			400, "expiry time", "The expiry time is 1920, outside 1970 to 2261.", ""},
		{"invalid", wrap(gobridge.ErrInvalidRecord), 400, "", "", ""},
		{"size", wrap(&gobridge.FieldError{Field: "Envelope.Payload", Problem: "bytes", Size: 9, Limit: 8}),
			413, "payload", "The payload has 9 bytes, the limit is 8.", ""},
		{"too large", wrap(gobridge.ErrTooLarge), 413, "", "", ""},
		{"reused", wrap(gobridge.ErrIdentityReused), 422, "", "", ""},
		{"rejected", wrap(gobridge.ErrRejected), 422, "", "", ""},
		{"full", wrap(gobridge.ErrOutboxFull), 503, "", "", "5"},
		{"closed", wrap(gobridge.ErrClosed), 503, "", "", "2"},
		{"slow", wrap(context.DeadlineExceeded), 503, "", "", "2"},
		{"database", secret, 503, "", "", "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
			box.err = c.err
			w := post(s, "x")
			d := problem(t, w, c.status)
			if d.Field != c.field || c.detail != "" && d.Detail != c.detail || w.Header().Get("Retry-After") != c.retry {
				t.Errorf("answer %s, Retry-After %q", w.Body, w.Header().Get("Retry-After"))
			}
			if strings.Contains(w.Body.String(), "hunter2") {
				t.Errorf("the answer tells what is behind it: %s", w.Body)
			}
		})
	}
}

func TestPathAndMethod(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	for _, path := range []string{"/", "/orders/", "/Orders", "/orders/1", "//orders"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		problem(t, w, http.StatusNotFound)
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, "/orders", nil))
		problem(t, w, http.StatusMethodNotAllowed)
		if w.Header().Get("Allow") != "POST" {
			t.Errorf("%s: Allow is %q", method, w.Header().Get("Allow"))
		}
	}
	if len(box.got) != 0 {
		t.Errorf("accepted %v", box.got)
	}
}

func TestHeadersThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		field string
		lines []string
	}{
		{"Idempotency-Key", []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}},
		{"Idempotency-Key", []string{"Idempotency-Key", "a", "Idempotency-Key", "a"}},
		{"Idempotency-Key", []string{"Idempotency-Key", ""}},
		{"Idempotency-Key", []string{"Idempotency-Key", `""`}},
		{"Idempotency-Key", []string{"Idempotency-Key", `"a`}},
		{"Idempotency-Key", []string{"Idempotency-Key", `"a";x=1`}},
		{"Idempotency-Key", []string{"Idempotency-Key", `"a\n"`}},
		{"Idempotency-Key", []string{"Idempotency-Key", `"a\`}},
		{"Idempotency-Key", []string{"Idempotency-Key", "Köln"}},
		{"Idempotency-Key", []string{"Idempotency-Key", "a\tb"}},
		{"Gobridge-Ordering-Key", []string{"Gobridge-Ordering-Key", "a", "Gobridge-Ordering-Key", "b"}},
		{"Gobridge-Ordering-Key", []string{"Gobridge-Ordering-Key", "50%"}},
		{"Gobridge-Subject", []string{"Gobridge-Subject", "%zz"}},
		{"Gobridge-Not-Before", []string{"Gobridge-Not-Before", "tomorrow"}},
		{"Gobridge-Created-At", []string{"Gobridge-Created-At", "0001-01-01T00:00:00Z"}},
		{"Gobridge-Expires-At", []string{"Gobridge-Expires-At", "2026-01-02"}},
		{"Gobridge-Expires-At", []string{"Gobridge-Expires-At", "2026-01-02T00:00:00Z", "Gobridge-Not-Before", "2026-01-02T00:00:00Z"}},
		{"Content-Type", []string{"Content-Type", "text/plain", "Content-Type", "text/html"}},
		{"Content-Type", []string{"Content-Type", "no type at all/"}},
		{"Webhook-Id", []string{"Webhook-Id", "a", "Webhook-Id", "b"}},
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		if d := problem(t, post(s, "x", c.lines...), http.StatusBadRequest); d.Field != c.field {
			t.Errorf("%q: field %q, want %q", c.lines, d.Field, c.field)
		}
		if len(box.got) != 0 {
			t.Errorf("%q: accepted", c.lines)
		}
	}
}

func TestTraceContextThatIsMalformedIsDropped(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for parent, ok := range map[string]bool{
		good:                       true,
		"cc" + good[2:]:            true,
		"cc" + good[2:] + "-later": true,
		good + "-later":            false,
		"cc" + good[2:] + "later":  false,
		"ff" + good[2:]:            false,
		good[:54]:                  false,
		strings.ToUpper(good):      false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		strings.Replace(good, "-", "_", 3):                        false,
		"":                                                        false,
	} {
		s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
		post(s, "", "Traceparent", parent, "Tracestate", "a=1", "Baggage", "b=2")
		h := box.one(t).Headers
		if (h["traceparent"] == parent && parent != "") != ok || (h["tracestate"] == "a=1") != ok || h["baggage"] != "b=2" {
			t.Errorf("%q: headers %v", parent, h)
		}
	}
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	post(s, "", "Traceparent", good, "Traceparent", good)
	if h := box.one(t).Headers; h != nil {
		t.Errorf("two traceparents: %v", h)
	}
}

func TestLimitOnBodies(t *testing.T) {
	s, box := serving(t, httpsource.Options{MaxBody: 100}, httpsource.RouteOptions{MaxBody: 8})
	if w := post(s, "12345678"); w.Code != http.StatusAccepted {
		t.Errorf("at the limit: %d %s", w.Code, w.Body)
	}
	problem(t, post(s, "123456789"), http.StatusRequestEntityTooLarge)
	for length, status := range map[int]int{8: http.StatusAccepted, 9: http.StatusRequestEntityTooLarge} {
		r := httptest.NewRequest(http.MethodPost, "/orders", io.MultiReader(strings.NewReader(strings.Repeat("x", length))))
		if r.ContentLength != -1 {
			t.Fatal("the length is known")
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("%d bytes of unknown length: %d %s", length, w.Code, w.Body)
		}
	}
	if len(box.got) != 2 {
		t.Errorf("accepted %d", len(box.got))
	}
}

func TestBodyCutShortIsNotAccepted(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("1234"))
	r.ContentLength = 8
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	problem(t, w, http.StatusBadRequest)
	if len(box.got) != 0 {
		t.Error("accepted half a message")
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	s := newServer(t, httpsource.Options{})
	if err := s.Handle("/orders", httpsource.RouteOptions{}, func(context.Context, messaging.Envelope) (gobridge.Receipt, error) {
		panic("hunter2")
	}); err != nil {
		t.Fatal(err)
	}
	for range 2000 { // more than there are slots
		w := post(s, "x")
		if problem(t, w, http.StatusInternalServerError); strings.Contains(w.Body.String(), "hunter2") {
			t.Fatalf("answer %s", w.Body)
		}
	}
}

func TestClientThatIsGoneDoesNotEndTheAcceptance(t *testing.T) {
	s := newServer(t, httpsource.Options{})
	var ended error
	bounded := false
	if err := s.Handle("/orders", httpsource.RouteOptions{}, func(ctx context.Context, e messaging.Envelope) (gobridge.Receipt, error) {
		ended = ctx.Err()
		_, bounded = ctx.Deadline()
		return gobridge.Receipt{EnvelopeID: e.ID}, nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("x")).WithContext(ctx))
	if w.Code != http.StatusAccepted || ended != nil || !bounded {
		t.Errorf("answer %d, context %v, bounded %v", w.Code, ended, bounded)
	}
}

func TestTooManyAtOnceAreTurnedAway(t *testing.T) {
	s := newServer(t, httpsource.Options{MaxConcurrent: 2})
	entered, release := make(chan struct{}), make(chan struct{})
	if err := s.Handle("/orders", httpsource.RouteOptions{}, func(_ context.Context, e messaging.Envelope) (gobridge.Receipt, error) {
		entered <- struct{}{}
		<-release
		return gobridge.Receipt{EnvelopeID: e.ID}, nil
	}); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			if w := post(s, "x"); w.Code != http.StatusAccepted {
				t.Errorf("answer %d", w.Code)
			}
		})
		<-entered
	}
	w := post(s, "x")
	problem(t, w, http.StatusServiceUnavailable)
	if w.Header().Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
	}
	close(release)
	wait.Wait()
	go func() { <-entered }()
	if w := post(s, "x"); w.Code != http.StatusAccepted {
		t.Errorf("with room again: %d", w.Code)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]httpsource.Options{
		"no address":       {},
		"no port":          {Address: "localhost"},
		"half a pair":      {Address: ":0", CertFile: "x"},
		"no such file":     {Address: ":0", CertFile: "none", KeyFile: "none"},
		"negative timeout": {Address: ":0", ReadTimeout: -1},
		"negative limit":   {Address: ":0", MaxBody: -1},
	} {
		if _, err := httpsource.New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	box := &outbox{}
	for name, o := range map[string]httpsource.RouteOptions{
		"empty tokens":    {Tokens: []string{""}},
		"bad secret":      {Secrets: []string{"x"}},
		"empty secrets":   {Secrets: []string{""}},
		"both":            {Tokens: []string{"a"}, Secrets: []string{"b"}},
		"header no name":  {Headers: []string{"a b"}},
		"header empty":    {Headers: []string{""}},
		"credential":      {Headers: []string{"Authorization"}},
		"of connection":   {Headers: []string{"transfer-encoding"}},
		"already there":   {Headers: []string{"Traceparent"}},
		"event attribute": {Headers: []string{"ce-id"}},
		"ours":            {Headers: []string{"gobridge-ordering-key"}},
		"negative":        {MaxBody: -1},
	} {
		if err := newServer(t, httpsource.Options{}).Handle("/a", o, box.accept); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	s := newServer(t, httpsource.Options{})
	if s.Handle("a", httpsource.RouteOptions{}, box.accept) == nil || s.Handle("/a", httpsource.RouteOptions{}, nil) == nil {
		t.Error("a bad path or no accept function taken")
	}
	if err := s.Handle("/a", httpsource.RouteOptions{}, box.accept); err != nil {
		t.Error(err)
	}
	if s.Handle("/a", httpsource.RouteOptions{}, box.accept) == nil {
		t.Error("two routes at one path")
	}
}

func BenchmarkPost(b *testing.B) {
	s := newServer(b, httpsource.Options{})
	if err := s.Handle("/orders", httpsource.RouteOptions{Tokens: []string{"t"}}, func(_ context.Context, e messaging.Envelope) (gobridge.Receipt, error) {
		return gobridge.Receipt{EnvelopeID: e.ID}, nil
	}); err != nil {
		b.Fatal(err)
	}
	body := strings.Repeat("x", 256)
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.ContentLength = int64(len(body))
	r.Header.Set("Authorization", "Bearer t")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Gobridge-Ordering-Key", "cust-7")
	reader := strings.NewReader(body)
	r.Body = io.NopCloser(reader)
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		w := &discard{header: make(http.Header)}
		if s.ServeHTTP(w, r); w.status != http.StatusAccepted {
			b.Fatal(w.status)
		}
	}
}

type discard struct {
	header http.Header
	status int
}

func (w *discard) Header() http.Header         { return w.header }
func (w *discard) Write(p []byte) (int, error) { return len(p), nil }
func (w *discard) WriteHeader(status int)      { w.status = status }
