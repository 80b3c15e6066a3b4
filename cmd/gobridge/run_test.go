package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen.
const patience = 3 * time.Minute

// buffer is an output that can be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// process is `gobridge run` within the test.
type process struct {
	t              *testing.T
	stdout, stderr buffer
	cancel         context.CancelFunc
	status         chan int
	ended          bool
}

func start(t *testing.T, config string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{t: t, cancel: cancel, status: make(chan int, 1)}
	path := write(t, config)
	go func() { p.status <- execute(ctx, []string{"run", path}, &p.stdout, &p.stderr) }()
	t.Cleanup(func() { p.stop() })
	return p
}

// address waits until the process listens and returns where.
func (p *process) address() string {
	p.t.Helper()
	listening := regexp.MustCompile(`msg=listening address=(\S+)`)
	var found []string
	eventually(p.t, "the process listens", func() bool {
		found = listening.FindStringSubmatch(p.stderr.String())
		if found == nil && len(p.status) > 0 {
			p.t.Fatalf("it ended: %s", p.stderr.String())
		}
		return found != nil
	})
	return found[1]
}

// stop ends the process as a signal does and returns its status.
func (p *process) stop() int {
	p.cancel()
	return p.wait()
}

// wait waits for the end of the process.
func (p *process) wait() int {
	p.t.Helper()
	if p.ended {
		return -1
	}
	select {
	case status := <-p.status:
		p.ended = true
		return status
	case <-time.After(patience):
		p.t.Fatalf("it does not end: %s", p.stderr.String())
		return -1
	}
}

// post sends a message and returns the status and body of the answer.
func post(t *testing.T, url, body string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// line is what a test reads of a line of JSON.
type line struct {
	ID      string
	Key     string
	Route   string
	Binding string
	Data    struct{ N int }
}

func lines(t *testing.T, text string) []line {
	t.Helper()
	var out []line
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			t.Fatalf("%v in %s", err, scanner.Text())
		}
		out = append(out, l)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func TestQuickstart(t *testing.T) {
	dir := t.TempDir()
	text := read(t, "../../examples/quickstart.yaml")
	text = strings.NewReplacer("data/", dir+"/data/", "127.0.0.1:8080", "127.0.0.1:0").Replace(text)
	p := start(t, text)
	url := p.address() + "/quickstart"

	const perKey = 20
	for n := range perKey {
		for _, key := range []string{"a", "b"} {
			status, answer := post(t, url, fmt.Sprintf(`{"n":%d}`, n),
				"Gobridge-Ordering-Key", key, "Idempotency-Key", fmt.Sprintf("%s-%d", key, n))
			if status != http.StatusAccepted || !strings.Contains(answer, fmt.Sprintf("%s-%d", key, n)) {
				t.Fatalf("status %d: %s", status, answer)
			}
		}
	}
	if status, answer := post(t, url, `{"n":3}`, "Gobridge-Ordering-Key", "a", "Idempotency-Key", "a-3"); status != http.StatusOK {
		t.Errorf("a duplicate: status %d: %s", status, answer)
	}
	if status, answer := post(t, url, `{"n":99}`, "Gobridge-Ordering-Key", "a", "Idempotency-Key", "a-3"); status != http.StatusUnprocessableEntity {
		t.Errorf("an ID with other content: status %d: %s", status, answer)
	}

	delivered := filepath.Join(dir, "data", "delivered.jsonl")
	eventually(t, "everything is delivered", func() bool {
		return strings.Count(read(t, delivered), "\n") >= 2*perKey && strings.Count(p.stdout.String(), "\n") >= 2*perKey
	})
	if status := p.stop(); status != 0 {
		t.Errorf("status %d: %s", status, p.stderr.String())
	}
	for binding, text := range map[string]string{"file": read(t, delivered), "terminal": p.stdout.String()} {
		next := map[string]int{}
		for _, l := range lines(t, text) {
			if l.Data.N != next[l.Key] || l.Route != "quickstart" || l.Binding != binding || l.ID != fmt.Sprintf("%s-%d", l.Key, l.Data.N) {
				t.Errorf("%s: got %+v, want number %d of its key", binding, l, next[l.Key])
			}
			next[l.Key]++
		}
		if next["a"] != perKey || next["b"] != perKey {
			t.Errorf("%s: delivered %v", binding, next)
		}
	}
}

// pendingConfig has a route whose destination takes nothing yet.
const pendingConfig = `
version: 1
store: { sqlite: { path: %q } }
http: { listen: "127.0.0.1:0" }
routes:
  orders:
    source: { http: { path: /orders, auth: { bearer: s3cret } } }
    ordering_key: payload.customer
    bindings:
      crm:
        webhook: { url: %q, headers: { x-token: s3cret } }
        filter: payload.n > 0
        retry: { attempts: 100, backoff: 10ms..50ms }
`

// otherConfig has the same store and no such route.
const otherConfig = `
version: 1
store: { sqlite: { path: %q } }
http: { listen: "127.0.0.1:0" }
%s
routes:
  other: { source: { http: { path: /other } }, bindings: { out: { stdout: {} } } }
`

func TestRemovedRouteThenParkedThenRestored(t *testing.T) {
	var up atomic.Bool
	var mu sync.Mutex
	var got []string
	destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !up.Load() || r.Header.Get("X-Token") != "s3cret" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(body))
	}))
	defer destination.Close()
	db := filepath.Join(t.TempDir(), "made", "outbox.db")

	first := start(t, fmt.Sprintf(pendingConfig, db, destination.URL))
	url := first.address() + "/orders"
	token := []string{"Authorization", "Bearer s3cret"}
	for body, want := range map[string]int{
		`{"customer":"c","n":0}`: http.StatusAccepted,            // left out by the filter
		`{"n":1}`:                http.StatusUnprocessableEntity, // without the key
		`{"customer":"c"}`:       http.StatusUnprocessableEntity, // without what the filter asks for
	} {
		if status, answer := post(t, url, body, token...); status != want {
			t.Errorf("%s: status %d, want %d: %s", body, status, want, answer)
		}
	}
	if status, _ := post(t, url, `{"customer":"c","n":1}`); status != http.StatusUnauthorized {
		t.Errorf("without a token: status %d", status)
	}
	for n := 1; n <= 3; n++ {
		if status, answer := post(t, url, fmt.Sprintf(`{"customer":"c","n":%d}`, n), token...); status != http.StatusAccepted {
			t.Fatalf("status %d: %s", status, answer)
		}
	}
	if status := first.stop(); status != 0 {
		t.Fatalf("status %d: %s", status, first.stderr.String())
	}
	if log := first.stderr.String(); strings.Contains(log, "s3cret") {
		t.Errorf("a secret is in the log: %s", log)
	}

	removed := start(t, fmt.Sprintf(otherConfig, db, ""))
	if status := removed.wait(); status != 2 || !strings.Contains(removed.stderr.String(), "orders/crm") {
		t.Fatalf("the route is gone: status %d: %s", status, removed.stderr.String())
	}

	parked := start(t, fmt.Sprintf(otherConfig, db, "parked: [orders]"))
	if status, answer := post(t, parked.address()+"/other", `{}`); status != http.StatusAccepted {
		t.Errorf("beside a parked route: status %d: %s", status, answer)
	}
	if status := parked.stop(); status != 0 {
		t.Fatalf("the route is parked: status %d: %s", status, parked.stderr.String())
	}

	up.Store(true)
	restored := start(t, strings.Replace(fmt.Sprintf(pendingConfig, db, destination.URL), "routes:", "parked: [other]\nroutes:", 1))
	restored.address()
	eventually(t, "what waited is delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= 3
	})
	if status := restored.stop(); status != 0 {
		t.Errorf("status %d: %s", status, restored.stderr.String())
	}
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(got, " "); all != `{"customer":"c","n":1} {"customer":"c","n":2} {"customer":"c","n":3}` {
		t.Errorf("delivered %s", all)
	}
}

func TestFailures(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	dir := t.TempDir()
	const small = "version: 1\nstore: %s\nhttp: { listen: %q %s }\nroutes: { r: { source: { http: { path: /r } }, bindings: { b: %s } } }\n"
	for name, tt := range map[string]struct {
		config string
		status int
		want   string
	}{
		"address in use":  {fmt.Sprintf(small, "{ memory: {} }", taken.Addr(), "", "{ stdout: {} }"), 1, "address already in use"},
		"no database":     {fmt.Sprintf(small, "{ sqlite: { path: /dev/null/x.db } }", "127.0.0.1:0", "", "{ stdout: {} }"), 1, "store"},
		"no file":         {fmt.Sprintf(small, "{ memory: {} }", "127.0.0.1:0", "", "{ file: { path: /dev/null/f } }"), 1, "routes.r.bindings.b"},
		"no certificate":  {fmt.Sprintf(small, "{ memory: {} }", "127.0.0.1:0", ", tls: { cert: none.pem, key: none.pem }", "{ stdout: {} }"), 2, "none.pem"},
		"after the store": {fmt.Sprintf(small, "{ sqlite: { path: "+dir+"/o.db } }", taken.Addr(), "", "{ file: { path: "+dir+"/f } }"), 1, "address already in use"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, tt.config)
			if status := p.wait(); status != tt.status || !strings.Contains(p.stderr.String(), tt.want) {
				t.Errorf("status %d: %s", status, p.stderr.String())
			}
		})
	}
}

func TestLogsAsJSON(t *testing.T) {
	p := start(t, `
version: 1
store: { memory: {} }
http: { listen: "127.0.0.1:0" }
log: { format: json }
routes: { r: { source: { http: { path: /r } }, bindings: { b: { stdout: {} } } } }
`)
	eventually(t, "it listens", func() bool { return strings.Contains(p.stderr.String(), `"msg":"listening"`) })
	if status := p.stop(); status != 0 {
		t.Errorf("status %d", status)
	}
	for scanner := bufio.NewScanner(strings.NewReader(p.stderr.String())); scanner.Scan(); {
		if !json.Valid(scanner.Bytes()) {
			t.Errorf("not JSON: %s", scanner.Text())
		}
	}
}
