package protocol

// claims makes an owner's steps of claiming.
func (w *world) claims(s *state, o int) {
	if w.setup.Store == Scanned {
		w.scans(s, o)
		return
	}
	n := *s
	got, stale := w.claimAtOnce(&n, o)
	switch {
	case stale:
		n.owners[o].valid = false
		w.say("%s claims under v%d, and learns that v%d has come", s.ownerName(o), s.owners[o].version, s.fence)
		w.out(claimAll, o, 0, &n)
	case got == 0 && s.fence == n.fence:
	default:
		kept := n
		w.handOver(&kept, o, got)
		w.say("%s claims %s under v%d", s.ownerName(o), names(got), s.owners[o].version)
		w.out(claimAll, o, 0, &kept)
		if n, ok := w.fault(&n, LostAnswers); ok && got != 0 {
			w.say("%s claims %s under v%d, and the answer is lost", s.ownerName(o), names(got), s.owners[o].version)
			w.out(claimLost, o, 0, &n)
		}
	}
}

// enter checks a version against the fence and raises that.
func (w *world) enter(n *state, version uint8) (stale bool) {
	if version < n.fence && w.has(FenceCheck) {
		return true
	}
	n.fence = max(n.fence, version)
	return false
}

// held is what an owner tells a claim.
func (w *world) held(o *owner) (held set) {
	if !w.has(HeldTold) {
		return 0
	}
	for i, l := range o.local {
		if l != none {
			held.add(i)
		}
	}
	return held
}

// claimable reports whether a record could be claimed if all older ones of its
// key are.
func (w *world) claimable(r *record, i int, version uint8, held set) bool {
	if held.has(i) {
		return false
	}
	switch r.status {
	case pending:
		return !r.delayed
	case claimed:
		return r.version < version || r.version == version && w.has(StrandedAtOnce)
	}
	return false
}

func (w *world) claimAtOnce(n *state, o int) (got set, stale bool) {
	me := &n.owners[o]
	if w.enter(n, me.version) {
		return 0, true
	}
	var free, stuck set
	var ages [maxRecords]age
	held := w.held(me)
	for i := range w.n {
		r := &n.records[i]
		ages[i] = r.age
		switch {
		case w.claimable(r, i, me.version, held):
			free.add(i)
		case r.status.live():
			stuck.add(i)
		}
	}
	got = w.choose(free, stuck, &ages)
	for i := range w.n {
		if got.has(i) {
			w.grant(n, o, i)
		}
	}
	return got, false
}

// choose returns the oldest that can be claimed.
func (w *world) choose(free, stuck set, ages *[maxRecords]age) (chosen set) {
	for chosen.len() < w.setup.Limit {
		best := -1
		for i := range w.n {
			if free.has(i) && (best < 0 || ages[i] < ages[best]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		free.remove(best)
		if !w.has(HeadOfLine) || !w.blocked(best, stuck, ages) {
			chosen.add(best)
		}
	}
	return chosen
}

func (w *world) blocked(i int, stuck set, ages *[maxRecords]age) bool {
	for j := range w.n {
		if stuck.has(j) && w.keys[j] == w.keys[i] && ages[j] < ages[i] {
			return true
		}
	}
	return false
}

// grant claims a record for an owner, in the store.
func (w *world) grant(n *state, o, i int) {
	me := &n.owners[o]
	if me.local[i] != none {
		w.wrong("claimed twice: %s is given %s under v%d while it still holds it", n.ownerName(o), name(i), me.version)
	}
	if me.version < n.fence && w.blind() {
		me.late.add(i)
	}
	r := &n.records[i]
	r.status, r.version, r.delayed = claimed, me.version, false
	n.touch(i)
}

// touch notes that a record is not any more as a claim may have read it.
func (n *state) touch(i int) {
	for o := range n.owners {
		if n.owners[o].claim.todo.has(i) {
			n.owners[o].claim.dirty.add(i)
		}
	}
}

// handOver gives claimed records to the owner that claimed them. One of a key of
// which it holds an older one goes back: a settle has been done, and the owner has
// not learned of it.
func (w *world) handOver(n *state, o int, got set) {
	me := &n.owners[o]
	if !me.valid {
		return
	}
	var busy [256]bool
	for i := range w.n {
		if me.local[i] != none {
			busy[w.keys[i]] = true
		}
	}
	for i := range w.n {
		if !got.has(i) {
			continue
		}
		me.local[i], me.order[i] = queued, n.records[i].age
		if busy[w.keys[i]] {
			me.local[i] = toBack
		}
	}
}
