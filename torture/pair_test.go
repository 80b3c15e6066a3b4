//go:build unix

package torture

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// TestRollingRestart runs two processes on one file while one replaces the
// other, back and forth. Nothing is lost, and no message waits as long as a
// lease term: ownership is handed over, not waited for.
func TestRollingRestart(t *testing.T) {
	seed := seed(t)
	r := newRig(t, seed, t.TempDir(), t.TempDir())
	r.term = 5 * time.Second
	r.receiver.calmed.Store(true) // the webhook's failures would hold messages up as well
	addresses := []string{freeAddress(t), freeAddress(t)}
	configs := []string{r.configure(addresses[0]), r.configure(addresses[1])}
	r.front.to(addresses[0])
	old := r.start(configs[0])
	r.awaitReady(old, addresses[0])
	stop := r.work.run(t, seed)
	for i := 1; i <= 4; i++ {
		time.Sleep(load(t) / 4)
		next := r.start(configs[i%2])
		r.awaitReady(next, addresses[i%2])
		r.front.to(addresses[i%2])
		if err := old.stop(); err != nil {
			t.Errorf("seed %d: SIGTERM ended the old process with %v; its log:%s", seed, err, r.book.tail(15))
		}
		r.history.mark("process %d stopped", old.command.Process.Pid)
		r.mustRun(next)
		old = next
	}
	time.Sleep(load(t) / 4)
	stop()
	r.drain(old)
	if err := old.stop(); err != nil {
		t.Errorf("seed %d: SIGTERM ended the last process with %v; its log:%s", seed, err, r.book.tail(15))
	}
	r.noteTakeovers()
	r.verify()
	longest, at := r.longestWait()
	if longest >= r.term {
		t.Errorf("seed %d: a message waited %s, as long as the lease term of %s: %s", seed, longest, r.term, at)
	}
	t.Logf("%s, rolls 4, longest wait %s (%s)", r.summary(), longest.Round(time.Millisecond), at)
}

// longestWait is the longest time from the acknowledgement of a message to its
// arrival at the webhook.
func (r *rig) longestWait() (longest time.Duration, which event) {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	since := map[string]time.Duration{}
	done := map[string]bool{}
	for _, e := range r.history.events {
		if e.kind == acked {
			since[e.id] = e.at
		}
	}
	for _, e := range r.history.events {
		if e.kind == arrived && e.binding == "hook" && e.taken && !done[e.id] {
			done[e.id] = true
			if wait := e.at - since[e.id]; wait > longest {
				longest, which = wait, e
			}
		}
	}
	return longest, which
}

// TestTakeover has two processes on one file, and kills or freezes one of them
// now and then: the other takes over, and a frozen one that wakes up finds that
// it owns nothing any more.
func TestTakeover(t *testing.T) {
	first := seed(t)
	for i := range (rounds(t) + 9) / 10 {
		if t.Failed() {
			return
		}
		takeoverRound(t, first+uint64(i))
	}
}

func takeoverRound(t *testing.T, seed uint64) {
	t.Run("", func(t *testing.T) {
		r := newRig(t, seed, t.TempDir(), t.TempDir())
		rng := random(seed, 3)
		addresses := []string{freeAddress(t), freeAddress(t)}
		configs := []string{r.configure(addresses[0]), r.configure(addresses[1])}
		both := []*process{r.start(configs[0]), r.start(configs[1])}
		r.front.to(addresses[0])
		r.awaitReady(both[0], addresses[0])
		r.awaitReady(both[1], addresses[1])
		stop := r.work.run(t, seed)
		for range 4 {
			time.Sleep(time.Duration(200+rng.IntN(600)) * time.Millisecond)
			victim := rng.IntN(2)
			r.mustRun(both[victim])
			r.front.to(addresses[1-victim])
			r.hurt(both, configs, victim, rng)
		}
		stop()
		r.drain(both[0])
		for _, p := range both {
			r.mustRun(p)
			if err := p.stop(); err != nil {
				t.Errorf("seed %d: SIGTERM ended a process with %v; its log:%s", seed, err, r.book.tail(15))
			}
		}
		r.noteTakeovers()
		r.verify()
		t.Logf("%s, kills %d, freezes %d", r.summary(), r.countMarks("killed"), r.countMarks("frozen"))
	})
}

// hurt kills and replaces one of the processes, or freezes it for longer than
// its lease lasts.
func (r *rig) hurt(both []*process, configs []string, victim int, rng *rand.Rand) {
	r.t.Helper()
	p := both[victim]
	pid := p.command.Process.Pid
	if rng.IntN(2) == 0 {
		p.kill()
		r.history.mark("process %d killed", pid)
		time.Sleep(time.Duration(rng.Int64N(int64(r.term))))
		both[victim] = r.start(configs[victim])
		return
	}
	p.signal(syscall.SIGSTOP)
	r.history.mark("process %d frozen", pid)
	time.Sleep(r.term + time.Duration(rng.Int64N(int64(r.term))))
	p.signal(syscall.SIGCONT)
	r.history.mark("process %d goes on", pid)
}

// noteTakeovers turns the takeovers that the processes logged into stretches in
// which a late send of the old owner may still arrive: it began before the
// takeover and ended at the latest when the webhook's timeout had passed.
func (r *rig) noteTakeovers() {
	for _, l := range r.book.matching(logTakeover) {
		r.history.takeover(l.at-r.term, l.at+2*r.term)
	}
}
