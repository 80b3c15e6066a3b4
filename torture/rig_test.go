package torture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// configuration is the config file of a process: where it listens, where the
// outbox is kept, the lease term, the webhook's address, the file binding's
// folder, the number of partitions and the webhook's timeout. So many attempts are
// allowed that nothing ends as a dead letter, which would rightly let a key's tail
// go on.
const configuration = `version: 1
http: { listen: %[1]q }
store: %[2]s
lease_term: %[3]s
routes:
  orders:
    partitions: %[6]d
    source: { http: { path: /orders } }
    ordering_key: payload.key
    bindings:
      hook:
        webhook: { url: %[4]q, timeout: %[7]s }
        retry: { attempts: 100000, backoff: 10ms..300ms }
      file:
        file: { path: "%[5]s/orders.jsonl" }
        retry: { attempts: 100000, backoff: 10ms..300ms }
  loose:
    partitions: %[6]d
    source: { http: { path: /loose } }
    bindings:
      hook:
        webhook: { url: %[4]q, timeout: %[7]s }
        retry: { attempts: 100000, backoff: 10ms..300ms }
      file:
        file: { path: "%[5]s/loose.jsonl" }
        retry: { attempts: 100000, backoff: 10ms..300ms }
`

// Of the webhook bindings.
const (
	sendTimeout = 400 * time.Millisecond
	concurrency = 16 // unless configured
)

// bindings are the destinations that every message goes to.
var bindings = []string{"hook", "file"}

// rig is everything of one round but the processes.
type rig struct {
	t        *testing.T
	seed     uint64
	history  *history
	book     *logbook
	receiver *receiver
	front    *front
	work     *producers

	store string        // folder of the outbox; empty keeps it in memory
	files string        // folder of the file bindings
	term  time.Duration // of a lease

	partitions int // of each binding
}

// newRig sets a round up on folders that exist.
func newRig(t *testing.T, seed uint64, store, files string) *rig {
	h := newHistory()
	r := &rig{t: t, seed: seed, history: h, book: &logbook{start: h.start}, front: newFront(""),
		store: store, files: files, term: time.Second, partitions: 1}
	r.receiver = newReceiver(t, h, seed)
	r.work = &producers{history: h, front: r.front, count: 8, keys: 4, pause: 8 * time.Millisecond, maxPad: 600}
	return r
}

// configure writes the config of a process that listens at address.
func (r *rig) configure(address string) string {
	r.t.Helper()
	store := "{ memory: {} }"
	if r.store != "" {
		store = fmt.Sprintf("{ sqlite: { path: %q } }", filepath.Join(r.store, "outbox.db"))
	}
	return r.configureOn(store, address, r.receiver.server.URL)
}

// configureOn is configure with the store as the config file has it, and with
// another address of the webhook.
func (r *rig) configureOn(store, address, hook string) string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "gobridge.yaml")
	text := fmt.Sprintf(configuration, address, store, r.term, hook, r.files, r.partitions, sendTimeout)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// start runs a process.
func (r *rig) start(config string) *process {
	r.t.Helper()
	p := start(r.t, config, r.book)
	r.history.mark("process %d started", p.command.Process.Pid)
	return p
}

// mustRun fails the test when a process has ended by itself.
func (r *rig) mustRun(p *process) {
	r.t.Helper()
	if !p.running() {
		r.t.Fatalf("seed %d: the process ended by itself: %v; its log:%s", r.seed, p.err, r.book.tail(15))
	}
}

// stillness is how long a drain may go without a delivery before the test says
// that it stands still.
const stillness = 30 * time.Second

// drain calms the destinations and waits until everything accepted has arrived.
func (r *rig) drain(p *process) {
	r.t.Helper()
	r.receiver.calmed.Store(true)
	last, since := -1, time.Now()
	for {
		missing := r.history.missing("hook") + r.missingInFiles()
		if missing == 0 {
			return
		}
		r.mustRun(p)
		if missing != last {
			last, since = missing, time.Now()
		}
		if time.Since(since) > stillness {
			r.t.Errorf("seed %d: %d deliveries are missing and nothing has moved for %s; the log:%s",
				r.seed, missing, stillness, r.book.tail(15))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (r *rig) missingInFiles() int {
	lines, _ := r.readFiles() // a torn line may be there until the process is back
	there := map[string]bool{}
	for _, e := range lines {
		there[e.id] = true
	}
	return r.history.count(func(e event) bool { return e.kind == acked && !there[e.id] })
}

// readFiles reads the files of the file bindings. The error names every line
// that is no JSON; the events are those of the others.
func (r *rig) readFiles() ([]event, error) {
	orders, err := readLines(filepath.Join(r.files, "orders.jsonl"))
	loose, other := readLines(filepath.Join(r.files, "loose.jsonl"))
	return append(orders, loose...), errors.Join(err, other)
}

// verify holds the history against the promises. Call it once everything has
// been drained and every process has ended.
func (r *rig) verify() {
	r.t.Helper()
	lines, err := r.readFiles()
	if err != nil {
		r.t.Errorf("seed %d: the file binding's lines: %v", r.seed, err)
	}
	for _, e := range lines {
		r.history.add(e)
	}
	found := r.history.check(bindings...)
	for i, v := range found {
		if i == 3 {
			r.t.Errorf("seed %d: and %d more", r.seed, len(found)-i)
			break
		}
		r.t.Errorf("seed %d: %s", r.seed, r.history.trace(v))
	}
	if races := r.book.matching("DATA RACE"); len(races) > 0 {
		r.t.Errorf("seed %d: the race detector spoke: %s", r.seed, r.book.tail(60))
	}
	if panics := r.book.matching("panic:"); len(panics) > 0 {
		r.t.Errorf("seed %d: a panic: %s", r.seed, r.book.tail(60))
	}
}

// finish drains, stops the process and verifies.
func (r *rig) finish(p *process) {
	r.t.Helper()
	r.drain(p)
	r.mustRun(p)
	if err := p.stop(); err != nil {
		r.t.Errorf("seed %d: SIGTERM ended it with %v, want exit status 0; its log:%s", r.seed, err, r.book.tail(15))
	}
	r.verify()
}

// summary is the line that a round prints.
func (r *rig) summary() string {
	seen := map[string]bool{}
	repeats := r.history.count(func(e event) bool {
		if e.kind != arrived || !e.taken {
			return false
		}
		name := e.binding + " " + e.id
		repeat := seen[name]
		seen[name] = true
		return repeat
	})
	return fmt.Sprintf("seed %d: %s, delivered %d, repeats %d, refused by the webhook %d, takeovers logged %d",
		r.seed, r.work.summary(), len(seen), repeats,
		r.history.count(func(e event) bool { return e.kind == arrived && !e.taken }),
		len(r.book.matching(logTakeover)))
}

// countMarks counts what was done to the processes.
func (r *rig) countMarks(what string) int {
	return r.history.count(func(e event) bool { return e.kind == mark && strings.Contains(e.note, what) })
}
