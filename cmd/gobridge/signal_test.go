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

// TestAnEarlyReloadWaits sends SIGHUP to a bridge that is still starting up, for somebody
// holds its outbox.
func TestAnEarlyReloadWaits(t *testing.T) {
	n := newNight(t, "", "", "")
	n.kill(n.start())
	text := strings.Replace(read(t, filepath.Join(n.dir, "b.yaml")), "127.0.0.1:0", "0.0.0.0:0", 1)
	n.configure(text) // it warns of that at once
	stranger := n.holder()
	bridge := n.shell("gobridge run b.yaml", "")
	var log buffer
	bridge.Stderr = &log
	if err := bridge.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- bridge.Wait() }()
	eventually(t, "it starts up", func() bool { return strings.Contains(log.String(), "msg=configuration") })
	if err := bridge.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it reloads", func() bool {
		if len(ended) > 0 {
			t.Fatalf("it ended: %v: %s", <-ended, log.String())
		}
		return strings.Contains(log.String(), "the configuration was reloaded")
	})
	if err := bridge.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v: %s", err, log.String())
	}
}

// TestSignals runs gobridge as a process of its own, with a send in flight that
// does not end by itself.
func TestSignals(t *testing.T) {
	tests := []struct {
		name    string
		grace   string
		signals []syscall.Signal
		check   func(*testing.T, error)
	}{
		{"one ends it after the grace", "300ms", []syscall.Signal{syscall.SIGTERM}, func(t *testing.T, err error) {
			if err != nil {
				t.Errorf("got %v, want status 0", err)
			}
		}},
		{"a reload that comes too late is none", "300ms", []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}, func(t *testing.T, err error) {
			if err != nil {
				t.Errorf("got %v, want status 0", err)
			}
		}},
		{"two end it at once", "10m", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, func(t *testing.T, err error) {
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
			for _, s := range tt.signals {
				if err := process.Process.Signal(s); err != nil {
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
