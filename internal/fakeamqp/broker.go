package fakeamqp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// Options of a broker. The zero value takes guest with the password guest.
type Options struct {
	// Users are passwords by user.
	Users map[string]string
	// TLS, unless nil, encrypts; a client that shows a certificate may log in as
	// EXTERNAL.
	TLS *tls.Config
	// Heartbeat is what the broker proposes, in whole seconds; 60 s when zero.
	Heartbeat time.Duration
	// FrameMax is the largest frame; 128 KiB when zero.
	FrameMax uint32
	// MaxMessage is the largest body; 128 MiB when zero.
	MaxMessage uint64
}

// Broker is a server on a port of 127.0.0.1. Its methods may be called from several
// goroutines.
type Broker struct {
	options Options
	running sync.WaitGroup

	mu       sync.Mutex // protects all below, and all of its connections, channels and queues
	address  string
	listener net.Listener
	conns    map[*conn]struct{}

	exchanges map[string]*exchange
	queues    map[string]*queue
	anonymous int

	faults
}

// Start runs a broker. Call Close in the end.
func Start(o Options) (*Broker, error) {
	if o.Users == nil {
		o.Users = map[string]string{"guest": "guest"}
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 60 * time.Second
	}
	if o.FrameMax == 0 {
		o.FrameMax = 128 << 10
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 128 << 20
	}
	b := &Broker{options: o, address: "127.0.0.1:0", conns: map[*conn]struct{}{}, exchanges: map[string]*exchange{}, queues: map[string]*queue{}}
	for _, kind := range []string{"direct", "fanout", "topic"} {
		b.exchanges["amq."+kind] = &exchange{kind: kind}
	}
	b.clear()
	return b, b.Resume()
}

// Addr returns the address that clients connect to.
func (b *Broker) Addr() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.address
}

// Resume listens, after Stop on the same port as before. Queues keep what they had.
func (b *Broker) Resume() error {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", b.Addr())
	if err != nil {
		return fmt.Errorf("fakeamqp: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.address, b.listener = listener.Addr().String(), listener
	b.running.Go(func() { b.accept(listener) })
	return nil
}

// Stop closes all connections as a broker does that is shut down, and listens no
// more.
func (b *Broker) Stop() {
	b.mu.Lock()
	if b.listener != nil {
		_ = b.listener.Close()
		b.listener = nil
	}
	for c := range b.conns {
		c.fail(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", 0, 0)
	}
	b.mu.Unlock()
	b.running.Wait()
}

// Cut resets all connections without a word.
func (b *Broker) Cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		c.cut()
	}
}

// Close resets all connections, ends the broker and returns when nothing of it runs any more.
func (b *Broker) Close() {
	b.mu.Lock()
	if b.listener != nil {
		_ = b.listener.Close()
		b.listener = nil
	}
	b.mu.Unlock()
	b.Cut()
	b.running.Wait()
}

// Depth returns how many messages a queue has that wait, and that are with
// consumers.
func (b *Broker) Depth(name string) (ready, unacked int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[name]; q != nil {
		return len(q.ready), q.unacked
	}
	return 0, 0
}

// Connections returns how many there are.
func (b *Broker) Connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

func (b *Broker) accept(listener net.Listener) {
	for {
		raw, err := listener.Accept()
		if err != nil {
			return
		}
		c := newConn(b, raw)
		b.mu.Lock()
		open := b.listener == listener
		if open {
			b.conns[c] = struct{}{}
			b.running.Go(c.run)
		}
		b.mu.Unlock()
		if !open {
			_ = raw.Close()
		}
	}
}

// faults are what is switched on.
type faults struct {
	refused map[string]uint16 // reply codes by the name of a queue or exchange
	held    bool              // confirms wait
	cutAt   int               // publishes until the connection is cut; zero for never
	blocked chan struct{}     // closed unless publishers are blocked
	reason  string
}

func (f *faults) clear() {
	f.refused = map[string]uint16{}
	f.blocked = make(chan struct{})
	close(f.blocked)
}

// Refuse closes the channel with a reply code (403, say) when a client names the
// queue or exchange; zero ends that.
func (b *Broker) Refuse(name string, code uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if code == 0 {
		delete(b.refused, name)
		return
	}
	b.refused[name] = code
}

// HoldConfirms keeps confirms back, or sends those that were.
func (b *Broker) HoldConfirms(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = on
	for c := range b.conns {
		for _, ch := range c.channels {
			ch.confirm()
		}
	}
}

// CutAfter resets the connection that publishes the nth message from now on, which
// is stored and not confirmed.
func (b *Broker) CutAfter(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cutAt = n
}

// Block makes the broker read nothing more from a connection that has published,
// once that publishes again, and tells it so: as with an alarm for memory or disk.
func (b *Broker) Block(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.blocked:
		b.blocked = make(chan struct{})
	default:
	}
	b.reason = reason
}

// Unblock ends that.
func (b *Broker) Unblock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.blocked:
	default:
		close(b.blocked)
	}
}

// CloseChannels closes every channel that has a consumer, with a reply code.
func (b *Broker) CloseChannels(code uint16, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		for _, ch := range c.channels {
			if len(ch.consumers) > 0 && !ch.closing {
				ch.fail(code, text, 0, 0)
			}
		}
	}
}

// Freeze makes the broker do nothing about what comes on the channels that are open
// now, as for a queue without a leader; other channels go on. Thaw ends it, and does
// all that has come meanwhile.
func (b *Broker) Freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		for _, ch := range c.channels {
			ch.frozen = true
		}
	}
}

// Thaw ends Freeze.
func (b *Broker) Thaw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		for _, ch := range c.channels {
			kept := ch.kept
			ch.frozen, ch.kept = false, nil
			for _, f := range kept {
				if c.channels[ch.number] == ch {
					ch.frame(f.typ, f.payload)
				}
			}
		}
	}
}
