package fakeaws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	dedupeTime    = 5 * time.Minute
	maxVisibility = 12 * time.Hour
)

// queue is a queue.
type queue struct {
	name       string
	fifo       bool
	visibility time.Duration
	stored     []*stored // in order, those that are gone among them
	gone       int
	handles    map[string]*stored  // by receipt handle
	flying     map[*stored]bool    // given out; whether still in flight, only time tells
	seen       map[string]sighting // by deduplication ID
	attempts   map[string]attempt  // by ReceiveRequestAttemptId
	sent       []Sent
	dead       string // the dead letter queue, if any
	maxReceive int
	inFlight   int // the most at a time
}

type sighting struct {
	at time.Time
	id string
}

type attempt struct {
	at      time.Time
	handles []string
}

// stored is a message in a queue.
type stored struct {
	message
	id       string
	sequence int
	at       time.Time
	visible  time.Time
	first    time.Time // of the receives
	handle   string
	received int
	gone     bool
}

// Sent is a message that a queue or topic has taken, for tests to look at.
type Sent struct {
	ID, Body, Group, Dedupe, Subject string
	Attributes                       map[string]string
}

// CreateQueue makes a queue, FIFO if its name ends in .fifo.
func (s *Server) CreateQueue(name string) (url string) {
	s.locked(func() {
		s.queues[name] = &queue{
			name: name, fifo: strings.HasSuffix(name, ".fifo"), visibility: 30 * time.Second,
			handles: map[string]*stored{}, flying: map[*stored]bool{}, seen: map[string]sighting{}, attempts: map[string]attempt{},
		}
	})
	return s.queueURL(name)
}

// DeleteQueue removes a queue.
func (s *Server) DeleteQueue(name string) { s.locked(func() { delete(s.queues, name) }) }

// Redrive makes a queue move what it has given out max times to another.
func (s *Server) Redrive(name, dead string, most int) {
	s.locked(func() { s.queues[name].dead, s.queues[name].maxReceive = dead, most })
}

func (s *Server) queueURL(name string) string { return s.URL() + "/" + Account + "/" + name }

// Left returns how many messages a queue has, waiting or in flight.
func (s *Server) Left(name string) (n int) {
	s.locked(func() { n = s.queues[name].left() })
	return n
}

func (q *queue) left() int { return len(q.stored) - q.gone }

// InFlight returns how many messages of a queue are in flight, and the most ever.
func (s *Server) InFlight(name string) (now, most int) {
	s.locked(func() {
		q := s.queues[name]
		now, most = q.inAir(s.now()), q.inFlight
	})
	return now, most
}

// Received returns how often the messages of a queue that are left were given out.
func (s *Server) Received(name string) (counts []int) {
	s.locked(func() {
		for _, m := range s.queues[name].stored {
			if !m.gone {
				counts = append(counts, m.received)
			}
		}
	})
	return counts
}

// Sent returns what a queue has taken, in order, without what it knew as duplicates.
func (s *Server) Sent(name string) (out []Sent) {
	s.locked(func() { out = slices.Clone(s.queues[name].sent) })
	return out
}

// Put puts a message into a queue as another producer would; attributes are name and
// value in turn. It panics on what the queue does not take.
func (s *Server) Put(name, group, dedupe, body string, attributes ...string) (id string) {
	m := message{body: body, group: group, dedupe: dedupe, attributes: map[string]attribute{}}
	for i := 0; i+1 < len(attributes); i += 2 {
		m.attributes[attributes[i]] = attribute{DataType: "String", StringValue: attributes[i+1]}
	}
	s.locked(func() {
		q := s.queues[name]
		if fail := m.check(q.fifo, maxAttributes, maxQueueBytes); fail != nil {
			panic(fail.code + ": " + fail.message)
		}
		id = s.enqueue(q, m).id
	})
	s.wake()
	return id
}

// enqueue adds a message, unless it is a duplicate.
func (s *Server) enqueue(q *queue, m message) *stored {
	now := s.now()
	if m.dedupe != "" {
		if seen, ok := q.seen[m.dedupe]; ok && now.Sub(seen.at) < dedupeTime {
			return &stored{message: m, id: seen.id}
		}
	}
	s.serial++
	one := &stored{message: m, id: fmt.Sprintf("00000000-0000-4000-8000-%012d", s.serial), sequence: s.serial, at: now, visible: now}
	if m.dedupe != "" {
		q.seen[m.dedupe] = sighting{now, one.id}
	}
	q.stored = append(q.stored, one)
	q.sent = append(q.sent, m.sent(one.id))
	return one
}

func (m *message) sent(id string) Sent {
	out := Sent{ID: id, Body: m.body, Group: m.group, Dedupe: m.dedupe, Subject: m.subject, Attributes: map[string]string{}}
	for name, a := range m.attributes {
		out.Attributes[name] = a.value()
	}
	return out
}

// receive takes messages that are visible.
func (s *Server) receive(q *queue, limit int, visibility time.Duration, attemptID string) []*stored {
	now := s.now()
	if again := q.again(attemptID, now); again != nil {
		for _, m := range again {
			m.visible = now.Add(visibility)
		}
		return again
	}
	s.bury(q, now)
	q.inAir(now)
	locked := map[string]bool{}
	for m := range q.flying {
		locked[m.group] = q.fifo
	}
	var out []*stored
	give := func(m *stored) bool {
		if m.gone || m.visible.After(now) || locked[m.group] {
			return true
		}
		s.serial++
		delete(q.handles, m.handle)
		m.handle = m.id + "/" + strconv.Itoa(s.serial)
		q.handles[m.handle] = m
		q.flying[m] = true
		m.received++
		if m.received == 1 {
			m.first = now
		}
		m.visible = now.Add(visibility)
		out = append(out, m)
		return len(out) < limit
	}
	first := 0
	if !q.fifo && len(q.stored) > 0 {
		first = s.random.IntN(len(q.stored))
	}
	for i := range q.stored {
		if !give(q.stored[(first+i)%len(q.stored)]) {
			break
		}
	}
	if !q.fifo {
		s.random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	if attemptID != "" && len(out) > 0 {
		a := attempt{at: now}
		for _, m := range out {
			a.handles = append(a.handles, m.handle)
		}
		q.attempts[attemptID] = a
	}
	q.inFlight = max(q.inFlight, q.inAir(now))
	return out
}

// inAir counts what is in flight.
func (q *queue) inAir(now time.Time) int {
	for m := range q.flying {
		if m.gone || !m.visible.After(now) {
			delete(q.flying, m)
		}
	}
	return len(q.flying)
}

// again returns what an attempt was given before, if nothing has become of it.
func (q *queue) again(id string, now time.Time) []*stored {
	a, ok := q.attempts[id]
	if id == "" || !ok || now.Sub(a.at) > dedupeTime {
		return nil
	}
	var out []*stored
	for _, handle := range a.handles {
		m := q.handles[handle]
		if m == nil || !m.visible.After(now) {
			return nil
		}
		out = append(out, m)
	}
	return out
}

// bury moves what was given out too often.
func (s *Server) bury(q *queue, now time.Time) {
	if q.dead == "" {
		return
	}
	for _, m := range slices.Clone(q.stored) {
		if !m.gone && m.received >= q.maxReceive && !m.visible.After(now) {
			q.lose(m)
			moved := *m
			moved.gone = false
			s.queues[q.dead].stored = append(s.queues[q.dead].stored, &moved)
		}
	}
}

// lose takes a message out.
func (q *queue) lose(m *stored) {
	m.gone = true
	delete(q.handles, m.handle)
	delete(q.flying, m)
	if q.gone++; q.gone > len(q.stored)/2 {
		q.stored = slices.DeleteFunc(q.stored, func(m *stored) bool { return m.gone })
		q.gone = 0
	}
}

// remove deletes by a receipt handle. One that is old deletes nothing.
func (q *queue) remove(handle string, now time.Time) *failure {
	if !strings.Contains(handle, "/") {
		return refuse("ReceiptHandleIsInvalid", "no receipt handle")
	}
	m := q.handles[handle]
	switch {
	case m == nil:
		return nil
	case q.fifo && !m.visible.After(now):
		return refuse("InvalidParameterValue", "the receipt handle has expired")
	}
	q.lose(m)
	return nil
}

// change sets how long a message stays invisible.
func (q *queue) change(handle string, d time.Duration, now time.Time) *failure {
	if !strings.Contains(handle, "/") {
		return refuse("ReceiptHandleIsInvalid", "no receipt handle")
	}
	m := q.handles[handle]
	switch {
	case m == nil || !m.visible.After(now):
		return refuse("MessageNotInflight", "the message is not in flight")
	case d < 0 || d > maxVisibility || now.Add(d).Sub(m.first) > maxVisibility:
		return refuse("InvalidParameterValue", "the total visibility timeout is above 12 hours")
	}
	m.visible = now.Add(d)
	return nil
}
