package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sameBase = `
version: 1
store: { memory: {} }
connections:
  k: { kafka: { brokers: ["localhost:9092"] } }
routes:
  r:
    source: { http: { path: /r, auth: { bearer: "${file:token}" } } }
    ordering_key: payload.id
    bindings:
      b: { webhook: { url: "https://example.com/${NAME}" }, rate: 1/s }
      c: { stdout: {} }
  r2: { source: { http: { path: /r2 } }, bindings: { b: { stdout: {} } } }
`

func TestSame(t *testing.T) {
	dir := t.TempDir()
	parse := func(text, token, name string) *Config {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Parse(Input{Name: "f", Data: []byte(text), Dir: dir, Env: func(string) (string, bool) { return name, true }})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	base := parse(sameBase, "token-of-sixteen-characters", "a")
	route, binding, other := []string{"routes", "r"}, []string{"routes", "r", "bindings", "b"}, []string{"routes", "r2"}
	for name, tt := range map[string]struct {
		c                           *Config
		route, binding, other, text bool
	}{
		"same":              {parse(sameBase, "token-of-sixteen-characters", "a"), true, true, true, true},
		"a comment":         {parse("# hello\n\n"+sameBase, "token-of-sixteen-characters", "a"), true, true, true, true},
		"a secret's value":  {parse(sameBase, "token-of-sixteen-Characters", "a"), false, true, true, true},
		"a value put in":    {parse(sameBase, "token-of-sixteen-characters", "b"), false, false, true, true},
		"an expression":     {parse(with(t, "payload.id", "payload.ib"), "token-of-sixteen-characters", "a"), false, true, true, false},
		"a field":           {parse(with(t, ", rate: 1/s", ""), "token-of-sixteen-characters", "a"), false, false, true, false},
		"an empty binding":  {parse(with(t, "      c: { stdout: {} }\n", ""), "token-of-sixteen-characters", "a"), false, true, true, false},
		"another's binding": {parse(with(t, "path: /r2 } }, bindings: { b:", "path: /r2 } }, bindings: { d:"), "token-of-sixteen-characters", "a"), true, true, false, true},
	} {
		for _, swapped := range []bool{false, true} {
			a, b := base, tt.c
			if swapped {
				a, b = b, a
			}
			if got := a.Same(b, route...); got != tt.route {
				t.Errorf("%s: the route is the same: %t", name, got)
			}
			if got := a.Same(b, binding...); got != tt.binding {
				t.Errorf("%s: the binding is the same: %t", name, got)
			}
			if got := a.Same(b, other...); got != tt.other {
				t.Errorf("%s: the other route is the same: %t", name, got)
			}
			if got := a.SameText(b, route...); got != tt.text {
				t.Errorf("%s: the route's text is the same: %t", name, got)
			}
			if !a.Same(b, "connections", "k") || !a.Same(b, "store") || !a.Same(b, "parked") {
				t.Errorf("%s: what did not change is not the same", name)
			}
		}
	}
}

// with is the base with one part of it changed.
func with(t *testing.T, old, changed string) string {
	t.Helper()
	if n := strings.Count(sameBase, old); n != 1 {
		t.Fatalf("%q is there %d times", old, n)
	}
	return strings.Replace(sameBase, old, changed, 1)
}
