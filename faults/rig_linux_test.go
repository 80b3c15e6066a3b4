package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge/internal/testbinary"
)

// patience is how long a test waits for what must happen.
const patience = 3 * time.Minute

// token is that of the admin listeners, role operate.
const token = "a-token-to-act-with-in-a-fault"

// rig is a folder with a configuration, b.yaml, whose one webhook goes to a
// destination of the test; bridges that run in it as processes of their own; and an
// operator with the command line, the console and Prometheus.
type rig struct {
	testing.TB
	dir   string
	dest  *destination
	admin string // address of the admin listener of b.yaml
	term  string // of a lease
	store string // as in the file
	extra string // of the binding
	route string // of the route
	env   []string

	table *table // if the outbox is on one
	disk  *disk  // if the outbox is on one of its own

	url    string // of the newest bridge's HTTP sources
	newest *process
	posted int
}

// destination takes what comes, or answers as it is told.
type destination struct {
	URL    string
	server *httptest.Server

	mu     sync.Mutex
	answer int             // for everything that is not in only
	only   map[string]bool // the messages that it is for; nil is all
	got    map[string]bool
	first  time.Time // when the first came
	last   time.Time
}

func newDestination(t testing.TB) *destination {
	d := &destination{got: map[string]bool{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.URL = "http://" + l.Addr().String() + "/h"
	d.serve(l)
	t.Cleanup(d.down)
	return d
}

// up makes it listen at its address.
func (d *destination) up(t testing.TB) {
	t.Helper()
	address := strings.TrimSuffix(strings.TrimPrefix(d.URL, "http://"), "/h")
	l, err := net.Listen("tcp", address)
	for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); l, err = net.Listen("tcp", address) {
		time.Sleep(50 * time.Millisecond) // somebody's outgoing connection may have the port for a while
	}
	if err != nil {
		t.Fatal(err)
	}
	d.serve(l)
}

func (d *destination) serve(l net.Listener) {
	d.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: d, ReadHeaderTimeout: patience}}
	d.server.Start()
}

// down makes its host refuse connections.
func (d *destination) down() { d.server.Close() }

func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	id, _, _ := strings.Cut(r.Header.Get("Webhook-Id"), "~") // redriven, it has another
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answer != 0 && (d.only == nil || d.only[id]) {
		w.WriteHeader(d.answer)
		return
	}
	d.got[id] = true
	d.last = time.Now()
	if d.first.IsZero() {
		d.first = d.last
	}
}

// answers makes it answer with a status to the messages, or to all.
func (d *destination) answers(status int, ids ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer, d.only = status, nil
	for _, id := range ids {
		if d.only == nil {
			d.only = map[string]bool{}
		}
		d.only[id] = true
	}
}

func (d *destination) has(ids ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id string) bool { return !d.got[id] })
}

// configuration is the configuration: lease term, store, HTTP listener, admin listener, token,
// route, webhook, binding. A second attempt is ten minutes away, so that nothing mends
// itself within a test.
const configuration = `version: 1
lease_term: %s
grace: 1s
store: %s
http: { listen: "127.0.0.1:0" }
admin: { listen: %q, tokens: { operate: %q } }
routes:
  orders:
    source: { http: { path: /orders } }%s
    bindings:
      crm:
        webhook: { url: %q, timeout: 2s }
        retry: { attempts: 100, backoff: 10m..1h }%s
`

// newRig makes the folder and the destination; the bridge is not started yet.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, dir: t.TempDir(), dest: newDestination(t), admin: freeAddress(t), term: "2s", store: "{ sqlite: { path: outbox.db } }"}
	r.file("bin/gobridge", fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", testbinary.Path()))
	return r
}

// text is the configuration as it stands.
func (r *rig) text(admin string) string {
	return fmt.Sprintf(configuration, r.term, r.store, admin, token, r.route, r.dest.URL, r.extra)
}

func (r *rig) file(name, text string) {
	r.Helper()
	path := filepath.Join(r.dir, name)
	r.must(os.MkdirAll(filepath.Dir(path), 0o755))
	r.must(os.WriteFile(path, []byte(text), 0o755)) //nolint:gosec // one of them is a program
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// shell makes a command of a line as an operator would type it.
func (r *rig) shell(line string) *exec.Cmd {
	cmd := exec.CommandContext(r.Context(), "sh", "-c", "exec "+line) //nolint:gosec // the lines are those of the documents
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"), "GOBRIDGE_CONFIG=b.yaml", "GOBRIDGE_ADMIN_TOKEN="+token, "TZ=UTC")
	cmd.Env = append(cmd.Env, r.env...)
	return cmd
}

// run runs a line of a document to its end. A bridge that it starts is left running.
func (r *rig) run(line string) (status int, out string) {
	r.Helper()
	line = strings.ReplaceAll(line, "http://127.0.0.1:9090", "http://"+r.admin)
	if strings.HasPrefix(line, "gobridge run ") {
		r.start(line)
		return 0, "it listens"
	}
	text, err := r.shell(line).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.Fatalf("%s: %v", line, err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	return status, string(text)
}

// process is a bridge that runs.
type process struct {
	cmd   *exec.Cmd
	log   lockedBuffer
	ended chan struct{}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// lockedBuffer is an output that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// start starts a bridge and waits until it listens and has its partition, or would
// have it but for another.
func (r *rig) start(line string) *process {
	r.Helper()
	p := &process{cmd: r.shell(line), ended: make(chan struct{})}
	p.cmd.Stderr = &p.log
	r.must(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // how it ended does not matter
		close(p.ended)
	}()
	r.Cleanup(func() {
		p.kill()
		if r.Failed() {
			r.Logf("%s logged:\n%s", line, p.log.String())
		}
	})
	r.eventually("the bridge listens", func() bool {
		select {
		case <-p.ended:
			r.Fatalf("the bridge ended: %s", p.log.String())
		default:
		}
		found := listening.FindStringSubmatch(p.log.String())
		if found != nil {
			r.url = found[1]
		}
		return found != nil
	})
	r.newest = p
	return p
}

// begin starts the bridge of b.yaml, and delivers a first message with it.
func (r *rig) begin() *process {
	r.Helper()
	r.file("b.yaml", r.text(r.admin))
	p := r.start("gobridge run b.yaml")
	r.delivers("first")
	return p
}

// delivers posts a message without a key and waits until it arrives.
func (r *rig) delivers(id string) {
	r.Helper()
	r.post(http.StatusAccepted, id, "")
	r.eventually(id+" arrives", func() bool { return r.dest.has(id) })
}

// post sends a message and checks the status of the answer; zero is any.
func (r *rig) post(want int, id, key string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.url+"/orders", strings.NewReader(`{"n":1}`))
	r.must(err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", id)
	if key != "" {
		request.Header.Set("Gobridge-Ordering-Key", key)
	}
	if status, body := r.do(http.DefaultClient, request); want != 0 && status != want {
		r.Fatalf("post of %s: status %d, want %d: %s", id, status, want, body)
	}
}

// another posts one more message, whatever becomes of it.
func (r *rig) another() {
	r.Helper()
	r.posted++
	r.post(0, fmt.Sprintf("another-%d", r.posted), "")
}

// do makes a request. One that is not answered has the status zero.
func (r *rig) do(client *http.Client, request *http.Request) (status int, body string) {
	r.Helper()
	request.Close = true
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// get asks an admin listener with the token.
func (r *rig) get(admin, path string) (int, string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+admin+path, nil)
	r.must(err)
	request.Header.Set("Authorization", "Bearer "+token)
	return r.do(http.DefaultClient, request)
}

// eventually waits until condition holds.
func (r *rig) eventually(what string, condition func() bool) {
	r.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			r.Fatalf("still not so: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// answer asks a command for JSON and reads it.
func (r *rig) answer(line string, into any) (status int) {
	r.Helper()
	status, out := r.run(line + " --json")
	if err := json.Unmarshal([]byte(out), into); err != nil {
		r.Fatalf("%s: %v:\n%s", line, err, out)
	}
	return status
}

// well waits until nothing needs a person.
func (r *rig) well() {
	r.Helper()
	var out string
	deadline := time.Now().Add(patience)
	for status := -1; status != 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("it is not well again:\n%s", out)
		}
		status, out = r.run("gobridge status")
	}
}

// freeAddress returns an address on loopback that nobody listens on. Its port is
// below those that the system gives to connections (ip_local_port_range), so that none
// takes it meanwhile.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}
