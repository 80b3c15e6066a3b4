package mqtt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/packets"
	paholog "github.com/eclipse/paho.golang/paho/log"
)

const (
	// maxPacket is the largest packet that is taken from a broker, in bytes: no store
	// holds a larger message.
	maxPacket = 17 << 20
	// writeTime bounds one write.
	writeTime = 20 * time.Second
	readAhead = 32 << 10
)

// wire is a network connection as the client library needs it: one packet is
// written at a time, none that is read is larger than maxPacket, and the first
// reason for its end is kept.
type wire struct {
	net.Conn
	turn chan struct{} // held by whoever writes

	read *bufio.Reader
	left int // bytes of the packet that is being read

	heard atomic.Bool // something has come since the last look at it

	once  sync.Once
	ended chan struct{}
	cause error // why it ended; set when ended is closed
}

func newWire(conn net.Conn) *wire {
	return &wire{Conn: conn, turn: make(chan struct{}, 1), read: bufio.NewReaderSize(conn, readAhead), ended: make(chan struct{})}
}

// Lock and Unlock are the library's, around the writes of a packet.
func (w *wire) Lock()   { w.turn <- struct{}{} }
func (w *wire) Unlock() { <-w.turn }

// Read reads of one packet at a time.
func (w *wire) Read(p []byte) (int, error) {
	if w.left == 0 {
		if err := w.begin(); err != nil {
			w.fail(err)
			return 0, err
		}
	}
	n, err := w.read.Read(p[:min(len(p), w.left)])
	w.left -= n
	w.heard.Store(true)
	if err != nil {
		w.fail(err)
	}
	return n, err
}

// begin looks at the fixed header of the next packet (MQTT 5, section 2.1): its
// type, and the length of the rest in one to four bytes of seven bits each.
func (w *wire) begin() error {
	length := 0
	for i := 1; i <= 4; i++ {
		head, err := w.read.Peek(1 + i)
		if err != nil {
			return err
		}
		length |= int(head[i]&0x7f) << (7 * (i - 1))
		if head[0]>>4 == packets.CONNACK && i == 1 && length == 2 {
			return errOldBroker
		}
		if head[i] < 0x80 {
			if w.left = 1 + i + length; w.left > maxPacket {
				return fmt.Errorf("the broker sent a packet of %d bytes, though it was told to send none above %d", w.left, maxPacket)
			}
			return nil
		}
	}
	return errors.New("what the broker sent is not MQTT: a length of more than four bytes")
}

// errOldBroker: a CONNACK of MQTT 5 has a length of its properties, one of MQTT 3.1.1
// ends before it.
var errOldBroker = errors.New("the broker does not speak MQTT 5, which is needed: it answers as MQTT 3.1.1 does")

// Write writes what the caller has the lock for.
func (w *wire) Write(p []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		w.fail(err)
		return 0, err
	}
	n, err := w.Conn.Write(p)
	if err != nil {
		w.fail(err)
	}
	return n, err
}

// send writes whole packets, unless ctx ends before its turn has come. If it ends
// in the middle, the connection does: half a packet can't be taken back.
func (w *wire) send(ctx context.Context, packets []byte) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.ended:
		return w.why()
	}
	defer w.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { w.fail(errStuck) })
	defer stop()
	if _, err := w.Write(packets); err != nil {
		return w.why()
	}
	return nil
}

// put writes whole packets when its turn comes.
func (w *wire) put(packets []byte) error {
	w.Lock()
	defer w.Unlock()
	_, err := w.Write(packets)
	return err
}

// over reports whether the connection has ended.
func (w *wire) over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// errStuck: the broker did not take what was written in time.
var errStuck = errors.New("the broker did not read what was sent in time")

// errClosed: this side ended the connection.
var errClosed = errors.New("the connection was closed")

// fail ends the connection. The first reason given is kept.
func (w *wire) fail(cause error) {
	w.once.Do(func() {
		w.cause = cause
		close(w.ended)
		_ = w.Conn.Close()
	})
}

// Close ends the connection.
func (w *wire) Close() error {
	w.fail(errClosed)
	return nil
}

// why returns the reason for the end.
func (w *wire) why() error {
	if !w.over() {
		return errClosed
	}
	switch {
	case errors.Is(w.cause, io.EOF):
		return errors.New("the broker closed the connection")
	case errors.Is(w.cause, os.ErrDeadlineExceeded):
		return errStuck
	}
	return w.cause
}

// pinger keeps a connection alive, and ends it when the broker is silent. Unlike the
// library's own it does not mind that nothing is read while messages wait for room.
type pinger struct {
	wire      *wire
	waits     func() bool // reports whether this side has stopped reading; nil for never
	keepAlive time.Duration
}

// Run sends a ping request after each three quarters of the interval that the broker
// was promised (section 3.1.2.10) until ctx ends. A broker that wants a longer one, or
// none (section 3.2.2.3.14), is asked as often as it was told: its silence has to be
// noticed all the same.
func (p *pinger) Run(ctx context.Context, _ net.Conn, seconds uint16) error {
	interval := p.keepAlive
	if asked := time.Duration(seconds) * time.Second; asked > 0 {
		interval = min(interval, asked)
	}
	interval = interval * 3 / 4
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if heard := p.wire.heard.Swap(false); !heard && !first && (p.waits == nil || !p.waits()) {
			p.wire.fail(fmt.Errorf("the broker has not answered a ping for %s", interval))
			return p.wire.why()
		}
		if err := p.wire.send(ctx, []byte{packets.PINGREQ << 4, 0}); err != nil {
			return err
		}
	}
}

// What else the library tells a pinger is of no interest: the wire knows better.
func (p *pinger) PacketSent()             {}
func (p *pinger) PacketReceived()         {}
func (p *pinger) PingResp()               {}
func (p *pinger) SetDebug(paholog.Logger) {}
