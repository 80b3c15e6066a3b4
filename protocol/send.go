package protocol

// sends makes an owner's steps of sending.
func (w *world) sends(s *state, o int) {
	me := &s.owners[o]
	for i := range w.n {
		switch me.local[i] {
		case queued:
			if (me.valid || !w.has(StopAtTermEnd)) && w.first(me, i) {
				w.sendBegins(s, o, i)
			}
		case wire, stray, past:
			w.sendEnds(s, o, i)
		}
	}
}

// first reports whether a queued record's turn has come: the older ones of its
// key are sent, and those that are to be dead letters are known to be.
func (w *world) first(me *owner, i int) bool {
	for j := range w.n {
		if j == i || w.keys[j] != w.keys[i] {
			continue
		}
		switch me.local[j] {
		case queued:
			if me.order[j] < me.order[i] {
				return false
			}
		case wire, stray, past, toBack, toDelay:
			return false
		case toBury:
			if w.has(ConfirmedBurial) {
				return false
			}
		}
	}
	return true
}

func (w *world) sendBegins(s *state, o, i int) {
	n := *s
	me := &n.owners[o]
	me.local[i] = wire
	switch {
	case !w.blind() && me.version < n.lease:
		w.wrong("sends side by side: %s begins to send %s under v%d after v%d has been given out", s.ownerName(o), name(i), me.version, n.lease)
	case me.late.has(i):
		w.wrong("late claim: %s begins to send %s, which it claimed under v%d after the store had seen v%d",
			s.ownerName(o), name(i), me.version, n.fence)
	}
	w.say("%s begins to send %s", s.ownerName(o), name(i))
	w.out(sendBegins, o, i, &n)
}

func (w *world) sendEnds(s *state, o, i int) {
	arrived := *s
	w.deliver(&arrived, o, i)

	n := arrived
	w.learn(&n, o, i, toEnd)
	w.say("%s has delivered %s", s.ownerName(o), name(i))
	w.out(sendDone, o, i, &n)
	if s.owners[o].local[i] != wire {
		return // nobody waits for what becomes of it
	}
	if n, ok := w.fault(&arrived, LostAnswers); ok {
		w.learn(&n, o, i, toBack)
		w.say("%s has delivered %s, and does not learn of it", s.ownerName(o), name(i))
		w.out(sendUnsure, o, i, &n)
	}
	if n, ok := w.fault(s, FailedSends); ok {
		w.learn(&n, o, i, toDelay)
		w.say("%s fails to send %s", s.ownerName(o), name(i))
		w.out(sendFails, o, i, &n)
	}
	if n, ok := w.fault(s, HopelessSends); ok {
		w.learn(&n, o, i, toBury)
		w.say("%s fails to send %s for good", s.ownerName(o), name(i))
		w.out(sendHopeless, o, i, &n)
	}
}

// deliver lets a record arrive. A send that was on the wire when the lease was
// lost may arrive in any order.
func (w *world) deliver(n *state, o, i int) {
	me := &n.owners[o]
	current := me.local[i] == wire && me.version == n.lease
	if current && !n.sent.has(i) {
		for j := range w.n {
			if n.sent.has(j) && n.before[j].has(i) {
				w.wrong("order: %s arrives for the first time after %s, which is younger", name(i), name(j))
			}
		}
	}
	if me.local[i] != past {
		n.sent.add(i)
	}
}

// learn takes up what a send came to.
func (w *world) learn(n *state, o, i int, to local) {
	me := &n.owners[o]
	if me.local[i] != wire {
		me.drop(i)
		return
	}
	me.local[i] = to
	if to == toBack || to == toDelay {
		w.tailBack(me, i)
	}
}

// tailBack puts back what waits behind a record.
func (w *world) tailBack(me *owner, i int) {
	for j := range w.n {
		if me.local[j] == queued && w.keys[j] == w.keys[i] {
			me.local[j] = toBack
		}
	}
}

// drop forgets a record that is settled, or another's.
func (o *owner) drop(i int) {
	o.local[i], o.order[i] = none, 0
	o.late.remove(i)
}

// settles makes an owner's steps of settling, also those that were on the way
// when its term ended.
func (w *world) settles(s *state, o int) {
	for i := range w.n {
		if s.owners[o].local[i] < toEnd {
			continue
		}
		stored := *s
		stale := w.settle(&stored, o, i)
		n := stored
		me := &n.owners[o]
		what := me.local[i]
		me.drop(i)
		if stale {
			w.tailBack(me, i)
			w.say("%s %s %s under v%d: it is another's", s.ownerName(o), what, name(i), me.version)
		} else {
			w.say("%s %s %s", s.ownerName(o), what, name(i))
		}
		w.out(settle, o, i, &n)
		if n, ok := w.fault(&stored, LostAnswers); ok && !stale {
			w.say("%s %s %s, and the answer is lost", s.ownerName(o), what, name(i))
			w.out(settleLost, o, i, &n)
		}
	}
}

// settle settles a record in the store.
func (w *world) settle(n *state, o, i int) (stale bool) {
	me := &n.owners[o]
	r := &n.records[i]
	mine := r.version == me.version
	was := *r
	switch to := me.local[i]; {
	case mine && r.status == to.settled():
		return false // done already, and the answer lost
	case !mine && !w.has(SettleToken) && r.status == claimed:
	case !mine || r.status != claimed:
		return true
	}
	switch me.local[i] {
	case toEnd:
		r.status = delivered
		if !n.sent.has(i) {
			w.wrong("loss: %s is completed and was never sent", name(i))
		}
	case toBury:
		r.status = dead
	case toBack:
		r.status = pending
	case toDelay:
		r.status, r.delayed = pending, true
	}
	if was.version != me.version {
		w.wrong("stale settle: %s changes %s under v%d, which is claimed under v%d", n.ownerName(o), name(i), me.version, was.version)
	}
	n.touch(i)
	return false
}

// settled is the status of a record that is settled so.
func (l local) settled() status {
	switch l {
	case toEnd:
		return delivered
	case toBury:
		return dead
	}
	return pending
}

// dues lets delayed records become due.
func (w *world) dues(s *state) {
	for i := range w.n {
		if s.records[i].status == pending && s.records[i].delayed {
			n := *s
			n.records[i].delayed = false
			w.say("%s is due", name(i))
			w.out(due, i, 0, &n)
		}
	}
}
