//go:build !race

package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestBinaryRunsInAnEmptyRoot builds a static binary, as the image has, and runs it where
// there is nothing but it, its configuration and its folder, as nobody: it takes a
// message, delivers it, is ready for whoever asks by the pod's address, and stops
// when told to. The race detector would see nothing of it: it is not in that binary.
func TestBinaryRunsInAnEmptyRoot(t *testing.T) {
	root := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(root, "gobridge"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	data := filepath.Join(root, "data")
	for path, mode := range map[string]os.FileMode{root: 0o755, data: 0o777} {
		if err := os.MkdirAll(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for parent := filepath.Dir(root); parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		_ = os.Chmod(parent, 0o755) //nolint:gosec // nobody has to get there; what is above is as it is
	}
	config := `
version: 1
store: { sqlite: { path: outbox.db } }
http: { listen: "127.0.0.1:0" }
admin: { listen: "0.0.0.0:0", tokens: { read: ` + readToken + ` } }
routes: { r: { source: { http: { path: /r } }, bindings: { out: { file: { path: out.jsonl } } } } }
`
	if err := os.WriteFile(filepath.Join(root, "b.yaml"), []byte(config), 0o644); err != nil { //nolint:gosec // nobody reads it
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, "/gobridge", "run", "/b.yaml")
	cmd.Dir, cmd.Env = "/data", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65532, Gid: 65532}
	} else { // nobody else in there
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getuid(), Size: 1}}
	}
	var log buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	find := func(pattern string) string {
		var found []string
		eventually(t, "it logs "+pattern, func() bool {
			if len(ended) > 0 {
				t.Fatalf("it ended: %s", log.String())
			}
			found = regexp.MustCompile(pattern).FindStringSubmatch(log.String())
			return found != nil
		})
		return found[1]
	}
	if status, answer := post(t, find(`msg=listening address=(\S+)`)+"/r", `{"n":1}`); status != http.StatusAccepted {
		t.Fatalf("post: %d: %s", status, answer)
	}
	port := find(`msg="admin listening" address=http://\S+:(\d+)`)
	eventually(t, "it is ready", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/health/ready", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "10.244.0.17:9090" // as the kubelet does
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode == http.StatusOK
	})
	eventually(t, "the message is delivered", func() bool {
		out, _ := os.ReadFile(filepath.Join(data, "out.jsonl"))
		return strings.Contains(string(out), `"data":{"n":1}`)
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it stopped with %v: %s", err, log.String())
	}
}
