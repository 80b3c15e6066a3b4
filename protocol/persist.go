package protocol

// persist makes the steps of a call of Persist.
func (w *world) persist(s *state, c int) {
	switch s.calls[c].phase {
	case callIdle:
		if w.setup.Store == Atomic {
			w.persistAtOnce(s, c)
		} else {
			n := *s
			w.allocate(&n, c)
			w.say("%s is given ages from Seq %d on", w.callName(c), n.calls[c].base)
			w.out(allocate, c, 0, &n)
		}
	case callPuts:
		w.puts(s, c)
		if n, ok := w.fault(s, Crashes); ok {
			n.calls[c] = call{}
			w.say("the process of %s crashes; the call will be repeated", w.callName(c))
			w.out(crashCall, c, 0, &n)
		}
	}
}

// begin notes what the records of a call have to come after, if no Persist of
// them has begun before: what is stored.
func (w *world) begin(n *state, c int) {
	for _, i := range w.calls[c] {
		if n.begun.has(i) {
			continue
		}
		n.begun.add(i)
		for j := range w.n {
			if w.keys[j] == w.keys[i] && n.records[j].status != absent {
				n.before[i].add(j)
			}
		}
	}
}

// store stores a record of a call. It has to come after the earlier ones of its
// key in that call, too, but for one that has come back from the dead letters and
// is the youngest now.
func (w *world) store(n *state, c, place int, r record) {
	i := w.calls[c][place]
	n.records[i] = r
	for _, j := range w.calls[c][:place] {
		if w.keys[j] == w.keys[i] && !n.revived.has(j) {
			n.before[i].add(j)
		}
	}
}

// take gives ages: the first Seq of as many as asked for, and a stamp.
func (w *world) take(n *state, count int, fast bool) (base, stamp uint8) {
	if fast {
		stamp = 1
	}
	if w.has(MonotonicStamps) {
		stamp = max(stamp, n.stamp)
	}
	n.stamp = stamp
	base = n.seq + 1
	n.seq += uint8(count)
	return base, stamp
}

func (w *world) allocate(n *state, c int) {
	w.begin(n, c)
	cl := &n.calls[c]
	cl.phase = callPuts
	cl.base, cl.stamp = w.take(n, len(w.calls[c]), w.setup.FastClock && c == 0)
}

// item returns the record at a place of a call that has its ages.
func (w *world) item(s *state, c, place int) record {
	cl := &s.calls[c]
	i := w.calls[c][place]
	r := record{status: pending, age: ageOf(cl.stamp, cl.base+uint8(place))}
	for back := place - 1; back >= 0; back-- {
		j := w.calls[c][back]
		if w.setup.Store == Atomic || w.keys[j] != w.keys[i] {
			continue
		}
		r.after.add(j)
		if !w.has(AllLinks) {
			break
		}
	}
	return r
}

func (w *world) persistAtOnce(s *state, c int) {
	n := *s
	w.allocate(&n, c)
	for place, i := range w.calls[c] {
		if n.records[i].status == absent {
			w.store(&n, c, place, w.item(&n, c, place))
		}
	}
	n.calls[c].phase = callDone
	w.say("%s is stored and acknowledged", w.callName(c))
	w.out(persistAll, c, 0, &n)
	if !w.stored(s, c) {
		if n, ok := w.fault(&n, LostAnswers); ok {
			n.calls[c] = call{}
			w.say("%s is stored, and the answer lost; it will be repeated", w.callName(c))
			w.out(persistLost, c, 0, &n)
		}
	}
}

// stored reports whether all records of a call are stored.
func (w *world) stored(s *state, c int) bool {
	for _, i := range w.calls[c] {
		if s.records[i].status == absent {
			return false
		}
	}
	return true
}

// puts makes the next put of a call: of any record behind the earlier ones of its key.
func (w *world) puts(s *state, c int) {
	cl := &s.calls[c]
	for place, i := range w.calls[c] {
		if cl.done.has(place) || !w.turn(cl, c, place) {
			continue
		}
		n := *s
		w.put(&n, c, place)
		w.out(put, c, place, &n)
		if s.records[i].status != absent || s.ghost.there {
			continue
		}
		if n, ok := w.fault(s, Crashes); ok {
			r := w.item(s, c, place)
			n.ghost = ghost{there: true, call: uint8(c), place: uint8(place), age: r.age, after: r.after}
			n.calls[c] = call{}
			w.say("the process of %s crashes while its put of %s is on the way; the call will be repeated", w.callName(c), name(i))
			w.out(crashPut, c, place, &n)
		}
	}
}

func (w *world) turn(cl *call, c, place int) bool {
	for back := range place {
		if !cl.done.has(back) && w.keys[w.calls[c][back]] == w.keys[w.calls[c][place]] {
			return false
		}
	}
	return true
}

func (w *world) put(n *state, c, place int) {
	cl := &n.calls[c]
	i := w.calls[c][place]
	cl.done.add(place)
	r := w.item(n, c, place)
	if held := &n.records[i]; held.status == absent {
		w.store(n, c, place, r)
		w.say("%s stores %s with Seq %d", w.callName(c), name(i), r.age.seq())
	} else {
		w.say("%s finds %s stored already", w.callName(c), name(i))
		if w.has(FreshAges) && held.status != delivered && held.age > r.age {
			cl.phase = callIdle // what is left is given new ages
			w.say("%s finds %s stored already, and younger: what is left of it needs new ages", w.callName(c), name(i))
		}
	}
	if len(w.calls[c]) == cl.done.len() {
		if !w.stored(n, c) {
			w.wrong("loss: %s is acknowledged and not stored", w.callName(c))
		}
		cl.phase = callDone
	}
}

// ghosts lets the put of a process that is gone arrive, or get lost.
func (w *world) ghosts(s *state) {
	if !s.ghost.there {
		return
	}
	n := *s
	n.ghost = ghost{}
	c, place := int(s.ghost.call), int(s.ghost.place)
	i := w.calls[c][place]
	if s.records[i].status == absent {
		lost := n
		w.say("the put of %s that was on the way gets lost", name(i))
		w.out(ghostLost, 0, 0, &lost)
		w.store(&n, c, place, record{status: pending, age: s.ghost.age, after: s.ghost.after})
		w.say("the put of %s that was on the way arrives, with Seq %d", name(i), s.ghost.age.seq())
	} else {
		w.say("the put of %s that was on the way arrives, and finds it stored", name(i))
	}
	w.out(ghostLands, 0, 0, &n)
}
