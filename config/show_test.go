package config_test

import (
	"strings"
	"testing"

	"gobridge/config"
)

// TestShow: what is shown of a configuration says what stands in the file and what
// is a default, reads as YAML again, and has no secret.
func TestShow(t *testing.T) {
	file := `version: 1
store: { sqlite: { path: "data/${NAME}.db" } }
http: { listen: "127.0.0.1:${PORT:-8080}" }
admin: { tokens: { read: plain-secret-in-the-file, operate: ["${TOKEN}", "${TOKEN:-default-secret-token}"] } }
connections:
  aws: { aws: { region: eu-central-1 } }
routes:
  r:
    source: { http: { path: /r, auth: { bearer: "${file:testdata/secret.txt}" } } }
    ordering_key: 'payload["a: b"] + "#"'
    bindings:
      b:
        webhook: { url: "https://user:pw-secret@example.com/x?k=query-secret", headers: { x-key: header-secret } }
        retry: { attempts: 20 }
      c: { stdout: {} }
`
	env := map[string]string{"NAME": "env-secret", "TOKEN": "env-secret-token-long-enough", "PORT": "81"}
	load := func(data string) *config.Config {
		t.Helper()
		c, err := config.Parse(config.Input{Name: "b.yaml", Data: []byte(data), Dir: ".", Env: func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	shown := load(file).Show()
	for _, want := range []string{
		`path: "data/${NAME}.db"`, `listen: "127.0.0.1:${PORT:-8080}"`, `read: "[secret]"`, `- "${TOKEN}"`, `- "[secret]"`,
		`bearer: "${file:testdata/secret.txt}"`, `ordering_key: "payload[\"a: b\"] + \"#\""`, `url: "https://example.com/..."`,
		`x-key: "[secret]"`, "attempts: 20\n", `backoff: 1s..5m  # default`, "on_reject: dead_letter  # default", "stdout: {}", "region: eu-central-1",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("what is shown lacks %q:\n%s", want, shown)
		}
	}
	if i := strings.Index(shown, "-secret"); i >= 0 && !strings.Contains(shown[i-5:i], "env") {
		t.Errorf("a secret is shown: %q", shown[max(0, i-20):i+10])
	}
	if again := load(strings.ReplaceAll(shown, `"[secret]"`, `"another-secret-long-enough"`)).Show(); strings.Count(again, "\n") != strings.Count(shown, "\n") {
		t.Errorf("read again it shows\n%s\nafter\n%s", again, shown)
	}
}
