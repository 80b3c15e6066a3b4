package torture

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// setFileLimit bounds the size of files that a running process may write, as a
// full disk would: writes beyond it fail with EFBIG, half of one that crosses
// it succeeds.
func setFileLimit(t *testing.T, p *process, limit uint64) {
	t.Helper()
	err := unix.Prlimit(p.command.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: unix.RLIM_INFINITY}, nil)
	if err != nil && p.running() {
		t.Fatalf("set the file size limit of process %d: %v", p.command.Process.Pid, err)
	}
}

// TestFailingDisk makes the writes of the running process fail for a while. It
// answers 503, loses nothing, and goes on by itself once writes succeed again.
// In every second outage it is killed in the middle and started on the failing
// disk.
func TestFailingDisk(t *testing.T) {
	first := seed(t)
	for i := range (rounds(t) + 9) / 10 {
		if t.Failed() {
			return
		}
		failingDiskRound(t, first+uint64(i))
	}
}

func failingDiskRound(t *testing.T, seed uint64) {
	t.Run("", func(t *testing.T) {
		r := newRig(t, seed, t.TempDir(), t.TempDir())
		r.receiver.calmed.Store(true)
		rng := random(seed, 4)
		address := freeAddress(t)
		config := r.configure(address)
		r.front.to(address)
		p := r.start(config)
		stop := r.work.run(t, seed)
		for outage := range 4 {
			time.Sleep(time.Duration(300+rng.IntN(300)) * time.Millisecond)
			r.awaitReady(p, address)
			limit := uint64(0)
			if outage >= 2 {
				limit = uint64(rng.Int64N(r.largestFile() + 1))
			}
			setFileLimit(t, p, limit)
			r.history.mark("files of process %d bounded to %d bytes", p.command.Process.Pid, limit)
			r.await503(limit == 0)
			if outage%2 == 1 {
				p.kill()
				r.history.mark("process %d killed", p.command.Process.Pid)
				p = r.start(config)
				setFileLimit(t, p, limit)
				time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			}
			setFileLimit(t, p, unix.RLIM_INFINITY)
			r.history.mark("files of process %d unbounded", p.command.Process.Pid)
			if outage%2 == 1 {
				p = r.revive(p, config, address)
			}
		}
		time.Sleep(load(t) / 4)
		stop()
		r.finish(p)
		t.Logf("%s, outages 4, kills %d, failed starts %d",
			r.summary(), r.countMarks("killed"), r.countMarks("could not start"))
	})
}

// TestStopOnFailingDisk asks the process to end while the disk takes nothing: it
// ends all the same, and what it could not settle is delivered after the next
// start.
func TestStopOnFailingDisk(t *testing.T) {
	r := newRig(t, seed(t), t.TempDir(), t.TempDir())
	r.receiver.calmed.Store(true)
	address := freeAddress(t)
	config := r.configure(address)
	r.front.to(address)
	p := r.start(config)
	stop := r.work.run(t, r.seed)
	r.awaitAccepted(200)
	setFileLimit(t, p, 0)
	r.history.mark("files of process %d bounded to 0 bytes", p.command.Process.Pid)
	time.Sleep(outageLength)
	begun := time.Now()
	if err := p.stop(); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("seed %d: SIGTERM did not end the process within %s; its log:%s", r.seed, stopTimeout, r.book.tail(60))
	}
	took := time.Since(begun)
	p = r.start(config)
	r.awaitAccepted(50)
	stop()
	r.finish(p)
	t.Logf("%s, the stop took %s", r.summary(), took.Round(time.Millisecond))
}

// largestFile is the size of the largest file of the outbox.
func (r *rig) largestFile() int64 {
	files, _ := filepath.Glob(filepath.Join(r.store, "*"))
	var largest int64
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			largest = max(largest, info.Size())
		}
	}
	return largest
}

// outageLength is how long an outage of the disk lasts.
const outageLength = 500 * time.Millisecond

// await503 lets an outage last, and holds that producers were refused in it and
// nobody was told that a message is safe.
func (r *rig) await503(total bool) {
	r.t.Helper()
	time.Sleep(outageLength) // for answers that were under way
	refused, stored := r.work.refused.Load(), r.work.stored.Load()
	time.Sleep(outageLength)
	if !total {
		return // below the limit, writes may succeed
	}
	if r.work.refused.Load() == refused {
		r.t.Errorf("seed %d: the disk takes nothing, and no producer was answered 503; the log:%s",
			r.seed, r.book.tail(15))
	}
	if n := r.work.stored.Load() - stored; n > 0 {
		r.t.Errorf("seed %d: the disk takes nothing, and %d messages were said to be stored", r.seed, n)
	}
}

// revive waits until a process that was started on a failing disk listens. One
// that has given up by then is started again, as whoever supervises it would.
func (r *rig) revive(p *process, config, address string) *process {
	r.t.Helper()
	r.await("the process listens", func() bool {
		if !p.running() {
			r.history.mark("process %d could not start: %v", p.command.Process.Pid, p.err)
			p = r.start(config)
		}
		return answers(address)
	})
	return p
}
