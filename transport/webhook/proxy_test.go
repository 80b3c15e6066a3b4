package webhook_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/transport/webhook"
)

// tunnels is a proxy that connects to the target whatever it is asked for, or answers
// with the status.
func tunnels(t *testing.T, target string, status int) *url.URL {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		to, err := new(net.Dialer).DialContext(r.Context(), "tcp", target)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = to.Close() }()
		w.WriteHeader(http.StatusOK)
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		go func() { _, _ = io.Copy(to, buffered) }()
		_, _ = io.Copy(conn, to)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword("me", "proxy-secret")
	return at
}

// TestProxyThatDoesNotConnect: no message is to blame for it.
func TestProxyThatDoesNotConnect(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	target := strings.TrimPrefix(secure.URL, "https://")
	for status, want := range map[int]string{
		http.StatusBadGateway:        "the proxy answered 502 Bad Gateway",
		http.StatusProxyAuthRequired: "the proxy answered 407 Proxy Authentication Required",
		http.StatusOK:                "certificate",
	} {
		s := sender(t, webhook.Options{URL: secure.URL, Proxy: tunnels(t, target, status)})
		err := send(t, s, delivery())
		if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "proxy-secret") {
			t.Errorf("%d: outcome %v of %v", status, outcome, err)
		}
	}
}

// TestProxyThatSaysNothing: there is still no connection when the time is over.
func TestProxyThatSaysNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	s := sender(t, webhook.Options{
		URL: "https://example.invalid/", Timeout: 100 * time.Millisecond, Proxy: &url.URL{Scheme: "http", Host: listener.Addr().String()},
	})
	err = send(t, s, delivery())
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable || !strings.Contains(err.Error(), "no answer after 100ms") {
		t.Errorf("outcome %v of %v", outcome, err)
	}
}
