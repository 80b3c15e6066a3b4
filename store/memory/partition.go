package memory

import (
	"time"

	"gobridge"
)

// partition holds the records of one partition. The database's lock guards it.
type partition struct {
	db   *database
	name gobridge.Partition
	// route and binding are the parts of the name, empty for a name of another
	// form, to which no control applies then.
	route, binding string

	fence  gobridge.Token
	seq    int64
	newest time.Time // the newest stamp

	condition gobridge.Condition
	retries   int64

	records map[identity]*record
	keys    map[string]*keyed
	index   index

	pending, claimed, dead, deadBytes int64
}

// keyed holds the records of one ordering key.
type keyed struct {
	live ageList // those that have not ended; the first is the head
	gone ageList // those that were delivered and are remembered
}

func newPartition(db *database, name gobridge.Partition) *partition {
	p := &partition{db: db, name: name, records: map[identity]*record{}, keys: map[string]*keyed{}}
	p.route, p.binding, _, _ = name.Split()
	return p
}

// get returns a record, nil if there is none.
func (db *database) get(ref gobridge.Ref) (*partition, *record) {
	p := db.partitions[ref.Partition]
	if p == nil {
		return nil, nil
	}
	return p, p.records[identity{ref.EnvelopeID, ref.Binding}]
}

// stamp gives r the next seq, and a stamp if it has no time of its own.
func (p *partition) stamp(r *record, now time.Time) {
	p.seq++
	r.Seq = p.seq
	if r.CreatedAt.IsZero() {
		r.CreatedAt = now
		if now.Before(p.newest) {
			r.CreatedAt = p.newest
		}
	}
	if p.newest.Before(r.CreatedAt) {
		p.newest = r.CreatedAt
	}
}

// add takes r in, whose identity is new and whose age is set.
func (p *partition) add(r *record) {
	p.records[r.identity()] = r
	p.tally(r, 1)
	p.enlist(r, slotOf(r.State))
	r.values = p.values(r)
	p.index.insert(r)
	p.refreshHead(r.Envelope.OrderingKey)
}

// drop forgets r.
func (p *partition) drop(r *record) {
	p.tally(r, -1)
	p.unlist(r, slotOf(r.State))
	p.index.remove(r)
	delete(p.records, r.identity())
	p.refreshHead(r.Envelope.OrderingKey)
}

// change lets f change r, whose age must stay, and brings all that depends on
// it up to date.
func (p *partition) change(r *record, f func()) {
	p.tally(r, -1)
	from := slotOf(r.State)
	f()
	if to := slotOf(r.State); to != from {
		p.unlist(r, from)
		p.enlist(r, to)
	}
	p.tally(r, 1)
	p.refresh(r)
	p.refreshHead(r.Envelope.OrderingKey)
}

// end ends r in a state that keeps no payload.
func (p *partition) end(r *record, as gobridge.State, now time.Time, reason, text string) {
	p.change(r, func() {
		r.State, r.EndedAt, r.Reason, r.Error = as, now, reason, text
		r.Unsettled = 0
		r.strip()
	})
}

// bury makes r a dead letter.
func (p *partition) bury(r *record, now time.Time, reason, text string) {
	p.change(r, func() {
		r.State, r.EndedAt, r.Reason, r.Error = gobridge.StateDead, now, reason, text
		r.Unsettled = 0
	})
}

// deadFull reports whether there is no room for count more dead letters with
// size bytes together.
func (p *partition) deadFull(count, size int64) bool {
	o := &p.db.options
	return p.dead+count > o.MaxDead || p.deadBytes+size > o.MaxDeadBytes
}

// tally counts r in (+1) or out (-1).
func (p *partition) tally(r *record, by int64) {
	switch r.State {
	case gobridge.StatePending:
		p.pending += by
	case gobridge.StateClaimed:
		p.claimed += by
	case gobridge.StateDead:
		p.dead += by
		p.deadBytes += by * r.size()
	}
}

// slot is the list of its key that a record is in.
type slot uint8

const (
	unlisted slot = iota
	live
	gone
)

func slotOf(s gobridge.State) slot {
	switch s {
	case gobridge.StatePending, gobridge.StateClaimed:
		return live
	case gobridge.StateDelivered:
		return gone
	default:
		return unlisted
	}
}

func (k *keyed) list(s slot) *ageList {
	if s == live {
		return &k.live
	}
	return &k.gone
}

func (p *partition) enlist(r *record, s slot) {
	key := r.Envelope.OrderingKey
	if key == "" || s == unlisted {
		return
	}
	k := p.keys[key]
	if k == nil {
		k = &keyed{}
		p.keys[key] = k
	}
	k.list(s).add(r)
}

func (p *partition) unlist(r *record, s slot) {
	key := r.Envelope.OrderingKey
	if key == "" || s == unlisted {
		return
	}
	k := p.keys[key]
	k.list(s).remove(r)
	if k.live.head() == nil && k.gone.head() == nil {
		delete(p.keys, key)
	}
}

// head returns the oldest record of a key that has not ended, nil if none.
func (p *partition) head(key string) *record {
	if k := p.keys[key]; k != nil {
		return k.live.head()
	}
	return nil
}

// refreshHead brings the head of a key up to date, and the one behind it, which
// was the head until an older record came in.
func (p *partition) refreshHead(key string) {
	k := p.keys[key]
	if k == nil {
		return
	}
	for i, r := range k.live.records {
		if i == 2 {
			break
		}
		p.refresh(r)
	}
}

// refresh brings the index up to date with r.
func (p *partition) refresh(r *record) { p.index.set(r, p.values(r)) }

// values returns what the index is to know of r.
func (p *partition) values(r *record) values {
	v := noValues()
	switch r.State {
	case gobridge.StatePending:
		v[byRetry] = -nanos(r.RetryAt)
		if !r.Envelope.ExpiresAt.IsZero() {
			v[byExpiry] = nanos(r.Envelope.ExpiresAt)
		}
		if p.leads(r) {
			v[byDue] = nanos(r.DueAt())
		}
	case gobridge.StateClaimed:
		v[byClaim] = r.ClaimedBy.Version
		if p.leads(r) {
			v[byVersion] = r.ClaimedBy.Version
			v[byClaimedAt] = nanos(r.ClaimedAt)
		}
	case gobridge.StateDead:
		v[byDeath] = nanos(r.EndedAt)
	default:
		v[byEnd] = nanos(r.EndedAt)
	}
	return v
}

// leads reports whether neither an older record of its key nor a halt holds r.
func (p *partition) leads(r *record) bool {
	if key := r.Envelope.OrderingKey; key != "" && p.head(key) != r {
		return false
	}
	return p.halt(r) == nil
}
