package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"gobridge"
)

func TestLockedDatabaseIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open1(t, path, Options{})
	stranger, err := openOwn(path, "", ownRights)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	tx, err := stranger.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Persist(ctx, []gobridge.Record{one("late", "")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Persist under a stranger's lock returned %v, want the end of its context", err)
	}
	if _, err := s.Claim(ctx, gobridge.ClaimRequest{Partition: "r/b/0", Token: token1, Limit: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Claim under a stranger's lock returned %v, want the end of its context", err)
	}

	done := make(chan error, 2)
	go func() { done <- s.Persist(t.Context(), []gobridge.Record{one("a", "")}) }()
	go func() { done <- s.Persist(t.Context(), []gobridge.Record{one("b", "")}) }()
	select {
	case err := <-done:
		t.Fatalf("Persist under a stranger's lock returned %v, want it to wait", err)
	case <-time.After(30 * time.Millisecond): // longer than SQLite itself would wait between two looks
	}
	if _, err := s.Stats(t.Context()); err != nil {
		t.Fatalf("reading under a stranger's lock: %v", err)
	}
	if _, err := s.Leases().Acquire(t.Context(), gobridge.AcquireRequest{Partition: "r/b/0", Owner: "o", Term: time.Second}); err != nil {
		t.Fatalf("a lease under a stranger's lock: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if got := drain1(t, s, 10); len(got) != 2 {
		t.Fatalf("drained %v, want what was persisted when the lock was free", got)
	}
}

// setPages bounds the database, which stands in for a full disk. The bound is
// the connection's.
func setPages(t *testing.T, s *Store, pages int) {
	t.Helper()
	err := s.write(t.Context(), urgent, func(x *txn) error {
		_, err := x.ExecContext(x.ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFullDiskFailsClearlyAndHeals(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	setPages(t, s, 100)
	var stored []string
	var full error
	for i := 0; full == nil; i++ {
		r := one(fmt.Sprint(i), "k")
		r.Envelope.Payload = make([]byte, 20_000)
		if full = s.Persist(t.Context(), []gobridge.Record{r}); full == nil {
			stored = append(stored, r.Envelope.ID)
		}
	}
	var native *sqlite.Error
	if !errors.As(full, &native) || native.Code()&0xff != sqlite3.SQLITE_FULL || !strings.Contains(full.Error(), "make room") {
		t.Fatalf("Persist into a full database returned %v, want SQLITE_FULL within reach and a hint", full)
	}

	// Many at once: the persists fail, and the claim beside them works.
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			r := one(fmt.Sprint("more", i), "")
			r.Envelope.Payload = make([]byte, 100_000)
			if err := s.Persist(t.Context(), []gobridge.Record{r}); err == nil {
				t.Errorf("Persist %d into a full database succeeded", i)
			}
		})
	}
	got, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: "r/b/0", Token: token1, Limit: 2, HeldKnown: true})
	if err != nil || len(got) != 2 {
		t.Fatalf("Claim from a full database returned %d records and %v", len(got), err)
	}
	wg.Wait()
	if err := s.Complete(t.Context(), token1, []gobridge.Completion{{Ref: got[0].Ref()}, {Ref: got[1].Ref()}}); err != nil {
		t.Fatalf("Complete in a full database: %v", err)
	}

	// What was completed has made room, and nothing has to be opened again.
	r := one("again", "k")
	r.Envelope.Payload = make([]byte, 20_000)
	if err := s.Persist(t.Context(), []gobridge.Record{r}); err != nil {
		t.Fatalf("Persist once there is room: %v", err)
	}
	want := strings.Join(append(stored[2:], "again"), " ")
	if got := strings.Join(drain1(t, s, 10), " "); got != want {
		t.Fatalf("drained %s, want %s", got, want)
	}
}

func TestOneFailureLeavesTheNeighboursAlone(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	hold, err := s.db.BeginTx(t.Context(), nil) // so that all of them wait, and share a transaction
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := s.Persist(t.Context(), []gobridge.Record{one(fmt.Sprint(i), "")}); err != nil {
				t.Errorf("neighbour %d: %v", i, err)
			}
		})
	}
	wg.Go(func() {
		err := s.write(t.Context(), background, func(x *txn) error {
			if _, err := x.ExecContext(x.ctx, "DELETE FROM gobridge_record"); err != nil {
				return err
			}
			_, err := x.ExecContext(x.ctx, "INSERT INTO gobridge_nowhere VALUES (1)")
			return err
		})
		if err == nil {
			t.Error("a statement that can't work has worked")
		}
	})
	for { // until all are queued
		s.writer.mu.Lock()
		n := len(s.writer.queue[persisting]) + len(s.writer.queue[background])
		s.writer.mu.Unlock()
		if n == 21 {
			break
		}
	}
	if err := hold.Rollback(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n, err := s.CountPending(t.Context(), "r/b/0", 100); n != 20 || err != nil {
		t.Fatalf("%d records are pending (%v), want all 20", n, err)
	}
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	err := s.write(t.Context(), urgent, func(x *txn) error {
		s.writer.drop() // as a connection that fails to roll back is
		return errors.New("broken")
	})
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Fatalf("the failed request returned %v", err)
	}
	if err := s.Persist(t.Context(), []gobridge.Record{one("a", "")}); err != nil {
		t.Fatalf("Persist after the connection broke: %v", err)
	}
}

func TestDatabaseOverItsShareOfTheDiskTakesNothingMore(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{MaxDiskShare: 0.5})
	free := int64(1 << 40)
	s.disk.every = 0
	s.disk.free = func() (int64, error) { return free, nil }
	if err := s.Persist(t.Context(), []gobridge.Record{one("a", "")}); err != nil {
		t.Fatal(err)
	}
	free = 1000
	err := s.Persist(t.Context(), []gobridge.Record{one("b", "")})
	if !errors.Is(err, gobridge.ErrOutboxFull) || !strings.Contains(err.Error(), "less than 50 % of the two together; ") || !strings.Contains(err.Error(), "make room on the disk") {
		t.Fatalf("Persist with no room on the disk returned %v, want ErrOutboxFull with the figures and a hint", err)
	}
	if got := drain1(t, s, 10); len(got) != 1 {
		t.Fatalf("drained %v, want claims and settles to go on", got)
	}
	free = 1 << 40
	if err := s.Persist(t.Context(), []gobridge.Record{one("b", "")}); err != nil {
		t.Fatalf("Persist once there is room: %v", err)
	}
}

func TestCloseAnswersWhoWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s, err := OpenFile(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := openOwn(path, "", ownRights)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	tx, err := stranger.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Persist(t.Context(), []gobridge.Record{one("a", "")}) }()
	for queued := 0; queued == 0; {
		s.writer.mu.Lock()
		queued = len(s.writer.queue[persisting])
		s.writer.mu.Unlock()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, gobridge.ErrClosed) {
		t.Fatalf("the waiting Persist returned %v, want ErrClosed", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.Persist(t.Context(), []gobridge.Record{one("a", "")}); !errors.Is(err, gobridge.ErrClosed) {
		t.Fatalf("Persist after Close returned %v, want ErrClosed", err)
	}
	if _, err := s.Stats(t.Context()); !errors.Is(err, gobridge.ErrClosed) {
		t.Fatalf("Stats after Close returned %v, want ErrClosed", err)
	}
	if _, err := s.Explain(t.Context(), gobridge.ExplainQuery{Partition: "r/b/0"}); err == nil {
		t.Fatal("Explain after Close succeeded")
	}
}
