package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"gobridge"
)

func TestLeasesTellOfWhatOthersChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	here, there := open1(t, path, Options{}).Leases(), open1(t, path, Options{}).Leases()
	notifier, ok := here.(gobridge.Notifier)
	if !ok {
		t.Fatal("the leases are no Notifier")
	}
	heard := make(chan gobridge.Partition, 1000)
	defer notifier.Notify(func(p gobridge.Partition) { heard <- p })()
	await := func(what string) {
		t.Helper()
		select {
		case <-heard:
		case <-time.After(time.Minute):
			t.Fatalf("%s by another process was not noticed", what)
		}
	}
	await("what was there before") // the first look tells of any
	lease, err := there.Acquire(t.Context(), gobridge.AcquireRequest{Partition: "r/b/0", Owner: "there", Term: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	await("an acquisition")
	if err := there.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	await("a release")
}
