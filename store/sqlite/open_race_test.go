package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gobridge/store/sqlite"
)

// TestOpenWaitsForAStrangersLock: the switch of a new file to WAL mode meets
// locks that SQLite itself does not wait for.
func TestOpenWaitsForAStrangersLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	stranger, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	tx, err := stranger.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := sqlite.OpenFile(short, path, sqlite.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("with the file locked: %v, want to have waited until the deadline", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.OpenFile(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSeveralOpenANewFileAtOnce: handles that open a file together that is not
// there yet all get their store.
func TestSeveralOpenANewFileAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := sqlite.OpenFile(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
