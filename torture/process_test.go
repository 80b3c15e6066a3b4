package torture

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gobridge/internal/testbinary"
)

// line is one line of the binary's log.
type line struct {
	at   time.Duration
	pid  int
	text string
}

// logbook collects what the processes of a round log.
type logbook struct {
	start time.Time
	mu    sync.Mutex
	lines []line
}

// tail returns the last n lines for people to read.
func (l *logbook) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, one := range l.lines[max(0, len(l.lines)-n):] {
		b.WriteString("\n\t" + one.text)
	}
	return b.String()
}

// matching returns the lines that contain all the parts.
func (l *logbook) matching(parts ...string) []line {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []line
	for _, one := range l.lines {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(one.text, part)
		}
		if all {
			out = append(out, one)
		}
	}
	return out
}

// has reports whether a process has logged anything.
func (l *logbook) has(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(one line) bool { return one.pid == pid })
}

// logWriter cuts one process's output into lines. It is a pipe's end and no
// file, so that a full disk doesn't concern it.
type logWriter struct {
	book *logbook
	pid  func() int
	rest []byte
}

func (w *logWriter) Write(data []byte) (int, error) {
	w.rest = append(w.rest, data...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(data), nil
		}
		w.book.mu.Lock()
		w.book.lines = append(w.book.lines, line{time.Since(w.book.start), w.pid(), string(w.rest[:i])})
		w.book.mu.Unlock()
		w.rest = w.rest[i+1:]
	}
}

// process is a running binary.
type process struct {
	command *exec.Cmd
	ended   chan struct{} // closed when it has ended
	err     error         // how it ended, once ended is closed
}

// start runs the binary with a config file. The test's end kills it.
func start(t *testing.T, config string, book *logbook) *process {
	t.Helper()
	command := exec.Command(testbinary.Path(), "run", config)
	p := &process{command: command, ended: make(chan struct{})}
	out := &logWriter{book: book, pid: func() int { return command.Process.Pid }}
	command.Stdout, command.Stderr = out, out
	command.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	if err := command.Start(); err != nil {
		t.Fatalf("start the binary: %v", err)
	}
	go func() {
		p.err = command.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as a power cut would and waits until it is gone.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

func (p *process) signal(s syscall.Signal) { _ = p.command.Process.Signal(s) }

// running reports whether the process has not ended by itself.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stopTimeout is far beyond the grace period of a shutdown.
const stopTimeout = 30 * time.Second

// stop asks the process to end and reports how it did: nil is exit status 0.
func (p *process) stop() error {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return p.err
	case <-time.After(stopTimeout):
		p.signal(syscall.SIGQUIT) // for the goroutines in the log
		<-p.ended
		return os.ErrDeadlineExceeded
	}
}

// freeAddress returns an address on loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

// answers reports whether somebody listens at address.
func answers(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
