package sqlite

import (
	"database/sql"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPlans sees that no statement reads more than it must: every look into the
// tables that grow goes by an index or by the row's number.
func TestPlans(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	for name, query := range map[string]string{
		"insertRecord": insertRecord, "selectHash": selectHash, "selectClaimable": selectClaimable, "updateClaimed": updateClaimed,
		"promoteHead": promoteHead, "demoteSecond": demoteSecond, "selectOlder": selectOlder, "selectStale": selectStale,
		"selectDue": selectDue, "selectReady": selectReady, "freeRecords": freeRecords, "wakeRecords": wakeRecords, "selectSettling": selectSettling,
		"selectSettled": selectSettled, "insertEnded": insertEnded, "deleteRecords": deleteRecords, "releaseRecords": releaseRecords,
		"buryRecords": buryRecords, "selectExpired": selectExpired, "selectTooFar": selectTooFar, "selectAged": selectAged,
		"setRetry": setRetry, "purgeEnded": purgeEnded, "selectDeadByAge": selectDeadByAge, "selectByIdentity": selectByIdentity,
		"selectOfEnvelope": selectOfEnvelope, "selectOfKey": selectOfKey, "countNewerGone": countNewerGone, "redriveRecord": redriveRecord,
		"selectStill": selectStill, "selectRetrying": selectRetrying, "selectOneStats": selectOneStats,
		"selectPending": selectPending, "selectRecord": selectRecord, "selectEnded": selectEnded, "selectHead": selectHead,
		"selectOldest": selectOldest, "unreadyKey": unreadyKey, "unreadyRecord": unreadyRecord, "readyRecord": readyRecord,
	} {
		var plan []string
		err := queryAll(t.Context(), s.db, "EXPLAIN QUERY PLAN "+query, make([]any, parameters(query)), func(rows *sql.Rows) error {
			var a, b, c int
			var text string
			err := rows.Scan(&a, &b, &c, &text)
			plan = append(plan, text)
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, line := range plan {
			if strings.Contains(line, "SCAN gobridge_") || strings.HasPrefix(line, "SCAN r") {
				t.Errorf("%s reads a whole table:\n\t%s", name, strings.Join(plan, "\n\t"))
			}
		}
	}
}

// parameters returns how many parameters a query has.
func parameters(query string) (most int) {
	for _, found := range regexp.MustCompile(`\?([0-9]+)`).FindAllStringSubmatch(query, -1) {
		n, _ := strconv.Atoi(found[1])
		most = max(most, n)
	}
	return most
}
