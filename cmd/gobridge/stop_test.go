package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestStopWhileStartingUpIsNoFailure(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "b.yaml")
	text := "version: 1\nstore: { sqlite: { path: '" + filepath.Join(folder, "o.db") + "' } }\n" +
		"http: { listen: '127.0.0.1:0' }\nroutes: { r: { source: { http: { path: /r } }, bindings: { out: { stdout: {} } } } }\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	root := newRoot(&stdout, &stderr)
	root.SetArgs([]string{"run", file})
	if err := root.ExecuteContext(ctx); err != nil {
		t.Fatalf("stopped before it was up: %v", err)
	}
}
