package protocol

// leases makes an owner's steps that have to do with the lease.
//
// There is no time in the model. That a lease was unchanged for a whole term by
// an observer's clock is a step, and it implies that the holder's term, which it
// counts from before it asked, has ended by its own clock as well. So in that step
// the holder's term ends: at the latest, but the holder can be slow in everything,
// which is all that a shorter term could do to it.
func (w *world) leases(s *state, o int) {
	me := &s.owners[o]
	switch {
	case me.version == 0:
		w.observe(s, o)
		w.acquires(s, o)
		return
	case !me.valid:
		n := *s
		n.owners[o].lose()
		w.say("%s finds that its term has ended, and drops what it has claimed", s.ownerName(o))
		w.out(drop, o, 0, &n)
	case w.empty(me) && s.lease == me.version:
		if n, ok := w.fault(s, Handovers); ok {
			n.owners[o].lose()
			n.released = true
			n.changed()
			w.say("%s gives its lease up", s.ownerName(o))
			w.out(leave, o, 0, &n)
		}
	}
	w.renews(s, o)
	if n, ok := w.fault(s, Crashes); ok {
		n.owners[o] = owner{}
		w.say("%s crashes", s.ownerName(o))
		w.out(crash, o, 0, &n)
	}
}

// lose ends the holding of a lease. Sends that are on the wire stay there.
func (o *owner) lose() {
	was := *o
	*o = owner{}
	for i, l := range was.local {
		switch l {
		case wire, stray:
			o.local[i] = stray
		case past:
			o.local[i] = past
		}
	}
}

func (w *world) empty(o *owner) bool {
	return o.local == [maxRecords]local{} && o.claim.phase == claimIdle
}

// changed makes what was observed of the lease out of date.
func (n *state) changed() {
	for o := range n.owners {
		if n.owners[o].ripe == ripe {
			n.owners[o].ripe = outdate
		}
	}
}

// observe lets a process that does not hold the lease see it unchanged for a
// whole term.
func (w *world) observe(s *state, o int) {
	if s.lease == 0 || s.released || s.owners[o].ripe == ripe {
		return
	}
	holder := -1
	for h := range s.owners {
		if s.owners[h].version == s.lease && s.owners[h].valid {
			holder = h
		}
	}
	if holder < 0 {
		n := *s
		n.owners[o].ripe = ripe
		w.say("%s has seen the lease unchanged for a whole term", s.ownerName(o))
		w.out(expiry, o, 0, &n)
		return
	}
	if n, ok := w.fault(s, Pauses); ok {
		n.owners[o].ripe = ripe
		n.owners[holder].valid = false
		w.say("%s is paused or cut off for a whole term, and %s has seen the lease unchanged for as long", s.ownerName(holder), s.ownerName(o))
		w.out(cutOff, o, 0, &n)
	}
	if n, ok := w.fault(s, StoppedClock); ok {
		n.owners[o].ripe = ripe
		w.say("%s is paused for a whole term with its clock, does not know it, and %s has seen the lease unchanged for as long",
			s.ownerName(holder), s.ownerName(o))
		w.out(cutOffBlind, o, 0, &n)
	}
}

func (w *world) acquires(s *state, o int) {
	free := s.lease == 0 || s.released
	seen := s.owners[o].ripe == ripe || s.owners[o].ripe == outdate && !w.has(ObservedLease)
	if !free && !seen {
		return
	}
	taken := *s
	taken.lease = max(s.lease, s.fence) + 1
	taken.released = false
	taken.owners[o].ripe = unripe
	taken.changed()

	n := taken
	n.owners[o].version, n.owners[o].valid = n.lease, true
	w.alone(&n, o)
	w.say("%s takes the lease: v%d", s.ownerName(o), n.lease)
	w.out(acquire, o, 0, &n)

	if n, ok := w.fault(&taken, LostAnswers); ok {
		n.owners[o].ripe = ripe // it finds its own name there
		w.say("%s takes the lease as v%d, and the answer is lost", s.ownerName(o), n.lease)
		w.out(acquireLost, o, 0, &n)
	}
}

// alone checks that no other owner's term is running, by its own clock. Where a
// clock may stand still nobody can promise that.
func (w *world) alone(n *state, o int) {
	for other := range n.owners {
		if other != o && n.owners[other].valid && !w.blind() {
			w.wrong("two owners: %s under v%d and %s under v%d both hold the lease, each by its own clock",
				n.ownerName(o), n.owners[o].version, n.ownerName(other), n.owners[other].version)
		}
	}
}

func (w *world) blind() bool { return w.setup.Of&StoppedClock != 0 }

// renews lets a renewal be written, also one that was on the way when the term
// ended, and the answer arrive.
func (w *world) renews(s *state, o int) {
	me := &s.owners[o]
	if me.renewing {
		n := *s
		n.owners[o].renewing = false
		w.say("%s learns that its lease is renewed", s.ownerName(o))
		if !me.valid && !w.has(TermFromRequest) {
			n.owners[o].valid = true
			w.say("%s learns that its lease is renewed, and counts its term from now", s.ownerName(o))
			w.alone(&n, o)
		}
		w.out(renewAnswer, o, 0, &n)
		return
	}
	if s.lease != me.version || s.released || int(s.renewals) == w.setup.Renewals {
		return
	}
	n := *s
	n.renewals++
	n.owners[o].renewing = true
	n.changed()
	w.say("a renewal by %s is written", s.ownerName(o))
	w.out(renew, o, 0, &n)
}
