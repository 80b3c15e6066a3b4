package protocol

// scans makes the steps of a claim that reads record by record and writes in
// several transactions.
func (w *world) scans(s *state, o int) {
	switch s.owners[o].claim.phase {
	case claimIdle:
		w.scanBegins(s, o)
	case claimScan:
		n := *s
		w.read(&n, o)
		w.out(read, o, 0, &n)
	case claimLookUp:
		w.lookUps(s, o)
	case claimWrite:
		w.writes(s, o)
	}
}

// scanBegins reads the fence row and raises it.
func (w *world) scanBegins(s *state, o int) {
	if !s.owners[o].valid || !w.worthwhile(s, o) {
		return
	}
	n := *s
	me := &n.owners[o]
	if w.enter(&n, me.version) {
		me.valid = false
		w.say("%s begins a claim under v%d, and learns that v%d has come", s.ownerName(o), me.version, s.fence)
	} else {
		me.claim = claim{phase: claimScan, bound: n.seq, held: w.held(me)}
		w.say("%s begins a claim under v%d: newest Seq %d", s.ownerName(o), me.version, n.seq)
	}
	w.out(claimBegins, o, 0, &n)
}

// worthwhile leaves out claims that can see nothing.
func (w *world) worthwhile(s *state, o int) bool {
	for c := range w.calls {
		if s.calls[c].phase != callDone {
			return true
		}
	}
	held := w.held(&s.owners[o])
	for i := range w.n {
		if s.records[i].status.live() && !held.has(i) {
			return true
		}
	}
	return s.ghost.there || s.redrive.phase != redriveIdle || s.redrive.used < uint8(w.setup.Redrives)
}

// read reads the next record of the scan, and selects after the last.
func (w *world) read(n *state, o int) {
	me := &n.owners[o]
	cl := &me.claim
	i := int(cl.pos)
	cl.pos++
	r := &n.records[i]
	switch {
	case !r.status.live():
		w.say("%s reads the place of %s: nothing to claim", n.ownerName(o), name(i))
	case w.has(SnapshotBound) && r.age.seq() > cl.bound:
		w.say("%s reads %s, and ignores it: Seq %d was given out after the claim began", n.ownerName(o), name(i), r.age.seq())
	case w.claimable(r, i, me.version, cl.held):
		w.say("%s reads %s", n.ownerName(o), name(i))
		cl.free.add(i)
		cl.saw[i] = r.age
	default:
		w.say("%s reads %s, which holds up its key", n.ownerName(o), name(i))
		cl.stuck.add(i)
		cl.saw[i] = r.age
	}
	if int(cl.pos) < w.n {
		return
	}
	cl.todo = w.choose(cl.free, cl.stuck, &cl.saw)
	cl.free, cl.stuck, cl.pos = 0, 0, 0
	for i := range w.n {
		if cl.todo.has(i) && w.has(SiblingLinks) {
			cl.ask |= n.records[i].after.without(cl.todo)
		}
	}
	w.selected(n, o)
}

// selected goes on to the look-ups, or, after the last, reads what is selected
// once more, and goes on to write.
func (w *world) selected(n *state, o int) {
	me := &n.owners[o]
	cl := &me.claim
	cl.phase = claimLookUp
	if cl.ask != 0 && cl.todo != 0 {
		return
	}
	cl.ask, cl.bound, cl.dirty, cl.phase = 0, 0, 0, claimWrite
	for i := range w.n {
		r := &n.records[i]
		if cl.todo.has(i) && (r.age != cl.saw[i] || !w.claimable(r, i, me.version, cl.held)) {
			w.lose(cl, i)
		}
	}
	cl.held = 0
	w.forget(cl)
	if cl.todo == 0 {
		*cl = claim{}
	}
}

// forget forgets the ages that nothing compares any more.
func (w *world) forget(cl *claim) {
	for i := range w.n {
		if !cl.todo.has(i) {
			cl.saw[i] = 0
		}
	}
}

// lose gives a selected record up, and the younger ones of its key.
func (w *world) lose(cl *claim, i int) {
	for j := range w.n {
		if w.has(SkipAfterFailedHead) && w.keys[j] == w.keys[i] && cl.saw[j] > cl.saw[i] {
			cl.todo.remove(j)
		}
	}
	cl.todo.remove(i)
}

// lookUps looks up an earlier sibling of a selected record.
func (w *world) lookUps(s *state, o int) {
	for i := range w.n {
		if !s.owners[o].claim.ask.has(i) || s.locked(i) {
			continue
		}
		n := *s
		cl := &n.owners[o].claim
		cl.ask.remove(i)
		r := &n.records[i]
		w.say("%s looks up %s: in nobody's way", n.ownerName(o), name(i))
		for j := range w.n {
			if cl.todo.has(j) && r.status.live() && n.records[j].after.has(i) && (r.age < cl.saw[j] || !w.has(OlderLinks)) {
				w.say("%s looks up %s, which holds up %s", n.ownerName(o), name(i), name(j))
				w.dropTail(cl, j)
			}
		}
		w.selected(&n, o)
		w.out(lookUp, o, i, &n)
	}
}

// dropTail takes a record and the younger ones of its key out of the selection.
func (w *world) dropTail(cl *claim, i int) {
	for j := range w.n {
		if w.keys[j] == w.keys[i] && cl.saw[j] >= cl.saw[i] {
			cl.todo.remove(j)
		}
	}
}

// locked reports whether a record is in a transaction that is half visible.
func (s *state) locked(i int) bool {
	return s.redrive.phase == redriveWrites && s.redrive.wave.has(i)
}

// writes makes a claim's next transaction.
func (w *world) writes(s *state, o int) {
	n := *s
	me := &n.owners[o]
	if me.version < n.fence && w.has(FenceCheck) {
		me.claim, me.valid = claim{}, false
		w.say("%s goes on with its claim under v%d, and learns that v%d has come", s.ownerName(o), me.version, s.fence)
		w.out(write, o, 0, &n)
		return
	}
	for i := range w.n {
		if me.claim.todo.has(i) && s.locked(i) {
			return
		}
	}
	chunk := w.chunk(&n, o)
	for i := range w.n {
		if chunk.has(i) {
			w.grant(&n, o, i)
		}
	}
	lost := n
	me.claim.got |= chunk
	me.claim.todo = me.claim.todo.without(chunk)
	w.say("%s claims %s under v%d", s.ownerName(o), names(chunk), me.version)
	w.wrote(&n, o)
	w.out(write, o, 0, &n)
	if lost, ok := w.fault(&lost, LostAnswers); ok && chunk != 0 {
		got := lost.owners[o].claim.got
		w.say("%s claims %s under v%d, and gives up waiting for the answer", s.ownerName(o), names(chunk), me.version)
		w.handOver(&lost, o, got)
		lost.owners[o].claim = claim{}
		w.out(writeLost, o, 0, &lost)
	}
	w.conflicts(s, o)
}

// chunk is what the next transaction claims: without what has changed since it
// was read.
func (w *world) chunk(n *state, o int) (chunk set) {
	cl := &n.owners[o].claim
	for i := range w.n {
		if cl.todo.has(i) && cl.dirty.has(i) {
			w.lose(cl, i)
		}
	}
	todo := cl.todo
	for todo != 0 && chunk.len() < w.setup.Chunk {
		best := -1
		for i := range w.n {
			if todo.has(i) && (best < 0 || cl.saw[i] < cl.saw[best]) {
				best = i
			}
		}
		todo.remove(best)
		chunk.add(best)
	}
	return chunk
}

// wrote ends the claim after its last transaction.
func (w *world) wrote(n *state, o int) {
	cl := &n.owners[o].claim
	w.forget(cl)
	if cl.todo == 0 {
		got := cl.got
		*cl = claim{}
		w.handOver(n, o, got)
	}
}

// conflicts lets a record be in the way of its transaction until it is left out.
func (w *world) conflicts(s *state, o int) {
	for i := range w.n {
		n, ok := w.fault(s, Conflicts)
		if !ok || !s.owners[o].claim.todo.has(i) {
			continue
		}
		w.lose(&n.owners[o].claim, i)
		w.say("%s cannot claim %s for conflicts, and goes on without it", s.ownerName(o), name(i))
		w.wrote(&n, o)
		w.out(conflict, o, i, &n)
	}
}
