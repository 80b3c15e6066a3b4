package protocol

// redrives makes the steps of a person who takes all dead letters back.
func (w *world) redrives(s *state) {
	switch s.redrive.phase {
	case redriveIdle:
		w.redriveBegins(s)
	case redriveAged:
		n := *s
		n.redrive.phase = redriveWrites
		w.say("the redrive of %s writes", names(n.redrive.wave))
		w.out(redriveTx, 0, 0, &n)
	case redriveWrites:
		for i := range w.n {
			if s.redrive.todo.has(i) {
				n := *s
				w.revive(&n, i)
				w.say("%s is pending again, with Seq %d", name(i), n.records[i].age.seq())
				w.out(redriven, i, 0, &n)
			}
		}
	}
}

func (w *world) redriveBegins(s *state) {
	if int(s.redrive.used) == w.setup.Redrives {
		return
	}
	n := *s
	r := &n.redrive
	r.used++
	for i := range w.n {
		switch rec := &s.records[i]; {
		case rec.status == dead:
			r.wave.add(i)
			r.was[i] = rec.age
		case rec.status.live():
			r.elders.add(i)
		}
	}
	if r.wave == 0 {
		return
	}
	r.todo = r.wave
	r.base, r.stamp = w.take(&n, w.n, false)
	if w.setup.Store == Scanned {
		r.phase = redriveAged
		w.say("a person redrives %s: ages from Seq %d on", names(r.wave), r.base)
		w.out(redriveBegins, 0, 0, &n)
		return
	}
	w.say("a person redrives %s", names(r.wave))
	for i := range w.n {
		if n.redrive.todo.has(i) {
			w.revive(&n, i)
		}
	}
	w.out(redriveBegins, 0, 0, &n)
}

// revive makes a dead record of the redrive pending, as the youngest, behind
// those of the redrive that were older than it.
func (w *world) revive(n *state, i int) {
	r := &n.redrive
	place, earlier := uint8(0), set(0)
	for j := range w.n {
		if r.wave.has(j) && r.was[j] < r.was[i] {
			place++
			if w.keys[j] == w.keys[i] {
				earlier.add(j)
			}
		}
	}
	rec := &n.records[i]
	*rec = record{status: pending, age: ageOf(r.stamp, r.base+place)}
	if w.setup.Store == Scanned {
		rec.after = earlier
	}
	n.revived.add(i)
	n.sent.remove(i)
	n.before[i] = earlier
	for j := range w.n {
		n.before[j].remove(i)
		if r.elders.has(j) && w.keys[j] == w.keys[i] {
			n.before[i].add(j)
		}
	}
	for o := range n.owners {
		if l := &n.owners[o].local[i]; *l == wire || *l == stray {
			*l = past
		}
	}
	n.touch(i)
	r.todo.remove(i)
	if r.todo == 0 {
		n.redrive = redrive{used: r.used}
	}
}
