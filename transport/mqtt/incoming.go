package mqtt

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	paholog "github.com/eclipse/paho.golang/paho/log"
	"github.com/eclipse/paho.golang/paho/session"

	"gobridge"
	"gobridge/messaging"
)

// Bounds of a batch, and of what waits for one, in bytes of packets.
const (
	maxTake      = 500
	maxTakeBytes = 4 << 20
	maxWaiting   = 64 << 20
)

// arrival is a message that has come and is not done with.
type arrival struct {
	incoming gobridge.Incoming
	size     int
	id       uint16 // the packet identifier
	qos      byte
	durable  bool
	on       *receiving // the connection on which it came last; nil when the broker has forgotten it
}

// incoming is the session of a receiving client: what lives as long as a Receive,
// over any number of connections.
type incoming struct {
	options *ReceiverOptions
	most    int                // messages that wait at most
	strange func(topic string) // is told of topics that nobody asked for

	mu      sync.Mutex
	changed sync.Cond
	over    bool // nothing is handed over any more
	waiting []*arrival
	bytes   int
	full    bool // the connection is not read, for want of room
	dropped int  // messages of QoS 0 that came while there was no room

	current *receiving // the connection that stands, or stood last
	// known are the messages that the broker may send again, by packet identifier.
	known map[uint16]*arrival
}

func newIncoming(options *ReceiverOptions, strange func(string)) *incoming {
	n := &incoming{options: options, most: int(options.ReceiveMaximum), known: map[uint16]*arrival{}, strange: strange}
	n.changed.L = &n.mu
	return n
}

// receiving is one connection of the session.
type receiving struct {
	*incoming
	wire *wire
	lost bool
	acks []*arrival // what is to be acknowledged on it, in order of receipt

	subscribing chan<- packets.ControlPacket // takes the answer to a SUBSCRIBE
}

// gather returns what waits, up to the bounds of a batch, and waits for something.
// It returns nothing when it is over.
func (n *incoming) gather() []*arrival {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.waiting) == 0 && !n.over {
		n.changed.Wait()
	}
	if n.over {
		return nil
	}
	count, bytes := 0, 0
	for count < len(n.waiting) && count < maxTake && (count == 0 || bytes+n.waiting[count].size <= maxTakeBytes) {
		bytes += n.waiting[count].size
		count++
	}
	batch := slices.Clone(n.waiting[:count])
	n.waiting = slices.Delete(n.waiting, 0, count)
	n.bytes -= bytes
	n.changed.Broadcast()
	return batch
}

// finish ends the waits.
func (n *incoming) finish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	n.changed.Broadcast()
}

// isFull reports whether the connection is not read just now.
func (n *incoming) isFull() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.full
}

// forget is for a session that the broker has no more: what is here is still to be
// handed over, and nothing of it will be acknowledged or come again.
func (n *incoming) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.known {
		a.on = nil
	}
	clear(n.known)
}

// done acknowledges what has become durable, in order of receipt.
func (n *incoming) done(batch []*arrival) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range batch {
		a.durable = true
	}
	if n.current != nil {
		n.current.flush()
	}
}

// flush acknowledges the messages at the head that are durable. The caller has the
// lock. What can't be written any more is not acknowledged, and comes again.
func (r *receiving) flush() {
	if r.lost || r.wire.over() {
		return // and stays known
	}
	n := 0
	for n < len(r.acks) && r.acks[n].durable {
		n++
	}
	if n == 0 {
		return
	}
	out := make([]byte, 0, 4*n)
	for _, a := range r.acks[:n] {
		kind := packets.PUBACK << 4
		if a.qos == 2 {
			kind = packets.PUBREC << 4 // known until the broker releases the identifier
		} else if r.known[a.id] == a {
			delete(r.known, a.id) // from now on the broker may use the identifier for another
		}
		out = append(out, kind, 2, byte(a.id>>8), byte(a.id))
	}
	r.acks = slices.Delete(r.acks, 0, n)
	_ = r.wire.put(out) // bounded; when it fails, the connection has ended
}

// arrived takes a message of QoS 1 or 2. It waits for room, unless this one has it
// already, and meanwhile the connection is not read.
func (r *receiving) arrived(p *packets.Publish) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Duplicate && r.again(p) {
		return
	}
	for !r.room() && !r.lost && !r.over {
		r.full = true
		r.changed.Wait()
		r.wire.heard.Store(true) // it was this side that did not read
	}
	r.full = false
	if r.lost || r.over {
		return // it comes again
	}
	a := r.arrival(p)
	r.known[p.PacketID] = a
	a.on = r
	r.acks = append(r.acks, a)
	if r.unwanted(p) {
		a.durable = true
		r.flush()
		return
	}
	r.add(a)
}

// again takes a message that is known already, and reports whether it is. The caller
// has the lock.
func (r *receiving) again(p *packets.Publish) bool {
	before := r.known[p.PacketID]
	if before == nil || before.qos != p.QoS || !same(before, r.arrival(p)) {
		return false
	}
	if before.on != r {
		before.on = r
		r.acks = append(r.acks, before)
		r.flush()
	}
	return true
}

// unconfirmed takes a message of QoS 0. There is no way to ask for it later: without
// room it is lost.
func (r *receiving) unconfirmed(p *packets.Publish) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.unwanted(p) {
		return
	}
	if !r.room() {
		r.dropped++
		return
	}
	r.add(r.arrival(p))
}

// room reports whether one more may wait.
func (n *incoming) room() bool { return len(n.waiting) < n.most && n.bytes < maxWaiting }

func (n *incoming) add(a *arrival) {
	n.waiting = append(n.waiting, a)
	n.bytes += a.size
	n.changed.Broadcast()
}

// unwanted reports a message that the route did not ask for: one that was retained,
// where those are ignored, or one of a subscription that the session has from an
// earlier configuration.
func (n *incoming) unwanted(p *packets.Publish) bool {
	if p.Retain && n.options.IgnoreRetained {
		return true
	}
	if slices.ContainsFunc(n.options.Topics, func(filter string) bool { return covers(filter, p.Topic) }) {
		return false
	}
	n.strange(p.Topic)
	return true
}

func (n *incoming) arrival(p *packets.Publish) *arrival {
	e, err := decode(p, n.options.IDProperty, time.Now())
	if e.ID == "" {
		e.ID = messaging.NewID()
	}
	return &arrival{incoming: gobridge.Incoming{Envelope: e, Reject: err}, size: gobridge.EnvelopeSize(&e), id: p.PacketID, qos: p.QoS}
}

// same reports whether two arrivals have the same content.
func same(a, b *arrival) bool {
	return messaging.ContentHash(&a.incoming.Envelope) == messaging.ContentHash(&b.incoming.Envelope)
}

// drops returns how many messages of QoS 0 have been lost since it was last called.
func (n *incoming) drops() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	dropped := n.dropped
	n.dropped = 0
	return dropped
}

// PacketReceived takes what has a packet identifier.
func (r *receiving) PacketReceived(received *packets.ControlPacket, _ chan<- *packets.Publish) error {
	switch p := received.Content.(type) {
	case *packets.Publish:
		if p.QoS > 2 || p.PacketID == 0 {
			r.wire.fail(errors.New("the broker sent a message without a packet identifier"))
			return nil
		}
		r.arrived(p)
	case *packets.Pubrel:
		r.mu.Lock()
		defer r.mu.Unlock()
		if a := r.known[p.PacketID]; a != nil && a.qos == 2 {
			delete(r.known, p.PacketID)
		}
		return r.wire.put([]byte{packets.PUBCOMP << 4, 2, byte(p.PacketID >> 8), byte(p.PacketID)})
	case *packets.Suback:
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.subscribing != nil {
			r.subscribing <- *received
			r.subscribing = nil
		}
	}
	return nil
}

// AddToSession gives a SUBSCRIBE, of which there is one at a time, its identifier.
func (r *receiving) AddToSession(_ context.Context, p session.Packet, answer chan<- packets.ControlPacket) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost {
		return session.ErrNoConnection
	}
	p.SetIdentifier(1)
	r.subscribing = answer
	return nil
}

// ConAckReceived forgets what the broker has forgotten.
func (r *receiving) ConAckReceived(_ io.Writer, _ *packets.Connect, ack *packets.Connack) error {
	if !ack.SessionPresent {
		r.forget()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = r
	return nil
}

// ConnectionLost ends the waits on this connection.
func (r *receiving) ConnectionLost(d *packets.Disconnect) error {
	endedBy(r.wire, d)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = true
	r.acks = nil
	if r.subscribing != nil {
		r.subscribing <- packets.ControlPacket{}
		r.subscribing = nil
	}
	r.changed.Broadcast()
	return nil
}

// Ack, Close and the loggers have nothing to do.
func (r *receiving) Ack(*packets.Publish) error    { return nil }
func (r *receiving) Close() error                  { return nil }
func (r *receiving) SetErrorLogger(paholog.Logger) {}
func (r *receiving) SetDebugLogger(paholog.Logger) {}
