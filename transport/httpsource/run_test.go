package httpsource_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/httpsource"
)

// running runs the server, and stop ends it and returns what Run returned.
func running(t *testing.T, s *httpsource.Server) (address string, stop func() error) {
	t.Helper()
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return s.Addr().String(), stop
}

// client does not outlive the test.
func client(t *testing.T, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func postTo(t *testing.T, c *http.Client, url, body string) (int, string) {
	t.Helper()
	r, err := c.Post(url, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(text)
}

func TestRunServesUntilItsEnd(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	if s.Addr() != nil {
		t.Error("has an address before it listens")
	}
	address, stop := running(t, s)
	if status, text := postTo(t, client(t, nil), "http://"+address+"/orders", "x"); status != http.StatusAccepted {
		t.Errorf("answer %d %s", status, text)
	}
	box.one(t)
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("still listening")
	}
	if err := s.Handle("/late", httpsource.RouteOptions{}, box.accept); err == nil {
		t.Error("took a route after it had listened")
	}
}

func TestAddressInUseIsAnErrorOfListen(t *testing.T) {
	first := newServer(t, httpsource.Options{})
	if err := first.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := newServer(t, httpsource.Options{Address: first.Addr().String()})
	if err := second.Listen(t.Context()); err == nil {
		t.Error("two listen on one address")
	}
	if err := second.Run(t.Context()); err == nil {
		t.Error("Run without an address")
	}
}

func TestShutdownWaitsForRequestsInFlight(t *testing.T) {
	for name, inTime := range map[string]bool{"in time": true, "too late": false} {
		t.Run(name, func(t *testing.T) {
			grace := time.Minute
			if !inTime {
				grace = time.Millisecond
			}
			s := newServer(t, httpsource.Options{Grace: grace})
			entered, release := make(chan struct{}), make(chan struct{})
			if err := s.Handle("/orders", httpsource.RouteOptions{}, func(_ context.Context, e messaging.Envelope) (gobridge.Receipt, error) {
				close(entered)
				<-release
				return gobridge.Receipt{EnvelopeID: e.ID}, nil
			}); err != nil {
				t.Fatal(err)
			}
			address, stop := running(t, s)
			answered := make(chan int, 1)
			c := client(t, nil)
			go func() {
				r, err := c.Post("http://"+address+"/orders", "text/plain", strings.NewReader("x"))
				if err != nil {
					answered <- 0
					return
				}
				_ = r.Body.Close()
				answered <- r.StatusCode
			}()
			<-entered
			if !inTime {
				if err := stop(); err == nil || !strings.Contains(err.Error(), "in flight") {
					t.Errorf("Run: %v", err)
				}
				close(release)
				<-answered
				return
			}
			ended := make(chan error, 1)
			go func() { ended <- stop() }()
			close(release)
			if status := <-answered; status != http.StatusAccepted {
				t.Errorf("answer %d", status)
			}
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestHTTPS(t *testing.T) {
	for _, fromFiles := range []bool{false, true} {
		// The test server's certificate is a convenient one.
		helper := httptest.NewTLSServer(nil)
		options := httpsource.Options{TLS: &tls.Config{Certificates: helper.TLS.Certificates, MinVersion: tls.VersionTLS12}}
		config := helper.Client().Transport.(*http.Transport).TLSClientConfig
		helper.Close()
		if fromFiles {
			options.TLS = nil
			options.CertFile, options.KeyFile = pemFiles(t, config)
		}
		s, box := serving(t, options, httpsource.RouteOptions{})
		address, stop := running(t, s)
		if status, text := postTo(t, client(t, config), "https://"+address+"/orders", "x"); status != http.StatusAccepted {
			t.Errorf("answer %d %s", status, text)
		}
		box.one(t)
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// TestSlowClientsAreCutOff: neither headers nor bodies may take for ever.
func TestSlowClientsAreCutOff(t *testing.T) {
	for name, c := range map[string]struct{ sent, status string }{
		"headers": {"POST /orders HTTP/1.1\r\nHost: a\r\nX-", ""},
		"body":    {"POST /orders HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n123", "408"},
	} {
		t.Run(name, func(t *testing.T) {
			s, box := serving(t, httpsource.Options{
				ReadHeaderTimeout: 20 * time.Millisecond, ReadTimeout: 40 * time.Millisecond,
			}, httpsource.RouteOptions{})
			address, _ := running(t, s)
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, c.sent); err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(conn) // returns only because the server closes
			if !strings.Contains(string(answer), c.status) || len(box.got) != 0 {
				t.Errorf("answer %q", answer)
			}
		})
	}
}

func TestHugeHeadersAreRefused(t *testing.T) {
	s, box := serving(t, httpsource.Options{MaxHeaderBytes: 1 << 10}, httpsource.RouteOptions{})
	address, _ := running(t, s)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The server may answer and close before it has read all of it.
	go func() {
		_, _ = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: a\r\nX-Long: "+strings.Repeat("a", 16<<10)+"\r\n\r\n")
	}()
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge || len(box.got) != 0 {
		t.Errorf("answer %d", r.StatusCode)
	}
}

func TestManyClients(t *testing.T) {
	s, box := serving(t, httpsource.Options{}, httpsource.RouteOptions{})
	address, _ := running(t, s)
	c := client(t, nil)
	const workers, each = 8, 25
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for range each {
				if status, text := postTo(t, c, "http://"+address+"/orders", "x"); status != http.StatusAccepted {
					t.Errorf("answer %d %s", status, text)
				}
			}
		})
	}
	wait.Wait()
	ids := make(map[string]bool)
	for _, e := range box.got {
		ids[e.ID] = true
	}
	if len(ids) != workers*each {
		t.Errorf("%d IDs for %d messages", len(ids), workers*each)
	}
}
