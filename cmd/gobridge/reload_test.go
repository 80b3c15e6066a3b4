//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gobridge/internal/fakedynamo"
	"gobridge/operate"
)

// hook is a webhook destination.
type hook struct {
	*httptest.Server
	down atomic.Bool
	slow atomic.Int64 // nanoseconds

	mu       sync.Mutex
	got      []string // bodies
	versions []string // of tokens, each once
}

func newHook(t *testing.T) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		time.Sleep(time.Duration(h.slow.Load()))
		if err != nil || h.down.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, string(body))
		if v := r.Header.Get("Gobridge-Token-Version"); !slices.Contains(h.versions, v) {
			h.versions = append(h.versions, v)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) bodies() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

// daemon is gobridge run as a process of its own.
type daemon struct {
	*testing.T
	path    string
	store   string // as in the file
	process *exec.Cmd
	stderr  buffer
	url     string
	ended   chan error
	reloads int // lines about reloads that were waited for
}

const reloadHead = `
version: 1
store: %s
http: { listen: "127.0.0.1:0" }
admin: { listen: "127.0.0.1:0", tokens: { operate: "${file:token}" } }
routes:
`

// reloadToken is that of the admin listener.
const reloadToken = "a-token-for-reloading"

// startDaemon starts it, with further files, given by name and text.
func startDaemon(t *testing.T, routes string, files ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	return startDaemonOn(t, fmt.Sprintf("{ sqlite: { path: %q } }", filepath.Join(dir, "o.db")), dir, routes, files...)
}

func startDaemonOn(t *testing.T, store, dir, routes string, files ...string) *daemon {
	t.Helper()
	d := &daemon{T: t, store: store, path: filepath.Join(dir, "b.yaml"), ended: make(chan error, 1)}
	d.file("token", reloadToken)
	for i := 0; i < len(files); i += 2 {
		d.file(files[i], files[i+1])
	}
	d.configure(routes)
	d.process = exec.Command(os.Args[0], "run", d.path)
	d.process.Env = append(os.Environ(), asMain+"=1")
	d.process.Stderr = &d.stderr
	if err := d.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.process.Wait() }()
	t.Cleanup(func() { _ = d.process.Process.Kill() })
	d.url = d.logged(`msg=listening address=(\S+)`)
	return d
}

// file puts a file beside the configuration, whole from one moment to the next.
func (d *daemon) file(name, text string) {
	d.Helper()
	path := filepath.Join(filepath.Dir(d.path), name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		d.Fatal(err)
	}
}

func (d *daemon) configure(routes string) {
	d.Helper()
	d.file("b.yaml", fmt.Sprintf(reloadHead, d.store)+routes)
}

// logged waits for a line of the log and returns what the expression captures.
func (d *daemon) logged(expression string) string {
	d.Helper()
	var found []string
	eventually(d.T, expression, func() bool {
		select {
		case err := <-d.ended:
			d.Fatalf("it ended, %v: %s", err, d.stderr.String())
		default:
		}
		found = regexp.MustCompile(expression).FindStringSubmatch(d.stderr.String())
		return found != nil
	})
	return found[len(found)-1]
}

// reload sends SIGHUP and returns what the log says of it.
func (d *daemon) reload() string {
	d.Helper()
	if err := d.process.Process.Signal(syscall.SIGHUP); err != nil {
		d.Fatal(err)
	}
	d.reloads++
	lines := regexp.MustCompile(`msg="the configuration was .*`)
	eventually(d.T, "the configuration is reloaded, or not", func() bool {
		return len(lines.FindAllString(d.stderr.String(), -1)) >= d.reloads
	})
	return lines.FindAllString(d.stderr.String(), -1)[d.reloads-1]
}

func (d *daemon) want(got, want string) {
	d.Helper()
	if !strings.Contains(got, want) {
		d.Errorf("got %s\nwant %s", got, want)
	}
}

// accepted posts a message of one key, so that all arrive in their order.
func (d *daemon) accepted(path, body string, headers ...string) {
	d.Helper()
	if status, answer := post(d.T, d.url+path, body, append(headers, "Gobridge-Ordering-Key", "k")...); status != http.StatusAccepted {
		d.Errorf("POST %s: status %d: %s", path, status, answer)
	}
}

func (d *daemon) arrive(h *hook, want ...string) {
	d.Helper()
	eventually(d.T, "everything arrives", func() bool { return len(h.bodies()) >= len(want) })
	if got := h.bodies(); !slices.Equal(got, want) {
		d.Errorf("arrived %v, want %v", got, want)
	}
}

func webhookRoute(name string, bindings ...string) string {
	out := fmt.Sprintf("  %s:\n    source: { http: { path: /%s } }\n    bindings:\n", name, name)
	for i := 0; i < len(bindings); i += 2 {
		out += fmt.Sprintf("      %s: { webhook: { url: %q } }\n", bindings[i], bindings[i+1])
	}
	return out
}

func TestReload(t *testing.T) {
	one, two, other := newHook(t), newHook(t), newHook(t)
	kept := webhookRoute("kept", "b", other.URL)
	d := startDaemon(t, kept+webhookRoute("r", "b", one.URL))
	d.accepted("/r", "1")
	d.accepted("/kept", "1")
	d.arrive(one, "1")
	d.arrive(other, "1")

	d.want(d.reload(), `reloaded" changed=nothing`)

	d.configure(kept + webhookRoute("r", "b", two.URL) + webhookRoute("added", "b", two.URL))
	d.want(d.reload(), `reloaded" changed="routes added: added; routes changed: r"`)
	d.accepted("/r", "2")
	d.arrive(two, "2")
	d.accepted("/added", "3")
	d.arrive(two, "2", "3")

	// What is wrong with a file is said, and changes nothing.
	d.configure(kept + webhookRoute("r", "b", "ftp://x"))
	d.want(d.reload(), "not reloaded")
	d.want(d.stderr.String(), "b.yaml:14:28: the value is not an http or https URL")
	d.accepted("/added", "4")
	d.arrive(two, "2", "3", "4")

	// A route whose records wait stays, unless it is parked.
	two.down.Store(true)
	d.accepted("/added", "5")
	d.configure(kept + webhookRoute("r", "b", one.URL))
	d.want(d.reload(), "holds records that no route serves: added/b/0 (")
	two.down.Store(false)
	d.arrive(two, "2", "3", "4", "5")
	d.accepted("/r", "6")
	d.arrive(two, "2", "3", "4", "5", "6") // r was not changed either
	d.want(d.reload(), `changed="routes changed: r; routes removed: added"`)
	if status, _ := post(t, d.url+"/added", "7"); status != http.StatusNotFound {
		t.Errorf("a removed route answers %d", status)
	}
	d.accepted("/r", "8")
	d.arrive(one, "1", "8")

	d.configure(kept + webhookRoute("r", "b", one.URL) + "    partitions: 4\n")
	d.want(d.reload(), "serves route r in 1, not 4")
	d.configure(kept + webhookRoute("r", "b", one.URL) + "lease_term: 7s\ngrace: 1s\n")
	d.want(d.reload(), "needs a restart: lease_term, grace cannot be changed")

	d.accepted("/kept", "9")
	d.arrive(other, "1", "9")
	if len(other.versions) != 1 {
		t.Errorf("the route that did not change delivered under the token versions %v", other.versions)
	}
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-d.ended; err != nil {
		t.Errorf("it ended with %v: %s", err, d.stderr.String())
	}
}

// TestReloadFailsInTheMiddle lets something go wrong that only applying finds.
func TestReloadFailsInTheMiddle(t *testing.T) {
	one, two := newHook(t), newHook(t)
	d := startDaemon(t, webhookRoute("r", "b", one.URL))
	file := filepath.Join(filepath.Dir(d.path), "token", "under-a-file.jsonl")
	d.configure(webhookRoute("r", "b", two.URL) +
		fmt.Sprintf("  s: { source: { http: { path: /s } }, bindings: { b: { file: { path: %q } } } }\n", file))
	d.want(d.reload(), "not reloaded")
	d.want(d.stderr.String(), "routes.s.bindings.b")
	d.accepted("/r", "1")
	d.arrive(one, "1")
	if status, _ := post(t, d.url+"/s", "1"); status != http.StatusNotFound {
		t.Errorf("a part of the new configuration is there: status %d", status)
	}
}

// TestReloadOverTheAdminListener has the API reload, and secrets that were changed
// in their files.
func TestReloadOverTheAdminListener(t *testing.T) {
	one := newHook(t)
	route := strings.Replace(webhookRoute("r", "b", one.URL), "path: /r", `path: /r, auth: { bearer: "${file:bearer}" }`, 1)
	d := startDaemon(t, route, "bearer", "first-token-of-the-route")
	d.accepted("/r", "1", "Authorization", "Bearer first-token-of-the-route")
	d.file("bearer", "second-token-of-the-route")
	d.file("token", reloadToken+"-2") // taken up by itself, and no reason to restart
	address := d.logged(`msg="admin listening" address=(\S+)`)
	reload := func() (int, string) {
		return post(t, address+"/api/v1/reload", `{"reason":"new tokens"}`, "Authorization", "Bearer "+reloadToken+"-2")
	}
	var answer string
	eventually(t, "the API takes its new token", func() bool {
		status, text := reload()
		answer = text
		return status != http.StatusUnauthorized
	})
	var out struct{ Changed string }
	if err := json.NewDecoder(bytes.NewReader([]byte(answer))).Decode(&out); err != nil || out.Changed != "routes changed: r" {
		t.Errorf("answer %s, %v", answer, err)
	}
	d.accepted("/r", "2", "Authorization", "Bearer second-token-of-the-route")
	if status, _ := post(t, d.url+"/r", "3", "Authorization", "Bearer first-token-of-the-route"); status != http.StatusUnauthorized {
		t.Errorf("the old token: status %d", status)
	}
	d.arrive(one, "1", "2")
	d.configure("  r: {}\n")
	status, text := reload()
	if status != http.StatusConflict || !strings.Contains(text, "b.yaml:7:") {
		t.Errorf("a bad file: status %d: %s", status, text)
	}
}

// TestReloadKeepsTheLeasesOfATable adds routes to a bridge on a DynamoDB table, where
// the leases are renewed together.
func TestReloadKeepsTheLeasesOfATable(t *testing.T) {
	server, kept, added := fakedynamo.New(fakedynamo.Options{}), newHook(t), newHook(t)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	dir := t.TempDir()
	store := fmt.Sprintf("{ dynamodb: { table: outbox, region: eu-central-1, endpoint: %q } }", server.URL())
	first := write(t, fmt.Sprintf("version: 1\nstore: %s\nroutes: { r: { source: { http: { path: /r } }, bindings: { b: { stdout: {} } } } }\n", store))
	if status, _, stderr := command(t, "table", "ensure", "--config", first); status != statusOK {
		t.Fatal(stderr)
	}
	routes, want := webhookRoute("kept", "b", kept.URL), []string{"0"}
	d := startDaemonOn(t, store, dir, routes)
	d.accepted("/kept", "0")
	d.arrive(kept, want...)
	for n := 1; n <= 5; n++ {
		name := fmt.Sprintf("added%d", n)
		routes += webhookRoute(name, "b", added.URL)
		d.configure(routes)
		d.want(d.reload(), "routes added: "+name)
		d.accepted("/"+name, fmt.Sprint(n))
		eventually(t, "the added route delivers", func() bool { return len(added.bodies()) == n })
		d.accepted("/kept", fmt.Sprint(n))
		want = append(want, fmt.Sprint(n))
		d.arrive(kept, want...)
	}
	if len(kept.versions) != 1 || strings.Contains(d.stderr.String(), "partition lost") {
		t.Errorf("the lease of the route that did not change went through versions %v: %s", kept.versions, d.stderr.String())
	}
}

// TestReloadUnderLoad reloads again and again while two routes take messages: one
// changes its destination each time, the other stays as it is. Nobody is refused.
func TestReloadUnderLoad(t *testing.T) {
	changing, kept := newHook(t), newHook(t)
	changing.slow.Store(int64(2 * time.Millisecond))
	routes := func(n int) string {
		return webhookRoute("kept", "b", kept.URL) + webhookRoute("r", "b", fmt.Sprintf("%s/%d", changing.URL, n))
	}
	d := startDaemon(t, routes(0))
	stop := make(chan struct{})
	var load sync.WaitGroup
	var sent [2]int
	for i, route := range []string{"/kept", "/r"} {
		load.Go(func() {
			for ; !t.Failed(); sent[i]++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := publish(d.url+route, fmt.Sprint(sent[i])); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range 20 {
		d.configure(routes(n + 1))
		d.want(d.reload(), `changed="routes changed: r"`)
	}
	close(stop)
	load.Wait()
	for i, h := range []*hook{kept, changing} {
		var want []string
		for n := range sent[i] {
			want = append(want, fmt.Sprint(n))
		}
		d.arrive(h, want...)
	}
	if len(kept.versions) != 1 || len(changing.versions) != 1 {
		t.Errorf("token versions %v of the route that stays, %v of the other: the leases were given up", kept.versions, changing.versions)
	}
	t.Logf("%d and %d messages", sent[0], sent[1])
}

// publish posts a message of key k whose ID is its body.
func publish(url, body string) error {
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Gobridge-Ordering-Key", "k")
	request.Header.Set("Idempotency-Key", body)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("status %d: %s", response.StatusCode, answer)
	}
	return err
}

// TestARefusedReloadIsMendedByWhatItSays: of a binding whose message waits, seen from
// elsewhere, and of a change that needs a restart.
func TestARefusedReloadIsMendedByWhatItSays(t *testing.T) {
	hook := newHook(t)
	kept := webhookRoute("kept", "b", hook.URL)
	d := startDaemon(t, kept+webhookRoute("gone", "b", hook.URL))
	admin := d.logged(`msg="admin listening" address=(\S+)`)
	place := []string{"--admin", admin, "--token-file", filepath.Join(filepath.Dir(d.path), "token")}
	says := func() string {
		t.Helper()
		_, stdout, stderr := command(t, append([]string{"status"}, place...)...)
		if strings.Contains(stdout, "kill") || strings.Contains(stdout, "validate") {
			t.Errorf("it sends people to the wrong machine, or to a file that is right:\n%s", stdout)
		}
		return stdout + stderr
	}
	load := fmt.Sprintf("then have process %d on ", d.process.Process.Pid)
	// Paused, the message is in nobody's hands when it is discarded.
	if status, stdout, stderr := command(t, append([]string{"pause", "gone", "--yes", "--reason", "x"}, place...)...); status != 0 {
		t.Fatalf("pause: status %d: %s%s", status, stdout, stderr)
	}
	d.accepted("/gone", "1")
	d.configure(kept)
	d.want(d.reload(), "holds records that no route serves: gone/b/0 (")
	discard := append([]string{"discard", "gone/b"}, place...)
	out := says()
	for _, want := range []string{
		"put gone/b back into the file\n", "or list gone/b under parked:", "gobridge " + operate.CommandLine(discard) + "\n",
		load, " load it:\n", `     curl -sS --fail-with-body -H "Authorization: Bearer $(cat `, admin + "/api/v1/reload\n",
	} {
		d.want(out, want)
	}
	if status, stdout, stderr := command(t, append(discard, "--yes", "--reason", "void")...); status != 0 || !strings.HasPrefix(stdout, "discarded 1 of gone/b") {
		t.Errorf("discard: status %d: %s%s", status, stdout, stderr)
	}
	d.want(d.reload(), `changed="routes removed: gone"`)

	d.configure(kept + "lease_term: 7s\n")
	d.want(d.reload(), "needs a restart")
	eventually(t, "status says so", func() bool {
		out = says()
		return strings.Contains(out, "put that back in the file as it was\n") && strings.Contains(out, "or restart process")
	})
}
