package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
)

// serviceDB opens a database as a service would.
func serviceDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestOpenSaysWhatToChange(t *testing.T) {
	file := func(settings string) func(*testing.T) *sql.DB {
		return func(t *testing.T) *sql.DB {
			return serviceDB(t, "file:"+filepath.Join(t.TempDir(), "service.db")+settings)
		}
	}
	for _, c := range []struct {
		name string
		db   func(*testing.T) *sql.DB
		want []string // nothing: it is fine
	}{
		{"rollback journal", file("?_txlock=immediate&_pragma=synchronous(FULL)"), []string{"journal_mode is delete", "WAL"}},
		{"normal", file("?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"), []string{"synchronous is 1", "FULL"}},
		{"both", file("?_pragma=synchronous(OFF)"), []string{"journal_mode", "synchronous is 0"}},
		{"deferred", file("?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"), []string{"deferred", "_txlock=immediate"}},
		{"small pool", func(t *testing.T) *sql.DB {
			db := file("?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")(t)
			db.SetMaxOpenConns(1)
			return db
		}, []string{"at most 1 connections", "SetMaxOpenConns"}},
		{"memory apart", func(t *testing.T) *sql.DB { return serviceDB(t, ":memory:") }, []string{"cache=shared"}},
		{"good", file("?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"), nil},
		{"extra", file("?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(EXTRA)"), nil},
		{"memory", func(t *testing.T) *sql.DB {
			return serviceDB(t, "file:"+strings.ReplaceAll(t.Name(), "/", "-")+"?mode=memory&cache=shared&_txlock=immediate")
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open(t.Context(), c.db(t), Options{})
			if err == nil {
				t.Cleanup(func() { _ = s.Close() })
			}
			if len(c.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Persist(t.Context(), []gobridge.Record{one("a", "k")}); err != nil {
					t.Fatal(err)
				}
				if got := drain1(t, s, 10); len(got) != 1 {
					t.Fatalf("drained %v", got)
				}
				request := gobridge.AcquireRequest{Partition: "r/b/0", Owner: "o", Term: time.Second}
				if _, err := s.Leases().Acquire(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Open returned %v, want it to say %q", err, want)
				}
			}
		})
	}
}

func TestPersistTxIsPartOfTheTransaction(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	if err := s.Persist(t.Context(), []gobridge.Record{one("before", "k")}); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("the order is bad")
	err := s.InTx(t.Context(), func(tx *sql.Tx) error {
		if err := s.PersistTx(t.Context(), tx, []gobridge.Record{one("gone", "k")}); err != nil {
			t.Fatal(err)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatalf("InTx returned %v, want the error of its function", err)
	}
	err = s.InTx(t.Context(), func(tx *sql.Tx) error {
		// A call that fails leaves the transaction usable, and nothing of itself behind.
		bad := one("bad", "k")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.PersistTx(ended, tx, []gobridge.Record{bad}); !errors.Is(err, context.Canceled) {
			t.Errorf("PersistTx with an ended context returned %v", err)
		}
		if err := s.PersistTx(t.Context(), tx, []gobridge.Record{one("kept", "k")}); err != nil {
			return err
		}
		if err := s.PersistTx(t.Context(), tx, []gobridge.Record{one("kept", "k")}); !errors.Is(err, gobridge.ErrDuplicateRecord) {
			t.Errorf("a repeat returned %v, want ErrDuplicateRecord", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(drain1(t, s, 10), " "); got != "before kept" {
		t.Fatalf("drained %q, want what was committed, in order", got)
	}
	if err := s.PersistTx(t.Context(), s.db, []gobridge.Record{one("x", "")}); err == nil || !strings.Contains(err.Error(), "*sql.Tx") {
		t.Fatalf("PersistTx on a *sql.DB returned %v, want a hint", err)
	}
}

func TestDeferredTransactionThatHasReadIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open1(t, path, Options{})
	db := serviceDB(t, "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if _, err := queryOne(t.Context(), tx, "SELECT count(*) FROM gobridge_record", nil, &n); err != nil {
		t.Fatal(err)
	}
	if err := s.Persist(t.Context(), []gobridge.Record{one("between", "")}); err != nil {
		t.Fatal(err)
	}
	err = s.PersistTx(t.Context(), tx, []gobridge.Record{one("a", "")})
	if err == nil || !strings.Contains(err.Error(), "_txlock=immediate") {
		t.Fatalf("PersistTx returned %v, want a hint to begin immediate", err)
	}
}

// TestPersistTxWaitsForNobodyWhoLooksAtTheDisk has a pool without a connection left:
// who looks at the disk waits for one, and a transaction that has one must not wait for
// that in turn.
func TestPersistTxWaitsForNobodyWhoLooksAtTheDisk(t *testing.T) {
	db := serviceDB(t, "file:"+filepath.Join(t.TempDir(), "service.db")+
		"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	db.SetMaxOpenConns(minConnections)
	s, err := Open(t.Context(), db, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	last, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = last.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() { _ = s.Check(ctx) }) // it gets no connection
	defer looking.Wait()
	defer stop()
	for db.Stats().WaitCount == 0 {
		runtime.Gosched()
	}
	done := make(chan error, 1)
	go func() { done <- s.PersistTx(t.Context(), tx, []gobridge.Record{one("a", "")}) }()
	stuck := time.AfterFunc(time.Minute, func() {
		t.Error("a transaction waits for whoever waits for its connection")
		stop()
	})
	defer stuck.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestInTxGetsItsTurn(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 8 {
		go func() { // a closed loop that never leaves the lock alone
			for ctx.Err() == nil {
				_ = s.Persist(ctx, []gobridge.Record{one(string(rune('a'+i)), "")})
			}
		}()
	}
	before := s.WriterStats().Commits
	for i := range 20 {
		err := s.InTx(t.Context(), func(tx *sql.Tx) error {
			return s.PersistTx(t.Context(), tx, []gobridge.Record{one(string(rune('A'+i)), "")})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := s.WriterStats().Commits - before; n > 20*20 {
		t.Errorf("20 transactions waited for %d of the writer's, want a turn each", n)
	}
}
