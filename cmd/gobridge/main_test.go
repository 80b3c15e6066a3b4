package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// asMain makes the test binary behave as gobridge itself.
const asMain = "GOBRIDGE_TEST_AS_MAIN"

// asHolder makes the test binary a stranger that holds the write lock of a database.
const asHolder = "GOBRIDGE_TEST_AS_HOLDER"

// holdLock holds the write lock of a database until the process is ended.
func holdLock(path string) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err == nil {
		_, err = db.BeginTx(context.Background(), nil) // held on purpose
	}
	fmt.Println("locked", err)
	if err == nil {
		select {}
	}
	os.Exit(1)
}

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	if path := os.Getenv(asHolder); path != "" {
		holdLock(path)
	}
	goleak.VerifyTestMain(m)
}

// command runs a command line to its end.
func command(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	status = execute(t.Context(), args, &out, &log)
	return status, out.String(), log.String()
}

// write puts a configuration into a file.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestValidateExamples(t *testing.T) {
	secret := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for name, value := range map[string]string{"ORDERS_TOKEN": "t0ken", "BILLING_SECRET": secret, "CRM_TOKEN": "t0ken"} {
		t.Setenv(name, value)
	}
	for file, want := range map[string]string{
		"quickstart.yaml": `ok
store   sqlite data/outbox.db
listen  http://127.0.0.1:8080
route   quickstart: POST /quickstart, anyone
     -> file: file data/delivered.jsonl
     -> terminal: standard output
`,
		"webhook.yaml": `ok
store   sqlite data/orders.db
listen  http://127.0.0.1:8080
route   orders: POST /orders, with a bearer token
        in order per payload.customer_id
     -> billing: webhook to billing.example.com, signed
     -> crm: webhook to crm.example.com, if payload.total >= 100
`,
	} {
		status, stdout, stderr := command(t, "validate", "../../examples/"+file)
		if status != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: status %d\n%s%s", file, status, stdout, stderr)
		}
	}
}

func TestValidateWarns(t *testing.T) {
	path := write(t, `
version: 1
store: { memory: {} }
http: { listen: 0.0.0.0:8080 }
parked: [old]
routes: { r: { source: { http: { path: /r } }, bindings: { b: { stdout: {} } } } }
`)
	status, stdout, _ := command(t, "validate", path)
	want := `ok
store   memory: everything is lost when the process ends
listen  http://0.0.0.0:8080
route   r: POST /r, anyone
     -> b: standard output
parked  old
warning ` + path + `:4:17: other machines can reach 0.0.0.0:8080, and it is not encrypted; at http.listen; set http.tls, or have a proxy on this machine do it
warning ` + path + `:6:32: other machines can reach 0.0.0.0:8080, and anyone may post to route r; at routes.r.source.http; set auth
`
	if status != 0 || stdout != want {
		t.Errorf("status %d\n%s", status, stdout)
	}
}

func TestRefused(t *testing.T) {
	bad := write(t, "version: 1\nstore: { memory: {} }\nroutes:\n  r: { source: { http: { path: r } }, bindins: {} }\n")
	reserved := write(t, `
version: 1
store: { memory: {} }
routes: { r: { source: { http: { path: /r } }, bindings: { b: { webhook: { url: "http://h/", headers: { webhook-id: x } } } } } }
`)
	source := write(t, `
version: 1
store: { sqlite: { path: `+filepath.Join(t.TempDir(), "never.db")+` } }
http: { listen: 127.0.0.1:0, tls: { cert: none.pem, key: none.key } }
routes: { r: { source: { http: { path: /r } }, bindings: { b: { stdout: {} } } } }
`)
	carried := write(t, `
version: 1
store: { memory: {} }
routes:
  r: { source: { http: { path: /r, headers: [cookie] } }, bindings: { b: { stdout: {} } } }
`)
	admin := write(t, `
version: 1
store: { sqlite: { path: `+t.TempDir()+` } }
admin: { tokens: { read: short } }
routes: { r: { source: { http: { path: /r } }, bindings: { b: { stdout: {} }, f: { file: { path: `+t.TempDir()+` } } } } }
`)
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"what only the admin listener knows", []string{"validate", admin}, []string{admin + ":4:8: ", "16", "; at admin"}},
		{"run what only the admin listener knows", []string{"run", admin}, []string{admin + ":4:8: "}},
		{"a directory for the outbox", []string{"validate", admin}, []string{" is a directory; name a file; at store.sqlite"}},
		{"a directory for a file", []string{"validate", admin}, []string{" is a directory; name a file; at routes.r.bindings.f.file"}},
		{"what only the source knows", []string{"validate", carried}, []string{carried + ":5:24: ", "cookie is a credential", "; at routes.r.source.http"}},
		{"run what only the source knows", []string{"run", carried}, []string{carried + ":5:24: ", "cookie is a credential"}},
		{"no certificate", []string{"validate", source}, []string{source + ":4:35: ", "certificate none.pem", "no such file", "; at http.tls"}},
		{"run without a certificate", []string{"run", source}, []string{source + ":4:35: "}},
		{"bad file", []string{"validate", bad}, []string{
			bad + `:4:32: "r" does not start with a slash; at routes.r.source.http.path; write a path`,
			bad + `:4:39: unknown field "bindins"; at routes.r; did you mean bindings?`,
		}},
		{"run a bad file", []string{"run", bad}, []string{bad + ":4:39: unknown field"}},
		{"what only the sender knows", []string{"validate", reserved}, []string{reserved + ":4:74: ", "; at routes.r.bindings.b.webhook", "Webhook-Id"}},
		{"missing file", []string{"validate", "none.yaml"}, []string{"gobridge: read configuration: open none.yaml: no such file"}},
		{"no file", []string{"run"}, []string{"gobridge: 0 files given; give one configuration file"}},
		{"two files", []string{"validate", "a", "b"}, []string{"gobridge: 2 files given"}},
		{"no command", nil, []string{"gobridge: no command given; gobridge --help lists them"}},
		{"unknown command", []string{"rum"}, []string{`gobridge: unknown command "rum"`}},
		{"unknown flag", []string{"schema", "--yaml"}, []string{"gobridge: unknown flag: --yaml"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := command(t, tt.args...)
			if status != 2 || stdout != "" {
				t.Errorf("status %d, stdout %q", status, stdout)
			}
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("got %q, want %q in it", stderr, want)
				}
			}
		})
	}
}

func TestSchemaAndVersion(t *testing.T) {
	status, stdout, _ := command(t, "schema")
	if status != 0 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `"$schema"`) {
		t.Errorf("schema: status %d\n%s", status, stdout)
	}
	status, stdout, _ = command(t, "schema", "--markdown")
	if status != 0 || !strings.HasPrefix(stdout, "# Configuration\n") {
		t.Errorf("schema --markdown: status %d\n%.200s", status, stdout)
	}
	status, stdout, _ = command(t, "version")
	if status != 0 || !strings.HasPrefix(stdout, "gobridge ") || !strings.Contains(stdout, "commit ") || !strings.Contains(stdout, " go1.") {
		t.Errorf("version: status %d, %q", status, stdout)
	}
	status, stdout, _ = command(t, "--help")
	for _, want := range []string{"run ", "validate ", "schema ", "version "} {
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("help has no %q: status %d\n%s", want, status, stdout)
		}
	}
}

func TestBrokenPipeIsAFailure(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer r.Close()
	if status := execute(context.Background(), []string{"schema"}, w, &bytes.Buffer{}); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
}
