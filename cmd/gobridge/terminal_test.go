package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gobridge"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/sqlite"
)

// What messages carry into a terminal: colours and a title, C1 controls, direction,
// what is not seen, and lines of their own.
const (
	foulKey = "k\x1b[31m\x1b]0;pwn\a\u009b2J\u202ekey\nOK  all is well"
	foulID  = "m\x1b[8m\u200b\r'\n- discard"
	flagKey = "--admin=http://evil.example"
)

// foul makes an outbox of such messages, which commands look at: a dead one, one that
// failed, whose key is halted, one of a key that looks like a flag, and a pause with
// such a reason.
func foul(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	t.Setenv(configEnv, write(t, fmt.Sprintf(`
version: 1
store: { sqlite: { path: %q } }
routes: { orders: { source: { http: { path: /orders } }, bindings: { crm: { webhook: { url: "http://127.0.0.1:1/" } } } } }
`, path)))
	store, err := sqlite.OpenFile(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, must := t.Context(), func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	message := func(id, key string) gobridge.Record {
		return gobridge.Record{Partition: "orders/crm/0", Binding: "crm", Envelope: messaging.Envelope{
			ID: id, OrderingKey: key, Subject: "s\x1b[5m\u2066", ContentType: "text/\x1b[0m", Payload: []byte("a\tb\nc\x1b[2J\u202e\xff"),
			Headers: messaging.Headers{"h": "v\x1b[1m\u009b"},
		}}
	}
	dead := message(foulID, foulKey)
	dead.State, dead.Reason, dead.Error = gobridge.StateDead, "why\x1b[1m", "422 no\x1b[31m\u202e\u0085x"
	must(store.Persist(ctx, []gobridge.Record{dead}))
	must(store.Persist(ctx, []gobridge.Record{message("w"+foulID, foulKey)}))
	must(store.Persist(ctx, []gobridge.Record{message("f-1", flagKey)}))
	token := gobridge.Token{Owner: "host-1-ABCDEFGH\x1b[31m", Version: 1}
	claimed, err := store.Claim(ctx, gobridge.ClaimRequest{Partition: "orders/crm/0", Token: token, Limit: 1, HeldKnown: true})
	must(err)
	must(store.Release(ctx, token, []gobridge.Release{{Ref: claimed[0].Ref(), Tried: gobridge.Failed, Reason: "failed", Error: "500\x1b[31m"}}))
	for _, key := range []string{foulKey, flagKey} {
		must(store.SetControl(ctx, gobridge.Control{Kind: gobridge.Halt, Route: "orders", Binding: "crm", OrderingKey: key, By: "by\x1b[31m", Reason: "no\x1b[31m\u202e"}))
	}
	must(store.SetControl(ctx, gobridge.Control{Kind: gobridge.Pause, Route: "orders", By: "ann\x1b[31m", Reason: "since\x1b[31m\u200b"}))
	must(store.Close())
}

// TestNothingReachesTheTerminalRaw runs what people read, on messages of somebody who
// means ill.
func TestNothingReachesTheTerminalRaw(t *testing.T) {
	foul(t)
	export := filepath.Join(t.TempDir(), "dead.jsonl")
	for _, line := range [][]string{
		{"status"}, {"status", "--owners"}, {"explain", foulKey}, {"explain", foulID}, {"explain", "w" + foulID}, {"explain", "no" + foulKey}, {"explain", "orders"},
		{"explain", "--key", "--", flagKey}, {"audit"},
		{"dead", "list", "orders"}, {"dead", "list", "orders", "--limit", "1", "--key", foulKey}, {"dead", "show", "orders/crm", "no" + foulID},
		{"dead", "redrive", "orders"}, {"dead", "discard", "orders/crm", "--id", foulID}, {"dead", "export", "orders", "--out", export}, {"dead", "import", export},
		{"discard", "orders"}, {"discard", "orders/crm", "--key", foulKey}, {"discard", "orders", "--key", "no" + foulKey}, {"discard", "orders/\x1b[31m"},
		{"pause", "orders/crm", "--reason", foulKey}, {"resume", "orders"}, {"resume", "orders/crm", "--key", foulKey}, {"resume", "orders", "--key", "no" + foulKey},
		{"halt", "orders/crm", "--id", foulID}, {"retry", "orders/crm", "--key", foulKey}, {"retry", "orders/crm", "--id", "no" + foulID},
		{"halt", "orders/crm", "--key", foulKey, "--yes", "--reason", foulKey}, {"retry", "orders/crm", "--key", foulKey, "--yes", "--reason", foulKey},
		{"dead", "redrive", "orders/crm", "--id", foulID, "--yes", "--reason", foulKey}, {"discard", "orders", "--key", foulKey, "--yes", "--reason", foulKey},
		{"explain", "w" + foulID}, {"audit"},
	} {
		status, stdout, stderr := command(t, line...)
		for i, text := range strings.Split(stdout+stderr, "\n") {
			if operate.Visible(text) != text {
				t.Errorf("%q: line %d is raw: %q", line, i, text)
			}
			if strings.HasPrefix(text, "OK ") || strings.HasPrefix(text, "- ") {
				t.Errorf("%q: line %d is a message's own: %q", line, i, text)
			}
		}
		if stdout+stderr == "" {
			t.Errorf("%q says nothing, status %d", line, status)
		}
	}
}

// TestCommandsToCopyNameTheVeryKey has a shell read the commands that are printed.
func TestCommandsToCopyNameTheVeryKey(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	foul(t)
	_, explained, _ := command(t, "explain", foulKey)
	_, would, _ := command(t, "halt", "orders/crm", "--key", foulKey)
	_, status, _ := command(t, "resume", "orders", "--yes", "--reason", "x")
	_, halted, _ := command(t, "explain", foulKey)
	found := 0
	for _, line := range strings.Split(explained+would+status+halted, "\n") {
		if line = strings.TrimPrefix(line, "     "); !strings.HasPrefix(line, "gobridge ") || !strings.Contains(line, "--key") {
			continue
		}
		out, err := exec.CommandContext(t.Context(), bash, "-c", `gobridge() { printf '%s\0' "$@"; }; `+line).Output()
		if args := strings.Split(string(out), "\x00"); err != nil || !strings.Contains(strings.Join(args, "\x00"), "\x00--key\x00"+foulKey+"\x00") {
			t.Errorf("%s\nis read as %q: %v", line, args, err)
		}
		found++
	}
	if found < 2 {
		t.Errorf("%d commands in\n%s%s%s", found, explained, would, halted)
	}
}

// TestAKeyIsNoFlagOfACommand: the token would go to whoever chose the key.
func TestAKeyIsNoFlagOfACommand(t *testing.T) {
	p := &place{db: "o.db"}
	for want, args := range map[string][]string{
		"gobridge explain --db o.db -- " + flagKey: {"gobridge", "explain", flagKey},
		"gobridge explain k --db o.db":             {"gobridge", "explain", "k"},
		"gobridge explain --key --db o.db -- -k":   {"gobridge", "explain", "--key", "-k"},
	} {
		if got := p.command(args); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestAPayloadIsRawBytesButForATerminal that shows them.
func TestAPayloadIsRawBytesButForATerminal(t *testing.T) {
	foul(t)
	status, stdout, stderr := command(t, "dead", "show", "orders/crm", foulID)
	head, payload, _ := strings.Cut(stdout, "\n\n")
	if status != 0 || payload != "a\tb\nc\x1b[2J\u202e\xff\n" {
		t.Errorf("status %d, payload %q\n%s", status, payload, stderr)
	}
	for _, want := range []string{`m\x1b[8m\u200b\r'\n- discard`, `k\x1b[31m\x1b]0;pwn\a\u009b2J\u202ekey\nOK`, `s\x1b[5m\u2066`, `422 no\x1b[31m\u202e\u0085x`} {
		if !strings.Contains(head, want) {
			t.Errorf("no %s in\n%s", want, head)
		}
	}
	var out strings.Builder
	p := &place{stdout: screen{&out}, data: &out}
	r := gobridge.Record{Envelope: messaging.Envelope{ID: "m-1", Payload: []byte("a\tb\nc\x1b[2J\u202e\xff")}}
	if err := p.writeRecord(&r, true); err != nil || !strings.HasSuffix(out.String(), "\n\na\tb\n"+`c\x1b[2J\u202e\xff`+"\n") {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestJSONIsForScripts: it has the very bytes.
func TestJSONIsForScripts(t *testing.T) {
	foul(t)
	for _, line := range [][]string{{"dead", "list", "orders"}, {"explain", foulKey}, {"dead", "show", "orders/crm", foulID}} {
		if status, stdout, stderr := command(t, append(line, "--json")...); status != 0 || !strings.Contains(stdout, `k\u001b[31m`) {
			t.Errorf("%q: status %d: %s%s", line, status, stdout, stderr)
		}
	}
}

// TestAProcessElsewhereIsNotKilledHere: its number is another process's here.
func TestAProcessElsewhereIsNotKilledHere(t *testing.T) {
	t.Setenv(adminTokenEnv, "")
	far := &place{admin: "https://web-1:9090/", tokenFile: "my token", ca: "ca.pem"}
	if got := far.command([]string{"kill", "4711"}); got != "" {
		t.Errorf("%s", got)
	}
	got := far.command([]string{"kill", "-HUP", "4711"})
	for _, want := range []string{`"Authorization: Bearer $(cat 'my token')"`, " --cacert ca.pem ", " https://web-1:9090/api/v1/reload", `"reason":"mended"`} {
		if strings.Contains(got, "kill") || !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := (&place{db: "o.db"}).command([]string{"kill", "4711"}); got != "kill 4711" {
		t.Errorf("here: %s", got)
	}
	var out strings.Builder
	far.writeSteps(&out, []operate.Step{{Text: "end process 4711 on web-1", Command: []string{"kill", "4711"}}})
	if out.String() != "   → end process 4711 on web-1\n" {
		t.Errorf("%q", out.String())
	}
}
