package fakeamqp

import (
	"fmt"
	"maps"
	"slices"
)

// dispatch handles a method on the channel.
func (ch *channel) dispatch(class, method uint16, a *args) {
	switch class {
	case 20:
		ch.dispatchChannel(method, a)
	case 40:
		ch.dispatchExchange(method, a)
	case 50:
		ch.dispatchQueue(method, a)
	case 60:
		ch.dispatchBasic(method, a)
	case 85:
		noWait := a.bits(1)[0]
		if method != 10 {
			a.bad = true
		}
		if !ch.conn.read0(a, class, method) {
			return
		}
		ch.confirms = true
		if !noWait {
			ch.method(85, 11, nil)
		}
	default:
		ch.conn.fail(540, fmt.Sprintf("NOT_IMPLEMENTED - class %d", class), class, method)
	}
}

func (ch *channel) unknown(class, method uint16) {
	ch.conn.fail(540, fmt.Sprintf("NOT_IMPLEMENTED - method %d.%d", class, method), class, method)
}

func (ch *channel) dispatchChannel(method uint16, a *args) {
	switch method {
	case 40:
		_, _, _, _ = a.short(), a.shortstr(), a.short(), a.short()
		if ch.conn.read0(a, 20, method) {
			delete(ch.conn.channels, ch.number)
			ch.release()
			ch.method(20, 41, nil)
		}
	case 10:
		ch.conn.fail(504, "CHANNEL_ERROR - second 'channel.open' seen", 20, method)
	default:
		ch.unknown(20, method)
	}
}

func (ch *channel) dispatchExchange(method uint16, a *args) {
	b := ch.conn.broker
	a.short()
	switch name := a.shortstr(); method {
	case 10:
		kind, flags := a.shortstr(), a.bits(5)
		a.table()
		if !ch.conn.read0(a, 40, method) || ch.refused(name, 40, method) {
			return
		}
		have := b.exchanges[name]
		switch {
		case name == "":
			ch.fail(403, "ACCESS_REFUSED - operation not permitted on the default exchange", 40, method)
			return
		case have == nil && flags[0]:
			ch.fail(404, fmt.Sprintf("NOT_FOUND - no exchange '%s' in vhost '/'", name), 40, method)
			return
		case have == nil && kind != "direct" && kind != "fanout" && kind != "topic":
			ch.conn.fail(503, fmt.Sprintf("COMMAND_INVALID - unknown exchange type '%s'", kind), 40, method)
			return
		case have == nil:
			b.exchanges[name] = &exchange{kind: kind, internal: flags[3]}
		case !flags[0] && have.kind != kind:
			ch.fail(406, fmt.Sprintf("PRECONDITION_FAILED - inequivalent arg 'type' for exchange '%s' in vhost '/': received '%s' but current is '%s'",
				name, kind, have.kind), 40, method)
			return
		}
		if !flags[4] {
			ch.method(40, 11, nil)
		}
	case 20:
		a.bits(2)
		if ch.conn.read0(a, 40, method) {
			delete(b.exchanges, name)
			ch.method(40, 21, nil)
		}
	default:
		ch.unknown(40, method)
	}
}

func (ch *channel) dispatchQueue(method uint16, a *args) {
	a.short()
	switch name := a.shortstr(); method {
	case 10:
		flags, arguments := a.bits(5), a.table()
		if ch.conn.read0(a, 50, method) {
			ch.declare(name, flags, arguments)
		}
	case 20:
		from, key, noWait := a.shortstr(), a.shortstr(), a.bits(1)[0]
		a.table()
		if ch.conn.read0(a, 50, method) {
			ch.bind(name, from, key, noWait)
		}
	case 50:
		from, key := a.shortstr(), a.shortstr()
		a.table()
		if !ch.conn.read0(a, 50, method) {
			return
		}
		if e := ch.conn.broker.exchanges[from]; e != nil {
			e.bound = slices.DeleteFunc(e.bound, func(to binding) bool { return to == binding{queue: name, key: key} })
		}
		ch.method(50, 51, nil)
	case 30:
		a.bits(1)
		if !ch.conn.read0(a, 50, method) {
			return
		}
		if q := ch.queue(name, 50, method); q != nil {
			n := len(q.ready)
			q.ready = nil
			ch.method(50, 31, out(nil).long(uint32(n))) //nolint:gosec // a length
		}
	case 40:
		a.bits(3)
		if !ch.conn.read0(a, 50, method) {
			return
		}
		n := 0
		if q := ch.conn.broker.queues[name]; q != nil {
			n = len(q.ready)
			ch.conn.broker.remove(q)
		}
		ch.method(50, 41, out(nil).long(uint32(n))) //nolint:gosec // a length
	default:
		ch.unknown(50, method)
	}
}

// declare makes a queue, or looks at the one that is there.
func (ch *channel) declare(name string, flags [8]bool, arguments map[string]any) {
	passive, durable, noWait := flags[0], flags[1], flags[4]
	if flags[2] || flags[3] {
		ch.conn.fail(540, "NOT_IMPLEMENTED - exclusive and auto-delete queues", 50, 10)
		return
	}
	b := ch.conn.broker
	if ch.refused(name, 50, 10) {
		return
	}
	if name == "" && !passive {
		b.anonymous++
		name = fmt.Sprint("amq.gen-", b.anonymous)
	}
	q := b.queues[name]
	switch {
	case passive:
		if q = ch.queue(name, 50, 10); q == nil {
			return
		}
	case arguments["x-queue-type"] == "quorum" && !durable:
		ch.fail(406, fmt.Sprintf("PRECONDITION_FAILED - invalid property 'non-durable' for queue '%s' in vhost '/'", name), 50, 10)
		return
	case q == nil:
		q = &queue{name: name, durable: durable, arguments: arguments, quorum: arguments["x-queue-type"] == "quorum"}
		b.queues[name] = q
	case q.durable != durable || !maps.EqualFunc(q.arguments, arguments, func(x, y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) }):
		ch.fail(406, fmt.Sprintf("PRECONDITION_FAILED - inequivalent arg for queue '%s' in vhost '/'", name), 50, 10)
		return
	}
	if !noWait {
		ch.method(50, 11, out(nil).shortstr(name).long(uint32(len(q.ready))).long(uint32(len(q.consumers)))) //nolint:gosec // lengths
	}
}

func (ch *channel) bind(name, from, key string, noWait bool) {
	if ch.queue(name, 50, 20) == nil {
		return
	}
	e := ch.conn.broker.exchanges[from]
	if e == nil {
		ch.fail(404, fmt.Sprintf("NOT_FOUND - no exchange '%s' in vhost '/'", from), 50, 20)
		return
	}
	if to := (binding{queue: name, key: key}); !slices.Contains(e.bound, to) {
		e.bound = append(e.bound, to)
	}
	if !noWait {
		ch.method(50, 21, nil)
	}
}

func (ch *channel) dispatchBasic(method uint16, a *args) {
	switch method {
	case 10:
		size, count := a.long(), a.short()
		a.bits(1)
		switch {
		case !ch.conn.read0(a, 60, method):
		case size != 0:
			ch.conn.fail(540, fmt.Sprintf("NOT_IMPLEMENTED - prefetch_size!=0 (%d)", size), 60, method)
		default:
			ch.prefetch = int(count)
			ch.method(60, 11, nil)
		}
	case 20:
		a.short()
		name, tag, flags := a.shortstr(), a.shortstr(), a.bits(4)
		a.table()
		if ch.conn.read0(a, 60, method) {
			ch.consume(name, tag, flags)
		}
	case 30:
		tag, noWait := a.shortstr(), a.bits(1)[0]
		if !ch.conn.read0(a, 60, method) {
			return
		}
		if c := ch.consumers[tag]; c != nil {
			delete(ch.consumers, tag)
			c.queue.consumers = slices.DeleteFunc(c.queue.consumers, func(other *consumer) bool { return other == c })
		}
		if !noWait {
			ch.method(60, 31, out(nil).shortstr(tag))
		}
	case 31: // the answer to a cancel
		a.shortstr()
		ch.conn.read0(a, 60, method)
	case 40:
		a.short()
		in := &incoming{}
		in.message.exchange, in.message.key = a.shortstr(), a.shortstr()
		flags := a.bits(2)
		in.mandatory = flags[0]
		switch {
		case !ch.conn.read0(a, 60, method):
		case flags[1]:
			ch.conn.fail(540, "NOT_IMPLEMENTED - immediate=true", 60, method)
		default:
			ch.incoming = in
		}
	case 70:
		a.short()
		name, noAck := a.shortstr(), a.bits(1)[0]
		if ch.conn.read0(a, 60, method) {
			ch.get(name, noAck)
		}
	case 80:
		ch.answer(method, a.longlong(), a.bits(1)[0], false, a)
	case 90:
		ch.answer(method, a.longlong(), false, a.bits(1)[0], a)
	case 120:
		tag, flags := a.longlong(), a.bits(2)
		ch.answer(method, tag, flags[0], flags[1], a)
	default:
		ch.unknown(60, method)
	}
}

// answer is an ack, nack or reject.
func (ch *channel) answer(method uint16, tag uint64, multiple, requeue bool, a *args) {
	if !ch.conn.read0(a, 60, method) {
		return
	}
	settled := ch.settle(func(o outstanding) bool {
		return o.tag == tag || multiple && (tag == 0 || o.tag < tag)
	}, requeue)
	if settled == 0 && (tag != 0 || !multiple) {
		ch.fail(406, fmt.Sprintf("PRECONDITION_FAILED - unknown delivery tag %d", tag), 60, method)
	}
}

func (ch *channel) consume(name, tag string, flags [8]bool) {
	q := ch.queue(name, 60, 20)
	if q == nil {
		return
	}
	if ch.consumers[tag] != nil || tag == "" {
		ch.conn.fail(530, fmt.Sprintf("NOT_ALLOWED - attempt to reuse consumer tag '%s'", tag), 60, 20)
		return
	}
	if len(q.consumers) > 0 && (flags[2] || q.consumers[0].exclusive) {
		ch.fail(403, fmt.Sprintf("ACCESS_REFUSED - queue '%s' in vhost '/' in exclusive use", name), 60, 20)
		return
	}
	c := &consumer{tag: tag, queue: q, channel: ch, noAck: flags[1], exclusive: flags[2], prefetch: ch.prefetch}
	ch.consumers[tag] = c
	q.consumers = append(q.consumers, c)
	if !flags[3] {
		ch.method(60, 21, out(nil).shortstr(tag))
	}
	q.dispatch()
}

func (ch *channel) get(name string, noAck bool) {
	q := ch.queue(name, 60, 70)
	if q == nil {
		return
	}
	if len(q.ready) == 0 {
		ch.method(60, 72, out(nil).shortstr(""))
		return
	}
	m := q.ready[0]
	q.ready = q.ready[1:]
	tag := ch.hand(q, nil, m, noAck)
	o := out(nil).longlong(tag).bit(m.returns > 0).shortstr(m.exchange).shortstr(m.key).long(uint32(len(q.ready))) //nolint:gosec // a length
	ch.conn.content(ch.number, 60, 71, o, m, m.counted(0))
}
