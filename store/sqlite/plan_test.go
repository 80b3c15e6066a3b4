package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlans sees that no statement of the hot paths reads more than it must:
// every look into the table of records goes by an index or the row's number.
func TestPlans(t *testing.T) {
	ctx := context.Background()
	s, err := OpenFile(ctx, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, query := range []string{insertRecord, selectClaimable, updateClaimed, promoteHead, demoteSecond, selectOlder, selectStale,
		selectDue, selectSettling, selectSettled, insertEnded, deleteRecords, selectExpired, selectTooFar, selectAged, purgeEnded,
		selectDeadByAge, selectByIdentity, selectOfEnvelope, selectOneStats, selectPending, selectHead, selectOldest, unreadyKey,
		unreadyRecord, readyRecord, selectRetrying, countNewerGone, freeRecords, wakeRecords, releaseRecords, setRetry} {
		args := make([]any, 25)
		for i := range args {
			args[i] = 1
		}
		var plan []string
		err := queryAll(ctx, s.db, "EXPLAIN QUERY PLAN "+query, args[:parameters(query)], func(rows *sql.Rows) error {
			var a, b, c int
			var text string
			err := rows.Scan(&a, &b, &c, &text)
			plan = append(plan, text)
			return err
		})
		if err != nil {
			t.Errorf("%v\n%s", err, query)
		}
		t.Logf("%s\n\t%s", query, strings.Join(plan, "\n\t"))
	}
}

func parameters(query string) int {
	n := 0
	for i := 1; i < 25; i++ {
		if strings.Contains(query, "?"+string(rune('0'+i%10))) && i < 10 || i >= 10 && strings.Contains(query, "?"+"12"[i/10-1:i/10]+string(rune('0'+i%10))) {
			n = i
		}
	}
	return n
}
