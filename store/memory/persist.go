package memory

import (
	"context"
	"errors"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// Persist implements [gobridge.Outbox].
func (s *Store) Persist(ctx context.Context, records []gobridge.Record) error {
	const op = "persist"
	if len(records) == 0 {
		return nil
	}
	if err := begin(ctx, op, records[0].Partition); err != nil {
		return err
	}
	now := clean(s.now())
	if err := limits.CheckCall(records, now, s.db.options.MaxSkew); err != nil {
		return err
	}
	fresh := make([]*record, len(records))
	for i := range records {
		fresh[i] = newRecord(&records[i], now)
	}

	s.db.mu.Lock()
	refused := s.db.refusals(fresh)
	touched := s.db.store(fresh, refused, now)
	s.db.mu.Unlock()
	s.announce(touched)

	switch {
	case len(refused) > 0:
		return joined(fresh, refused)
	case len(touched) == 0:
		return &gobridge.Error{Op: op, Partition: records[0].Partition, Ref: records[0].Ref(), Err: gobridge.ErrDuplicateRecord}
	}
	return nil
}

// newRecord returns what is stored of r: the fields that Persist reads, and
// nothing that the caller still holds.
func newRecord(r *gobridge.Record, now time.Time) *record {
	out := &record{Record: gobridge.Record{
		Partition:   r.Partition,
		Binding:     r.Binding,
		Envelope:    r.Envelope,
		ContentHash: r.ContentHash,
		CreatedAt:   clean(r.CreatedAt),
		StoredAt:    now,
		State:       r.State,
	}}
	if r.State == gobridge.StateDead {
		out.EndedAt, out.Reason, out.Error, out.Redrives = now, r.Reason, r.Error, r.Redrives
	}
	out.Record = own(out.Record)
	e := &out.Envelope
	e.CreatedAt, e.NotBefore, e.ExpiresAt = clean(e.CreatedAt), clean(e.NotBefore), clean(e.ExpiresAt)
	if out.ContentHash == (messaging.Hash{}) {
		out.ContentHash = messaging.ContentHash(e)
	}
	return out
}

// refusals returns the envelopes of a call that can't be stored, by their IDs:
// those with an identity that is held with other content, and those without
// room in the dead letters. The records of an envelope are stored all or none.
func (db *database) refusals(fresh []*record) map[string]error {
	refused := map[string]error{}
	refuse := func(r *record, err error) {
		if refused[r.Envelope.ID] == nil {
			refused[r.Envelope.ID] = &gobridge.Error{Op: "persist", Partition: r.Partition, Ref: r.Ref(), Err: err}
		}
	}
	hashes := map[gobridge.Ref]messaging.Hash{}
	for _, r := range fresh {
		hash, held := hashes[r.Ref()]
		if _, old := db.get(r.Ref()); old != nil {
			hash, held = old.ContentHash, true
		}
		if held && hash != r.ContentHash {
			refuse(r, gobridge.ErrIdentityReused)
		}
		hashes[r.Ref()] = r.ContentHash
	}
	type room struct{ count, bytes int64 }
	taken := map[gobridge.Partition]room{}
	counted := map[gobridge.Ref]bool{}
	for _, r := range fresh {
		if r.State != gobridge.StateDead || refused[r.Envelope.ID] != nil {
			continue
		}
		if _, old := db.get(r.Ref()); old != nil || counted[r.Ref()] {
			continue
		}
		counted[r.Ref()] = true
		t := taken[r.Partition]
		t.count++
		t.bytes += r.size()
		if db.partition(r.Partition).deadFull(t.count, t.bytes) {
			refuse(r, gobridge.ErrDeadLettersFull)
			continue
		}
		taken[r.Partition] = t
	}
	return refused
}

// store adds what is new and not refused, and returns the partitions that got
// something.
func (db *database) store(fresh []*record, refused map[string]error, now time.Time) (touched []gobridge.Partition) {
	for _, r := range fresh {
		if refused[r.Envelope.ID] != nil {
			continue
		}
		p := db.partition(r.Partition)
		if p.records[r.identity()] != nil {
			continue
		}
		p.stamp(r, now)
		p.add(r)
		if n := len(touched); n == 0 || touched[n-1] != p.name {
			touched = append(touched, p.name)
		}
	}
	return touched
}

// joined returns the errors of the refused envelopes in the order of the call.
func joined(fresh []*record, refused map[string]error) error {
	var errs []error
	for _, r := range fresh {
		if err := refused[r.Envelope.ID]; err != nil {
			errs = append(errs, err)
			delete(refused, r.Envelope.ID)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
