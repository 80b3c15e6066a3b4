package sqlite

import (
	"context"
	"fmt"

	"gobridge"
)

const (
	selectSettling = `SELECT id, status, settled, claim_version, claim_owner, ordering_key, size, payload IS NULL
		FROM gobridge_record WHERE partition = ?1 AND envelope_id = ?2 AND binding = ?3`
	selectSettled = `SELECT 1 FROM gobridge_ended WHERE partition = ?1 AND envelope_id = ?2 AND binding = ?3
		AND state = ?4 AND settled = 1 AND claim_version = ?5 AND claim_owner = ?6`

	insertEnded = `INSERT INTO gobridge_ended (partition, state, settled, created_at, seq, stored_at, ended_at,
			claim_version, claimed_at, replay_count, attempts, redrives, not_before, expires_at, ordering_key,
			envelope_id, binding, claim_owner, reason, error, content_hash)
		SELECT partition, ?2, ?3, created_at, seq, stored_at, ?4, claim_version, claimed_at, replay_count, attempts,
			redrives, not_before, expires_at, ordering_key, envelope_id, binding, claim_owner, ?5, coalesce(?6, error), content_hash
		FROM gobridge_record WHERE id IN (SELECT value FROM json_each(?1))`
	deleteRecords  = `DELETE FROM gobridge_record WHERE id IN (SELECT value FROM json_each(?1))`
	deletePayloads = `DELETE FROM gobridge_payload WHERE id IN (SELECT value FROM json_each(?1))`

	releaseRecords = `UPDATE gobridge_record SET status = 0, freed = 0, settled = 1, unsettled = 0,
			attempts = attempts + ?2,
			retry_at = CASE WHEN ?3 > 0 THEN ?3 ELSE retry_at END,
			due_at = CASE WHEN max(not_before, CASE WHEN ?3 > 0 THEN ?3 ELSE retry_at END) > ?4
				THEN max(not_before, CASE WHEN ?3 > 0 THEN ?3 ELSE retry_at END) ELSE 0 END,
			ready = (ordering_key = x'' AND max(not_before, CASE WHEN ?3 > 0 THEN ?3 ELSE retry_at END) <= ?4),
			reason = CASE WHEN ?5 <> x'' THEN ?5 ELSE reason END,
			error = CASE WHEN ?6 <> x'' THEN ?6 ELSE error END
		WHERE id IN (SELECT value FROM json_each(?1))`

	buryRecords = `UPDATE gobridge_record SET status = 5, ready = 0, freed = 0, due_at = 0, settled = ?2, unsettled = 0,
			attempts = attempts + ?3, ended_at = ?4, reason = ?5, error = ?6
		WHERE id IN (SELECT value FROM json_each(?1))`
)

// Complete implements [gobridge.Outbox].
func (s *Store) Complete(ctx context.Context, token gobridge.Token, completions []gobridge.Completion) error {
	const op = "complete"
	if !token.Valid() {
		return fail(op, "", gobridge.ErrInvalidToken)
	}
	now := nanos(s.options.Now())
	items := make([]settling, len(completions))
	for i := range completions {
		c := &completions[i]
		as := c.As
		switch as {
		case 0:
			as = gobridge.StateDelivered
		case gobridge.StateDelivered, gobridge.StateExpired, gobridge.StateDiscarded:
		default:
			return failRecord(op, c.Ref, fmt.Errorf("a record is completed as delivered, expired or discarded, not as %s", as))
		}
		items[i] = settling{ref: c.Ref, how: how{to: as, reason: c.Reason, error: c.Error}}
	}
	return s.settle(ctx, op, token, items, func(t *txn, p *part, h how, group []*settling) error {
		return end(t, ids(group), apart(group), ending{state: h.to, settled: true, now: now, reason: h.reason, error: blob(h.error)})
	})
}

// Release implements [gobridge.Outbox].
func (s *Store) Release(ctx context.Context, token gobridge.Token, releases []gobridge.Release) error {
	now := nanos(s.options.Now())
	items := make([]settling, len(releases))
	for i := range releases {
		r := &releases[i]
		items[i] = settling{ref: r.Ref, how: how{to: gobridge.StatePending, tried: r.Tried, notBefore: nanos(r.NotBefore),
			reason: r.Reason, error: r.Error}}
	}
	return s.settle(ctx, "release", token, items, func(t *txn, p *part, h how, group []*settling) error {
		if _, err := t.ExecContext(t.ctx, releaseRecords, list(ids(group)), h.failed(), h.notBefore, now, blob(h.reason), blob(h.error)); err != nil {
			return err
		}
		p.released += int64(len(group))
		return p.settleHeads(t, ids(group), nil)
	})
}

// DeadLetter implements [gobridge.Outbox].
func (s *Store) DeadLetter(ctx context.Context, token gobridge.Token, burials []gobridge.Burial) error {
	now := nanos(s.options.Now())
	items := make([]settling, len(burials))
	for i := range burials {
		b := &burials[i]
		items[i] = settling{ref: b.Ref, how: how{to: gobridge.StateDead, tried: b.Tried, reason: b.Reason, error: b.Error}}
	}
	return s.settle(ctx, "dead-letter", token, items, func(t *txn, p *part, h how, group []*settling) error {
		_, err := t.ExecContext(t.ctx, buryRecords, list(ids(group)), true, h.failed(), now, blob(h.reason), blob(h.error))
		for _, item := range group {
			p.buried++
			p.buriedBytes += item.size
		}
		return err
	})
}

// how is what becomes of a record. Records that go the same way share their
// statements.
type how struct {
	to            gobridge.State
	tried         gobridge.Tried
	notBefore     int64
	reason, error string
}

func (h how) failed() int {
	if h.tried == gobridge.Failed {
		return 1
	}
	return 0
}

// settling is one entry of a settling call.
type settling struct {
	ref gobridge.Ref
	how how

	id    int64
	key   string
	size  int64
	apart bool  // its payload is in gobridge_payload
	err   error // why it is not settled
	do    bool  // it is to be settled now
}

func ids(group []*settling) []int64 {
	out := make([]int64, len(group))
	for i, item := range group {
		out[i] = item.id
	}
	return out
}

func apart(group []*settling) []int64 {
	var out []int64
	for _, item := range group {
		if item.apart {
			out = append(out, item.id)
		}
	}
	return out
}

// settle does a settling call: each record that the token has claimed goes the
// way that apply says.
func (s *Store) settle(ctx context.Context, op string, token gobridge.Token, items []settling,
	apply func(*txn, *part, how, []*settling) error) error {
	if !token.Valid() {
		return fail(op, "", gobridge.ErrInvalidToken)
	}
	if len(items) == 0 {
		return nil
	}
	err := s.write(ctx, urgent, func(t *txn) error {
		for _, group := range byPartition(items) {
			if err := s.settlePart(t, token, group, apply); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fail(op, items[0].ref.Partition, err)
	}
	var failed []*gobridge.Error
	for i := range items {
		if items[i].err != nil {
			failed = append(failed, failRecord(op, items[i].ref, items[i].err))
		}
	}
	if len(failed) > 0 {
		return &gobridge.SettleError{Failed: failed}
	}
	return nil
}

// byPartition groups the entries, in the order of their first ones.
func byPartition(items []settling) [][]*settling {
	at := make(map[gobridge.Partition]int, 1)
	var out [][]*settling
	for i := range items {
		k, ok := at[items[i].ref.Partition]
		if !ok {
			k = len(out)
			at[items[i].ref.Partition] = k
			out = append(out, nil)
		}
		out[k] = append(out[k], &items[i])
	}
	return out
}

// settlePart settles the entries of one partition.
func (s *Store) settlePart(t *txn, token gobridge.Token, items []*settling, apply func(*txn, *part, how, []*settling) error) error {
	p, err := findPart(t, items[0].ref.Partition)
	if err != nil {
		return err
	}
	seen := make(map[gobridge.Ref]*settling, len(items))
	var ways []how
	groups := make(map[how][]*settling, 1)
	keys := map[string]struct{}{}
	room := room{count: s.options.MaxDead, bytes: s.options.MaxDeadBytes}
	if p != nil {
		room.count -= p.dead
		room.bytes -= p.deadBytes
	}
	for _, item := range items {
		item.err, item.do = gobridge.ErrStaleFencingToken, false
		if p == nil {
			continue
		}
		if earlier := seen[item.ref]; earlier != nil {
			if earlier.how.to == item.how.to {
				item.err = earlier.err
			}
			continue
		}
		if err := item.look(t, p, token); err != nil {
			return err
		}
		if item.do && item.how.to == gobridge.StateDead && !room.take(item.size) {
			item.err, item.do = gobridge.ErrDeadLettersFull, false
		}
		if !item.do {
			continue
		}
		seen[item.ref] = item
		if groups[item.how] == nil {
			ways = append(ways, item.how)
		}
		groups[item.how] = append(groups[item.how], item)
		keys[item.key] = struct{}{}
	}
	if len(ways) == 0 {
		return nil
	}
	p.released, p.buried, p.buriedBytes = 0, 0, 0
	done := int64(0)
	for _, way := range ways {
		if err := apply(t, p, way, groups[way]); err != nil {
			return err
		}
		done += int64(len(groups[way]))
	}
	promoted, err := promoteAll(t, p, keys)
	if err != nil {
		return err
	}
	if promoted || p.released > 0 { // else nothing has become claimable
		t.touch(p.name)
	}
	return p.add(t, p.released, -done, p.buried, p.buriedBytes)
}

// room is what dead letters still have.
type room struct{ count, bytes int64 }

func (r *room) take(size int64) bool {
	if r.count < 1 || r.bytes < size {
		return false
	}
	r.count--
	r.bytes -= size
	return true
}

// look finds the record of an entry and sees whether the token has it.
func (item *settling) look(t *txn, p *part, token gobridge.Token) error {
	var (
		state   gobridge.State
		settled bool
		by      gobridge.Token
	)
	identity := []any{p.id, blob(item.ref.EnvelopeID), blob(item.ref.Binding)}
	found, err := queryOne(t.ctx, t, selectSettling, identity, &item.id, &state, &settled, &by.Version, &by.Owner,
		&item.key, &item.size, &item.apart)
	switch {
	case err != nil:
		return err
	case found && state == gobridge.StateClaimed && by == token:
		item.err, item.do = nil, true
	case found && settled && state == item.how.to && by == token:
		item.err = nil
	case !found:
		var one int
		found, err = queryOne(t.ctx, t, selectSettled, append(identity, item.how.to, token.Version, blob(token.Owner)), &one)
		if found {
			item.err = nil
		}
	}
	return err
}

// ending is how records end for good.
type ending struct {
	state   gobridge.State
	settled bool // by their claimer
	now     int64
	reason  string
	error   []byte // nil keeps what the record has
}

// end moves records to the table of ended ones.
func end(t *txn, ids, apart []int64, e ending) error {
	in := list(ids)
	if _, err := t.ExecContext(t.ctx, insertEnded, in, int64(e.state), e.settled, e.now, blob(e.reason), e.error); err != nil {
		return err
	}
	if _, err := t.ExecContext(t.ctx, deleteRecords, in); err != nil {
		return err
	}
	if len(apart) == 0 {
		return nil
	}
	_, err := t.ExecContext(t.ctx, deletePayloads, list(apart))
	return err
}
