package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/leasetest"
	"gobridge/store/sqlite"
	"gobridge/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file is a database file under test.
type file struct {
	path    string
	options storetest.Options
}

func (f file) Store(tb testing.TB, now func() time.Time) gobridge.Store {
	o := options(f.options)
	if now != nil {
		o.Now = now
	}
	return openStore(tb, f.path, o)
}

// Snapshot copies the database as a backup does.
func (f file) Snapshot(tb testing.TB) func(testing.TB) storetest.Database {
	s := openStore(tb, f.path, options(f.options))
	copied := filepath.Join(tb.TempDir(), "backup.db")
	if err := s.Backup(context.Background(), copied); err != nil {
		tb.Fatal(err)
	}
	return func(tb testing.TB) storetest.Database {
		restored := file{filepath.Join(tb.TempDir(), "restored.db"), f.options}
		data, err := os.ReadFile(copied)
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(restored.path, data, 0o600); err != nil {
			tb.Fatal(err)
		}
		checkAtEnd(tb, restored.path)
		return restored
	}
}

func options(o storetest.Options) sqlite.Options {
	return sqlite.Options{
		Now:           o.Now,
		Retention:     o.Retention,
		DeadRetention: o.DeadRetention,
		MaxDead:       o.MaxDead,
		MaxDeadBytes:  o.MaxDeadBytes,
		StaleWindow:   o.StaleWindow,
		MaxSkew:       o.MaxSkew,
	}
}

// openStore opens a handle on a file, closed with the test.
func openStore(tb testing.TB, path string, o sqlite.Options) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.OpenFile(context.Background(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

// checkAtEnd checks the consistency of a database once its handles are closed.
func checkAtEnd(tb testing.TB, path string) {
	tb.Cleanup(func() {
		for _, problem := range sqlite.CheckConsistency(context.Background(), path) {
			tb.Error(problem)
		}
	})
}

// newPath returns the path of a new database that is checked after the test.
func newPath(tb testing.TB) string {
	path := filepath.Join(tb.TempDir(), "outbox.db")
	checkAtEnd(tb, path)
	return path
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Backend{Open: func(tb testing.TB, o storetest.Options) storetest.Database {
		return file{newPath(tb), o}
	}})
}

// leaseFile is a file of leases under test.
type leaseFile struct {
	path   string
	stores *[]*sqlite.Store
}

func (f leaseFile) Leases(tb testing.TB, now func() time.Time) gobridge.LeaseStore {
	s := openStore(tb, f.path, sqlite.Options{Now: now})
	*f.stores = append(*f.stores, s)
	return s.Leases()
}

// Reopen closes every handle.
func (f leaseFile) Reopen(tb testing.TB) leasetest.Database {
	for _, s := range *f.stores {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	}
	return leaseFile{f.path, new([]*sqlite.Store)}
}

func TestLeases(t *testing.T) {
	leasetest.Run(t, leasetest.Backend{Open: func(tb testing.TB) leasetest.Database {
		return leaseFile{newPath(tb), new([]*sqlite.Store)}
	}})
}
