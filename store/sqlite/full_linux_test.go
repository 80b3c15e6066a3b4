package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gobridge"
)

// onDisk runs body with a disk of so many bytes: as root, or as the root of
// namespaces of its own.
func onDisk(t *testing.T, size int64, body func(t *testing.T, disk string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		command.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := command.CombinedOutput()
		var failed *exec.ExitError
		switch {
		case errors.As(err, &failed):
			t.Fatalf("in a namespace of its own: %v\n%s", err, out)
		case err != nil || bytes.Contains(out, []byte("--- SKIP")):
			t.Skipf("a small disk needs a mount, and this user may not: %v\n%s", err, out)
		}
		return
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d", size)); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("mount a small disk: %v; CI runs this test", err)
		}
		t.Skipf("a small disk needs a mount, and this user may not: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	body(t, disk)
}

// TestOwnLoadLeavesRoomOnASmallDisk is TestOwnLoadNeverFillsTheDisk with nothing
// made up but the size of the disk.
func TestOwnLoadLeavesRoomOnASmallDisk(t *testing.T) {
	const size = 8 << 20
	onDisk(t, size, func(t *testing.T, disk string) {
		s := open1(t, filepath.Join(disk, "outbox.db"), Options{})
		stored := fillDisk(t, s, size, 2000)
		lease, err := s.Leases().Acquire(t.Context(), gobridge.AcquireRequest{Partition: "r/b/0", Owner: "one", Term: time.Minute})
		for range 200 {
			if err == nil {
				_, err = s.Leases().Renew(t.Context(), []gobridge.Lease{lease})
			}
		}
		if err != nil {
			t.Fatalf("leases of an outbox at its share: %v", err)
		}
		if err := s.Check(t.Context()); !errors.Is(err, gobridge.ErrOutboxFull) || isStuck(err) {
			t.Errorf("Check says %v, want that the share is reached", err)
		}
		if got := drain1(t, s, 100); len(got) != len(stored) || len(got) == 0 {
			t.Errorf("drained %d of %d", len(got), len(stored))
		}
	})
}

func isStuck(err error) bool {
	var stuck interface{ Stuck() bool }
	return errors.As(err, &stuck) && stuck.Stuck()
}

// TestADiskThatOthersFill tells a disk that takes nothing at all from one on which the
// outbox has its share.
func TestADiskThatOthersFill(t *testing.T) {
	onDisk(t, 16<<20, func(t *testing.T, disk string) {
		path := filepath.Join(disk, "outbox.db")
		s := open1(t, path, Options{})
		s.disk.every = 0
		if err := s.Persist(t.Context(), []gobridge.Record{one("a", "k")}); err != nil {
			t.Fatal(err)
		}
		ballast := filepath.Join(disk, "ballast")
		err := os.WriteFile(ballast, make([]byte, 16<<20), 0o600)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("fill the disk: %v", err)
		}
		for range 2 {
			err = s.Check(t.Context())
			for _, want := range []string{"outbox full", path, "disk is full", "make room on the disk", "can't be discarded"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Check of a full disk says %v, want it to contain %q", err, want)
				}
			}
			if !errors.Is(err, gobridge.ErrOutboxFull) || !isStuck(err) {
				t.Errorf("Check of a full disk says %v, want that nothing can be written", err)
			}
		}
		another, err := OpenFile(t.Context(), path, Options{}) // as the command does
		if err != nil {
			t.Fatalf("look into an outbox on a full disk: %v", err)
		}
		if err := another.Check(t.Context()); !isStuck(err) {
			t.Errorf("Check by another process says %v, want that nothing can be written", err)
		}
		if err := another.Close(); err != nil {
			t.Error(err)
		}

		if err := os.Truncate(ballast, 12<<20); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); !errors.Is(err, gobridge.ErrOutboxFull) || isStuck(err) {
			t.Errorf("Check with a little room says %v, want that the share is exceeded", err)
		}
		if got := drain1(t, s, 10); len(got) != 1 {
			t.Errorf("drained %v", got)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check with room again: %v", err)
		}
		if err := s.Persist(t.Context(), []gobridge.Record{one("b", "k")}); err != nil {
			t.Errorf("Persist with room again: %v", err)
		}
	})
}
