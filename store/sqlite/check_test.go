package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"gobridge"
	"gobridge/store/sqlite"
)

// TestCheckTellsALockedStore has a stranger's transaction hold the write lock:
// the store can be opened and looked at, and says what keeps it from writing.
func TestCheckTellsALockedStore(t *testing.T) {
	path := newPath(t)
	first := openStore(t, path, sqlite.Options{})
	if err := first.Check(t.Context()); err != nil {
		t.Fatalf("unlocked: %v", err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Check(t.Context()); !errors.Is(err, gobridge.ErrLocked) {
		t.Errorf("locked: %v", err)
	}
	opening, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	second, err := sqlite.OpenFile(opening, path, sqlite.Options{})
	if err != nil {
		t.Fatalf("open a locked store: %v", err)
	}
	if _, err := second.Stats(t.Context()); err != nil {
		t.Errorf("look at a locked store: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := first.Check(t.Context()); err != nil {
		t.Errorf("unlocked again: %v", err)
	}
}
