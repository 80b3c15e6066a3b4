package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// CheckConsistency says what is wrong in a database: what SQLite itself finds,
// and flags and counters that are not what the records make them.
func CheckConsistency(ctx context.Context, path string) (problems []string) {
	db, err := openOwn(path, "", ownRights)
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = db.Close() }() // only read from
	for _, check := range consistencyChecks {
		err := queryAll(ctx, db, check.query, nil, func(rows *sql.Rows) error {
			var text string
			err := rows.Scan(&text)
			if text != "ok" {
				problems = append(problems, fmt.Sprintf("%s: %s", check.name, text))
			}
			return err
		})
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", check.name, err))
		}
	}
	return problems
}

// haltedRecord is the condition that a record is halted, or its key.
const haltedRecord = `EXISTS (SELECT 1 FROM gobridge_control AS c JOIN gobridge_partition AS p ON p.id = r.partition
	WHERE c.kind = 'halt' AND c.route = p.route AND c.binding = p.binding AND c.ordering_key = r.ordering_key
		AND (r.ordering_key <> x'' OR c.envelope_id = r.envelope_id))`

var consistencyChecks = []struct{ name, query string }{
	{"integrity", `PRAGMA integrity_check`},
	{"ready flag", `SELECT 'record ' || r.id || ' has ready ' || r.ready FROM gobridge_record AS r
		WHERE r.ready <> ((r.status = 0 AND r.due_at = 0 OR r.status = 1 AND r.freed = 1)
			AND (r.ordering_key = x'' OR r.id = (SELECT h.id FROM gobridge_record AS h
				WHERE h.partition = r.partition AND h.ordering_key = r.ordering_key AND h.ordering_key <> x'' AND h.status IN (0, 1)
				ORDER BY h.created_at, h.seq LIMIT 1))
			AND NOT ` + haltedRecord + `)`},
	{"due time", `SELECT 'record ' || id || ' has due_at ' || due_at FROM gobridge_record
		WHERE due_at <> 0 AND (status <> 0 OR due_at <> max(not_before, retry_at))`},
	{"freed flag", `SELECT 'record ' || id || ' is freed, status ' || status FROM gobridge_record WHERE freed = 1 AND status <> 1`},
	{"counters", `SELECT 'partition ' || p.id || ' counts ' || pending || ' ' || claimed || ' ' || dead || ' ' || dead_bytes
		FROM gobridge_partition AS p
		WHERE pending <> (SELECT count(*) FROM gobridge_record WHERE partition = p.id AND status = 0)
			OR claimed <> (SELECT count(*) FROM gobridge_record WHERE partition = p.id AND status = 1)
			OR dead <> (SELECT count(*) FROM gobridge_record WHERE partition = p.id AND status = 5)
			OR dead_bytes <> (SELECT coalesce(sum(size), 0) FROM gobridge_record WHERE partition = p.id AND status = 5)`},
	{"seq and stamp", `SELECT 'partition ' || p.id || ' is at ' || seq || ', ' || stamp FROM gobridge_partition AS p
		WHERE seq < (SELECT max(seq) FROM gobridge_record WHERE partition = p.id)
			OR stamp < (SELECT max(created_at) FROM gobridge_record WHERE partition = p.id)`},
	{"payloads", `SELECT 'record ' || r.id || ' has no payload' FROM gobridge_record AS r
		WHERE r.payload IS NULL AND NOT EXISTS (SELECT 1 FROM gobridge_payload AS b WHERE b.id = r.id)`},
	{"orphans", `SELECT 'payload ' || b.id || ' has no record' FROM gobridge_payload AS b
		WHERE NOT EXISTS (SELECT 1 FROM gobridge_record AS r WHERE r.id = b.id AND r.payload IS NULL)`},
	{"identities", `SELECT 'record ' || r.id || ' has ended as well' FROM gobridge_record AS r JOIN gobridge_ended AS e
		ON e.partition = r.partition AND e.envelope_id = r.envelope_id AND e.binding = r.binding`},
}
