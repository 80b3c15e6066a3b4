package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"gobridge"
)

// A process that knows version 1.0 of the leases' schema takes a lease over: what
// people read of the holder before must not be taken for its own.
func TestALeaseTakenByAnOlderProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	leases := open1(t, path, Options{}).Leases()
	lease, err := leases.Acquire(t.Context(), gobridge.AcquireRequest{Partition: "r/b/0", Owner: "new", Term: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	lease.LastError, lease.LastErrorAt = "claim failed", lease.RenewedAt
	if _, err := leases.Renew(t.Context(), []gobridge.Lease{lease}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path+"-leases")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(t.Context(), `UPDATE gobridge_lease SET owner = CAST('old' AS BLOB), version = version + 1, revision = revision + 1`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := leases.Leases(t.Context())
	if err != nil || len(all) != 1 || all[0].Token.Owner != "old" {
		t.Fatalf("%+v, %v", all, err)
	}
	if l := all[0]; !l.AcquiredAt.IsZero() || l.LastError != "" || !l.LastErrorAt.IsZero() || l.RenewedAt.IsZero() {
		t.Errorf("the older process's lease is %+v, with what is known of the holder before", l)
	}
	renewed, err := leases.Renew(t.Context(), all)
	if err != nil || len(renewed) != 1 || !renewed[0].AcquiredAt.IsZero() {
		t.Errorf("renewed it is %+v, %v", renewed, err)
	}
}
