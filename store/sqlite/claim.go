package sqlite

import (
	"context"
	"database/sql"
	"slices"

	"gobridge"
)

const (
	// selectClaimable takes the oldest ready records and walks on from each
	// along its key, always to the oldest that is next. The sums keep SQLite to
	// the whole range of the index.
	selectClaimable = `WITH RECURSIVE c (id, k, ca, sq) AS (
			SELECT * FROM (SELECT id, ordering_key, created_at, seq FROM gobridge_record
				WHERE partition = ?1 AND ready = 1 ORDER BY created_at, seq LIMIT ?2)
			UNION ALL
			SELECT n.id, n.ordering_key, n.created_at, n.seq FROM c JOIN gobridge_record AS n ON n.id = (
				SELECT m.id FROM gobridge_record AS m
				WHERE m.partition = ?1 AND m.ordering_key = c.k AND m.ordering_key <> x'' AND m.status IN (0, 1)
					AND (m.created_at, m.seq) > (c.ca + 0, c.sq + 0)
				ORDER BY m.created_at, m.seq LIMIT 1)
			WHERE c.k <> x'' AND (n.status = 0 AND n.due_at = 0 OR n.freed = 1)
			ORDER BY 3, 4 LIMIT ?2)
		SELECT ` + recordColumns + ` FROM c CROSS JOIN gobridge_record AS r ON r.id = c.id`

	updateClaimed = `UPDATE gobridge_record SET status = 1, ready = 0, freed = 0, settled = 0,
			claim_owner = ?2, claim_version = ?3, claimed_at = ?4,
			replay_count = replay_count + 1, unsettled = unsettled + (status = 1)
		WHERE id IN (SELECT value FROM json_each(?1))`
)

// Claim implements [gobridge.Outbox].
func (s *Store) Claim(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
	const op = "claim"
	if !request.Token.Valid() {
		return nil, fail(op, request.Partition, gobridge.ErrInvalidToken)
	}
	c := &claim{request: &request, now: nanos(s.options.Now())}
	c.cutoff = c.now - int64(s.options.StaleWindow)
	if request.HeldKnown {
		c.held = make(map[gobridge.Ref]struct{}, len(request.Held))
		for _, ref := range request.Held {
			if ref.Partition == request.Partition {
				c.held[ref] = struct{}{}
			}
		}
	}
	err := s.write(ctx, urgent, func(t *txn) error {
		c.names = s.namesOf(request.Partition)
		return c.run(t)
	})
	if err != nil {
		return nil, fail(op, request.Partition, err)
	}
	if c.stale != nil {
		return nil, c.stale
	}
	return c.records, nil
}

// claim is a Claim in the writer.
type claim struct {
	request *gobridge.ClaimRequest
	held    map[gobridge.Ref]struct{}
	now     int64
	cutoff  int64 // claims from then or before are stale, whoever holds them

	part    *part
	names   *names
	stale   error
	records []gobridge.Record
	// aside are pending records that this process still works on: another has
	// taken them over and put them back. They are set aside until the claim is done.
	aside     []int64
	asideKeys map[string]struct{}
}

// run claims in a transaction.
func (c *claim) run(t *txn) (err error) {
	c.records, c.aside, c.asideKeys = nil, nil, map[string]struct{}{}
	c.part, c.stale, err = fence(t, "claim", c.request.Partition, c.request.Token)
	if err != nil || c.stale != nil || c.request.Limit <= 0 || c.part.paused {
		return err
	}
	batch, err := c.find(t)
	if err != nil {
		return err
	}
	if len(batch) > 0 {
		if err := c.take(t, batch); err != nil {
			return err
		}
	}
	return c.makeReady(t, wakeRecords, c.aside, c.asideKeys)
}

// The bounds of one step. A claim takes more steps only while it has found
// nothing.
const (
	minStep   = 1000 // records freed or found due
	maxRounds = 8    // selections of which part turned out not to be claimable
)

// find returns the oldest claimable records.
func (c *claim) find(t *txn) ([]row, error) {
	step := max(minStep, c.request.Limit)
	for {
		freed, err := c.free(t, step)
		if err != nil {
			return nil, err
		}
		due, err := c.wake(t, step)
		if err != nil {
			return nil, err
		}
		for round := 1; ; round++ {
			batch, refused, err := c.selectBatch(t)
			if err != nil {
				return nil, err
			}
			if refused == 0 || round >= maxRounds && len(batch) > 0 {
				if len(batch) == 0 && (freed == step || due == step) {
					break
				}
				return batch, nil
			}
		}
	}
}

// selectBatch selects the oldest ready records and what follows them. A flag
// tells what was true when it was set; for a clock that has stepped back, or a
// holder that knows better, it may not be true now. Such a record is refused:
// its flag goes, and so do the younger ones of its key.
func (c *claim) selectBatch(t *txn) (batch []row, refused int, err error) {
	var bytes int64
	full := false
	blocked := map[string]bool{}
	var early, kept, busy []int64
	err = queryAll(t.ctx, t, selectClaimable, []any{c.part.id, c.request.Limit}, func(rows *sql.Rows) error {
		if full {
			return nil
		}
		r, err := scanRow(rows, c.request.Partition)
		if err != nil {
			return err
		}
		key := r.Envelope.OrderingKey
		switch {
		case key != "" && blocked[key]:
			return nil
		case r.State == gobridge.StatePending && c.holds(&r):
			blocked[key] = true
			busy = append(busy, r.id)
			c.asideKeys[key] = struct{}{}
			return nil
		case !c.claimable(&r):
			blocked[key] = true
			if r.State == gobridge.StatePending {
				early = append(early, r.id)
			} else {
				kept = append(kept, r.id)
			}
			return nil
		}
		bytes += r.size
		if c.request.MaxBytes > 0 && bytes > c.request.MaxBytes && len(batch) > 0 {
			full = true
			return nil
		}
		batch = append(batch, r)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	c.aside = append(c.aside, busy...)
	if err := c.refuse(t, early, kept, busy); err != nil {
		return nil, 0, err
	}
	if full {
		return batch, 0, nil
	}
	return batch, len(early) + len(kept) + len(busy), nil
}

// holds reports whether this process works on a record, as far as it has said so.
func (c *claim) holds(r *row) bool {
	_, held := c.held[r.Ref()]
	return held
}

// claimable reports whether a record with its flag set may be claimed now.
func (c *claim) claimable(r *row) bool {
	if r.State == gobridge.StatePending {
		return nanos(r.DueAt()) <= c.now
	}
	if c.held != nil {
		return !c.holds(r)
	}
	return r.ClaimedBy.Version < c.request.Token.Version || nanos(r.ClaimedAt) <= c.cutoff
}

const (
	refuseEarly = `UPDATE gobridge_record SET ready = 0, due_at = max(not_before, retry_at)
		WHERE id IN (SELECT value FROM json_each(?1))`
	refuseHeld = `UPDATE gobridge_record SET ready = 0, freed = 0 WHERE id IN (SELECT value FROM json_each(?1))`
	setAside   = `UPDATE gobridge_record SET ready = 0, due_at = 9223372036854775806
		WHERE id IN (SELECT value FROM json_each(?1))`
)

// refuse takes back the flags of records that are not due yet, of claimed ones
// that are held, and for the time of this claim of those to be set aside.
func (c *claim) refuse(t *txn, early, kept, busy []int64) error {
	for _, r := range []struct {
		query string
		ids   []int64
	}{{refuseEarly, early}, {refuseHeld, kept}, {setAside, busy}} {
		if len(r.ids) == 0 {
			continue
		}
		if _, err := t.ExecContext(t.ctx, r.query, list(r.ids)); err != nil {
			return err
		}
	}
	return nil
}

// take claims the batch for the token.
func (c *claim) take(t *txn, batch []row) error {
	slices.SortFunc(batch, func(a, b row) int {
		if a.Older(&b.Record) {
			return -1
		}
		return 1
	})
	token := c.request.Token
	ids := make([]int64, len(batch))
	records := make([]gobridge.Record, len(batch))
	over := int64(0) // how many were claimed before
	for i := range batch {
		ids[i], records[i] = batch[i].id, batch[i].Record
		r := &records[i]
		if r.State == gobridge.StateClaimed {
			r.Unsettled++
			over++
		}
		r.State = gobridge.StateClaimed
		r.ReplayCount++
		r.ClaimedBy, r.ClaimedAt = token, moment(c.now)
		c.names.add(r.Seq, r.Ref())
	}
	if _, err := t.ExecContext(t.ctx, updateClaimed, list(ids), blob(token.Owner), token.Version, c.now); err != nil {
		return err
	}
	c.records = records
	fresh := int64(len(batch)) - over
	return c.part.add(t, -fresh, fresh, 0, 0)
}
