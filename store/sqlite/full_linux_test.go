package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gobridge"
	"gobridge/internal/testdisk"
)

// TestOwnLoadLeavesRoomOnASmallDisk is TestOwnLoadNeverFillsTheDisk with nothing
// made up but the size of the disk.
func TestOwnLoadLeavesRoomOnASmallDisk(t *testing.T) {
	const size = 8 << 20
	testdisk.With(t, size, func(t *testing.T, disk string) {
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
	testdisk.With(t, 16<<20, func(t *testing.T, disk string) {
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
