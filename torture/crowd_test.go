//go:build unix

package torture

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The processes of a crowd, and the partitions of each binding that they share.
const (
	crowdSize       = 3
	crowdPartitions = 4
)

// crowd is several processes on one file.
type crowd struct {
	*rig
	rng       *rand.Rand
	addresses []string
	configs   []string
	processes []*process
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	c := &crowd{rig: newRig(t, seed, t.TempDir(), t.TempDir()), rng: random(seed, 5)}
	c.partitions = crowdPartitions
	for range crowdSize {
		address := freeAddress(t)
		c.addresses = append(c.addresses, address)
		c.configs = append(c.configs, c.configure(address))
	}
	return c
}

// begin starts all processes.
func (c *crowd) begin() {
	c.t.Helper()
	for i := range crowdSize {
		c.processes = append(c.processes, c.start(c.configs[i]))
	}
	for i, p := range c.processes {
		c.awaitReady(p, c.addresses[i])
	}
	c.front.to(c.addresses[0])
}

// end drains, stops all processes and verifies.
func (c *crowd) end() {
	c.t.Helper()
	c.drain(c.processes[0])
	for _, p := range c.processes {
		c.mustRun(p)
		if err := p.stop(); err != nil {
			c.t.Errorf("seed %d: SIGTERM ended a process with %v; its log:%s", c.seed, err, c.book.tail(15))
		}
	}
	c.noteTakeovers()
	c.verify()
	c.verifyLate()
}

// TestCrowd has three processes share the partitions on one file, and kills,
// freezes and restarts them at random: nothing is lost, every key stays in order,
// and what arrives from a former owner is a send that it had under way, and says so.
func TestCrowd(t *testing.T) {
	first := seed(t)
	for i := range (rounds(t) + 4) / 5 {
		if t.Failed() {
			return
		}
		t.Run("", func(t *testing.T) { crowdRound(t, first+uint64(i)) })
	}
}

func crowdRound(t *testing.T, seed uint64) {
	c := newCrowd(t, seed)
	c.begin()
	stop := c.work.run(t, seed)
	for range 6 {
		time.Sleep(time.Duration(200+c.rng.IntN(800)) * time.Millisecond)
		victim := c.rng.IntN(crowdSize)
		c.mustRun(c.processes[victim])
		c.front.to(c.addresses[(victim+1)%crowdSize])
		if c.rng.IntN(3) > 0 {
			c.hurt(c.processes, c.configs, victim, c.rng)
			continue
		}
		pid := c.processes[victim].command.Process.Pid
		if err := c.processes[victim].stop(); err != nil && !c.hadNotBegun(c.processes[victim]) {
			t.Errorf("seed %d: SIGTERM ended process %d with %v; its log:%s", seed, pid, err, c.book.tail(15))
		}
		c.history.mark("process %d stopped", pid)
		c.processes[victim] = c.start(c.configs[victim])
	}
	stop()
	c.end()
	t.Logf("%s, kills %d, freezes %d, stops %d, late sends logged %d", c.summary(), c.countMarks("killed"),
		c.countMarks("frozen"), c.countMarks("stopped"), len(c.book.matching(logLate)))
}

var acquiredLine = regexp.MustCompile(`partition=(\S+) version=(\d+) owner=\S*-(\d+)-\S+ `)

// verifyLate checks that what came to the webhook under an older token than one
// before was logged by the process that sent it, unless that was killed since.
func (r *rig) verifyLate() {
	r.t.Helper()
	senders := map[string]string{} // process ID by partition and version
	for _, l := range r.book.matching(logAcquired) {
		if m := acquiredLine.FindStringSubmatch(l.text); m != nil {
			senders[m[1]+" "+m[2]] = m[3]
		}
	}
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	killed := map[string]bool{}
	for _, e := range r.history.events {
		if e.kind == mark && strings.Contains(e.note, "killed") {
			killed[strings.Fields(e.note)[1]] = true
		}
	}
	newest := map[string]int64{}
	for _, e := range r.history.events {
		if e.kind != arrived || e.binding != "hook" {
			continue
		}
		if e.version >= newest[e.partition] {
			newest[e.partition] = e.version
			continue
		}
		sender := senders[e.partition+" "+strconv.FormatInt(e.version, 10)]
		if !killed[sender] && len(r.book.matching(logLate, fmt.Sprintf("record=%s attempt=", e.id))) == 0 {
			r.t.Errorf("seed %d: process %s sent this late and does not say so: %s", r.seed, sender, e)
		}
	}
}

// TestRollingRestartOfAll replaces one process after the other under load. No
// message waits for a second.
func TestRollingRestartOfAll(t *testing.T) {
	const most = time.Second
	c := newCrowd(t, seed(t))
	c.term = 5 * time.Second
	for i := range c.configs {
		c.configs[i] = c.configure(c.addresses[i])
	}
	c.receiver.calmed.Store(true) // the webhook's failures would hold messages up as well
	c.begin()
	stop := c.work.run(t, c.seed)
	for i := range crowdSize {
		time.Sleep(load(t) / 4)
		c.front.to(c.addresses[(i+1)%crowdSize])
		if err := c.processes[i].stop(); err != nil {
			t.Errorf("seed %d: SIGTERM ended a process with %v; its log:%s", c.seed, err, c.book.tail(15))
		}
		c.history.mark("process %d stopped", c.processes[i].command.Process.Pid)
		c.processes[i] = c.start(c.configs[i])
		c.awaitReady(c.processes[i], c.addresses[i])
	}
	time.Sleep(load(t) / 4)
	stop()
	c.end()
	longest, at := c.longestWait()
	if longest >= most {
		t.Errorf("seed %d: a message waited %s, want less than %s: %s", c.seed, longest, most, at)
	}
	if n := len(c.book.matching(logTakeover)); n > 0 {
		t.Errorf("seed %d: %d partitions were taken over, want all to be handed over", c.seed, n)
	}
	t.Logf("%s, longest wait %s (%s)", c.summary(), longest.Round(time.Millisecond), at)
}
