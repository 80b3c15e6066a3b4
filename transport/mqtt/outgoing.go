package mqtt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	paholog "github.com/eclipse/paho.golang/paho/log"
	"github.com/eclipse/paho.golang/paho/session"
)

// outgoing is the session of a publishing client. It begins and ends with one
// connection and sends nothing twice: what is not acknowledged when the connection
// ends has failed.
//
// A publish holds its packet identifier, and a place within the broker's Receive
// Maximum, until the broker has answered it, though nobody may wait for it any more.
type outgoing struct {
	link *link // set before it is used

	mu      sync.Mutex
	wire    *wire
	flights map[uint16]*flight
	next    uint16 // the packet identifier to try first
	free    int    // places within the Receive Maximum
	freed   chan struct{}
	quiet   time.Time // since when something waits for an answer and none has come
}

// flight is a publish that is not answered yet.
type flight struct {
	group *group
	at    int
}

// group is what one caller publishes. The session's lock guards it.
type group struct {
	answers []answer
	left    int
	done    chan struct{} // closed when none is left
}

// answer is what the broker said to a publish.
type answer struct {
	there bool
	code  byte
	said  string
}

func newOutgoing() *outgoing {
	return &outgoing{flights: map[uint16]*flight{}, next: 1, freed: make(chan struct{}, 1)}
}

// silence is how long a broker may answer no publish at all before a send whose time
// is up ends the connection, which is probably dead. Answers that are merely slow
// leave it alone.
const silence = 5 * time.Second

// errSilent: nothing came back in time.
var errSilent = errors.New("the broker has acknowledged nothing for too long")

// errGivenUp: a send whose time was up left something half done.
var errGivenUp = errors.New("a message of QoS 2 was given up before the broker had released it")

// publish publishes the packets and waits until ctx ends or the connection does.
// The answers are the broker's; the error, if any, is what became of the rest, and
// sent is how many have been sent: those from there on never were.
func (o *outgoing) publish(ctx context.Context, all []*packets.Publish) (answers []answer, sent int, err error) {
	g := &group{answers: make([]answer, len(all)), left: len(all), done: make(chan struct{})}
	for sent < len(all) && err == nil {
		var n int
		if n, err = o.sendSome(ctx, g, all, sent); err == nil {
			sent += n
		}
	}
	if err == nil {
		select {
		case <-g.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-o.wire.ended:
			err = o.wire.why()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && len(o.flights) > 0 && time.Since(o.quiet) >= silence {
		o.wire.fail(errSilent)
	}
	if ctx.Err() != nil && g.left > 0 && sent > 0 && all[0].QoS == 2 {
		// The broker may show it only when it is released, which must not be after
		// what is published next: the end of the session takes it back (section 4.1).
		o.wire.fail(errGivenUp)
	}
	return append([]answer(nil), g.answers...), sent, err
}

// sendSome sends as many as there is room for, at least one.
func (o *outgoing) sendSome(ctx context.Context, g *group, all []*packets.Publish, from int) (int, error) {
	if all[from].QoS == 0 {
		return o.sendUnconfirmed(ctx, g, all, from)
	}
	n, err := o.reserve(ctx, len(all)-from)
	if err != nil {
		return 0, err
	}
	var buffer bytes.Buffer
	o.mu.Lock()
	for i := from; i < from+n; i++ {
		all[i].PacketID = o.register(&flight{group: g, at: i})
	}
	o.mu.Unlock()
	for _, p := range all[from : from+n] {
		if _, err := p.WriteTo(&buffer); err != nil {
			return 0, err
		}
	}
	if err := o.wire.send(ctx, buffer.Bytes()); err != nil {
		if !o.wire.over() {
			o.forget(all[from : from+n]) // its turn never came
		}
		return 0, err
	}
	return n, nil
}

// sendUnconfirmed sends what the broker does not answer.
func (o *outgoing) sendUnconfirmed(ctx context.Context, g *group, all []*packets.Publish, from int) (int, error) {
	var buffer bytes.Buffer
	for _, p := range all[from:] {
		if _, err := p.WriteTo(&buffer); err != nil {
			return 0, err
		}
	}
	if err := o.wire.send(ctx, buffer.Bytes()); err != nil {
		return 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := from; i < len(all); i++ {
		g.settle(i, answer{there: true})
	}
	return len(all) - from, nil
}

// reserve takes up to n places, at least one, and waits for it.
func (o *outgoing) reserve(ctx context.Context, n int) (int, error) {
	for {
		o.mu.Lock()
		n := min(n, o.free)
		o.free -= n
		if o.free > 0 {
			o.wake()
		}
		o.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-o.freed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-o.wire.ended:
			return 0, o.wire.why()
		}
	}
}

// wake lets one who waits for a place look.
func (o *outgoing) wake() {
	select {
	case o.freed <- struct{}{}:
	default:
	}
}

// register gives a flight a packet identifier: there are more than the places that
// any Receive Maximum allows.
func (o *outgoing) register(f *flight) uint16 {
	if len(o.flights) == 0 {
		o.quiet = time.Now()
	}
	for {
		id := o.next
		if o.next++; o.next == 0 {
			o.next = 1
		}
		if _, taken := o.flights[id]; !taken {
			o.flights[id] = f
			return id
		}
	}
}

// forget takes flights back that were never sent.
func (o *outgoing) forget(all []*packets.Publish) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range all {
		delete(o.flights, p.PacketID)
		o.free++
	}
	o.wake()
}

// lone reports whether at most n publishes are without an answer.
func (o *outgoing) lone(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.flights) <= n
}

func (g *group) settle(at int, a answer) {
	if g.answers[at].there {
		return
	}
	g.answers[at] = a
	if g.left--; g.left == 0 {
		close(g.done)
	}
}

// end settles a flight.
func (o *outgoing) end(id uint16, code byte, p *packets.Properties) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, known := o.flights[id]
	if !known {
		return
	}
	delete(o.flights, id)
	o.free++
	o.quiet = time.Now()
	o.wake()
	a := answer{there: true, code: code}
	if p != nil {
		a.said = p.ReasonString
	}
	f.group.settle(f.at, a)
}

// PacketReceived takes the broker's answers (sections 3.4 to 3.7).
func (o *outgoing) PacketReceived(received *packets.ControlPacket, _ chan<- *packets.Publish) error {
	switch p := received.Content.(type) {
	case *packets.Puback:
		o.end(p.PacketID, p.ReasonCode, p.Properties)
	case *packets.Pubcomp:
		o.end(p.PacketID, p.ReasonCode, p.Properties)
	case *packets.Pubrec:
		if p.ReasonCode >= 0x80 {
			o.end(p.PacketID, p.ReasonCode, p.Properties)
			return nil
		}
		return o.wire.put([]byte{packets.PUBREL<<4 | 2, 2, byte(p.PacketID >> 8), byte(p.PacketID)})
	}
	return nil
}

// ConAckReceived begins the session.
func (o *outgoing) ConAckReceived(_ io.Writer, _ *packets.Connect, ack *packets.Connack) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.free = maxText
	if p := ack.Properties; p != nil && p.ReceiveMaximum != nil {
		o.free = max(int(*p.ReceiveMaximum), 1)
	}
	return nil
}

// ConnectionLost ends it.
func (o *outgoing) ConnectionLost(d *packets.Disconnect) error {
	endedBy(o.wire, d)
	return nil
}

// endedBy notes the broker's reason for an end.
func endedBy(w *wire, d *packets.Disconnect) {
	if d == nil {
		return
	}
	e := &codeError{code: d.ReasonCode}
	if d.Properties != nil {
		e.said = d.Properties.ReasonString
	}
	w.fail(fmt.Errorf("the broker ended the connection: %w", e))
}

// AddToSession is for what this client never sends by the library.
func (o *outgoing) AddToSession(context.Context, session.Packet, chan<- packets.ControlPacket) error {
	return errors.New("this client only publishes")
}

// Ack, Close and the loggers have nothing to do.
func (o *outgoing) Ack(*packets.Publish) error    { return nil }
func (o *outgoing) Close() error                  { return nil }
func (o *outgoing) SetErrorLogger(paholog.Logger) {}
func (o *outgoing) SetDebugLogger(paholog.Logger) {}
