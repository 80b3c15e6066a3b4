package bridge

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gobridge"
)

type opKind uint8

const (
	opComplete opKind = iota
	opRelease
	opBury
)

// op is what is to become of one claimed record.
type op struct {
	item   *item
	kind   opKind
	as     gobridge.State // of a completion
	tried  gobridge.Tried
	pause  time.Duration // of a release, unless zero: before the next claim
	until  time.Time     // of a release: when that is over, the same for every repetition of the call
	reason string
	err    string
	halt   *gobridge.Control // of a release: in force before it; shared with its tail
	ends   bool              // the group waits for it

	answer error // of the store: nil, stale or full
}

// ops are operations by kind: each kind is one call.
type ops [3][]op

func (o *ops) add(other *ops) {
	for kind := range other {
		o[kind] = append(o[kind], other[kind]...)
	}
}

func (o *ops) len() int { return len(o[opComplete]) + len(o[opRelease]) + len(o[opBury]) }

// settler settles beside the loop: what has come together while a call was on
// its way goes with the next one. A call whose outcome is unknown is repeated
// until the lease ends.
type settler struct {
	d       *drainer
	next    ops       // of the loop: collected since the last kick
	settled chan []op // answers, to the loop

	mu      sync.Mutex
	queue   ops
	running bool
}

func newSettler(d *drainer) *settler {
	return &settler{d: d, settled: make(chan []op)}
}

// settleLater hands an operation over with the next kick.
func (d *drainer) settleLater(o op) {
	d.unload(o.item)
	d.unsettled++
	if o.pause > 0 {
		o.until = d.bridge.opts.Now().Round(0).Add(o.pause)
	}
	d.settler.next[o.kind] = append(d.settler.next[o.kind], o)
}

// releaseTail puts back what waits in a group, untried, together with its head
// if that was tried.
func (d *drainer) releaseTail(g *group, head *op) {
	var halt *gobridge.Control
	if head != nil {
		halt = head.halt
		d.settleLater(*head)
	}
	tail := g.queue
	g.queue = nil
	for _, it := range tail {
		d.settleLater(op{item: it, kind: opRelease, halt: halt})
	}
	d.proceed(g)
}

// kick hands what the loop has collected to the settling goroutine, which lives
// as long as there is something.
func (s *settler) kick() {
	if s.next.len() == 0 {
		return
	}
	s.mu.Lock()
	s.queue.add(&s.next)
	start := !s.running
	s.running = true
	s.mu.Unlock()
	for kind := range s.next {
		clear(s.next[kind])
		s.next[kind] = s.next[kind][:0]
	}
	if start {
		s.d.tasks.Go(s.run)
	}
}

func (s *settler) run() {
	failures := 0
	for {
		s.mu.Lock()
		todo := s.queue
		s.queue = ops{}
		s.running = todo.len() > 0
		s.mu.Unlock()
		if todo.len() == 0 {
			return
		}
		again := s.settle(&todo)
		for _, answered := range todo {
			if len(answered) == 0 {
				continue
			}
			select {
			case s.settled <- answered:
			case <-s.d.work.Done():
				return
			}
		}
		if again.len() == 0 {
			failures = 0
			continue
		}
		s.mu.Lock()
		again.add(&s.queue)
		s.queue = again
		s.mu.Unlock()
		failures++
		select {
		case <-time.After(backoff(minPoll, time.Second, failures-1)):
		case <-s.d.work.Done():
			return
		}
	}
}

// settle makes the calls for todo, one for each kind. It leaves in todo what has
// an answer and returns what is to be tried again.
func (s *settler) settle(todo *ops) (again ops) {
	todo[opRelease], again[opRelease] = s.halts(todo[opRelease])
	for kind := range todo {
		if len(todo[kind]) > 0 && !s.call(opKind(kind), todo[kind]) {
			again[kind] = append(again[kind], todo[kind]...)
			todo[kind] = nil
		}
	}
	return again
}

// halts puts the halts among the releases in force, and splits the releases
// into those that may go and those whose halt failed.
func (s *settler) halts(releases []op) (free, held []op) {
	if !slices.ContainsFunc(releases, func(o op) bool { return o.halt != nil }) {
		return releases, nil
	}
	inForce := map[*gobridge.Control]bool{}
	for _, o := range releases {
		if o.halt != nil {
			done, tried := inForce[o.halt]
			if !tried {
				done = s.halt(*o.halt) == nil
				inForce[o.halt] = done
			}
			if !done {
				held = append(held, o)
				continue
			}
		}
		free = append(free, o)
	}
	return free, held
}

func (s *settler) halt(c gobridge.Control) error {
	if s.d.lost() {
		return errTermEnded
	}
	ctx, cancel := context.WithTimeout(s.d.work, settleTimeout)
	defer cancel()
	err := s.d.bridge.store.SetControl(ctx, c)
	if err != nil && !s.d.lost() {
		s.d.trouble("key cannot be halted yet", err)
	}
	return err
}

// call makes one settling call and puts the answers into ops. It reports false
// if nothing is known.
func (s *settler) call(kind opKind, ops []op) bool {
	d, store := s.d, s.d.bridge.store
	if d.lost() {
		return false
	}
	ctx, cancel := context.WithTimeout(d.work, settleTimeout)
	defer cancel()
	began := time.Now()
	var err error
	switch kind {
	case opComplete:
		list := make([]gobridge.Completion, len(ops))
		for i, o := range ops {
			list[i] = gobridge.Completion{Ref: o.item.ref(), As: o.as, Reason: o.reason, Error: o.err}
		}
		err = store.Complete(ctx, d.token, list)
	case opRelease:
		list := make([]gobridge.Release, len(ops))
		for i, o := range ops {
			list[i] = gobridge.Release{Ref: o.item.ref(), Tried: o.tried, NotBefore: o.until, Reason: o.reason, Error: o.err}
		}
		err = store.Release(ctx, d.token, list)
	case opBury:
		list := make([]gobridge.Burial, len(ops))
		for i, o := range ops {
			list[i] = gobridge.Burial{Ref: o.item.ref(), Tried: o.tried, Reason: o.reason, Error: o.err}
		}
		err = store.DeadLetter(ctx, d.token, list)
	}
	return s.answer(ops, time.Since(began), err)
}

// answer sorts out what a settling call said.
func (s *settler) answer(ops []op, took time.Duration, err error) bool {
	var partial *gobridge.SettleError
	stale := errors.Is(err, gobridge.ErrStaleFencingToken) || errors.Is(err, gobridge.ErrInvalidToken)
	switch {
	case err == nil:
	case errors.As(err, &partial):
		failed := make(map[gobridge.Ref]error, len(partial.Failed))
		for _, f := range partial.Failed {
			failed[f.Ref] = f
		}
		for i := range ops {
			ops[i].answer = failed[ops[i].item.ref()]
		}
	case stale:
		for i := range ops {
			ops[i].answer = err
		}
	default:
		if !s.d.lost() {
			s.d.observe(s.d.work, Event{Kind: EventSettleFailed, Count: len(ops), Took: took, Err: err})
			s.d.trouble("settling failed; it is tried again", err, slog.Int("records", len(ops)))
		}
		return false
	}
	s.d.observe(s.d.work, Event{Kind: EventSettled, Count: len(ops), Took: took})
	return true
}

// settled takes up the answers of the store.
func (d *drainer) settled(ops []op) {
	var counts [6]int // by what happened, for the observer
	const released, expired, discarded, buried, stale = 0, 1, 2, 3, 4
	var cause string
	for i := range ops {
		o := &ops[i]
		d.unsettled--
		if o.ends {
			o.item.group.busy--
		}
		if errors.Is(o.answer, gobridge.ErrDeadLettersFull) {
			d.log(slog.LevelError, "dead letters are full; the key is halted", about(&o.item.rec.Envelope))
			d.halt(o.item, o.tried, o.reason, o.err+" ("+gobridge.ErrDeadLettersFull.Error()+")")
			continue
		}
		d.drop(o.item)
		if o.answer != nil { // another's, or discarded by a person
			counts[stale]++
			d.more = true
			d.releaseTail(o.item.group, nil)
			continue
		}
		switch {
		case o.kind == opRelease:
			counts[released]++
			d.dueAfter(o.pause)
		case o.kind == opBury:
			counts[buried]++
			cause = o.err
		case o.as == gobridge.StateExpired:
			counts[expired]++
		case o.as == gobridge.StateDiscarded:
			counts[discarded]++
			cause = o.err
		}
		if o.item.rec.Envelope.OrderingKey != "" {
			d.more = true // what it held up may be claimable
		}
		d.proceed(o.item.group)
	}
	for what, kind := range []EventKind{EventReleased, EventExpired, EventDiscarded, EventDeadLettered, EventStale} {
		if n := counts[what]; n > 0 {
			d.observe(d.work, Event{Kind: kind, Count: n, Err: asError(cause)})
		}
	}
	if n := counts[stale]; n > 0 {
		d.log(slog.LevelWarn, "records were another's when settled", slog.Int("records", n))
	}
}

func asError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// dueAfter wakes the loop when a released record is due.
func (d *drainer) dueAfter(pause time.Duration) {
	if pause <= 0 {
		d.more = true
		return
	}
	if at := time.Now().Add(pause); d.nextDue.IsZero() || at.Before(d.nextDue) {
		d.nextDue = at
	}
}
