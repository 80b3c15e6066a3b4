package fakeamqp

import (
	"slices"
	"sort"
	"strings"
)

// message is in a queue or with a consumer.
type message struct {
	place         uint64 // in the queue: what came first is smaller
	exchange, key string
	properties    properties
	body          []byte
	returns       int64 // how often it came back
	quorum        bool
}

// counted is the message's x-delivery-count: quorum queues keep it, and show it from
// least on. It is negative for none.
func (m *message) counted(least int64) int64 {
	if !m.quorum || m.returns < least {
		return -1
	}
	return m.returns
}

// exchange routes.
type exchange struct {
	kind     string
	internal bool
	bound    []binding
}

type binding struct{ queue, key string }

// queue holds messages.
type queue struct {
	name      string
	durable   bool
	quorum    bool
	arguments map[string]any
	ready     []*message
	unacked   int
	placed    uint64
	consumers []*consumer
	next      int // whose turn it is
}

// consumer gets the messages of a queue.
type consumer struct {
	tag       string
	queue     *queue
	channel   *channel
	noAck     bool
	exclusive bool
	prefetch  int // zero for no bound
	unacked   int
}

func (q *queue) single() bool { on, _ := q.arguments["x-single-active-consumer"].(bool); return on }

// full reports whether the queue refuses what is published.
func (q *queue) full() bool {
	limit, ok := number(q.arguments["x-max-length"])
	return ok && q.arguments["x-overflow"] == "reject-publish" && int64(len(q.ready)) >= limit
}

func number(v any) (int64, bool) {
	switch n := v.(type) {
	case int32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

// route returns the queues that a message goes to.
func (b *Broker) route(name, key string) []*queue {
	if name == "" {
		if q := b.queues[key]; q != nil {
			return []*queue{q}
		}
		return nil
	}
	var out []*queue
	e := b.exchanges[name]
	for _, to := range e.bound {
		matches := e.kind == "fanout" || e.kind == "direct" && to.key == key ||
			e.kind == "topic" && topicMatches(words(to.key), words(key))
		if q := b.queues[to.queue]; matches && !slices.Contains(out, q) {
			out = append(out, q)
		}
	}
	return out
}

// words are those of a key; the empty key has none.
func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

// topicMatches reports whether words match a pattern: * is one word, # any number.
func topicMatches(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return topicMatches(pattern[1:], words) || len(words) > 0 && topicMatches(pattern, words[1:])
	case len(words) == 0 || pattern[0] != "*" && pattern[0] != words[0]:
		return false
	}
	return topicMatches(pattern[1:], words[1:])
}

func (q *queue) push(m message) {
	q.placed++
	m.place, m.quorum = q.placed, q.quorum
	q.ready = append(q.ready, &m)
}

// requeue puts a message back: to its place, or, in a quorum queue, behind what came
// back before it and is still there.
func (q *queue) requeue(m *message) {
	i := sort.Search(len(q.ready), func(i int) bool {
		if q.quorum {
			return q.ready[i].returns == 0
		}
		return q.ready[i].place > m.place
	})
	m.returns++
	q.ready = slices.Insert(q.ready, i, m)
}

// dispatch hands ready messages to consumers that have room, in turn.
func (q *queue) dispatch() {
	for len(q.ready) > 0 {
		c := q.free()
		if c == nil {
			return
		}
		m := q.ready[0]
		q.ready = q.ready[1:]
		tag := c.channel.hand(q, c, m, c.noAck)
		c.channel.deliver(c.tag, tag, m)
	}
}

// free returns the next consumer that has room.
func (q *queue) free() *consumer {
	candidates := len(q.consumers)
	if q.single() {
		candidates = min(candidates, 1)
		q.next = 0
	}
	for i := range candidates {
		c := q.consumers[(q.next+i)%len(q.consumers)]
		if c.prefetch == 0 || c.unacked < c.prefetch {
			q.next = (q.next + i + 1) % len(q.consumers)
			return c
		}
	}
	return nil
}

// remove ends the queue: its consumers are told.
func (b *Broker) remove(q *queue) {
	delete(b.queues, q.name)
	for _, e := range b.exchanges {
		e.bound = slices.DeleteFunc(e.bound, func(to binding) bool { return to.queue == q.name })
	}
	for _, c := range q.consumers {
		delete(c.channel.consumers, c.tag)
		if c.channel.conn.hasCancel {
			c.channel.method(60, 30, out(nil).shortstr(c.tag).bit(true))
		}
	}
	q.consumers = nil
}
