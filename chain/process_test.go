package chain

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gobridge/internal/testbinary"
)

// bridged is a bridge with its file, as a process that is killed and started again.
type bridged struct {
	t      *testing.T
	name   string
	config string
	book   logbook

	command *exec.Cmd
	ended   chan struct{} // closed when it has ended
	err     error         // how, once ended is closed
	kills   int
}

// logbook keeps the end of what the processes have logged.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const logKept = 64 << 10

func (l *logbook) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() > 2*logKept {
		l.text.Next(l.text.Len() - logKept)
	}
	return l.text.Write(data)
}

// tail returns the last lines for people to read.
func (l *logbook) tail() string {
	const lines = 12
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Split(strings.TrimSpace(l.text.String()), "\n")
	return "\n\t" + strings.Join(all[max(0, len(all)-lines):], "\n\t")
}

// newBridge writes the configuration of a process and starts it. STORE in the text
// stands for an outbox of its own.
func newBridge(t *testing.T, name, config string) *bridged {
	t.Helper()
	dir := t.TempDir()
	b := &bridged{t: t, name: name, config: filepath.Join(dir, "gobridge.yaml")}
	config = strings.ReplaceAll(config, "STORE", "{ sqlite: { path: "+filepath.Join(dir, "outbox.db")+" } }")
	if err := os.WriteFile(b.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(b.kill)
	return b
}

// binary is gobridge with arguments.
func binary(args ...string) *exec.Cmd { return exec.Command(testbinary.Path(), args...) }

func (b *bridged) start() {
	b.t.Helper()
	b.command, b.ended = binary("run", b.config), make(chan struct{})
	b.command.Stdout, b.command.Stderr = &b.book, &b.book
	if err := b.command.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func(c *exec.Cmd, ended chan<- struct{}) {
		b.err = c.Wait()
		close(ended)
	}(b.command, b.ended)
}

// kill ends the process as a power cut would, and waits until it is gone.
func (b *bridged) kill() {
	if b.command == nil {
		return
	}
	_ = b.command.Process.Kill()
	<-b.ended
	b.command = nil
	b.kills++
}

// stop asks the process to end, and fails the test unless it does so with status 0.
func (b *bridged) stop() {
	b.t.Helper()
	_ = b.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.ended:
		if b.err != nil {
			b.t.Errorf("%s ended with %v, want status 0; its log:%s", b.name, b.err, b.book.tail())
		}
	case <-time.After(patience):
		_ = b.command.Process.Kill()
		<-b.ended
		b.t.Errorf("%s has not ended %s after SIGTERM; its log:%s", b.name, patience, b.book.tail())
	}
	b.command = nil
}

// mustRun fails the test when the process has ended by itself.
func (b *bridged) mustRun() {
	b.t.Helper()
	select {
	case <-b.ended:
		b.command = nil
		b.t.Fatalf("%s ended by itself: %v; its log:%s", b.name, b.err, b.book.tail())
	default:
	}
}
