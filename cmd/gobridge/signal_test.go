//go:build unix

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const hangingConfig = `
version: 1
store: { sqlite: { path: %q } }
http: { listen: "127.0.0.1:0" }
grace: %s
routes:
  r: { source: { http: { path: /r } }, bindings: { b: { webhook: { url: %q, timeout: 10m } } } }
`

// TestSignals runs gobridge as a process of its own, with a send in flight that
// does not end by itself.
func TestSignals(t *testing.T) {
	tests := []struct {
		name    string
		grace   string
		signals int
		check   func(*testing.T, error)
	}{
		{"one ends it after the grace", "300ms", 1, func(t *testing.T, err error) {
			if err != nil {
				t.Errorf("got %v, want status 0", err)
			}
		}},
		{"two end it at once", "10m", 2, func(t *testing.T, err error) {
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("got %v, want the end by the signal", err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			arrived, done := make(chan struct{}, 16), make(chan struct{})
			destination := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				arrived <- struct{}{}
				<-done
			}))
			defer destination.Close()
			defer close(done)

			path := write(t, fmt.Sprintf(hangingConfig, filepath.Join(t.TempDir(), "o.db"), tt.grace, destination.URL))
			var stderr buffer
			process := exec.Command(os.Args[0], "run", path)
			process.Env = append(os.Environ(), asMain+"=1")
			process.Stderr = &stderr
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- process.Wait() }()
			defer func() { _ = process.Process.Kill() }()

			var address []string
			eventually(t, "it listens", func() bool {
				address = regexp.MustCompile(`msg=listening address=(\S+)`).FindStringSubmatch(stderr.String())
				return address != nil
			})
			if status, answer := post(t, address[1]+"/r", "{}"); status != http.StatusAccepted {
				t.Fatalf("status %d: %s", status, answer)
			}
			<-arrived
			for range tt.signals {
				if err := process.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it stops", func() bool { return strings.Contains(stderr.String(), "msg=\"stopping") })
			}
			select {
			case err := <-ended:
				tt.check(t, err)
			case <-time.After(patience):
				t.Fatalf("it does not end: %s", stderr.String())
			}
		})
	}
}
