package sqlite

import (
	"context"
	"errors"

	"gobridge"
	"gobridge/messaging"
)

// limits keep a record well below what SQLite takes, and a call within what
// one transaction should hold.
var limits = gobridge.Limits{
	MaxPartition:   1024,
	MaxID:          1024,
	MaxBinding:     1024,
	MaxKey:         1024,
	MaxSubject:     4096,
	MaxContentType: 1024,
	MaxHeaders:     1000,
	MaxHeaderBytes: 1 << 20,
	MaxPayload:     16 << 20,
	MaxEnvelope:    18 << 20,
	MaxBindings:    1000,
	MaxCallBytes:   256 << 20,
}

// maxInline is the largest payload that is kept in the record's row.
const maxInline = 1024

// The states as the table of records has them.
const (
	pending = int64(gobridge.StatePending)
	claimed = int64(gobridge.StateClaimed)
	dead    = int64(gobridge.StateDead)
)

const (
	// openPartition is the first statement of every persist: it takes the write
	// lock, also in a user's transaction, before anything is read.
	openPartition = `INSERT INTO gobridge_partition AS p (name, route, binding) VALUES (?1, ?2, ?3)
		ON CONFLICT (name) DO UPDATE SET seq = p.seq
		RETURNING id, seq, stamp, dead, dead_bytes, EXISTS (SELECT 1 FROM gobridge_control AS c
			WHERE c.route = gobridge_partition.route AND c.binding = gobridge_partition.binding AND c.kind = 'halt')`
	closePartition = `UPDATE gobridge_partition SET seq = ?2, stamp = ?3, pending = pending + ?4,
		dead = dead + ?5, dead_bytes = dead_bytes + ?6 WHERE id = ?1`

	addCounters = `UPDATE gobridge_partition SET pending = pending + ?2, claimed = claimed + ?3,
		dead = dead + ?4, dead_bytes = dead_bytes + ?5 WHERE id = ?1`

	insertRecord = `INSERT INTO gobridge_record (partition, envelope_id, binding, ordering_key, status, ready, due_at,
			created_at, seq, size, not_before, expires_at, stored_at, ended_at, reason, error, content_hash,
			sent_at, subject, content_type, headers, payload, redrives)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6 AND (?4 = x'' OR NOT EXISTS (SELECT 1 FROM gobridge_record
				WHERE partition = ?1 AND ordering_key = ?4 AND ordering_key <> x'' AND status IN (0, 1))), ?7,
			?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23
		WHERE NOT EXISTS (SELECT 1 FROM gobridge_ended WHERE partition = ?1 AND envelope_id = ?2 AND binding = ?3)
		ON CONFLICT DO NOTHING`
	insertPayload = `INSERT INTO gobridge_payload (id, payload) VALUES (?1, ?2)`

	selectHash = `SELECT content_hash FROM gobridge_record WHERE partition = ?1 AND envelope_id = ?2 AND binding = ?3
		UNION ALL SELECT content_hash FROM gobridge_ended WHERE partition = ?1 AND envelope_id = ?2 AND binding = ?3`
)

// persistCall is a Persist, made ready for the writer.
type persistCall struct {
	rows []persistRow
	// envelopes are the rows of each envelope, which are stored all or none.
	envelopes [][]int
	bytes     int64
	now       int64

	refused []error // by envelope; set by persist
	stored  int     // likewise: how many rows were new
}

// persistRow is a record as it is stored.
type persistRow struct {
	ref                  gobridge.Ref
	envelope             *messaging.Envelope
	headers              []byte
	hash                 messaging.Hash
	createdAt, dueAt     int64 // createdAt is zero where the store stamps it
	notBefore, expiresAt int64
	size                 int64
	status               int64
	reason, error        string
	redrives             int
	held                 bool // found to be stored already
}

// Persist implements [gobridge.Outbox].
func (s *Store) Persist(ctx context.Context, records []gobridge.Record) error {
	const op = "persist"
	if len(records) == 0 {
		return nil
	}
	call, err := s.newPersistCall(records)
	if err != nil {
		return err
	}
	if err := s.disk.take(ctx, call.cost()); err != nil {
		return fullError(op, records[0].Partition, err)
	}
	defer s.disk.put(call.cost())
	if err := s.writer.do(ctx, &request{class: persisting, persist: call}); err != nil {
		return fail(op, records[0].Partition, err)
	}
	return call.result()
}

// cost returns the bytes that the call takes of the disk at most.
func (c *persistCall) cost() int64 { return costFactor*c.bytes + recordCost*int64(len(c.rows)) }

// newPersistCall checks the records, of which nothing is stored if it fails.
func (s *Store) newPersistCall(records []gobridge.Record) (*persistCall, error) {
	now := s.options.Now()
	if err := limits.CheckCall(records, now, s.options.MaxSkew); err != nil {
		return nil, err
	}
	call := &persistCall{rows: make([]persistRow, len(records)), now: nanos(now)}
	byID := make(map[string]int, 1)
	for i := range records {
		r := &records[i]
		k, ok := byID[r.Envelope.ID]
		if !ok {
			k = len(call.envelopes)
			byID[r.Envelope.ID] = k
			call.envelopes = append(call.envelopes, nil)
		}
		call.envelopes[k] = append(call.envelopes[k], i)
		call.rows[i] = newPersistRow(r, call.now)
		call.bytes += call.rows[i].size + 256
	}
	call.refused = make([]error, len(call.envelopes))
	return call, nil
}

func newPersistRow(r *gobridge.Record, now int64) persistRow {
	headers, _ := r.Envelope.Headers.MarshalBinary() // never fails
	if headers == nil {
		headers = []byte{}
	}
	row := persistRow{
		ref:       r.Ref(),
		envelope:  &r.Envelope,
		headers:   headers,
		hash:      r.ContentHash,
		createdAt: nanos(r.CreatedAt),
		notBefore: nanos(r.Envelope.NotBefore),
		expiresAt: nanos(r.Envelope.ExpiresAt),
		size:      int64(len(r.Envelope.Payload) + r.Envelope.Headers.Size()),
		status:    pending,
	}
	if row.hash == (messaging.Hash{}) {
		row.hash = messaging.ContentHash(&r.Envelope)
	}
	if r.State == gobridge.StateDead {
		row.status, row.reason, row.error, row.redrives = dead, r.Reason, r.Error, r.Redrives
	} else if row.notBefore > now {
		row.dueAt = row.notBefore
	}
	return row
}

// result is what Persist returns once the call has been stored.
func (c *persistCall) result() error {
	var errs []error
	for _, err := range c.refused {
		if err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) == 1:
		return errs[0]
	case len(errs) > 1:
		return errors.Join(errs...)
	case c.stored == 0:
		return failRecord("persist", c.rows[0].ref, gobridge.ErrDuplicateRecord)
	}
	return nil
}

// persist stores the calls in a transaction, each record with its own outcome.
func (s *Store) persist(t *txn, calls []*persistCall) error {
	if err := s.place.left(); err != nil {
		return err
	}
	open, err := s.openPartitions(t, calls)
	if err != nil {
		return err
	}
	for _, call := range calls {
		call.stored = 0
		for k, rows := range call.envelopes {
			if call.refused[k], err = refusal(t, open, call, rows); err != nil {
				return err
			}
			if call.refused[k] != nil {
				continue
			}
			for _, i := range rows {
				p := open[call.rows[i].ref.Partition]
				stored, err := p.insert(t, &call.rows[i], call.now)
				if err != nil {
					return err
				}
				if stored {
					call.stored++
				} else if call.refused[k], err = p.reused(t, &call.rows[i]); err != nil {
					return err
				}
			}
		}
	}
	for name, p := range open {
		if p.added {
			t.touch(name)
		}
		if err := p.close(t); err != nil {
			return err
		}
	}
	return nil
}

// openPartitions begins with the partitions of the calls.
func (s *Store) openPartitions(t *txn, calls []*persistCall) (map[gobridge.Partition]*openPart, error) {
	open := make(map[gobridge.Partition]*openPart, 1)
	for _, call := range calls {
		for i := range call.rows {
			name := call.rows[i].ref.Partition
			if open[name] != nil {
				continue
			}
			p, err := openPartAt(t, name, &s.options)
			if err != nil {
				return nil, err
			}
			open[name] = p
		}
	}
	return open, nil
}
