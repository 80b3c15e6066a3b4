package dynamodb

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// Persist implements [gobridge.Outbox].
//
// The records of a call are given their ages a hundred at a time and then
// written, each envelope by itself: one record with a put, several with a
// transaction. Those of one key are written one after the other.
func (s *Store) Persist(ctx context.Context, records []gobridge.Record) error {
	if len(records) == 0 {
		return nil
	}
	c := call{op: "persist", partition: records[0].Partition}
	if err := ctx.Err(); err != nil {
		return fail(c.op, c.partition, err)
	}
	now := clean(s.now())
	if err := limits.CheckCall(records, now, s.options.MaxSkew); err != nil {
		return err
	}
	p := &persist{store: s, call: c, refused: map[string]error{}}
	for waves := p.waves(records, now); len(waves) > 0 && p.err == nil; {
		if p.err = ctx.Err(); p.err != nil {
			break
		}
		if left := p.wave(ctx, waves[0]); len(left) > 0 {
			waves[0] = left
		} else {
			waves = waves[1:]
		}
	}
	s.announce(p.touched)
	return p.result(records)
}

// persist is a call on its way.
type persist struct {
	store *Store
	call  call

	mu      sync.Mutex
	refused map[string]error // envelopes that are not stored, by their IDs
	touched []gobridge.Partition
	// overtaken says that what is left of the wave needs new ages.
	overtaken bool
	err       error
}

// unit is the records of one envelope, which are stored all or none.
type unit struct {
	id   string
	rows []*row
	// stored are those that were new, once they are stored; left are those that
	// have not been tried, or need new ages first.
	stored, left []*row
	// open says that nobody knows whether they are.
	open bool
}

// lane is what has an order: a key in a partition.
type lane struct {
	partition gobridge.Partition
	key       string
}

func laneOf(r *row) lane { return lane{r.Partition, r.key()} }

// waves makes the units of a call and cuts them into groups that are given
// their ages together. A record names the earlier ones of its key in its own
// wave; those of earlier waves were stored before its age was given.
func (p *persist) waves(records []gobridge.Record, now time.Time) [][]*unit {
	var units []*unit
	byID := map[string]*unit{}
	hashes := map[gobridge.Ref]messaging.Hash{}
	for i := range records {
		r := newRow(&records[i], now)
		r.nonce = newNonce()
		if hash, twice := hashes[r.Ref()]; twice {
			if hash != r.ContentHash {
				p.refuse(r, gobridge.ErrIdentityReused)
			}
			continue
		}
		hashes[r.Ref()] = r.ContentHash
		u := byID[r.Envelope.ID]
		if u == nil {
			u = &unit{id: r.Envelope.ID}
			byID[u.id] = u
			units = append(units, u)
		}
		u.rows = append(u.rows, r)
	}
	var out [][]*unit
	var wave []*unit
	size, lanes := 0, map[lane]links{}
	for _, u := range units {
		if p.refused[u.id] != nil {
			continue
		}
		full := size > 0 && size+len(u.rows) > maxWave
		for _, r := range u.rows {
			full = full || r.key() != "" && lanes[laneOf(r)].tooManyFor(r)
		}
		if full {
			out = append(out, wave)
			wave, size, lanes = nil, 0, map[lane]links{}
		}
		wave = append(wave, u)
		size += len(u.rows)
		for _, r := range u.rows {
			l := lanes[laneOf(r)]
			lanes[laneOf(r)] = links{l.count + 1, l.bytes + len(r.sk) + 1}
		}
	}
	if len(wave) > 0 {
		out = append(out, wave)
	}
	return out
}

// links are the earlier records of a lane that the next one would name.
type links struct{ count, bytes int }

// tooManyFor reports whether naming them would make r larger by a kilobyte, for
// which every write of it pays, or take too much of an item altogether. A wave of
// its own costs one write unit.
func (l links) tooManyFor(r *row) bool {
	const name = len("after")
	kilobytes := func(n int) int { return (n + 1023) / 1024 }
	return l.count >= maxLinks || l.count > 0 && kilobytes(r.bytes()+name+l.bytes) > kilobytes(r.bytes())
}

func (p *persist) refuse(r *row, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused[r.Envelope.ID] == nil {
		p.refused[r.Envelope.ID] = &gobridge.Error{Op: p.call.op, Partition: r.Partition, Ref: r.Ref(), Err: err}
	}
}

// share is what a partition has in a wave.
type share struct {
	partition gobridge.Partition
	rows      []*row
	pending   int64
	taken     allocation
	err       error
}

// shares sorts the records of units by their partitions.
func shares(units []*unit) []*share {
	var out []*share
	byName := map[gobridge.Partition]*share{}
	for _, u := range units {
		for _, r := range u.rows {
			sh := byName[r.Partition]
			if sh == nil {
				sh = &share{partition: r.Partition}
				byName[r.Partition] = sh
				out = append(out, sh)
			}
			sh.rows = append(sh.rows, r)
			if r.State == gobridge.StatePending {
				sh.pending++
			}
		}
	}
	return out
}

// wave stores some units, and returns what is left of them where that needs new
// ages: it has to come after a record that another call has stored meanwhile,
// under an age that is younger than theirs.
func (p *persist) wave(ctx context.Context, units []*unit) (left []*unit) {
	p.overtaken = false
	for _, u := range units {
		u.left = u.rows
	}
	parts := shares(units)
	each(len(parts), func(i int) { p.take(ctx, parts[i], true) })
	for _, sh := range parts {
		p.err = errors.Join(p.err, sh.err)
	}
	if p.err == nil {
		for _, level := range levels(units) {
			each(len(level), func(i int) { p.put(ctx, level[i]) })
			if p.err != nil || p.overtaken {
				break
			}
		}
	}
	p.settleFigures(ctx, units, parts)
	for _, u := range units {
		if len(u.left) > 0 && p.err == nil {
			left = append(left, again(u))
		}
	}
	return left
}

// again is what is left of a unit, without the ages that it was given.
func again(u *unit) *unit {
	for _, r := range u.left {
		r.Seq, r.after = 0, nil
		if r.stamped {
			r.CreatedAt = time.Time{}
		}
	}
	return &unit{id: u.id, rows: u.left}
}

// take gives the records of a share their ages and links.
func (p *persist) take(ctx context.Context, sh *share, counted bool) {
	c := call{op: p.call.op, partition: sh.partition}
	if sh.err = p.store.ensure(ctx, c, sh.partition); sh.err != nil {
		return
	}
	pending := sh.pending
	if !counted {
		pending = 0
	}
	if sh.taken, sh.err = p.store.allocate(ctx, c, sh.partition, sh.rows, pending); sh.err != nil {
		return
	}
	earlier := map[string][]string{}
	for _, r := range sh.rows {
		if k := r.key(); k != "" && r.State == gobridge.StatePending {
			r.after = slices.Clone(earlier[k])
			earlier[k] = append(earlier[k], r.sk)
		}
	}
}

// levels cuts units so that those of one key are in different levels, in their
// order.
func levels(units []*unit) [][]*unit {
	var out [][]*unit
	next := map[lane]int{}
	for _, u := range units {
		at := 0
		for _, r := range u.rows {
			if r.key() != "" {
				at = max(at, next[laneOf(r)])
			}
		}
		for _, r := range u.rows {
			next[laneOf(r)] = at + 1
		}
		if at == len(out) {
			out = append(out, nil)
		}
		out[at] = append(out[at], u)
	}
	return out
}

// settleFigures takes back what was counted and then not stored.
func (p *persist) settleFigures(ctx context.Context, units []*unit, parts []*share) {
	stored := map[gobridge.Partition][]*row{}
	pending := map[gobridge.Partition]int64{}
	for _, u := range units {
		rows := u.stored
		if u.open {
			rows = u.rows
		}
		for _, r := range rows {
			stored[r.Partition] = append(stored[r.Partition], r)
			if r.State == gobridge.StatePending {
				pending[r.Partition]++
			}
		}
	}
	for _, sh := range parts {
		if sh.err == nil && len(stored[sh.partition]) < len(sh.rows) {
			c := call{op: p.call.op, partition: sh.partition}
			p.store.giveBack(ctx, c, sh.partition, sh.taken, stored[sh.partition], sh.pending-pending[sh.partition])
		}
	}
}

// result is the answer to the caller.
func (p *persist) result(records []gobridge.Record) error {
	if p.err != nil {
		return fail(p.call.op, p.call.partition, p.err)
	}
	var errs []error
	told := map[string]bool{}
	for i := range records {
		id := records[i].Envelope.ID
		if err := p.refused[id]; err != nil && !told[id] {
			told[id] = true
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) == 1:
		return errs[0]
	case len(errs) > 0:
		return errors.Join(errs...)
	case len(p.touched) == 0:
		return &gobridge.Error{Op: p.call.op, Partition: records[0].Partition, Ref: records[0].Ref(), Err: gobridge.ErrDuplicateRecord}
	}
	return nil
}
