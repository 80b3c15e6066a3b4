//go:build unix

package torture

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// TestKill kills the process at random moments under load, starts it again at
// once, and expects that the outside notices nothing but repeats that say so.
func TestKill(t *testing.T) {
	first := seed(t)
	for i := range rounds(t) {
		if t.Failed() {
			return
		}
		killRound(t, first+uint64(i))
	}
}

func killRound(t *testing.T, seed uint64) {
	t.Run("", func(t *testing.T) {
		r := newRig(t, seed, t.TempDir(), t.TempDir())
		rng := random(seed, 1)
		if rng.IntN(3) > 0 { // so that most kills hit a process that owns something
			r.term = 300 * time.Millisecond
		}
		address := freeAddress(t)
		config := r.configure(address)
		r.front.to(address)
		p := r.start(config)
		stop := r.work.run(t, seed)
		end := time.Now().Add(load(t))
		for kills := 2 + rng.IntN(3); kills > 0; kills-- {
			time.Sleep(untilNext(rng, time.Until(end), kills))
			r.mustRun(p)
			r.end(p, rng)
			p = r.start(config)
		}
		time.Sleep(time.Until(end))
		r.mustRun(p)
		stop()
		r.finish(p)
		t.Logf("%s, kills %d, stops %d", r.summary(), r.countMarks("killed"), r.countMarks("stopped"))
	})
}

// untilNext is when the next kill comes: mostly spread over what is left of the
// load, at times right after a start.
func untilNext(rng *rand.Rand, left time.Duration, kills int) time.Duration {
	if rng.IntN(4) == 0 {
		return time.Duration(rng.IntN(150)) * time.Millisecond
	}
	return time.Duration(rng.Int64N(2*int64(max(left, time.Second))/int64(kills+1) + 1))
}

// end ends a process in one of the ways in which processes end.
func (r *rig) end(p *process, rng *rand.Rand) {
	r.t.Helper()
	pid := p.command.Process.Pid
	switch rng.IntN(8) {
	case 0:
		if err := p.stop(); err != nil && !r.hadNotBegun(p) {
			r.t.Errorf("seed %d: SIGTERM ended process %d with %v, want exit status 0; its log:%s",
				r.seed, pid, err, r.book.tail(15))
		}
		r.history.mark("process %d stopped", pid)
	case 1:
		p.signal(syscall.SIGTERM)
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		p.kill()
		r.history.mark("process %d killed while it stopped", pid)
	default:
		p.kill()
		r.history.mark("process %d killed", pid)
	}
}

// hadNotBegun reports whether SIGTERM ended a process before it could take notice:
// before it had installed a handler, and so had logged anything.
func (r *rig) hadNotBegun(p *process) bool {
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM && !r.book.has(p.command.Process.Pid)
}

// TestKillIsNoticed kills a process that keeps its outbox in memory, for a test
// that finds nothing wrong with that would find nothing wrong at all.
func TestKillIsNoticed(t *testing.T) {
	r := newRig(t, seed(t), "", t.TempDir())
	address := freeAddress(t)
	config := r.configure(address)
	r.front.to(address)
	p := r.start(config)
	stop := r.work.run(t, r.seed)
	r.await("messages that no destination has yet are accepted", func() bool {
		return r.acked() > 100 && r.history.missing("hook") > 10
	})
	p.kill()
	p = r.start(config)
	r.awaitReady(p, address)
	stop()
	r.receiver.calmed.Store(true)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	for _, v := range r.history.check("hook") {
		if v.rule == ruleLoss {
			return
		}
	}
	t.Errorf("seed %d: the outbox was lost, and the checker found no message missing", r.seed)
}
