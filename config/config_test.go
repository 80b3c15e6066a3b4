package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"gobridge/config"
	"gobridge/messaging"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// environment is what the tests' files can refer to.
func environment(name string) (string, bool) {
	value, ok := map[string]string{
		"SECRET":       secret,
		"EMPTY":        "",
		"PORT":         "8081",
		"WEIRD":        "a: [b, ${PORT} #",
		"LINE":         "token\n",
		"HUNTER":       "hunter2hunter2",
		"ORDERS_TOKEN": "t", "BILLING_SECRET": secret, "CRM_TOKEN": "t",
	}[name]
	return value, ok
}

func parse(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	return config.Parse(config.Input{Name: "b.yaml", Data: []byte(text), Dir: "testdata", Env: environment})
}

const small = `
version: 1
store: { memory: {} }
routes: { r: { source: { http: { path: /r } }, bindings: { b: { stdout: {} } } } }
`

func TestDefaults(t *testing.T) {
	c, err := parse(t, small)
	if err != nil {
		t.Fatal(err)
	}
	b := c.Routes["r"].Bindings["b"]
	for name, got := range map[string]any{
		"127.0.0.1:8080": c.HTTP.Listen,
		"1d":             c.Store.Memory.Retention,
		"5s":             c.LeaseTerm,
		"10s":            c.Grace,
		"info":           c.Log.Level,
		"text":           c.Log.Format,
		"1048576":        int64(c.Routes["r"].Source.HTTP.MaxBody),
		"drop":           c.Routes["r"].OnExpire,
		"dead_letter":    b.OnFailure,
		"reject":         b.OnFull,
		"10":             b.Retry.Attempts,
		"{1s 5m0s}":      b.Retry.Backoff,
		"16":             b.Concurrency,
	} {
		if fmt.Sprint(got) != name {
			t.Errorf("got %v, want %s", got, name)
		}
	}
	if b.Filter != nil || b.Rate != 0 || b.MaxOutboxDepth != 0 || len(c.Warnings) != 0 {
		t.Errorf("got %+v, warnings %v", b, c.Warnings)
	}
}

func TestEveryField(t *testing.T) {
	c, err := parse(t, `
version: 1
store: { sqlite: { path: data/o.db, retention: 7d } }
http: { listen: "[::1]:${PORT}", tls: { cert: c.pem, key: k.pem } }
lease_term: 500ms
grace: 1m30s
log: { level: debug, format: json }
parked: [old, orders/gone]
routes:
  orders:
    source:
      http:
        path: /v1/orders
        auth: { webhook: { secrets: ["${SECRET}", "${OLD:-}"] } }
        headers: [X-Tenant]
        max_body: 65536
    ordering_key: payload.customer_id
    expire_after: 6h
    on_expire: dead_letter
    on_failure: halt_key
    bindings:
      hook:
        webhook:
          url: https://u:p@example.com/${file:secret.txt}
          secrets: ["${SECRET}"]
          headers: { Authorization: "Bearer ${file:secret.txt}" }
          timeout: 20s
        filter: payload.temp > 90.0
        rate: 120/m
        on_full: dead_letter
        max_outbox_depth: 10
        retry: { attempts: 20, backoff: 1s..1h }
        concurrency: 4
      log: { file: { path: data/x.jsonl }, on_failure: discard }
  one: { source: { http: { path: /one, auth: { bearer: a } } }, bindings: { b: { stdout: {} } } }
  two: { source: { http: { path: /two, auth: { bearer: [a, "", b] } } }, bindings: { b: { stdout: {} } } }
`)
	if err != nil {
		t.Fatal(err)
	}
	route := c.Routes["orders"]
	hook := route.Bindings["hook"]
	if got, err := route.OrderingKey.Eval(&messaging.Envelope{Payload: []byte(`{"customer_id":7}`)}); got != "7" || err != nil {
		t.Errorf("ordering key: %q, %v", got, err)
	}
	if got, err := hook.Filter.Eval(&messaging.Envelope{Payload: []byte(`{"temp":91}`)}); !got || err != nil {
		t.Errorf("filter: %v, %v", got, err)
	}
	for _, tt := range []struct{ got, want any }{
		{c.HTTP.Listen, config.Address("[::1]:8081")},
		{c.Grace, config.Duration(90 * time.Second)},
		{c.Store.SQLite.Retention, config.Duration(7 * 24 * time.Hour)},
		{len(route.Source.HTTP.Auth.Webhook.Secrets), 1},
		{route.Source.HTTP.Headers[0], config.HeaderName("x-tenant")},
		{route.Source.HTTP.MaxBody, config.Size(65536)},
		{hook.Webhook.URL.Reveal(), "https://u:p@example.com/from-a-file"},
		{hook.Webhook.Headers["Authorization"].Reveal(), "Bearer from-a-file"},
		{hook.Rate, config.Rate(2)},
		{hook.OnFailure, "halt_key"},
		{hook.Retry.Backoff, config.Backoff{Min: time.Second, Max: time.Hour}},
		{route.Bindings["log"].OnFailure, "discard"},
		{len(c.Routes["one"].Source.HTTP.Auth.Bearer), 1},
		{c.Routes["two"].Source.HTTP.Auth.Bearer[1].Reveal(), "b"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
}

func TestSubstitutionIsNotRepeatedAndNotYAML(t *testing.T) {
	c, err := parse(t, strings.Replace(small, "stdout: {}", `file: { path: "$${PORT}$$ $ ${WEIRD}" }`, 1))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Routes["r"].Bindings["b"].File.Path, "${PORT}$$ $ a: [b, ${PORT} #"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatWasPutIntoAnExpressionIsNotShown(t *testing.T) {
	c, err := parse(t, strings.Replace(small, "bindings: { b: { stdout: {} } }",
		`ordering_key: 'payload["${HUNTER}"]', bindings: { b: { stdout: {}, filter: 'payload["${HUNTER}"] == 1' }, c: { webhook: { url: "https://h/${HUNTER}" } } }`, 1))
	if err != nil {
		t.Fatal(err)
	}
	route := c.Routes["r"]
	if got := route.OrderingKey.Source + route.Bindings["b"].Filter.Source; strings.Contains(got, "hunter2") {
		t.Errorf("the sources are %s", got)
	}
	if got := route.Bindings["c"].Webhook.URL.Shown; got != "https://h/..." {
		t.Errorf("the URL is shown as %s", got)
	}
	envelope := &messaging.Envelope{Payload: []byte("{}")}
	_, keyErr := route.OrderingKey.Eval(envelope)
	_, filterErr := route.Bindings["b"].Filter.Eval(envelope)
	for _, err := range []error{keyErr, filterErr} {
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "${HUNTER}") {
			t.Errorf("got %v", err)
		}
	}
	if key, err := route.OrderingKey.Eval(&messaging.Envelope{Payload: []byte(`{"hunter2hunter2":"k"}`)}); key != "k" || err != nil {
		t.Errorf("got %q, %v", key, err)
	}
}

func TestWrongPutsAnErrorAtItsPlace(t *testing.T) {
	c, err := parse(t, small)
	if err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string][]string{
		"b.yaml:4:40: no; at routes.r.source.http.path":       {"routes", "r", "source", "http", "path"},
		"b.yaml:4:63: no; at routes.r.bindings.b.webhook.url": {"routes", "r", "bindings", "b", "webhook", "url"},
		"b.yaml:1:1: no": nil,
	} {
		if got := c.Wrong(errors.New("no"), path...).Error(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	c, err := parse(t, strings.Replace(small, "stdout: {}", `webhook: { url: "https://u:${HUNTER}@h/", secrets: ["${SECRET}"], headers: {x: "${HUNTER}"} }`, 1))
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Dump(c.Routes["r"].Bindings["b"].Webhook)
	if err != nil {
		t.Fatal(err)
	}
	hook := *c.Routes["r"].Bindings["b"].Webhook
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "hook", hook, "secret", hook.Secrets[0])
	hidden := struct{ w config.Webhook }{hook} // fmt calls no methods behind an unexported field
	all := fmt.Sprintf("%v %+v %#v %v %+v %s %s %s %s", hook, hook, hook, hidden, hidden, hook.Secrets, asJSON, asYAML, log.String())
	for _, s := range []string{"hunter2", "MfKQ9r8"} {
		if strings.Contains(all, s) {
			t.Errorf("%s is seen in %s", s, all)
		}
	}
}

func TestWarnings(t *testing.T) {
	c, err := parse(t, strings.Replace(small, "store:", "http: { listen: \":8080\" }\nstore:", 1))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"b.yaml:3:17: other machines can reach :8080, and it is not encrypted; at http.listen; set http.tls, or have a proxy on this machine do it",
		"b.yaml:5:32: other machines can reach :8080, and anyone may post to route r; at routes.r.source.http; set auth",
	}
	for i, w := range want {
		if len(c.Warnings) != len(want) || c.Warnings[i].String() != w {
			t.Fatalf("got %v, want %v", c.Warnings, want)
		}
	}
}

func TestAliases(t *testing.T) {
	c, err := parse(t, `
version: 1
store: { memory: {} }
routes:
  a: { source: { http: { path: /a } }, bindings: &all { out: { stdout: {} } } }
  b: { source: { http: { path: /b } }, bindings: *all }
`)
	if err != nil || c.Routes["b"].Bindings["out"].Stdout == nil {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestBounds(t *testing.T) {
	list := "&a [" + strings.Repeat("x,", 1000) + "]"
	tests := map[string]struct{ text, want string }{
		"aliases":  {"parked: " + list + "\n" + strings.Repeat("x", 10), ""},
		"size":     {strings.Repeat("#", 1<<20+1), "b.yaml:1:1: the file is larger than 1048576 bytes"},
		"depth":    {strings.Repeat("[", 200_000), "b.yaml:1:"},
		"problems": {strings.Repeat("? [x]\n", 5000), "and 4903 more problems"},
		"laughs": {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\nparked: [*d,*d,*d]\n", `b.yaml:1:1: unknown field "a"`},
		"itself": {"routes: &a\n  x: *a\n", "b.yaml:"},
	}
	// A million bindings out of a thousand aliases to a route with a thousand.
	bindings := strings.Builder{}
	for i := range 1000 {
		fmt.Fprintf(&bindings, "b%d: {stdout: {}}, ", i)
	}
	routes := strings.Builder{}
	for i := range 1000 {
		fmt.Fprintf(&routes, "  r%d: *r\n", i)
	}
	tests["counted out"] = struct{ text, want string }{
		"version: 1\nstore: {memory: {}}\nroutes:\n  r: &r { source: {http: {path: /r}}, bindings: {" + bindings.String() + "} }\n" + routes.String(),
		"the file has more than 100000 values, its aliases counted out",
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, tt.text)
			var e *config.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %.300v, want %s", err, tt.want)
			}
			if len(e.Problems) > 100 {
				t.Errorf("%d problems", len(e.Problems))
			}
		})
	}
}

func TestLoad(t *testing.T) {
	t.Setenv("GOBRIDGE_TEST_PATH", "/from-the-environment")
	dir := t.TempDir()
	path := filepath.Join(dir, "b.yaml")
	text := strings.Replace(small, "/r", `"${GOBRIDGE_TEST_PATH}"`, 1)
	text = strings.Replace(text, "stdout: {}", "file: {path: '${file:sub/name}'}", 1)
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{path: text, filepath.Join(dir, "sub", "name"): "out.jsonl\r\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Routes["r"]; r.Source.HTTP.Path != "/from-the-environment" || r.Bindings["b"].File.Path != "out.jsonl" {
		t.Errorf("got %+v", r)
	}
	if _, err := config.Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte("routes: &a\n  x: *a\n"))
	f.Add([]byte("version: ${PORT}\nstore: {sqlite: {path: '${file:x}'}}\nparked: [a/b]\n"))
	for _, name := range []string{"quickstart", "webhook"} {
		text, err := os.ReadFile("../examples/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(config.Input{Name: "f", Data: data, Dir: t.TempDir(), Env: environment})
		if (c == nil) == (err == nil) {
			t.Errorf("got %v, %v", c, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2hunter2") && !strings.Contains(string(data), "hunter2hunter2") {
			t.Errorf("a value that was put in is seen in %v", err)
		}
	})
}
