package protocol

import "fmt"

// The most of everything. All that is in a state is bytes, so that hashing one
// is quick.
const (
	maxRecords = 3
	maxCalls   = 3
	maxOwners  = 2
	maxSeq     = 31
)

// set is a set of records, a bit each.
type set uint8

func (s set) has(i int) bool    { return s&(1<<i) != 0 }
func (s *set) add(i int)        { *s |= 1 << i }
func (s *set) remove(i int)     { *s &^= 1 << i }
func (s set) without(o set) set { return s &^ o }

// age is a stamp (0 or 1) and a Seq in one number, so that older is smaller. 0
// is none.
type age uint8

func ageOf(stamp, seq uint8) age { return age(stamp<<5 | seq) }
func (a age) seq() uint8         { return uint8(a) & maxSeq }
func (a age) stamp() uint8       { return uint8(a) >> 5 }

type status uint8

const (
	absent status = iota
	pending
	claimed
	delivered
	dead
)

func (s status) live() bool { return s == pending || s == claimed }

// record is a record as it is stored.
type record struct {
	status  status
	age     age
	version uint8 // of who claimed it last, also once that is settled
	delayed bool  // pending, and not due yet
	after   set   // earlier records of its key in its call
}

// call is a call of Persist.
type call struct {
	phase callPhase
	base  uint8 // the Seq of its first record
	stamp uint8
	done  set // its records that are stored, or were already
}

type callPhase uint8

const (
	callIdle callPhase = iota
	callPuts           // has ages, stores its records
	callDone
)

// ghost is a put that is still on its way when its sender is gone.
type ghost struct {
	there       bool
	call, place uint8
	age         age
	after       set
}

// owner is a process that drains the partition, or would like to.
type owner struct {
	version  uint8 // of its lease; 0 is none
	valid    bool  // its term has not ended, by its own clock
	ripe     ripeness
	renewing bool // a renewal is written, and the answer on its way
	local    [maxRecords]local
	order    [maxRecords]age // of what it holds, as it was claimed
	late     set             // claimed after a newer version was seen by the store
	claim    claim
}

// ripeness is what a process knows of a lease that is not its own.
type ripeness uint8

const (
	unripe  ripeness = iota
	ripe             // seen unchanged for a whole term
	outdate          // and changed since
)

// local is what an owner has a record down as.
type local uint8

const (
	none    local = iota
	queued        // to be sent
	wire          // being sent
	stray         // being sent since before the lease was lost
	past          // likewise, and the record has come back from the dead letters since
	toEnd         // delivered, to be completed
	toBack        // to be released
	toDelay       // to be released, not to be due at once
	toBury        // to be dead-lettered
)

// claim is a claim of a scanned store on its way.
type claim struct {
	phase claimPhase
	pos   uint8           // of the scan
	bound uint8           // the newest Seq when it began
	held  set             // what it was told
	saw   [maxRecords]age // of what the scan saw
	free  set             // seen and claimable
	stuck set             // seen, not ended, and not claimable
	ask   set             // earlier siblings to look up
	todo  set             // selected
	got   set             // claimed
	dirty set             // changed since it was read
}

type claimPhase uint8

const (
	claimIdle claimPhase = iota
	claimScan
	claimLookUp
	claimWrite
)

// redrive is a redrive of a scanned store on its way.
type redrive struct {
	phase  redrivePhase
	base   uint8
	stamp  uint8
	todo   set             // not redriven yet
	wave   set             // all that it redrives; locked in phase redriveWrites
	elders set             // stored and not ended when it began
	was    [maxRecords]age // before
	used   uint8
}

type redrivePhase uint8

const (
	redriveIdle   redrivePhase = iota
	redriveAged                // has ages
	redriveWrites              // a transaction is half visible
)

type state struct {
	records [maxRecords]record
	calls   [maxCalls]call
	ghost   ghost
	owners  [maxOwners]owner
	names   [maxOwners]uint8 // of the owners, for people; no part of the identity
	redrive redrive

	fence, seq, stamp uint8 // of the fence row
	lease             uint8 // the newest version given out
	released          bool

	faults, renewals uint8 // spent

	// What the properties need to know.
	begun   set             // records of which a first Persist has begun
	before  [maxRecords]set // what has to be delivered first before it, if not delivered yet
	sent    set             // delivered at least once since it was stored or redriven
	revived set             // redriven
}

// world is the model of a setup.
type world struct {
	setup Setup
	n     int
	keys  [maxRecords]uint8
	calls [][]int

	callNames []string
	emit      func(step, *state, string)
	bad       string // what is wrong with the step being made
	telling   bool
	told      string         // the step in words
	seen      [lastKind]bool // what has happened somewhere
}

func newWorld(setup Setup) *world {
	if setup.Of == 0 {
		setup.Of = usualFaults
	}
	if setup.Limit == 0 {
		setup.Limit = maxRecords
	}
	if setup.Chunk == 0 {
		setup.Chunk = 1
	}
	w := &world{setup: setup, n: len(setup.Keys)}
	copy(w.keys[:], setup.Keys)
	for c, names := range setup.Calls {
		w.callNames = append(w.callNames, fmt.Sprintf("call %d (%s)", c+1, names))
		var call []int
		for _, name := range names {
			call = append(call, int(name-'A'))
		}
		w.calls = append(w.calls, call)
	}
	return w
}

func (w *world) has(r Rule) bool { return w.setup.Without != r }

func (w *world) start() state {
	var s state
	for i := range w.setup.Dead {
		s.seq++
		s.records[i] = record{status: dead, age: ageOf(0, s.seq)}
		s.begun.add(i)
	}
	for i := range s.names {
		s.names[i] = uint8(i)
	}
	w.tidy(&s)
	return s
}

// next implements model.
func (w *world) next(s *state, emit func(step, *state, string)) {
	w.emit = emit
	for c := range w.calls {
		w.persist(s, c)
	}
	w.ghosts(s)
	for o := range s.owners {
		w.leases(s, o)
		if s.owners[o].version != 0 {
			w.claims(s, o)
		}
		w.sends(s, o)
		w.settles(s, o)
	}
	w.dues(s)
	w.redrives(s)
}

// out emits the state that a step led to.
func (w *world) out(k kind, actor, arg int, n *state) {
	w.tidy(n)
	w.seen[k] = true
	w.emit(step{k, uint8(actor), uint8(arg)}, n, w.bad)
	w.bad = ""
}

// fault returns a copy of s with a fault of a kind spent, if there is one left.
func (w *world) fault(s *state, of Fault) (state, bool) {
	n := *s
	n.faults++
	return n, w.setup.Of&of != 0 && int(s.faults) < w.setup.Faults
}

func (w *world) done(s *state) bool {
	for c := range w.calls {
		if s.calls[c].phase != callDone {
			return false
		}
	}
	for i := range w.n {
		if s.records[i].status != delivered && s.records[i].status != dead {
			return false
		}
	}
	return s.redrive.phase == redriveIdle
}

func (w *world) outside(s *state) bool { return s.seq > maxSeq-maxRecords }

func (w *world) identity(s *state) state {
	id := *s
	id.names = [maxOwners]uint8{}
	return id
}

// tidy brings a state into the form that all states take that behave like it:
// what nothing asks for any more is forgotten, Seqs are counted without gaps,
// and owners that can't be told apart change places.
func (w *world) tidy(s *state) {
	ended := set(0)
	for i := range w.n {
		r := &s.records[i]
		if r.status != claimed && !s.settling(i, r.version) {
			r.version = 0
		}
		switch r.status {
		case delivered:
			ended.add(i)
			r.age, r.after = 0, 0
		case dead:
			r.after = 0
		}
	}
	for i := range w.n {
		s.records[i].after = s.records[i].after.without(ended)
		s.before[i] = s.before[i].without(s.sent)
		for j := range w.n {
			if s.records[j].status == dead {
				s.before[i].remove(j)
			}
		}
	}
	for c := range w.calls {
		if s.calls[c].phase == callDone {
			s.calls[c] = call{phase: callDone}
		}
	}
	if !w.telling { // so that people read the same Seqs throughout
		w.closeGaps(s)
	}
	if before(&s.owners[1], &s.owners[0]) {
		s.owners[0], s.owners[1] = s.owners[1], s.owners[0]
		s.names[0], s.names[1] = s.names[1], s.names[0]
	}
}

// before is an order of owners. Those that are equal by it are equal.
func before(a, b *owner) bool {
	if a.version != b.version {
		return a.version > b.version // versions are unique but for zero, which has no claim
	}
	if a.ripe != b.ripe {
		return a.ripe > b.ripe
	}
	for i := range a.local {
		if a.local[i] != b.local[i] {
			return a.local[i] > b.local[i]
		}
		if a.order[i] != b.order[i] {
			return a.order[i] > b.order[i]
		}
	}
	return false
}

// settling reports whether an owner still has to learn that it has settled a
// record under a version.
func (s *state) settling(i int, version uint8) bool {
	for o := range s.owners {
		if s.owners[o].version == version && s.owners[o].local[i] >= toEnd {
			return true
		}
	}
	return false
}

// closeGaps counts the Seqs that are in use anew from one.
func (w *world) closeGaps(s *state) {
	used := uint32(0)
	each := func(visit func(*age)) {
		for i := range w.n {
			visit(&s.records[i].age)
			visit(&s.redrive.was[i])
			for o := range s.owners {
				visit(&s.owners[o].order[i])
				visit(&s.owners[o].claim.saw[i])
			}
		}
		visit(&s.ghost.age)
	}
	each(func(a *age) { used |= 1 << a.seq() })
	ages := func(base uint8, n int) { used |= (1<<n - 1) << base }
	for c := range w.calls {
		if s.calls[c].phase == callPuts {
			ages(s.calls[c].base, len(w.calls[c]))
		}
	}
	if s.redrive.phase != redriveIdle {
		ages(s.redrive.base, w.n)
	}
	used &^= 1
	if used == 1<<(s.seq+1)-2 {
		return
	}
	var rank [maxSeq + 1]uint8
	last := uint8(0)
	for q := range rank {
		if used&(1<<q) != 0 {
			last++
		}
		rank[q] = last
	}
	each(func(a *age) { *a = ageOf(a.stamp(), rank[a.seq()]) })
	for c := range w.calls {
		s.calls[c].base = rank[s.calls[c].base]
	}
	s.redrive.base = rank[s.redrive.base]
	for o := range s.owners {
		s.owners[o].claim.bound = rank[s.owners[o].claim.bound]
	}
	s.seq = last
}
