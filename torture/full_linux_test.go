package torture

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gobridge/internal/testdisk"
)

// diskSize is the size of the disk that gets full.
const diskSize = 24 << 20

// fill takes all that is left of a disk; free gives it back.
func fill(t *testing.T, disk string) (free func()) {
	t.Helper()
	name := filepath.Join(disk, "ballast")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, size := range []int{64 << 10, 512} {
		for err == nil {
			_, err = file.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("fill the disk: %v", err)
		}
		err = nil
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills the disk of the outbox to the last byte, twice, and the
// second time kills the process and starts it on the full disk.
func TestFullDisk(t *testing.T) {
	testdisk.With(t, diskSize, func(t *testing.T, disk string) {
		seed := seed(t)
		r := newRig(t, seed, disk, t.TempDir())
		r.receiver.calmed.Store(true)
		r.work.maxPad = 8000
		address := freeAddress(t)
		config := r.configure(address)
		r.front.to(address)
		p := r.start(config)
		stop := r.work.run(t, seed)
		for outage := range 2 {
			r.awaitReady(p, address)
			r.awaitAccepted(50)
			free := fill(t, disk)
			r.history.mark("disk full")
			refused := r.work.refused.Load()
			r.await("producers are answered 503", func() bool { return r.work.refused.Load() > refused+20 })
			time.Sleep(outageLength)
			if outage == 1 {
				p.kill()
				r.history.mark("process %d killed", p.command.Process.Pid)
				p = r.start(config)
				time.Sleep(outageLength)
			}
			free()
			r.history.mark("disk free")
			if outage == 1 {
				p = r.revive(p, config, address)
			}
		}
		r.awaitAccepted(50)
		stop()
		r.finish(p)
		t.Logf("%s, outages 2, kills 1, failed starts %d", r.summary(), r.countMarks("could not start"))
	})
}

// TestFullDestination fills the disk that the file binding writes to. Its
// deliveries fail and the webhook's go on; once there is room, it catches up,
// and no line is torn.
func TestFullDestination(t *testing.T) {
	testdisk.With(t, diskSize, func(t *testing.T, disk string) {
		seed := seed(t)
		r := newRig(t, seed, t.TempDir(), disk)
		r.receiver.calmed.Store(true)
		r.work.maxPad = 4000
		address := freeAddress(t)
		config := r.configure(address)
		r.front.to(address)
		p := r.start(config)
		stop := r.work.run(t, seed)
		for outage := range 2 {
			r.awaitReady(p, address)
			r.awaitAccepted(50)
			free := fill(t, disk)
			r.history.mark("disk of the files full")
			time.Sleep(outageLength)
			r.awaitAccepted(100)
			r.awaitMissing()
			if outage == 1 {
				p.kill()
				r.history.mark("process %d killed", p.command.Process.Pid)
				p = r.start(config)
				r.awaitReady(p, address)
				r.awaitAccepted(20)
			}
			free()
			r.history.mark("disk of the files free")
		}
		stop()
		r.finish(p)
		t.Logf("%s, outages 2, kills 1", r.summary())
	})
}

// awaitMissing waits until the files are behind what was accepted, and the
// webhook is not.
func (r *rig) awaitMissing() {
	r.t.Helper()
	accepted := map[string]bool{}
	r.history.mu.Lock()
	for id := range r.history.accepted {
		accepted[id] = true
	}
	r.history.mu.Unlock()
	r.await("the webhook gets what was accepted, while the files' disk is full", func() bool {
		r.history.mu.Lock()
		defer r.history.mu.Unlock()
		for id := range accepted {
			if !r.history.taken["hook"][id] {
				return false
			}
		}
		return true
	})
	if r.missingInFiles() == 0 {
		r.t.Errorf("seed %d: the disk is full, and the files have everything", r.seed)
	}
}
