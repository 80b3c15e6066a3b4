package sqlite

import (
	"database/sql"

	"gobridge"
)

const (
	selectOlder = `SELECT id, seq, ordering_key, envelope_id, binding FROM gobridge_record
		WHERE partition = ?1 AND status = 1 AND freed = 0 AND claim_version < ?2
		ORDER BY claim_version, claimed_at, created_at, seq LIMIT ?3`
	// selectClaimed reads nothing but an index.
	selectClaimed = `SELECT coalesce(group_concat(seq), '') FROM gobridge_record
		WHERE partition = ?1 AND status = 1 AND freed = 0 AND claim_version = ?2`
	selectStale = `SELECT id, seq, ordering_key, envelope_id, binding FROM gobridge_record
		WHERE partition = ?1 AND status = 1 AND freed = 0 AND claim_version = ?2 AND claimed_at <= ?3
		ORDER BY claimed_at, created_at, seq LIMIT ?4`

	freeRecords = `UPDATE gobridge_record SET freed = 1, ready = (ordering_key = x'')
		WHERE id IN (SELECT value FROM json_each(?1))`
	// unreadyHalted keeps records without a key out that are halted themselves.
	unreadyHalted = `UPDATE gobridge_record SET ready = 0 WHERE id IN (SELECT value FROM json_each(?1)) AND ready = 1
		AND EXISTS (SELECT 1 FROM gobridge_control AS c WHERE c.route = ?2 AND c.binding = ?3 AND c.kind = 'halt'
			AND c.ordering_key = x'' AND c.envelope_id = gobridge_record.envelope_id)`
)

// free opens up to limit claims that nobody holds to this claim and the next
// ones, oldest claims first: those under older versions and those stranded
// under this one. It returns how many.
func (c *claim) free(t *txn, limit int) (int, error) {
	if c.part.claimed == 0 {
		return 0, nil
	}
	version, cutoff := c.request.Token.Version, c.cutoff
	if c.held != nil {
		cutoff = latest
	}
	var ids []int64
	keys := map[string]struct{}{}
	collect := func(rows *sql.Rows) error {
		var id, seq int64
		var key, envelopeID, binding sql.RawBytes
		if err := rows.Scan(&id, &seq, &key, &envelopeID, &binding); err != nil {
			return err
		}
		if c.held != nil {
			ref := gobridge.Ref{Partition: c.request.Partition, EnvelopeID: string(envelopeID), Binding: string(binding)}
			if _, held := c.held[ref]; held {
				c.names.add(seq, ref)
				return nil
			}
		}
		if len(ids) < limit {
			ids = append(ids, id)
			keys[string(key)] = struct{}{}
		}
		return nil
	}
	enough := limit + len(c.held)
	if err := queryAll(t.ctx, t, selectOlder, []any{c.part.id, version, enough}, collect); err != nil {
		return 0, err
	}
	if len(ids) < limit {
		held, err := c.allHeld(t)
		if err != nil {
			return 0, err
		}
		if !held {
			err = queryAll(t.ctx, t, selectStale, []any{c.part.id, version, cutoff, enough}, collect)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(ids), c.makeReady(t, freeRecords, ids, keys)
}

// allHeld reports whether it is certain that everything that is claimed under
// this version is held, so that nobody needs to look at it: the case of every
// claim but the first ones.
func (c *claim) allHeld(t *txn) (bool, error) {
	if len(c.held) == 0 {
		return false, nil
	}
	all := true
	err := queryAll(t.ctx, t, selectClaimed, []any{c.part.id, c.request.Token.Version}, func(rows *sql.Rows) error {
		var list sql.RawBytes
		if err := rows.Scan(&list); err != nil {
			return err
		}
		all = c.names.allIn(list, c.held)
		return nil
	})
	return all, err
}

const (
	selectDue = `SELECT id, ordering_key FROM gobridge_record WHERE partition = ?1 AND due_at > 0 AND due_at <= ?2
		ORDER BY due_at, created_at, seq LIMIT ?3`
	wakeRecords = `UPDATE gobridge_record SET due_at = 0, ready = (ordering_key = x'')
		WHERE id IN (SELECT value FROM json_each(?1))`
)

// wake finds up to limit records whose time has come, the earliest times first,
// and returns how many.
func (c *claim) wake(t *txn, limit int) (int, error) {
	var ids []int64
	keys := map[string]struct{}{}
	err := queryAll(t.ctx, t, selectDue, []any{c.part.id, c.now, limit}, func(rows *sql.Rows) error {
		var id int64
		var key sql.RawBytes
		if err := rows.Scan(&id, &key); err != nil {
			return err
		}
		ids = append(ids, id)
		keys[string(key)] = struct{}{}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(ids), c.makeReady(t, wakeRecords, ids, keys)
}

// makeReady runs a statement that makes records ready as far as they have no
// key, and sees to halts and to the heads of keys.
func (c *claim) makeReady(t *txn, statement string, ids []int64, keys map[string]struct{}) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := t.ExecContext(t.ctx, statement, list(ids)); err != nil {
		return err
	}
	return c.part.settleHeads(t, ids, keys)
}

// settleHeads takes the flag from halted ones of the records that were just
// made ready, and promotes the heads of keys.
func (p *part) settleHeads(t *txn, ids []int64, keys map[string]struct{}) error {
	if p.halts {
		route, binding, _, _ := p.name.Split()
		if _, err := t.ExecContext(t.ctx, unreadyHalted, list(ids), blob(route), blob(binding)); err != nil {
			return err
		}
	}
	_, err := promoteAll(t, p, keys)
	return err
}
