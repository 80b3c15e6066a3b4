package webhook_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func secret(fill string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

func sender(t testing.TB, options webhook.Options) *webhook.Sender {
	t.Helper()
	s, err := webhook.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func serve(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func delivery() gobridge.Delivery {
	return gobridge.Delivery{
		Envelope: messaging.Envelope{
			ID: "m1", Subject: "order.placed", OrderingKey: "cust-7",
			ContentType: "application/json", Payload: []byte(`{"total":12.5}`),
			Headers: messaging.Headers{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		},
		Route: "orders", Binding: "crm", Partition: gobridge.NewPartition("orders", "crm", 0),
		Attempt: 2, Token: gobridge.Token{Owner: "a", Version: 3}, Seq: 42,
	}
}

func send(t testing.TB, s *webhook.Sender, d gobridge.Delivery) error {
	t.Helper()
	out := s.Send(t.Context(), []gobridge.Delivery{d})
	if len(out) != 1 {
		t.Fatalf("%d answers for one delivery", len(out))
	}
	return out[0]
}

// capture sends a delivery and returns what the receiver got.
func capture(t *testing.T, options webhook.Options, d gobridge.Delivery) (http.Header, string, *http.Request) {
	t.Helper()
	var request *http.Request
	var body []byte
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		request = r
		body, _ = io.ReadAll(r.Body)
	})
	if options.URL == "" {
		options.URL = server.URL + "/hook?token=s3cret"
	} else {
		options.URL = strings.Replace(options.URL, "HOST", server.Listener.Addr().String(), 1)
	}
	if err := send(t, sender(t, options), d); err != nil {
		t.Fatal(err)
	}
	return request.Header, string(body), request
}

func TestRequestIsSignedForEverySecretAndSaysWhatItIs(t *testing.T) {
	d := delivery()
	d.Envelope.CreatedAt = now
	d.Envelope.ExpiresAt = now.Add(time.Hour)
	header, body, request := capture(t, webhook.Options{
		Secrets: []string{secret("a"), "", secret("b")},
		Headers: map[string]string{"x-api-key": "k"},
	}, d)
	for _, s := range []string{secret("a"), secret("b")} {
		hook, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify([]byte(body), header); err != nil {
			t.Errorf("the specification's own library: %v", err)
		}
	}
	if body != `{"total":12.5}` || request.Method != http.MethodPost || request.RequestURI != "/hook?token=s3cret" {
		t.Errorf("got %s %s with %q", request.Method, request.RequestURI, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Webhook-Id": "m1", "X-Api-Key": "k",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Gobridge-Id": "m1", "Gobridge-Subject": "order.placed", "Gobridge-Ordering-Key": "cust-7",
		"Gobridge-Route": "orders", "Gobridge-Binding": "crm", "Gobridge-Partition": "orders/crm/0",
		"Gobridge-Seq": "42", "Gobridge-Token-Version": "3", "Gobridge-Attempt": "2", "Gobridge-Redrives": "",
		"Gobridge-Created-At": "2026-01-02T03:04:05Z", "Gobridge-Expires-At": "2026-01-02T04:04:05Z",
		"Gobridge-Headers": "",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestWithoutSecretsNothingIsSigned(t *testing.T) {
	d := delivery()
	d.Envelope = messaging.Envelope{ID: "m1"}
	d.Redrives = 2
	header, body, request := capture(t, webhook.Options{Now: func() time.Time { return now }}, d)
	if header["Webhook-Signature"] != nil || header["Content-Type"] != nil || body != "" || request.ContentLength != 0 {
		t.Errorf("got %v and %q", header, body)
	}
	for name, want := range map[string]string{
		"Webhook-Id": "m1~2", "Gobridge-Id": "m1", "Gobridge-Redrives": "2", "Webhook-Timestamp": "1767323045",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestOddTextsArriveWhole(t *testing.T) {
	d := delivery()
	d.Envelope.ID = "a.b %\x00Köln\xff"
	d.Envelope.OrderingKey = " plant/7\n"
	d.Envelope.ContentType = "text/plain\r\nX-Evil: 1"
	d.Envelope.Headers = messaging.Headers{
		"x-plain":           "a, b",
		"x-empty":           "",
		"x-lines":           "a\r\nX-Evil: 1",
		"x-edges":           " a",
		"x-wide":            "Köln",
		"no token":          "v&w=",
		"X-Plain":           "twin",
		"X-Upper":           "u",
		"host":              "evil.example",
		"transfer-encoding": "chunked",
		"content-length":    "99",
		"authorization":     "Bearer forged",
		"gobridge-attempt":  "1",
		"webhook-signature": "v1,forged",
		"idempotency-key":   "i",
		"x-api-key":         "forged",
		"ce-subject":        "50% Köln",
		"content-encoding":  "gzip",
		"content-type":      "text/html",

		"gobridge-received-at": "2026-01-02T03:04:05Z",
	}
	header, body, _ := capture(t, webhook.Options{
		Secrets: []string{secret("a")}, Headers: map[string]string{"X-Api-Key": "ours"},
	}, d)
	for name, want := range map[string]string{
		"Webhook-Id":            "a%2Eb%20%25%00K%C3%B6ln%FF",
		"Gobridge-Id":           "a.b%20%25%00K%C3%B6ln%FF",
		"Gobridge-Ordering-Key": "%20plant/7%0A",
		"X-Plain":               "a, b",
		"X-Upper":               "u",
		"X-Api-Key":             "ours",
		"Authorization":         "",
		"Ce-Subject":            "",
		"Content-Encoding":      "gzip",
		"Content-Type":          "",
		"Gobridge-Content-Type": "text/plain%0D%0AX-Evil:%201",
		"Gobridge-Attempt":      "2",
		"Gobridge-Received-At":  "2026-01-02T03:04:05Z",
		"X-Evil":                "",
		"X-Lines":               "",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if header["X-Empty"] == nil {
		t.Error("a header without a value did not arrive")
	}
	extra, err := url.ParseQuery(header.Get("Gobridge-Headers"))
	if err != nil {
		t.Fatal(err)
	}
	moved := []string{"x-lines", "x-edges", "x-wide", "no token", "X-Plain", "host", "transfer-encoding",
		"content-length", "authorization", "gobridge-attempt", "webhook-signature", "idempotency-key", "x-api-key",
		"ce-subject", "content-type"}
	for _, name := range moved {
		if got := extra[name]; len(got) != 1 || got[0] != d.Envelope.Headers[name] {
			t.Errorf("header %q arrived as %q, want %q", name, got, d.Envelope.Headers[name])
		}
	}
	if len(extra) != len(moved) {
		t.Errorf("Gobridge-Headers has %v", extra)
	}
	hook, err := standardwebhooks.NewWebhook(secret("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify([]byte(body), header); err != nil {
		t.Error(err)
	}
}

func TestUserInURLIsBasicAuthentication(t *testing.T) {
	_, _, request := capture(t, webhook.Options{URL: "http://me:p%40ss@HOST"}, delivery())
	if user, password, ok := request.BasicAuth(); !ok || user != "me" || password != "p@ss" || request.RequestURI != "/" {
		t.Errorf("got %q, %q at %s", user, password, request.RequestURI)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]webhook.Options{
		"no URL":             {},
		"no scheme":          {URL: "example.com/hook"},
		"other scheme":       {URL: "ftp://example.com"},
		"no host":            {URL: "http:///hook"},
		"fragment":           {URL: "https://example.com/#a"},
		"unreadable":         {URL: "https://me:hunter2@exa mple.com/"},
		"bad escape":         {URL: "https://me:hunter2@example.com/%zz"},
		"only empty secrets": {URL: "https://example.com", Secrets: []string{""}},
		"bad secret":         {URL: "https://example.com", Secrets: []string{"hunter2"}},
		"header no name":     {URL: "https://example.com", Headers: map[string]string{"a b": "c"}},
		"header value":       {URL: "https://example.com", Headers: map[string]string{"a": "hunter2\n"}},
		"header twice":       {URL: "https://example.com", Headers: map[string]string{"a": "1", "A": "2"}},
		"header reserved":    {URL: "https://example.com", Headers: map[string]string{"Content-Length": "1"}},
		"header ours":        {URL: "https://example.com", Headers: map[string]string{"webhook-id": "1"}},
		"two authorizations": {URL: "https://a:hunter2@example.com", Headers: map[string]string{"authorization": "1"}},
		"negative timeout":   {URL: "https://example.com", Timeout: -1},
	} {
		_, err := webhook.New(o)
		if err == nil {
			t.Errorf("%s: taken", name)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error gives a secret away: %v", name, err)
		}
	}
	s := sender(t, webhook.Options{URL: "https://example.com", Headers: map[string]string{"authorization": "Bearer x"}})
	if s == nil {
		t.Error("no sender")
	}
}

func TestStatusCodes(t *testing.T) {
	const (
		done        = gobridge.OutcomeDelivered
		transient   = gobridge.OutcomeTransient
		permanent   = gobridge.OutcomePermanent
		unavailable = gobridge.OutcomeUnavailable
	)
	special := map[int]gobridge.Outcome{
		401: unavailable, 402: unavailable, 403: unavailable, 404: unavailable, 405: unavailable, 406: unavailable,
		407: unavailable, 408: transient, 409: transient, 410: unavailable, 411: unavailable, 414: unavailable,
		417: unavailable, 421: unavailable, 423: transient, 424: transient, 425: transient, 426: unavailable,
		428: unavailable, 429: unavailable,
	}
	var status int
	var retryAfter string
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	})
	s := sender(t, webhook.Options{URL: server.URL, Now: func() time.Time { return now }})
	for status = 200; status <= 999; status++ {
		if status > 600 && status < 998 {
			continue
		}
		want, listed := special[status]
		switch {
		case listed:
		case status < 300:
			want = done
		case status < 400:
			want = unavailable
		case status < 500:
			want = permanent
		default:
			want = transient
		}
		err := send(t, s, delivery())
		if got, after := gobridge.Classify(err); got != want || after != 0 {
			t.Errorf("status %d: outcome %v after %v, want %v", status, got, after, want)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("status %d is not in %q", status, err)
		}
	}
	for _, c := range []struct {
		status     int
		retryAfter string
		outcome    gobridge.Outcome
		after      time.Duration
	}{
		{429, "7", unavailable, 7 * time.Second},
		{429, "Fri, 02 Jan 2026 03:05:05 GMT", unavailable, time.Minute},
		{429, "Fri, 02 Jan 2026 03:00:00 GMT", unavailable, 0},
		{429, "soon", unavailable, 0},
		{503, "120", unavailable, 2 * time.Minute},
		{503, "0", unavailable, 0},
		{503, "-1", transient, 0},
		{500, "99999999999999999999", unavailable, 24 * time.Hour},
		{408, "1", unavailable, time.Second},
		{401, "3", unavailable, 0},
		{400, "3", permanent, 0},
		{200, "3", done, 0},
	} {
		status, retryAfter = c.status, c.retryAfter
		err := send(t, s, delivery())
		if got, after := gobridge.Classify(err); got != c.outcome || after != c.after {
			t.Errorf("status %d, Retry-After %q: outcome %v after %v, want %v after %v",
				c.status, c.retryAfter, got, after, c.outcome, c.after)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var other atomic.Int32
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { other.Add(1) })
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/new?token=s3cret", http.StatusPermanentRedirect)
	})
	err := send(t, sender(t, webhook.Options{URL: server.URL}), delivery())
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable || other.Load() != 0 {
		t.Errorf("outcome %v, followed %d times", outcome, other.Load())
	}
	if err == nil || !strings.Contains(err.Error(), elsewhere.URL+"/new") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error is %v", err)
	}
}

func TestErrorShowsTheAnswerAndNoSecret(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "no\r\n\x1b[31msuch \xff field"+strings.Repeat(" é", 500))
	})
	target := strings.Replace(server.URL, "http://", "http://me:hunter2@", 1) + "/hook?token=hunter2"
	err := send(t, sender(t, webhook.Options{URL: target}), delivery())
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	if !strings.Contains(text, "400 Bad Request") || !strings.Contains(text, "no .[31msuch . field é é") ||
		strings.Contains(text, "hunter2") || strings.ContainsAny(text, "\r\n\x1b\ufffd") || !utf8.ValidString(text) {
		t.Errorf("error is %q", text)
	}
	if !strings.HasSuffix(text, "...") || len(text) > 400 {
		t.Errorf("error has %d bytes: %q", len(text), text)
	}
}

func TestNoConnectionIsNobodysFault(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := listener.Addr().String()
	_ = listener.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = nil
	t.Cleanup(untrusted.Close)
	for name, target := range map[string]string{
		"refused":           "http://" + refused + "/?token=hunter2",
		"no such name":      "http://does-not-exist.invalid/?token=hunter2",
		"not trusted":       untrusted.URL + "/?token=hunter2",
		"TLS to plain HTTP": strings.Replace(serve(t, nil).URL, "http:", "https:", 1) + "/?token=hunter2",
	} {
		err := send(t, sender(t, webhook.Options{URL: target}), delivery())
		if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable {
			t.Errorf("%s: outcome %v of %v", name, outcome, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error gives the query away: %v", name, err)
		}
	}
}

func TestTLSAndRotationOfTrust(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("spoke %s", r.Proto)
		}
	}))
	t.Cleanup(server.Close)
	config := server.Client().Transport.(*http.Transport).TLSClientConfig
	s := sender(t, webhook.Options{URL: server.URL, TLS: config})
	for range 3 {
		if err := send(t, s, delivery()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBrokenConnectionIsTransientAndNotRepeated(t *testing.T) {
	var requests atomic.Int32
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			return // leaves a connection to be used again
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	})
	s := sender(t, webhook.Options{URL: server.URL})
	d := delivery()
	d.Envelope.Headers = messaging.Headers{"idempotency-key": "a", "x-idempotency-key": "a"} // net/http would repeat
	if err := send(t, s, d); err != nil {
		t.Fatal(err)
	}
	err := send(t, s, d)
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeTransient {
		t.Errorf("outcome %v of %v", outcome, err)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("the server saw %d requests for two sends", n)
	}
}

func TestSilentServer(t *testing.T) {
	release := make(chan struct{})
	server := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) }) // before the server is closed
	s := sender(t, webhook.Options{URL: server.URL, Timeout: 50 * time.Millisecond})
	err := send(t, s, delivery())
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeTransient || !strings.Contains(err.Error(), "no answer after 50ms") {
		t.Errorf("outcome %v of %v", outcome, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s = sender(t, webhook.Options{URL: server.URL})
	err = s.Send(ctx, []gobridge.Delivery{delivery()})[0]
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeTransient || !errors.Is(err, context.Canceled) {
		t.Errorf("outcome %v of %v", outcome, err)
	}
}

func TestEndlessBodyDoesNotHoldUpAnAnswer(t *testing.T) {
	for _, status := range []int{200, 500} {
		var written atomic.Int64
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			chunk := make([]byte, 32<<10)
			for {
				n, err := w.Write(chunk)
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
		err := send(t, sender(t, webhook.Options{URL: server.URL}), delivery())
		if (err == nil) != (status == 200) {
			t.Errorf("status %d: %v", status, err)
		}
		server.Close()
	}
}

func TestTricklingBodyDoesNotHoldUpAnAnswer(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // until the sender has had enough
	})
	if err := send(t, sender(t, webhook.Options{URL: server.URL, Timeout: time.Hour}), delivery()); err != nil {
		t.Errorf("a success whose body never ends: %v", err)
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Gobridge-Attempt") == "2" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write(make([]byte, 20_000))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	const workers = 8
	s := sender(t, webhook.Options{URL: server.URL, Connections: workers})
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for i := range 20 {
				d := delivery()
				d.Attempt = i%2 + 1
				if err := send(t, s, d); (err == nil) != (d.Attempt == 1) {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	// A connection that comes back a moment late may cost its worker a new one.
	if n := connections.Load(); n > 3*workers {
		t.Errorf("%d connections for %d workers", n, workers)
	}
}

func TestBatchStopsAtTheFirstFailure(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Gobridge-Seq") == "2" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	batch := []gobridge.Delivery{delivery(), delivery(), delivery()}
	for i := range batch {
		batch[i].Seq = int64(i + 1)
	}
	out := sender(t, webhook.Options{URL: server.URL}).Send(t.Context(), batch)
	if len(out) != 3 || out[0] != nil || out[1] == nil || !errors.Is(out[2], gobridge.ErrNotSent) {
		t.Errorf("answers %v", out)
	}
}

func TestProxyIsUsedOnlyWhenGiven(t *testing.T) {
	var proxied atomic.Int32
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { proxied.Add(1) })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	err := send(t, sender(t, webhook.Options{URL: "http://does-not-exist.invalid/"}), delivery())
	if err == nil || proxied.Load() != 0 {
		t.Errorf("the environment's proxy was used: %v", err)
	}
	target, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	err = send(t, sender(t, webhook.Options{URL: "http://does-not-exist.invalid/", Proxy: target}), delivery())
	if err != nil || proxied.Load() != 1 {
		t.Errorf("the given proxy was not used: %v", err)
	}
}

func BenchmarkSend(b *testing.B) {
	server := serve(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for name, secrets := range map[string][]string{"signed": {secret("a")}, "unsigned": nil} {
		b.Run(name, func(b *testing.B) {
			s := sender(b, webhook.Options{URL: server.URL, Secrets: secrets})
			d := delivery()
			d.Envelope.Payload = make([]byte, 256)
			b.ReportAllocs()
			for b.Loop() {
				if err := send(b, s, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
