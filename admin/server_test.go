package admin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/operate"
)

func TestWhatIsNoServer(t *testing.T) {
	desk := newWorld(t, nil).server.options.Desk
	token := func(text string) func() ([]string, error) {
		return func() ([]string, error) { return []string{text}, nil }
	}
	for want, o := range map[string]Options{
		"it is host:port":               {Address: "here", Desk: desk, Read: token(readToken)},
		"no desk":                       {Address: ":0", Read: token(readToken)},
		"no tokens":                     {Address: ":0", Desk: desk},
		"has 5 characters":              {Address: ":0", Desk: desk, Read: token("short")},
		"every token is empty":          {Address: ":0", Desk: desk, Read: token("")},
		"go together":                   {Address: ":0", Desk: desk, Read: token(readToken), CertFile: "a.pem"},
		"certificate: open none.pem":    {Address: ":0", Desk: desk, Read: token(readToken), CertFile: "none.pem", KeyFile: "none.key"},
		"tokens of role operate: there": {Address: ":0", Desk: desk, Operate: func() ([]string, error) { return nil, errors.New("there is no file") }},
	} {
		if s, err := New(o); err == nil || !strings.Contains(err.Error(), want) || s != nil || strings.Contains(err.Error(), "short") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestHosts(t *testing.T) {
	for _, tt := range []struct {
		address   string
		known, no []string
	}{
		{"127.0.0.1:9090", []string{"127.0.0.1:9090", "localhost", "LOCALHOST:1", "[::1]:9090", "bridge.example.com"}, []string{"", "evil.example", "127.0.0.2", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example"}},
		{"0.0.0.0:9090", []string{"10.1.2.3:9090", "localhost", "[fe80::1]", "bridge.example.com:443"}, []string{"evil.example"}},
		{":9090", []string{"10.1.2.3:9090"}, []string{"evil.example", "10.1.2.3.evil.example"}},
		{"10.1.2.3:9090", []string{"10.1.2.3", "bridge.example.com"}, []string{"localhost", "127.0.0.1", "10.1.2.4"}},
		{"gw.example.com:9090", []string{"gw.example.com", "GW.example.com:80"}, []string{"localhost", "10.1.2.3"}},
	} {
		s := &Server{options: Options{Address: tt.address, Hosts: []string{"Bridge.example.com"}}}
		s.nameHosts()
		for _, h := range tt.known {
			if !s.knownHost(h) {
				t.Errorf("%s does not know %q", tt.address, h)
			}
		}
		for _, h := range tt.no {
			if s.knownHost(h) {
				t.Errorf("%s knows %q", tt.address, h)
			}
		}
	}
}

func TestOrigins(t *testing.T) {
	w := newWorld(t, reloading)
	host := strings.TrimPrefix(w.url, "http://")
	for _, tt := range []struct {
		header []string
		want   int
	}{
		{nil, 200},
		{[]string{"Origin", w.url}, 200},
		{[]string{"Origin", "https://" + host}, 200}, // behind a proxy that does TLS
		{[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{[]string{"Sec-Fetch-Site", "none"}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site", "Origin", w.url}, 403},
		{[]string{"Origin", "null"}, 403},
		{[]string{"Origin", "http://localhost:1"}, 403},
	} {
		if a := w.ask(operateToken, call{method: "POST", path: apiPrefix + "/reload", body: `{"reason":"r"}`, header: tt.header}); a.status != tt.want {
			t.Errorf("%v: %d %s", tt.header, a.status, a.body)
		}
	}
	if a := w.ask("", call{method: "OPTIONS", path: apiPrefix + "/reload", header: []string{"Origin", "https://evil.example", "Access-Control-Request-Method", "POST"}}); a.status != 401 || a.header.Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("a preflight: %d %v", a.status, a.header)
	}
}

// clock is a clock that is set by hand.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func TestTokensAreChangedWhileItRuns(t *testing.T) {
	var c clock
	var mu sync.Mutex
	tokens, failure := []string{operateToken}, error(nil)
	set := func(err error, to ...string) {
		mu.Lock()
		defer mu.Unlock()
		tokens, failure = to, err
		c.advance(tokenAge)
	}
	w := newWorld(t, func(o *Options) {
		o.Now = c.now
		o.Operate = func() ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return tokens, failure
		}
	})
	const next = "the-token-after-that"
	status := func(token string) int {
		return w.ask(token, call{method: "POST", path: apiPrefix + "/reload", body: `{"reason":"r"}`}).status
	}
	both := [2]int{status(operateToken), status(next)}
	set(nil, operateToken, next)
	if got := [2]int{status(operateToken), status(next)}; both != [2]int{501, 401} || got != [2]int{501, 501} {
		t.Errorf("before %v, with both %v", both, got)
	}
	set(nil, next)
	if got := [2]int{status(operateToken), status(next)}; got != [2]int{401, 501} {
		t.Errorf("with the next only: %v", got)
	}
	for _, broken := range []func(){func() { set(errors.New("no such file")) }, func() { set(nil, "half") }} {
		broken()
		if got := status(next); got != 501 {
			t.Errorf("while it can't be read: %d", got)
		}
	}
	if n := strings.Count(w.log.String(), "can't be read anew"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

func TestGuessing(t *testing.T) {
	var c clock
	w := newWorld(t, func(o *Options) { o.Now = c.now })
	guess := func(i int) answer {
		return w.ask(fmt.Sprintf("a-guess-of-a-token-%d", i), call{method: "GET", path: apiPrefix + "/status"})
	}
	for i := range failuresTold {
		if a := guess(i); a.status != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d", i, a.status)
		}
	}
	if a := guess(99); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "60" {
		t.Errorf("one more: %d %v", a.status, a.header)
	}
	if a := w.ask(readToken, call{method: "GET", path: apiPrefix + "/status"}); a.status != 200 {
		t.Errorf("the right token: %d", a.status)
	}
	if log := w.log.String(); strings.Contains(log, "a-guess") || strings.Count(log, "wrong token") != failuresTold || !strings.Contains(log, "remote=127.0.0.1") {
		t.Errorf("the log says\n%s", log)
	}
	c.advance(failureWindow + 1)
	if a := guess(100); a.status != http.StatusUnauthorized {
		t.Errorf("a minute later: %d", a.status)
	}
	var f failures
	for i := range 10 * failuresAtMost {
		f.add(fmt.Sprint(i), c.now())
	}
	if n := len(f.by); n > failuresAtMost {
		t.Errorf("%d addresses are remembered", n)
	}
	for remote, want := range map[string]string{"[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[::ffff:10.0.0.1]:5": "10.0.0.1", "10.0.0.1:5": "10.0.0.1"} {
		if got := remoteOf(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%s is %s, want %s", remote, got, want)
		}
	}
}

// counted counts the looks, each of which waits until it may go.
type counted struct {
	Desk
	looks atomic.Int64
	begun chan struct{}
	may   chan struct{}
}

func (c *counted) Status(ctx context.Context) (operate.Status, error) {
	if c.looks.Add(1) == 1 {
		close(c.begun)
		<-c.may
	}
	return c.Desk.Status(ctx)
}

// TestAHundredClientsShareOneLook has a hundred ask while the first look is under
// way: nobody looks again for them.
func TestAHundredClientsShareOneLook(t *testing.T) {
	desk := &counted{begun: make(chan struct{}), may: make(chan struct{})}
	var ready atomic.Int64
	w := newWorld(t, func(o *Options) {
		desk.Desk, o.Desk = o.Desk, desk
		o.Ready = func(context.Context) error { ready.Add(1); return nil }
	})
	w.http.Transport.(*http.Transport).MaxIdleConnsPerHost = 100
	var group sync.WaitGroup
	var asked, good atomic.Int64
	for range 100 {
		group.Go(func() {
			asked.Add(1)
			if a := w.ask(readToken, call{method: "GET", path: apiPrefix + "/status"}); a.status == 200 {
				good.Add(1)
			}
		})
	}
	<-desk.begun
	eventually(t, "all have asked", func() bool { return asked.Load() == 100 })
	close(desk.may)
	group.Wait()
	// One more look per second that the hundred took to arrive is as it should be.
	if looks := desk.looks.Load(); good.Load() != 100 || looks > 20 {
		t.Errorf("%d answers for %d looks", good.Load(), looks)
	}
	for range 100 {
		w.ask("", call{method: "GET", path: "/health/ready"})
	}
	if n := ready.Load(); n > 20 {
		t.Errorf("a hundred health checks looked %d times", n)
	}
}

func TestHealth(t *testing.T) {
	var broken atomic.Bool
	w := newWorld(t, func(o *Options) {
		o.Ready = func(context.Context) error {
			if broken.Load() {
				return errors.New("the secret address of the store does not answer")
			}
			return nil
		}
	})
	get := func(path string) answer { return w.ask("", call{method: "GET", path: path}) }
	for path, want := range map[string]string{"/health/live": "live", "/health/ready": "ready"} {
		if a := get(path); a.status != 200 || strings.TrimSpace(a.body) != `{"status":"`+want+`"}` {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	broken.Store(true)
	eventually(t, "it is not ready", func() bool { return get("/health/ready").status == 503 })
	if a := get("/health/ready"); strings.Contains(a.body, "secret") || strings.TrimSpace(a.body) != `{"status":"not ready"}` {
		t.Errorf("not ready: %s", a.body)
	}
	if a := get("/health/live"); a.status != 200 {
		t.Errorf("alive: %d", a.status)
	}
	if a := get("/nothing"); a.status != 404 || a.problem(t).Detail == "" {
		t.Errorf("nothing: %d %s", a.status, a.body)
	}
}

func TestMetricsNeedAToken(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1\n") })
	})
	for token, want := range map[string]int{"": 401, readToken: 200, operateToken: 200} {
		if a := w.ask(token, call{method: "GET", path: "/metrics"}); a.status != want || (want == 200) != (a.body == "up 1\n") {
			t.Errorf("%q: %d %s", token, a.status, a.body)
		}
	}
}

// stuck is a desk whose export never ends, nor fails before its client goes.
type stuck struct {
	Desk
	begun chan struct{}
	ended chan error
}

func (s *stuck) Export(ctx context.Context, _ gobridge.Filter, w io.Writer, _ func(gobridge.Ref) bool, _ func(int)) (int, error) {
	close(s.begun)
	line := bytes.Repeat([]byte("x"), 1<<20)
	for {
		if _, err := w.Write(line); err != nil {
			s.ended <- err
			return 0, err
		}
		if ctx.Err() != nil {
			s.ended <- ctx.Err()
			return 0, ctx.Err()
		}
	}
}

// TestASlowClientHoldsNobodyUp has one that does not read what it asked for and
// one that does not finish its request: others are answered, and the server ends.
func TestASlowClientHoldsNobodyUp(t *testing.T) {
	desk := &stuck{begun: make(chan struct{}), ended: make(chan error, 1)}
	w := newWorld(t, func(o *Options) { desk.Desk, o.Desk = o.Desk, desk })
	w.server.grace = 50 * time.Millisecond
	dial := func(request string) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
		w.must(err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, request)
		w.must(err)
	}
	dial("GET /api/v1/dead/export HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + operateToken + "\r\n\r\n")
	dial("GET /api/v1/status HTTP/1.1\r\nHost: loc")
	dial("POST /api/v1/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nContent-Type: application/json\r\nAuthorization: Bearer " + operateToken + "\r\n\r\n{")
	<-desk.begun
	if a := w.ask(readToken, call{method: "GET", path: apiPrefix + "/status"}); a.status != 200 {
		t.Errorf("beside slow clients: %d", a.status)
	}
	w.stop()
	if err := <-desk.ended; err == nil {
		t.Error("the export went on")
	}
}

// breaking is a desk whose export fails after a line.
type breaking struct {
	Desk
	after int
}

func (b breaking) Export(_ context.Context, _ gobridge.Filter, w io.Writer, _ func(gobridge.Ref) bool, _ func(int)) (int, error) {
	for range b.after {
		if _, err := io.WriteString(w, "{}\n"); err != nil {
			return 0, err
		}
	}
	return b.after, errors.New("the disk is gone")
}

func TestAnExportThatFailsIsNotTakenForWhole(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Desk = breaking{o.Desk, 1} })
	n, err := w.client(operateToken).Export(t.Context(), gobridge.Filter{}, io.Discard, nil, nil)
	if !errors.Is(err, ErrUnreachable) || n > 1 {
		t.Errorf("after a line: %d, %v", n, err)
	}
	w = newWorld(t, func(o *Options) { o.Desk = breaking{o.Desk, 0} })
	if a := w.ask(operateToken, call{method: "GET", path: apiPrefix + "/dead/export"}); a.status != 503 || !strings.Contains(a.body, "the disk is gone") {
		t.Errorf("before the first: %d %s", a.status, a.body)
	}
	if log := w.log.String(); strings.Contains(log, "panic serving") {
		t.Errorf("the log says\n%s", log)
	}
}

// TestAJobEndsWithItsClient starts a slow job, sees it tell how far it is, and
// goes: what was done stays, the rest is left, and the audit has what was done.
func TestAJobEndsWithItsClient(t *testing.T) {
	w := newWorld(t, nil)
	var letters []gobridge.Record
	for i := range 100 {
		letters = append(letters, gobridge.Record{Partition: crm, Binding: "crm", State: gobridge.StateDead, Reason: "permanent",
			Envelope: messaging.Envelope{ID: fmt.Sprint(i), Payload: []byte("x")}})
	}
	w.must(w.store.Persist(t.Context(), letters))
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+apiPrefix+"/jobs",
		strings.NewReader(`{"kind":"redrive","filter":{"route":"orders"},"pace":10,"reason":"r"}`))
	w.must(err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+operateToken)
	response, err := w.http.Do(request)
	w.must(err)
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	w.must(err)
	w.fits(w.api.Components.Schemas["JobStep"].Value, line)
	cancel()
	response.Body.Close()
	w.stop() // waits for the job
	stats, err := w.store.Stats(t.Context())
	w.must(err)
	entries, err := w.store.ListAudit(t.Context(), 1)
	w.must(err)
	if s := stats[0]; s.Pending == 0 || s.Dead == 0 || s.Pending+s.Dead != 100 || entries[0].Count != s.Pending || entries[0].By != "operate token" {
		t.Errorf("%d pending, %d dead; audit %+v", s.Pending, s.Dead, entries)
	}
}
