package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gobridge"
)

// bytesIn returns the bytes of the files in a folder.
func bytesIn(t *testing.T, folder string) int64 {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// TestOwnLoadNeverFillsTheDisk stores much more than a small disk holds, all of it
// before the disk would be looked at again for the time that has gone by.
func TestOwnLoadNeverFillsTheDisk(t *testing.T) {
	for _, tt := range []struct {
		capacity int64
		payload  int
	}{{8 << 20, 100}, {8 << 20, 2100}, {12 << 20, 200_000}, {40 << 20, 1 << 20}} {
		t.Run(fmt.Sprintf("%d MiB, %d bytes each", tt.capacity>>20, tt.payload), func(t *testing.T) {
			folder := t.TempDir()
			s := open1(t, filepath.Join(folder, "outbox.db"), Options{})
			s.disk.every = time.Hour
			s.disk.free = func() (int64, error) { return tt.capacity - bytesIn(t, folder), nil }
			stored := fillDisk(t, s, tt.capacity, tt.payload)
			if left := tt.capacity - bytesIn(t, folder); left < tt.capacity/16 {
				t.Errorf("%d of %d bytes are left after %d messages", left, tt.capacity, len(stored))
			}
			if len(stored)*tt.payload > int(tt.capacity) {
				t.Errorf("%d messages of %d bytes fit", len(stored), tt.payload)
			}
			if got := drain1(t, s, 100); len(got) != len(stored) {
				t.Errorf("drained %d of %d", len(got), len(stored))
			}
			if left := tt.capacity - bytesIn(t, folder); left <= 0 {
				t.Errorf("%d bytes are left after claims and settles", left)
			}
		})
	}
}

// fillDisk persists, several calls at once, until each of them is refused for want of
// room, or until it has stored what the disk holds.
func fillDisk(t *testing.T, s *Store, capacity int64, payload int) (stored []string) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range int(capacity) / payload / 8 {
				r := one(fmt.Sprintf("%d-%d", w, i), "")
				r.Envelope.Payload = make([]byte, payload)
				err := s.Persist(t.Context(), []gobridge.Record{r})
				switch {
				case errors.Is(err, gobridge.ErrOutboxFull):
					return
				case err != nil:
					t.Error(err)
					return
				}
				mu.Lock()
				stored = append(stored, r.Envelope.ID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return stored
}
