package protocol

// HeartRule is a rule of renewing many leases with one write, as the DynamoDB
// store does it: each lease names a heart, a row that counts renewals, and is
// unchanged as long as neither its own row nor its heart has changed.
type HeartRule uint8

// The rules that can be taken out.
const (
	// NoHeartRule is none of them.
	NoHeartRule HeartRule = iota
	// StopFirst: whoever takes a lease over stops its heart first; a stopped heart never beats.
	StopFirst
	// BeatsChecked: a heart is stopped only if it has not beaten since it was observed.
	BeatsChecked
	// RowAsSeen: the holder changes a row only if it is as it was last seen.
	RowAsSeen
	// ExactCover: a heart beats for nothing but what is renewed.
	ExactCover
	// DoubtCovers: a row that may have come under the heart counts as being there.
	DoubtCovers
)

var heartRuleNames = [...]string{
	NoHeartRule: "none", StopFirst: "a takeover stops the heart first", BeatsChecked: "only a heart that has not beaten is stopped",
	RowAsSeen: "rows are changed as they were last seen", ExactCover: "a heart beats for nothing else",
	DoubtCovers: "what may be under a heart counts as being there",
}

func (r HeartRule) String() string { return heartRuleNames[r] }

const (
	heartLeases = 2
	heartCount  = 4 // the first is none
)

// hearts is a state: a holder of two leases, somebody who may take them over, and
// the rows.
type hearts struct {
	rows  [heartLeases]heartRow
	beats [heartCount]uint8
	ended [heartCount]bool // stopped

	// Of the holder.
	heart    uint8             // that it uses, zero for none
	made     uint8             // hearts so far
	covered  [heartLeases]bool // known to be under it
	under    [heartLeases]bool // known to be, or may be: the answer was lost
	valid    [heartLeases]bool // its term runs, by its own clock
	blind    [heartLeases]bool // its clock stood still: the term is over, and it does not know
	fresh    [heartLeases]bool // from a renewal that began after the other one's look
	renewals uint8
	phase    uint8 // of a renewal: none, before its beat, writing rows
	asked    [heartLeases]bool
	todo     [heartLeases]bool
	read     [heartLeases]uint8 // the row's revision and one, zero before it is read
	newer    [heartLeases]bool  // the renewal began after the other one's look
	late     lateRow
	faults   uint8

	// Of the other.
	seen [heartLeases]sight
	ripe [heartLeases]bool  // seen unchanged for a whole term
	take [heartLeases]uint8 // none, before the heart is stopped, before the row is written
}

// heartRow is a lease's own row. Taken says that the other has it.
type heartRow struct {
	revision, heart uint8
	taken           bool
}

// lateRow is a row's write that arrives later, or never.
type lateRow struct {
	lease, over, heart uint8
	sent               bool
}

type sight struct {
	revision, heart, beats uint8
	any                    bool
}

func (h *hearts) now(lease int) sight {
	r := h.rows[lease]
	return sight{r.revision, r.heart, h.beats[r.heart], true}
}

// heartSteps are what can happen, each to a lease or to the holder.
var heartSteps = [...]string{
	"the holder begins to renew", "its heart beats", "its heart beats, and the answer is lost", "it reads row", "it writes row",
	"it writes row, and the answer is lost", "its write is under way, and it gives up: row", "the late write arrives: row",
	"it drops, without releasing it, lease", "the other looks at lease", "a term has passed since the look at lease",
	"a term has passed, the holder's clock standing still, since the look at lease",
	"the other begins to take lease", "it stops the heart of lease", "it writes the row of lease",
}

const (
	heartBegin uint8 = iota
	heartBeat
	heartBeatLost
	heartRead
	heartWrite
	heartWriteLost
	heartWriteLate
	heartArrive
	heartDrop
	heartLook
	heartTerm
	heartStill
	heartTake
	heartStop
	heartPut
)

// heartWorld is the model.
type heartWorld struct {
	without  HeartRule
	renewals uint8
	faults   uint8
	emit     func(step, *hearts, string)
}

func (w *heartWorld) has(r HeartRule) bool { return w.without != r }

func (w *heartWorld) start() hearts {
	var s hearts
	s.heart, s.made = 1, 1
	for p := range heartLeases {
		s.rows[p] = heartRow{revision: 1, heart: 1}
		s.covered[p], s.under[p], s.valid[p] = true, true, true
	}
	return s
}

func (w *heartWorld) identity(s *hearts) hearts { return *s }
func (w *heartWorld) progress(step) bool        { return false }
func (w *heartWorld) done(*hearts) bool         { return true }
func (w *heartWorld) outside(s *hearts) bool    { return s.made == heartCount }

func (w *heartWorld) next(s *hearts, emit func(step, *hearts, string)) {
	w.emit = emit
	w.renews(s)
	for p := range heartLeases {
		w.writes(s, p)
		w.takes(s, p)
	}
}

func (w *heartWorld) out(what uint8, p int, n *hearts, bad string) {
	w.emit(step{actor: what, arg: uint8(p)}, n, bad)
}

// renews makes the holder's steps that are about all its leases.
func (w *heartWorld) renews(s *hearts) {
	switch s.phase {
	case 0:
		if s.renewals == w.renewals || s.valid == [heartLeases]bool{} {
			return
		}
		n := *s
		n.renewals++
		n.asked = n.valid
		n.todo = [heartLeases]bool{}
		for p := range heartLeases {
			n.newer[p] = true
			if n.under[p] && !n.asked[p] && w.has(ExactCover) {
				n.leave()
			}
		}
		for p := range heartLeases {
			n.todo[p] = n.asked[p] && !n.covered[p]
		}
		n.phase = 1
		if n.covered == [heartLeases]bool{} {
			n.write()
		}
		w.out(heartBegin, 0, &n, "")
	case 1:
		w.beat(s)
	}
}

// leave makes the holder leave its heart.
func (s *hearts) leave() { s.heart, s.covered, s.under = 0, [heartLeases]bool{}, [heartLeases]bool{} }

// write makes it go on to rows.
func (s *hearts) write() {
	s.phase, s.read = 2, [heartLeases]uint8{}
	if s.todo == [heartLeases]bool{} {
		s.phase = 0
	} else if s.heart == 0 && s.made < heartCount-1 {
		s.made++
		s.heart = s.made
	}
}

func (w *heartWorld) beat(s *hearts) {
	n := *s
	if n.ended[n.heart] {
		n.leave()
		n.todo = n.asked
		n.write()
		w.out(heartBeat, 0, &n, "")
		return
	}
	n.beats[n.heart]++
	bad := ""
	for p := range heartLeases {
		if !n.rows[p].taken && n.rows[p].heart == n.heart && !n.asked[p] {
			bad = "kept alive: a lease that its holder does not renew any more"
		}
	}
	if n.faults < w.faults {
		lost := n
		lost.faults++
		lost.write()
		w.out(heartBeatLost, 0, &lost, bad)
	}
	for p := range heartLeases {
		if n.covered[p] && n.asked[p] {
			if n.renewed(p); n.rows[p].taken {
				bad = "false renewal: the holder is told that it has renewed a lease that has been taken over"
			}
		}
	}
	n.write()
	w.out(heartBeat, 0, &n, bad)
}

// writes makes the holder's steps that are about one lease.
func (w *heartWorld) writes(s *hearts, p int) {
	if s.valid[p] && s.faults < w.faults {
		n := *s
		n.faults++
		n.valid[p] = false
		w.out(heartDrop, p, &n, "")
	}
	if s.late.sent && int(s.late.lease) == p {
		n := *s
		n.late = lateRow{}
		if r := n.rows[p]; !r.taken && (r.revision == s.late.over || !w.has(RowAsSeen)) {
			n.rows[p] = heartRow{revision: r.revision + 1, heart: s.late.heart}
		}
		w.out(heartArrive, p, &n, "")
	}
	if s.phase != 2 || !s.todo[p] {
		return
	}
	if s.read[p] == 0 {
		n := *s
		if n.read[p] = n.rows[p].revision + 1; n.rows[p].taken { // it learns that it has lost it
			n.valid[p], n.covered[p], n.under[p] = false, false, false
			n.finish(p)
		}
		w.out(heartRead, p, &n, "")
		return
	}
	n := *s
	r := n.rows[p]
	if over := s.read[p] - 1; r.taken || r.revision != over && w.has(RowAsSeen) {
		n.read[p] = 0 // it looks again
		w.out(heartWrite, p, &n, "")
		return
	}
	n.rows[p] = heartRow{revision: r.revision + 1, heart: n.heart}
	n.under[p] = w.has(DoubtCovers)
	n.finish(p)
	if n.faults < w.faults {
		lost := n
		lost.faults++
		w.out(heartWriteLost, p, &lost, "")
		if !s.late.sent {
			late := *s
			late.faults++
			late.late = lateRow{lease: uint8(p), over: s.read[p] - 1, heart: s.heart, sent: true}
			late.under[p] = w.has(DoubtCovers)
			late.finish(p)
			w.out(heartWriteLate, p, &late, "")
		}
	}
	n.covered[p], n.under[p] = true, true
	n.renewed(p)
	w.out(heartWrite, p, &n, "")
}

// renewed makes the holder learn that a lease is renewed.
func (s *hearts) renewed(p int) {
	if s.newer[p] {
		s.fresh[p], s.blind[p] = true, false
	}
}

// finish ends the part of a renewal that is about one row.
func (s *hearts) finish(p int) {
	s.todo[p], s.read[p] = false, 0
	if s.todo == [heartLeases]bool{} {
		s.phase = 0
	}
}

// takes makes the other's steps.
func (w *heartWorld) takes(s *hearts, p int) {
	if s.rows[p].taken {
		return
	}
	now := s.now(p)
	same := s.seen[p] == now
	if !same && s.take[p] == 0 {
		n := *s
		n.seen[p], n.ripe[p], n.fresh[p], n.newer[p] = now, false, false, false
		w.out(heartLook, p, &n, "")
	}
	if same && !s.ripe[p] {
		n := *s
		n.ripe[p] = true
		over := n.valid[p] && !n.fresh[p] // a term that was counted from before the look
		if over && n.faults < w.faults {
			still := n
			still.faults++
			still.blind[p] = true
			w.out(heartStill, p, &still, "")
		}
		n.valid[p] = n.valid[p] && !over
		w.out(heartTerm, p, &n, "")
	}
	switch n := *s; s.take[p] {
	case 0:
		if !s.ripe[p] || !same {
			return
		}
		n.take[p] = 1
		if s.ended[now.heart] || !w.has(StopFirst) {
			n.take[p] = 2
		}
		w.out(heartTake, p, &n, "")
	case 1:
		n.take[p] = 2
		if n.beats[s.seen[p].heart] == s.seen[p].beats || !w.has(BeatsChecked) {
			n.ended[s.seen[p].heart] = true
		} else {
			n.take[p] = 0
		}
		w.out(heartStop, p, &n, "")
	case 2:
		n.take[p] = 0
		bad := ""
		if n.rows[p].revision == s.seen[p].revision {
			n.rows[p].taken = true
			if n.valid[p] && !n.blind[p] {
				bad = "two owners: the holder's term runs, by its own clock"
			}
		}
		w.out(heartPut, p, &n, bad)
	}
}

// exploreHearts visits every state.
func exploreHearts(without HeartRule, renewals, faults uint8) Result {
	f := explore[hearts](&heartWorld{without: without, renewals: renewals, faults: faults}, 20_000_000)
	var trace []string
	for _, s := range f.way {
		line := heartSteps[s.actor]
		if s.actor >= heartRead {
			line += " " + string(rune('A'+s.arg))
		}
		trace = append(trace, line)
	}
	return Result{States: f.states, Depth: f.depth, Complete: !f.cut && f.bad == "", Failure: f.bad, Trace: trace}
}
