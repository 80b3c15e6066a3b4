package fakeamqp

import (
	"fmt"
	"slices"
	"strconv"
)

// channel is one of a connection.
type channel struct {
	conn      *conn
	number    uint16
	closing   bool
	prefetch  int
	consumers map[string]*consumer
	delivered uint64        // delivery tags given out
	unacked   []outstanding // in ascending order of tags

	confirms  bool
	published uint64         // confirmed or not
	waiting   []confirmation // in ascending order

	incoming *incoming // a message whose content is being read

	frozen bool
	kept   []keptFrame // while it is frozen
}

// keptFrame is a frame for later.
type keptFrame struct {
	typ     byte
	payload []byte
}

// outstanding is a message that was delivered and not settled.
type outstanding struct {
	tag      uint64
	queue    *queue
	consumer *consumer // nil for one that was got
	message  *message
}

type confirmation struct {
	tag  uint64
	nack bool
}

// incoming is what a client is publishing.
type incoming struct {
	message   message
	mandatory bool
	size      uint64
	headed    bool
}

func newChannel(c *conn, number uint16) *channel {
	return &channel{conn: c, number: number, consumers: map[string]*consumer{}}
}

func (ch *channel) method(class, method uint16, arguments out) {
	ch.conn.method(ch.number, class, method, arguments)
}

// fail closes the channel with a reply code.
func (ch *channel) fail(code uint16, text string, class, method uint16) {
	ch.release()
	ch.closing = true
	ch.method(20, 40, out(nil).short(code).shortstr(text).short(class).short(method))
}

// release gives back what the channel has.
func (ch *channel) release() {
	for _, c := range ch.consumers {
		c.queue.consumers = slices.DeleteFunc(c.queue.consumers, func(other *consumer) bool { return other == c })
	}
	ch.consumers = map[string]*consumer{}
	ch.settle(func(outstanding) bool { return true }, true)
}

// settle takes those of the unacknowledged messages away for which which reports
// true, and puts them back into their queues or not.
func (ch *channel) settle(which func(outstanding) bool, requeue bool) (n int) {
	var queues []*queue
	ch.unacked = slices.DeleteFunc(ch.unacked, func(o outstanding) bool {
		if !which(o) {
			return false
		}
		n++
		o.queue.unacked--
		if o.consumer != nil {
			o.consumer.unacked--
		}
		if requeue {
			o.queue.requeue(o.message)
		}
		if !slices.Contains(queues, o.queue) {
			queues = append(queues, o.queue)
		}
		return true
	})
	for _, q := range queues {
		q.dispatch()
	}
	return n
}

// hand gives a message a tag and remembers it until it is settled.
func (ch *channel) hand(q *queue, c *consumer, m *message, noAck bool) uint64 {
	ch.delivered++
	if !noAck {
		ch.unacked = append(ch.unacked, outstanding{tag: ch.delivered, queue: q, consumer: c, message: m})
		q.unacked++
		if c != nil {
			c.unacked++
		}
	}
	return ch.delivered
}

func (ch *channel) deliver(consumer string, tag uint64, m *message) {
	o := out(nil).shortstr(consumer).longlong(tag).bit(m.returns > 0).shortstr(m.exchange).shortstr(m.key)
	ch.conn.content(ch.number, 60, 60, o, m, m.counted(1))
}

// frame handles a frame on the channel.
func (ch *channel) frame(typ byte, payload []byte) {
	if ch.frozen {
		ch.kept = append(ch.kept, keptFrame{typ, payload})
		return
	}
	if ch.closing {
		if typ == frameMethod && string(payload[:min(4, len(payload))]) == "\x00\x14\x00\x29" {
			delete(ch.conn.channels, ch.number)
		}
		return
	}
	a := args{b: payload}
	switch {
	case typ == frameMethod && ch.incoming != nil:
		ch.conn.fail(505, "UNEXPECTED_FRAME - expected content, got a method", 60, 40)
	case typ == frameMethod:
		ch.dispatch(a.short(), a.short(), &a)
	case ch.incoming == nil:
		ch.conn.fail(505, "UNEXPECTED_FRAME - expected a method, got content", 0, 0)
	case typ == frameHeader && !ch.incoming.headed:
		in := ch.incoming
		class, weight := a.short(), a.short()
		in.size, in.headed = a.longlong(), true
		in.message.properties = a.properties()
		if a.bad = a.bad || class != 60 || weight != 0; ch.conn.read0(&a, 60, 40) {
			ch.complete()
		}
	case typ == frameBody && ch.incoming.headed && uint64(len(ch.incoming.message.body)+len(payload)) <= ch.incoming.size:
		ch.incoming.message.body = append(ch.incoming.message.body, payload...)
		ch.complete()
	default:
		ch.conn.fail(505, "UNEXPECTED_FRAME - another content frame was due", 60, 40)
	}
}

// complete publishes the incoming message once all of it is there.
func (ch *channel) complete() {
	in := ch.incoming
	if uint64(len(in.message.body)) < in.size {
		return
	}
	ch.incoming = nil
	b := ch.conn.broker
	m, p := &in.message, &in.message.properties
	switch {
	case ch.refused(m.exchange, 60, 40):
		return
	case m.exchange != "" && b.exchanges[m.exchange] == nil:
		ch.fail(404, fmt.Sprintf("NOT_FOUND - no exchange '%s' in vhost '/'", m.exchange), 60, 40)
		return
	case m.exchange != "" && b.exchanges[m.exchange].internal:
		ch.fail(403, fmt.Sprintf("ACCESS_REFUSED - cannot publish to internal exchange '%s' in vhost '/'", m.exchange), 60, 40)
		return
	case in.size > b.options.MaxMessage:
		ch.fail(406, fmt.Sprintf("PRECONDITION_FAILED - message size %d is larger than configured max size %d", in.size, b.options.MaxMessage), 60, 40)
		return
	case p.flags&flagUserID != 0 && p.userID != ch.conn.user:
		ch.fail(406, fmt.Sprintf("PRECONDITION_FAILED - user_id property set to '%s' but authenticated user was '%s'", p.userID, ch.conn.user), 60, 40)
		return
	case p.flags&flagExpiration != 0 && !digits(p.expiration):
		ch.fail(406, fmt.Sprintf("PRECONDITION_FAILED - invalid expiration '%s'", p.expiration), 60, 40)
		return
	}
	for _, name := range []string{"CC", "BCC"} {
		if value, ok := p.headers[name]; ok {
			if _, list := value.([]any); !list {
				ch.fail(406, "PRECONDITION_FAILED - unexpected type in '"+name+"' header", 60, 40)
				return
			}
		}
	}
	ch.publish(in)
}

func digits(s string) bool { _, err := strconv.ParseUint(s, 10, 32); return err == nil }

// publish routes a message and confirms it.
func (ch *channel) publish(in *incoming) {
	b, m := ch.conn.broker, &in.message
	queues := b.route(m.exchange, m.key)
	if len(queues) == 0 && in.mandatory {
		ch.conn.content(ch.number, 60, 50, out(nil).short(312).shortstr("NO_ROUTE").shortstr(m.exchange).shortstr(m.key), m, -1)
	}
	nack := slices.ContainsFunc(queues, (*queue).full)
	for _, q := range queues {
		if !nack {
			q.push(*m)
			q.dispatch()
		}
	}
	if b.cutAt > 0 {
		if b.cutAt--; b.cutAt == 0 {
			ch.conn.cut()
			return
		}
	}
	if ch.confirms {
		ch.published++
		ch.waiting = append(ch.waiting, confirmation{tag: ch.published, nack: nack})
		ch.confirm()
	}
	select {
	case <-b.blocked:
	default:
		if ch.conn.throttle = true; ch.conn.hasBlock {
			ch.conn.method(0, 10, 60, out(nil).shortstr(b.reason))
		}
	}
}

// confirm sends the confirms that wait, those of a kind together.
func (ch *channel) confirm() {
	if ch.conn.broker.held {
		return
	}
	for i, c := range ch.waiting {
		switch {
		case i+1 < len(ch.waiting) && ch.waiting[i+1].nack == c.nack: // with the next
		case c.nack:
			ch.method(60, 120, out(nil).longlong(c.tag).octet(1))
		default:
			ch.method(60, 80, out(nil).longlong(c.tag).bit(true))
		}
	}
	ch.waiting = nil
}

// refused closes the channel if a fault says so for a name.
func (ch *channel) refused(name string, class, method uint16) bool {
	code, ok := ch.conn.broker.refused[name]
	if ok {
		texts := map[uint16]string{403: "ACCESS_REFUSED", 404: "NOT_FOUND", 405: "RESOURCE_LOCKED", 406: "PRECONDITION_FAILED"}
		ch.fail(code, fmt.Sprintf("%s - access to '%s' refused", texts[code], name), class, method)
	}
	return ok
}

// queue returns a queue, or closes the channel.
func (ch *channel) queue(name string, class, method uint16) *queue {
	if ch.refused(name, class, method) {
		return nil
	}
	q := ch.conn.broker.queues[name]
	if q == nil {
		ch.fail(404, fmt.Sprintf("NOT_FOUND - no queue '%s' in vhost '/'", name), class, method)
	}
	return q
}
