package sqlite

import (
	"gobridge"
)

// promoteHead sets the ready flag of a key's head, if it could be claimed.
const promoteHead = `UPDATE gobridge_record SET ready = 1 WHERE ready = 0 AND (status = 0 AND due_at = 0 OR freed = 1)
	AND id = (SELECT id FROM gobridge_record
		WHERE partition = ?1 AND ordering_key = ?2 AND ordering_key <> x'' AND status IN (0, 1)
		ORDER BY created_at, seq LIMIT 1)`

// promote sets the ready flag of a key's head, if it could be claimed, and reports
// whether it did. Whatever ends, releases or frees a record of the key, or lifts its
// halt, calls it.
func promote(t *txn, partition int64, name gobridge.Partition, halts bool, key string) (bool, error) {
	if key == "" {
		return false, nil
	}
	if halts {
		if stopped, err := halted(t, name, key, ""); err != nil || stopped {
			return false, err
		}
	}
	n, err := changed(t.ctx, t, promoteHead, partition, blob(key))
	return n > 0, err
}

// promoteAll promotes the heads of keys, and reports whether there was any to
// promote.
func promoteAll(t *txn, p *part, keys map[string]struct{}) (any bool, err error) {
	for key := range keys {
		one, err := promote(t, p.id, p.name, p.halts, key)
		if err != nil {
			return any, err
		}
		any = any || one
	}
	return any, nil
}

const selectHalt = `SELECT 1 FROM gobridge_control
	WHERE route = ?1 AND binding = ?2 AND kind = 'halt' AND ordering_key = ?3 AND envelope_id = ?4`

// halted reports whether a key is halted, or without a key the record.
func halted(t *txn, name gobridge.Partition, key, envelopeID string) (bool, error) {
	route, binding, _, ok := name.Split()
	if !ok {
		return false, nil
	}
	if key != "" {
		envelopeID = ""
	}
	var one int
	return queryOne(t.ctx, t, selectHalt, []any{blob(route), blob(binding), blob(key), blob(envelopeID)}, &one)
}

// part is a partition as a transaction found it.
type part struct {
	id              int64
	name            gobridge.Partition
	fence           gobridge.Token
	pending         int64
	claimed         int64
	dead, deadBytes int64
	paused, halts   bool

	// What a settling call has done so far.
	released, buried, buriedBytes int64
}

const selectPartition = `SELECT p.id, p.fence_owner, p.fence_version, p.pending, p.claimed, p.dead, p.dead_bytes,
		EXISTS (SELECT 1 FROM gobridge_control AS c WHERE c.route = p.route AND c.binding IN (x'', p.binding) AND c.kind = 'pause'),
		EXISTS (SELECT 1 FROM gobridge_control AS c WHERE c.route = p.route AND c.binding = p.binding AND c.kind = 'halt')
	FROM gobridge_partition AS p WHERE p.name = ?1`

// findPart returns a partition, nil if it was never seen.
func findPart(t *txn, name gobridge.Partition) (*part, error) {
	p := &part{name: name}
	found, err := queryOne(t.ctx, t, selectPartition, []any{blob(name)}, &p.id, &p.fence.Owner, &p.fence.Version,
		&p.pending, &p.claimed, &p.dead, &p.deadBytes, &p.paused, &p.halts)
	if err != nil || !found {
		return nil, err
	}
	return p, nil
}

const (
	insertFence = `INSERT INTO gobridge_partition (name, route, binding, fence_owner, fence_version) VALUES (?1, ?2, ?3, ?4, ?5)`
	raiseFence  = `UPDATE gobridge_partition SET fence_owner = ?2, fence_version = ?3 WHERE id = ?1`
)

// fence lets a token into its partition, and with it no older one any more. The
// second result is the error of a token that is too old.
func fence(t *txn, op string, name gobridge.Partition, token gobridge.Token) (p *part, stale, err error) {
	p, err = findPart(t, name)
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil:
		route, binding, _, _ := name.Split()
		if _, err := t.ExecContext(t.ctx, insertFence, blob(name), blob(route), blob(binding), blob(token.Owner), token.Version); err != nil {
			return nil, nil, err
		}
		p, err = findPart(t, name)
		return p, nil, err
	case token.Version < p.fence.Version:
		return nil, &gobridge.Error{Op: op, Partition: name, Err: gobridge.ErrStaleFencingToken,
			Hint: "the partition now belongs to " + p.fence.String()}, nil
	case token.Version > p.fence.Version:
		p.fence = token
		_, err = t.ExecContext(t.ctx, raiseFence, p.id, blob(token.Owner), token.Version)
	}
	return p, nil, err
}

// add changes the partition's counters.
func (p *part) add(t *txn, pending, claimed, dead, deadBytes int64) error {
	if pending == 0 && claimed == 0 && dead == 0 && deadBytes == 0 {
		return nil
	}
	p.pending += pending
	p.claimed += claimed
	p.dead += dead
	p.deadBytes += deadBytes
	_, err := t.ExecContext(t.ctx, addCounters, p.id, pending, claimed, dead, deadBytes)
	return err
}
