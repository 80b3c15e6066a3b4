package sqlite

import (
	"fmt"

	"gobridge"
	"gobridge/messaging"
)

// openPart is a partition that a transaction gives new ages in.
type openPart struct {
	name    gobridge.Partition
	options *Options

	id, seq, newest int64 // seq and newest grow with what is stored
	halts           bool
	dead, deadBytes int64 // before the transaction

	added      bool
	newPending int64
	newDead    int64
	newBytes   int64
}

func openPartAt(t *txn, name gobridge.Partition, options *Options) (*openPart, error) {
	p := &openPart{name: name, options: options}
	route, binding, _, _ := name.Split()
	_, err := queryOne(t.ctx, t, openPartition, []any{blob(name), blob(route), blob(binding)},
		&p.id, &p.seq, &p.newest, &p.dead, &p.deadBytes, &p.halts)
	return p, err
}

// insert stores a row, and reports false if its identity is held already.
func (p *openPart) insert(t *txn, row *persistRow, now int64) (bool, error) {
	e := row.envelope
	ready := row.status == pending && row.dueAt == 0
	if ready && p.halts {
		stopped, err := halted(t, p.name, e.OrderingKey, e.ID)
		if err != nil {
			return false, err
		}
		ready = !stopped
	}
	var endedAt int64
	if row.status == dead {
		endedAt = now
	}
	createdAt := row.createdAt
	if createdAt == 0 {
		createdAt = max(p.newest, now)
	}
	payload := e.Payload
	switch {
	case len(payload) > maxInline:
		payload = nil
	case payload == nil:
		payload = []byte{}
	}
	result, err := t.ExecContext(t.ctx, insertRecord, p.id, blob(e.ID), blob(row.ref.Binding), blob(e.OrderingKey),
		row.status, ready, row.dueAt, createdAt, p.seq+1, row.size, row.notBefore, row.expiresAt, now, endedAt,
		blob(row.reason), blob(row.error), row.hash[:], nanos(e.CreatedAt), blob(e.Subject), blob(e.ContentType),
		row.headers, payload, row.redrives)
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return false, err
	}
	p.seq++
	p.newest = max(p.newest, createdAt)
	p.added = true
	if payload == nil {
		id, err := result.LastInsertId()
		if err != nil {
			return false, err
		}
		if _, err := t.ExecContext(t.ctx, insertPayload, id, e.Payload); err != nil {
			return false, err
		}
	}
	if row.status == dead {
		p.newDead++
		p.newBytes += row.size
		return true, nil
	}
	p.newPending++
	if row.createdAt != 0 && e.OrderingKey != "" {
		return true, p.passHead(t, e.OrderingKey)
	}
	return true, nil
}

// demoteSecond takes the ready flag from the second record of a key, which was
// its head before an older one came.
const demoteSecond = `UPDATE gobridge_record SET ready = 0 WHERE ready = 1 AND id = (SELECT id FROM gobridge_record
	WHERE partition = ?1 AND ordering_key = ?2 AND ordering_key <> x'' AND status IN (0, 1)
	ORDER BY created_at, seq LIMIT 1 OFFSET 1)`

// passHead passes the flag of a key's head to a record that came in older.
func (p *openPart) passHead(t *txn, key string) error {
	if _, err := t.ExecContext(t.ctx, demoteSecond, p.id, blob(key)); err != nil {
		return err
	}
	_, err := promote(t, p.id, p.name, p.halts, key)
	return err
}

// close writes the partition's counters.
func (p *openPart) close(t *txn) error {
	if !p.added {
		return nil
	}
	_, err := t.ExecContext(t.ctx, closePartition, p.id, p.seq, p.newest, p.newPending, p.newDead, p.newBytes)
	return err
}

// heldHash returns the content hash under which an identity is held.
func (p *openPart) heldHash(t *txn, row *persistRow) (hash messaging.Hash, held bool, err error) {
	var stored []byte
	held, err = queryOne(t.ctx, t, selectHash, []any{p.id, blob(row.ref.EnvelopeID), blob(row.ref.Binding)}, &stored)
	copy(hash[:], stored)
	return hash, held, err
}

// reused returns [gobridge.ErrIdentityReused] if a row that was not stored has
// other content than the one that holds its identity.
func (p *openPart) reused(t *txn, row *persistRow) (refused, err error) {
	hash, held, err := p.heldHash(t, row)
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, fmt.Errorf("record %s was not stored, and none is", row.ref)
	}
	if hash != row.hash {
		return failRecord("persist", row.ref, gobridge.ErrIdentityReused), nil
	}
	return nil, nil
}

// refusal says why an envelope can't be stored: an identity that is held with
// other content, or dead letters without room. A single pending record is not
// looked up beforehand, for its insert tells.
func refusal(t *txn, open map[gobridge.Partition]*openPart, call *persistCall, rows []int) (refused, err error) {
	if len(rows) == 1 && call.rows[rows[0]].status == pending {
		return nil, nil
	}
	seen := make(map[gobridge.Ref]messaging.Hash, len(rows))
	for _, i := range rows {
		row := &call.rows[i]
		hash, held := seen[row.ref]
		if !held {
			if hash, held, err = open[row.ref.Partition].heldHash(t, row); err != nil {
				return nil, err
			}
		}
		if held && hash != row.hash {
			return failRecord("persist", row.ref, gobridge.ErrIdentityReused), nil
		}
		row.held = held
		seen[row.ref] = row.hash
	}
	return roomForDead(open, call, rows), nil
}

// roomForDead refuses an envelope whose dead letters go over a bound.
func roomForDead(open map[gobridge.Partition]*openPart, call *persistCall, rows []int) error {
	type room struct{ count, bytes int64 }
	taken := map[*openPart]room{}
	for _, i := range rows {
		row := &call.rows[i]
		if row.status != dead || row.held {
			continue
		}
		p := open[row.ref.Partition]
		r := taken[p]
		r.count++
		r.bytes += row.size
		if p.dead+p.newDead+r.count > p.options.MaxDead || p.deadBytes+p.newBytes+r.bytes > p.options.MaxDeadBytes {
			return failRecord("persist", row.ref, gobridge.ErrDeadLettersFull)
		}
		taken[p] = r
	}
	return nil
}
