package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"gobridge"
)

const (
	selectStats = `SELECT p.name, p.pending, p.claimed, p.dead, p.dead_bytes, p.fence_owner, p.fence_version, p.seq, p.stamp,
			p.retries, coalesce(c.down, 0), coalesce(c.since, 0), coalesce(c.error, x''), coalesce(c.next_probe, 0),
			coalesce(c.owner, x''), coalesce(c.version, 0), coalesce(c.reported_at, 0),
			CASE WHEN p.pending > 0 THEN coalesce((SELECT o.stored_at FROM (
				SELECT * FROM (SELECT created_at, seq, stored_at FROM gobridge_record
					WHERE partition = p.id AND ready = 0 AND status = 0 ORDER BY created_at, seq LIMIT 1)
				UNION ALL
				SELECT * FROM (SELECT created_at, seq, stored_at FROM gobridge_record
					WHERE partition = p.id AND ready = 1 AND status = 0 ORDER BY created_at, seq LIMIT 1)
			) AS o ORDER BY o.created_at, o.seq LIMIT 1), 0) ELSE 0 END
		FROM gobridge_partition AS p LEFT JOIN gobridge_condition AS c ON c.partition = p.id `
	selectAllStats = selectStats + `ORDER BY p.name`
	selectOneStats = selectStats + `WHERE p.name = ?1`

	selectPendingCount = `SELECT pending FROM gobridge_partition WHERE name = ?1`

	selectPending = `SELECT ` + recordColumns + ` FROM gobridge_record AS r
		WHERE r.partition = (SELECT id FROM gobridge_partition WHERE name = ?1) AND r.ready = ?2 AND r.status = 0
		ORDER BY r.created_at, r.seq LIMIT ?3`

	selectRecord = `SELECT ` + recordColumns + ` FROM gobridge_record AS r
		WHERE r.partition = (SELECT id FROM gobridge_partition WHERE name = ?1) AND r.envelope_id = ?2 AND r.binding = ?3`

	selectEnded = `SELECT state, created_at, seq, stored_at, ended_at, claim_version, claimed_at, replay_count, attempts,
			redrives, not_before, expires_at, ordering_key, claim_owner, reason, error, content_hash
		FROM gobridge_ended
		WHERE partition = (SELECT id FROM gobridge_partition WHERE name = ?1) AND envelope_id = ?2 AND binding = ?3`
)

// Stats implements [gobridge.Inspector].
func (s *Store) Stats(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error) {
	var out []gobridge.Stats
	scan := func(rows *sql.Rows) error {
		var one gobridge.Stats
		var stamp, oldest, since, probe, reported int64
		c := &one.Condition
		err := rows.Scan(&one.Partition, &one.Pending, &one.Claimed, &one.Dead, &one.DeadBytes,
			&one.Fence.Owner, &one.Fence.Version, &one.LastSeq, &stamp,
			&one.Retries, &c.Down, &since, &c.Error, &probe, &c.Token.Owner, &c.Token.Version, &reported, &oldest)
		one.NewestStamp, one.OldestPending = moment(stamp), moment(oldest)
		c.Since, c.NextProbe, c.At = moment(since), moment(probe), moment(reported)
		out = append(out, one)
		return err
	}
	if len(partitions) == 0 {
		if err := queryAll(ctx, s.read, selectAllStats, nil, scan); err != nil {
			return nil, fail("stats", "", err)
		}
		return out, nil
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(partitions))) {
		n := len(out)
		if err := queryAll(ctx, s.read, selectOneStats, []any{blob(name)}, scan); err != nil {
			return nil, fail("stats", name, err)
		}
		if len(out) == n {
			out = append(out, gobridge.Stats{Partition: name})
		}
	}
	return out, nil
}

// CountPending implements [gobridge.Outbox]. It reads a counter.
func (s *Store) CountPending(ctx context.Context, partition gobridge.Partition, limit int) (int, error) {
	var n int
	if _, err := queryOne(ctx, s.read, selectPendingCount, []any{blob(partition)}, &n); err != nil {
		return 0, fail("count pending", partition, err)
	}
	return min(n, max(limit, 0)), nil
}

// QueryPending implements [gobridge.Outbox]. It returns the oldest of those
// that are ready and of those that are not.
func (s *Store) QueryPending(ctx context.Context, partition gobridge.Partition, limit int) ([]gobridge.Record, error) {
	var out []gobridge.Record
	for _, ready := range [...]bool{true, false} {
		if limit <= len(out) {
			break
		}
		args := []any{blob(partition), ready, limit - len(out)}
		err := queryAll(ctx, s.read, selectPending, args, func(rows *sql.Rows) error {
			r, err := scanRow(rows, partition)
			out = append(out, r.Record)
			return err
		})
		if err != nil {
			return nil, fail("query pending", partition, err)
		}
	}
	slices.SortFunc(out, func(a, b gobridge.Record) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Seq, b.Seq))
	})
	return out, nil
}

// Get implements [gobridge.Inspector].
func (s *Store) Get(ctx context.Context, ref gobridge.Ref) (gobridge.Record, error) {
	r, err := find(ctx, s.read, ref)
	switch {
	case err != nil:
		return gobridge.Record{}, failRecord("get", ref, err)
	case r == nil:
		return gobridge.Record{}, failRecord("get", ref, gobridge.ErrNotFound)
	}
	return *r, nil
}

// find returns a record in whatever state, nil if there is none.
func find(ctx context.Context, q Execer, ref gobridge.Ref) (out *gobridge.Record, err error) {
	args := []any{blob(ref.Partition), blob(ref.EnvelopeID), blob(ref.Binding)}
	err = queryAll(ctx, q, selectRecord, args, func(rows *sql.Rows) error {
		r, err := scanRow(rows, ref.Partition)
		out = &r.Record
		return err
	})
	if err != nil || out != nil {
		return out, err
	}
	err = queryAll(ctx, q, selectEnded, args, func(rows *sql.Rows) error {
		out, err = scanEnded(rows, ref)
		return err
	})
	return out, err
}

func scanEnded(rows *sql.Rows, ref gobridge.Ref) (*gobridge.Record, error) {
	var created, stored, ended, claimed, notBefore, expires int64
	var hash sql.RawBytes
	r := &gobridge.Record{Partition: ref.Partition, Binding: ref.Binding}
	r.Envelope.ID = ref.EnvelopeID
	err := rows.Scan(&r.State, &created, &r.Seq, &stored, &ended, &r.ClaimedBy.Version, &claimed, &r.ReplayCount, &r.Attempts,
		&r.Redrives, &notBefore, &expires, &r.Envelope.OrderingKey, &r.ClaimedBy.Owner, &r.Reason, &r.Error, &hash)
	r.CreatedAt, r.StoredAt, r.EndedAt, r.ClaimedAt = moment(created), moment(stored), moment(ended), moment(claimed)
	r.Envelope.NotBefore, r.Envelope.ExpiresAt = moment(notBefore), moment(expires)
	copy(r.ContentHash[:], hash)
	return r, err
}
