package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// What must come out nowhere.
const (
	plantedBearer = "planted-bearer-secret"
	plantedHeader = "planted-header-secret"
	adminReader   = "planted-admin-token-that-reads"
	adminOperator = "planted-admin-token-that-acts"
)

// watched is a bridge with an admin listener, whose only binding is paused.
type watched struct {
	*testing.T
	process            *process
	config, url        string
	readFile, actsFile string
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	dir := t.TempDir()
	w := &watched{T: t, readFile: filepath.Join(dir, "read"), actsFile: filepath.Join(dir, "acts")}
	w.must(os.WriteFile(w.readFile, []byte(adminReader+"\n"), 0o600))
	w.must(os.WriteFile(w.actsFile, []byte(adminOperator+"\n"), 0o600))
	db := filepath.Join(dir, "outbox.db")
	w.seed(db)
	config := fmt.Sprintf(`
version: 1
store: { sqlite: { path: %q } }
http: { listen: "127.0.0.1:0" }
log: { level: debug }
admin: { listen: "127.0.0.1:0", tokens: { read: "${file:%s}", operate: "${file:%s}" } }
routes:
  orders:
    source: { http: { path: /orders, auth: { bearer: %s } } }
    bindings: { crm: { webhook: { url: "http://127.0.0.1:1/?key=%s", headers: { x-token: %s } } } }
parked: [old]
`, db, w.readFile, w.actsFile, plantedBearer, plantedHeader, plantedHeader)
	w.config = write(t, config)
	w.process = start(t, config)
	listening := regexp.MustCompile(`msg="admin listening" address=(\S+)`)
	eventually(t, "the admin listener listens", func() bool {
		found := listening.FindStringSubmatch(w.process.stderr.String())
		if found != nil {
			w.url = found[1]
		} else if len(w.process.status) > 0 {
			t.Fatalf("it ended: %s", w.process.stderr.String())
		}
		return found != nil
	})
	eventually(t, "it is ready", func() bool { status, _ := w.get("", "/health/ready"); return status == http.StatusOK })
	return w
}

func (w *watched) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *watched) seed(db string) {
	w.Helper()
	store, err := sqlite.OpenFile(w.Context(), db, sqlite.Options{})
	w.must(err)
	defer func() { w.must(store.Close()) }()
	w.must(store.SetControl(w.Context(), gobridge.Control{Kind: gobridge.Pause, Route: "orders", By: "bob", Reason: "the test says so"}))
	records := []gobridge.Record{{Partition: "old/crm/0", Binding: "crm", Envelope: messaging.Envelope{ID: "o-1", Payload: []byte("x")}}}
	for i := range 4 {
		r := gobridge.Record{Partition: "orders/crm/0", Binding: "crm", Envelope: messaging.Envelope{ID: fmt.Sprintf("m-%d", i), OrderingKey: "k", Payload: []byte("hello")}}
		if i > 0 {
			r.State, r.Reason, r.Error = gobridge.StateDead, gobridge.ReasonExhausted, "500 was down"
		}
		records = append(records, r)
	}
	for _, r := range records {
		w.must(store.Persist(w.Context(), []gobridge.Record{r}))
	}
}

// get asks the admin listener.
func (w *watched) get(token, path string) (int, string) {
	w.Helper()
	return w.send(http.MethodGet, w.url+path, "", "Authorization", "Bearer "+token)
}

func (w *watched) send(method, url, body string, headers ...string) (int, string) {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, url, strings.NewReader(body))
	w.must(err)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	w.must(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	w.must(err)
	return response.StatusCode, string(answer)
}

// timed are the times in what commands say, which two runs do not share.
var timed = regexp.MustCompile(`"at": "[^"]*"|"(oldest_age_seconds|renewed_at|before|seq)": [^,\n]*|\b[0-9]+[smh]( |,|\b)`)

// TestEveryCommandOverTheAdminListener runs commands on the outbox itself and over
// the listener: they say the same, and end with the same status.
func TestEveryCommandOverTheAdminListener(t *testing.T) {
	w := newWatched(t)
	// What to copy into a shell names the place, and try takes a file of its own.
	placeless := strings.NewReplacer(" --admin "+w.url, "", " --token-file "+w.actsFile, "", " --config "+w.config, "", w.config, "FILE")
	run := func(args []string, place ...string) (int, string) {
		status, stdout, stderr := command(t, append(args, place...)...)
		return status, timed.ReplaceAllString(placeless.Replace(stdout+stderr), "")
	}
	dead := filepath.Join(t.TempDir(), "dead.jsonl")
	for _, tt := range []struct {
		line string
		want int
	}{
		{"status", 1}, {"status --json", 1}, {"status --owners", 1},
		{"explain orders/crm", 0}, {"explain k --key", 0}, {"explain m-1", 0}, {"explain m-1 --json", 0}, {"explain nothing", 0},
		{"dead list orders/crm", 0}, {"dead list orders --json --limit 2", 0}, {"dead list orders --cause permanent", 0},
		{"dead show orders/crm m-1", 0}, {"dead show orders/crm m-1 --json", 0}, {"dead show orders/crm m-9", 2},
		{"dead export orders", 0}, {"dead export orders --out " + dead, 0}, {"dead import " + dead, 0}, {"dead import " + dead + " --to orders/crm --json", 0},
		{"dead redrive orders", 0}, {"dead redrive orders --json", 0}, {"dead discard orders/crm --id m-2", 0}, {"dead redrive ordrs", 2},
		{"pause orders/crm", 0}, {"pause ordrs", 2}, {"resume orders", 0}, {"resume orders/crm", 2}, {"halt orders/crm --key k", 0}, {"halt orders --key k", 2},
		{"retry orders", 0}, {"retry orders --json", 0}, {"discard old", 0}, {"discard orders --key k", 0}, {"move old/crm orders/crm", 0},
		{"pause orders/crm --yes", 2}, {"audit", 0}, {"audit --limit 20000", 0}, {"audit --json", 0},
	} {
		t.Run(tt.line, func(t *testing.T) {
			here, want := run(words(tt.line), "--config", w.config)
			there, got := run(words(tt.line), "--admin", w.url, "--token-file", w.actsFile)
			// What the listener says of how things stand may be a second old.
			for tries := 0; got != want && strings.HasPrefix(tt.line, "status") && tries < 10; tries++ {
				time.Sleep(300 * time.Millisecond)
				here, want = run(words(tt.line), "--config", w.config)
				there, got = run(words(tt.line), "--admin", w.url, "--token-file", w.actsFile)
			}
			if strings.Contains(tt.line, "--out") { // the second goes on behind the first
				got = strings.Replace(got, "exported 0 to "+dead+", where 3", "exported 3 to "+dead+", where 0", 1)
			}
			if here != tt.want || there != tt.want || got != want || want == "" && tt.want != 0 {
				t.Errorf("status %d and over the listener %d, want %d:\n%s\n%s", here, there, tt.want, want, got)
			}
		})
	}
	if t.Failed() {
		return
	}
	for _, tt := range []struct{ line, want string }{
		{"pause orders/crm --by ann", "paused orders/crm"}, {"resume orders/crm --by ann", "resumed orders/crm"},
		{"halt orders/crm --key z --by ann", "halted key z of orders/crm"}, {"resume orders/crm --key z --by ann", "resumed key z"},
		{"retry orders --by ann", "asked for orders to be tried at once"},
		{"dead redrive orders --max 1 --by ann", "redrove 1 of orders; more are left"},
		{"dead discard orders --id m-2 --by ann", "discarded 1 of orders"},
		{"move old/crm orders/crm --by ann", "moved 1 to orders/crm"}, {"dead import " + dead + " --by ann", "imported 0 dead letters"},
	} {
		line := append(words(tt.line), "--yes", "--reason", "why not", "--admin", w.url, "--token-file", w.actsFile)
		if status, stdout, stderr := command(t, line...); status != 0 || !strings.HasPrefix(stdout, tt.want) {
			t.Errorf("%s: status %d: %s%s", tt.line, status, stdout, stderr)
		}
		line[len(line)-1] = w.readFile
		if status, stdout, stderr := command(t, line...); status != 2 || !strings.Contains(stderr, "role read; this needs operate") && !strings.Contains(stderr, "not found") {
			t.Errorf("%s with the role read: status %d: %s%s", tt.line, status, stdout, stderr)
		}
	}
	_, stdout, _ := command(t, "audit", "--config", w.config)
	if !strings.Contains(stdout, "by ann (operate token)") || !strings.Contains(stdout, "why not") {
		t.Errorf("the audit says\n%s", stdout)
	}
}

func TestAdminIsNotReached(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte("some-other-token-there"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWatched(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--admin", w.url}, "set $GOBRIDGE_ADMIN_TOKEN, or give --token-file FILE"},
		{[]string{"--admin", w.url, "--token-file", "none"}, "read the token: open none"},
		{[]string{"--admin", w.url, "--token-file", wrong}, "The token is wrong"},
		{[]string{"--admin", "127.0.0.1:1", "--token-file", w.readFile}, "is no address of an admin listener"},
		{[]string{"--admin", "http://127.0.0.1:1", "--token-file", w.readFile}, "can't be reached"},
		{[]string{"--admin", other.URL, "--token-file", w.readFile}, "not as an admin listener does"},
		{[]string{"--admin", "https://127.0.0.1:1", "--ca", "none.pem", "--token-file", w.readFile}, "none.pem"},
	} {
		for _, line := range [][]string{{"status"}, {"pause", "orders"}} {
			status, stdout, stderr := command(t, append(line, tt.args...)...)
			if status != 2 || !strings.Contains(strings.Join(strings.Fields(stdout+stderr), " "), tt.want) || strings.Contains(stdout+stderr, "planted") {
				t.Errorf("%v %v: status %d: %s%s", line, tt.args, status, stdout, stderr)
			}
		}
	}
}

// TestNothingSecretComesOut searches everything that comes out for what was planted.
func TestNothingSecretComesOut(t *testing.T) {
	w := newWatched(t)
	var all bytes.Buffer
	for _, token := range []string{"", "a-wrong-token-of-somebody", adminReader, adminOperator} {
		for _, path := range []string{
			"/", "/health/live", "/health/ready", "/metrics", "/api/v1/config", "/api/v1/status", "/api/v1/delivery", "/api/v1/audit", "/api/v1/nothing",
			"/api/v1/explain?q=orders", "/api/v1/dead?route=orders", "/api/v1/record?target=orders/crm&id=m-1", "/api/v1/openapi.yaml",
		} {
			status, body := w.get(token, path)
			fmt.Fprintln(&all, path, status, body)
		}
		_, body := w.send(http.MethodPost, w.url+"/api/v1/pause", `{"target":`, "Authorization", "Bearer "+token, "Content-Type", "application/json")
		all.WriteString(body)
	}
	if status := w.process.stop(); status != 0 {
		t.Errorf("status %d", status)
	}
	log := w.process.stderr.String()
	all.WriteString(log)
	for _, secret := range []string{"planted", "a-wrong-token-of-somebody"} {
		if i := strings.Index(all.String(), secret); i >= 0 {
			t.Errorf("%s came out: ...%.200s", secret, all.String()[max(0, i-100):])
		}
	}
	if !strings.Contains(all.String(), "${file:") || !strings.Contains(log, "wrong token") {
		t.Error("the search looked at nothing")
	}
}

func TestReadyUntilItStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := ready(t.Context(), ctx, nil, nil); err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("while it stops: %v", err)
	}
}

// TestAdminExamples runs what the page shows: its commands, and its calls of curl
// as far as the page uses it.
func TestAdminExamples(t *testing.T) {
	w := newWatched(t)
	text, err := os.ReadFile("../../docs/admin.md")
	w.must(err)
	t.Setenv(adminTokenEnv, adminOperator)
	ran, inside := 0, false
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			inside = line == "```sh"
			continue
		}
		if !inside {
			continue
		}
		ran++
		args := words(strings.ReplaceAll(strings.ReplaceAll(line, "$"+adminTokenEnv, adminOperator), "http://127.0.0.1:9090", w.url))
		switch args[0] {
		case "gobridge":
			if status, stdout, stderr := command(t, args[1:]...); status != 0 && args[1] != "status" || stdout == "" {
				t.Errorf("%s: status %d: %s%s", line, status, stdout, stderr)
			}
		case "curl":
			if status, body := w.curl(args[1:]); status != http.StatusOK || body == "" {
				t.Errorf("%s: status %d: %s", line, status, body)
			}
		default:
			t.Errorf("what is %q?", line)
		}
	}
	if ran < 15 {
		t.Errorf("only %d examples were found", ran)
	}
}

// curl does what curl does with -H, -d and an address.
func (w *watched) curl(args []string) (int, string) {
	w.Helper()
	method, url, body, headers := http.MethodGet, "", "", []string{}
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			headers = append(headers, name, value)
		case args[i] == "-d":
			i++
			method, body = http.MethodPost, args[i]
		case strings.HasPrefix(args[i], "-"):
			w.Fatalf("curl %s", args[i])
		default:
			url = args[i]
		}
	}
	return w.send(method, url, body, headers...)
}
