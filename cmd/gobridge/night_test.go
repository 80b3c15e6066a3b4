//go:build unix

package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
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
	"syscall"
	"testing"
	"time"
)

// night is one bad night: a folder with a configuration, b.yaml, whose one
// webhook goes to a destination of the test; bridges that run in it as processes
// of their own; and an operator who has nothing but the command line.
type night struct {
	*testing.T
	dir   string
	admin string // address of the admin listener, if there is one
	dest  *dest
	url   string // of the newest bridge
	newed *exec.Cmd
	db    *sql.DB // the outbox, opened as a stranger would
}

// dest is the destination: what it got, and how it answers.
type dest struct {
	server *httptest.Server
	mu     sync.Mutex
	got    []string // the IDs taken, in order
	answer func(id string) int
}

func (d *dest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	id, _, _ := strings.Cut(r.Header.Get("Webhook-Id"), "~") // redriven, it has another
	d.mu.Lock()
	defer d.mu.Unlock()
	status := http.StatusOK
	if d.answer != nil {
		status = d.answer(id)
	}
	if status == http.StatusOK && !slices.Contains(d.got, id) { // after a takeover it may come again
		d.got = append(d.got, id)
	}
	w.WriteHeader(status)
}

// answers sets how it answers: with a status everything, or what has the ID.
func (d *dest) answers(status int, ids ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = func(id string) int {
		if len(ids) == 0 || slices.Contains(ids, id) {
			return status
		}
		return http.StatusOK
	}
}

func (d *dest) taken() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.got)
}

// nightToken is that of the role operate.
const nightToken = "a-token-to-act-with-at-night"

// nightConfig is the configuration: the first %s is for the store, then for the
// route, then for the binding. A second attempt is ten minutes away, so nothing
// mends itself within a test.
const nightConfig = `
version: 1
lease_term: 2s
grace: 1s
store: { sqlite: { path: outbox.db%s } }
http: { listen: "127.0.0.1:0" }
routes:
  orders:
    source: { http: { path: /orders } }%s
    bindings:
      crm:
        webhook: { url: %q, timeout: 2s }
        retry: { attempts: 100, backoff: 10m..1h }%s
`

// newNight makes the folder and the destination.
func newNight(t *testing.T, store, route, binding string) *night {
	t.Helper()
	n := &night{T: t, dir: t.TempDir(), dest: &dest{}}
	n.dest.server = httptest.NewServer(n.dest)
	t.Cleanup(n.dest.server.Close)
	n.configure(fmt.Sprintf(nightConfig, store, route, n.dest.server.URL, binding))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.file("bin/gobridge", fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asMain, self))
	return n
}

func (n *night) configure(text string) { n.file("b.yaml", text) }

func (n *night) file(name, text string) {
	n.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // one of them is a program
		n.Fatal(err)
	}
}

// shell makes a command of a line as an operator would type it.
func (n *night) shell(line, stdin string) *exec.Cmd {
	cmd := exec.CommandContext(n.Context(), "sh", "-c", "exec "+line) //nolint:gosec // the lines are gobridge's own
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(n.dir, "bin")+":"+os.Getenv("PATH"), configEnv+"=b.yaml", adminTokenEnv+"="+nightToken, "TZ=UTC")
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

// run runs a line to its end.
func (n *night) run(line, stdin string) (status int, out string) {
	n.Helper()
	text, err := n.shell(line, stdin).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.Fatalf("%s: %v", line, err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	for _, l := range strings.Split(string(text), "\n") {
		if prose := !strings.HasPrefix(l, "     ") && strings.HasPrefix(line, "gobridge status"); prose && len([]rune(l)) > width && !strings.Contains(line, "--json") {
			n.Errorf("%s writes a line of %d characters: %q", line, len([]rune(l)), l)
		}
	}
	return status, string(text)
}

// bridge starts a bridge with the line that an operator would type, and waits
// until it listens.
func (n *night) bridge(line string) *exec.Cmd {
	n.Helper()
	cmd := n.shell(line, "")
	var log buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended does not matter
		close(ended)
	}()
	n.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if n.Failed() {
			n.Logf("%s logged:\n%s", line, log.String())
		}
	})
	listening := regexp.MustCompile(`msg=listening address=(\S+)`)
	eventually(n.T, "the bridge listens", func() bool {
		found := listening.FindStringSubmatch(log.String())
		if found == nil {
			select {
			case <-ended:
				n.Fatalf("the bridge ended: %s", log.String())
			default:
				return false
			}
		}
		n.url = found[1]
		return true
	})
	n.newed = cmd
	return cmd
}

// start starts the bridge of b.yaml.
func (n *night) start() *exec.Cmd { n.Helper(); return n.bridge("gobridge run b.yaml") }

// kill ends a bridge without notice.
func (n *night) kill(cmd *exec.Cmd) {
	n.Helper()
	if err := cmd.Process.Kill(); err != nil {
		n.Fatal(err)
	}
	eventually(n.T, "the bridge is gone", func() bool { return errors.Is(cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) })
}

// post sends a message and checks the status of the answer.
func (n *night) post(want int, id, key, body string, headers ...string) {
	n.Helper()
	headers = append(headers, "Idempotency-Key", id)
	if key != "" {
		headers = append(headers, "Gobridge-Ordering-Key", key)
	}
	if got, answer := post(n.T, n.url+"/orders", body, headers...); got != want {
		n.Fatalf("post of %s: status %d, want %d: %s", id, got, want, answer)
	}
}

// says runs a line until what it prints has all the texts, and returns it.
// Breaks of lines do not matter.
func (n *night) says(status int, line, stdin string, texts ...string) string {
	n.Helper()
	deadline := time.Now().Add(patience)
	for {
		got, out := n.run(line, stdin)
		flat := strings.Join(strings.Fields(out), " ")
		missing := ""
		for _, text := range texts {
			if !strings.Contains(flat, text) {
				missing = text
			}
		}
		if got == status && missing == "" {
			return out
		}
		if time.Now().After(deadline) {
			n.Fatalf("%s exits with %d, want %d, and lacks %q:\n%s", line, got, status, missing, out)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// printed returns the command that an output has on a line of its own and that
// begins with want.
func (n *night) printed(out, want string) string {
	n.Helper()
	for _, l := range strings.Split(out, "\n") {
		if command := strings.TrimSpace(l); strings.HasPrefix(l, "     ") && strings.HasPrefix(command, want) {
			return command
		}
	}
	n.Fatalf("there is no command %q in\n%s", want, out)
	return ""
}

// does runs the act that an output has printed: first as it is, which must only
// say what it would do, and then what that has printed, with a reason.
func (n *night) does(out, want string) string {
	n.Helper()
	line := n.printed(out, want)
	status, preview := n.run(line, "")
	if status != 0 || !strings.HasPrefix(preview, "would ") {
		n.Fatalf("%s: status %d:\n%s", line, status, preview)
	}
	again := n.printed(preview, "gobridge")
	if !strings.HasSuffix(again, ` --yes --reason "..."`) {
		n.Fatalf("%s says how to do it with %q", line, again)
	}
	status, done := n.run(strings.ReplaceAll(again, `"..."`, `'a bad night'`), "")
	if status != 0 {
		n.Fatalf("%s: status %d:\n%s", again, status, done)
	}
	n.says(0, "gobridge audit", "", "a bad night")
	return done
}

// arrives waits until the destination has taken the messages, in this order
// where they have one key, and nothing else.
func (n *night) arrives(ids ...string) {
	n.Helper()
	eventually(n.T, fmt.Sprintf("%v arrive", ids), func() bool { return len(n.dest.taken()) >= len(ids) })
	got := n.dest.taken()
	sorted := slices.Sorted(slices.Values(got))
	if want := slices.Sorted(slices.Values(ids)); !slices.Equal(sorted, want) {
		n.Fatalf("%v arrived, want %v", got, ids)
	}
}

// well waits until the status is ok.
func (n *night) well() { n.Helper(); n.says(0, "gobridge status", "") }

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// listen brings the destination up at an address.
func (d *dest) listen(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: d, ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// holder is a stranger's process that holds the write lock of the outbox.
func (n *night) holder() *exec.Cmd {
	n.Helper()
	self, err := os.Executable()
	if err != nil {
		n.Fatal(err)
	}
	cmd := exec.CommandContext(n.Context(), self)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), asHolder+"=outbox.db")
	var out buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	n.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	eventually(n.T, "the stranger has the lock", func() bool { return bytes.Contains([]byte(out.String()), []byte("locked")) })
	return cmd
}
