package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// Nothing is acknowledged that goes into a file which no process will find again.
func TestADatabaseThatIsTakenAwayTakesNoMore(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"deleted":  os.Remove,
		"moved":    func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error { return os.Rename(path+".other", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "outbox.db")
			if err := os.WriteFile(path+".other", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := sqlite.OpenFile(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			record := func(id string) []gobridge.Record {
				return []gobridge.Record{{Partition: "r/b/0", Binding: "b", Envelope: messaging.Envelope{ID: id}}}
			}
			if err := s.Persist(t.Context(), record("before")); err != nil {
				t.Fatal(err)
			}
			if err := take(path); err != nil {
				t.Fatal(err)
			}
			err = s.Persist(t.Context(), record("after"))
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restart") {
				t.Errorf("Persist: %v", err)
			}
			err = s.InTx(t.Context(), func(tx *sql.Tx) error { return s.PersistTx(context.Background(), tx, record("in a transaction")) })
			if err == nil {
				t.Error("PersistTx: no error")
			}
			if err := s.Check(t.Context()); err == nil {
				t.Error("Check: no error")
			}
			// What was taken in before goes out.
			got, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: "r/b/0", Token: gobridge.Token{Owner: "o", Version: 1}, Limit: 9})
			if err != nil || len(got) != 1 {
				t.Errorf("claimed %d: %v", len(got), err)
			}
		})
	}
}

// Processes whose file of leases is deleted agree on a new one.
func TestLeasesThatAreTakenAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	open := func() gobridge.LeaseStore {
		s, err := sqlite.OpenFile(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s.Leases()
	}
	first := open()
	request := gobridge.AcquireRequest{Partition: "r/b/0", Owner: "first", Term: time.Second}
	lease, err := first.Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + "-leases" + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	second := open()
	request.Owner, request.MinVersion = "second", lease.Token.Version
	if _, err := second.Acquire(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if renewed, err := first.Renew(t.Context(), []gobridge.Lease{lease}); err != nil || len(renewed) != 0 {
		t.Errorf("renewed %v, %v: the lease is another's", renewed, err)
	}
	leases, err := first.Leases(t.Context())
	if err != nil || len(leases) != 1 || leases[0].Token.Owner != "second" {
		t.Errorf("the first sees %v, %v", leases, err)
	}
}
