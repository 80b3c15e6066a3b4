package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// chunk is how many bytes are passed at a time.
const chunk = 32 << 10

// link is a client's connection and the one to the upstream that belongs to it.
type link struct {
	dead context.Context // done when it has been cut or has ended
	die  context.CancelFunc

	mu     sync.Mutex
	ended  bool
	client *net.TCPConn
	server *net.TCPConn // nil until it has been reached
	left   [2]int64     // bytes that may still pass; negative for no limit
	half   [2]bool      // half-closed: what is sent is dropped
}

func newLink(client *net.TCPConn, limit [2]int64) *link {
	dead, die := context.WithCancel(context.Background())
	return &link{dead: dead, die: die, client: client, left: limit}
}

// dial connects to the upstream. A cut ends it.
func (l *link) dial(upstream string) error {
	ctx, cancel := context.WithTimeout(l.dead, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", upstream)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		reset(conn.(*net.TCPConn))
		return net.ErrClosed
	}
	l.server = conn.(*net.TCPConn)
	for d, half := range l.half {
		if half {
			_ = l.receiver(Direction(d)).CloseWrite()
		}
	}
	return nil
}

// sender and receiver are the connections that a direction reads and writes.
func (l *link) sender(d Direction) *net.TCPConn {
	if d == FromClient {
		return l.client
	}
	return l.server
}

func (l *link) receiver(d Direction) *net.TCPConn { return l.sender(1 - d) }

// pump passes bytes in one direction until that has ended.
func (p *Proxy) pump(l *link, d Direction) {
	buffer := make([]byte, chunk)
	for {
		n, err := l.sender(d).Read(buffer)
		if !p.hold(l, d) {
			return
		}
		passed, alive := l.pass(d, buffer[:n])
		p.bytes[d].Add(int64(passed))
		switch {
		case !alive:
			l.cut()
			return
		case errors.Is(err, io.EOF):
			_ = l.receiver(d).CloseWrite()
			return
		case err != nil: // the sender has reset it, and the receiver is to see that
			l.cut()
			return
		}
	}
}

// pass hands bytes to the receiver. It returns how many it took, and whether the
// connection goes on.
func (l *link) pass(d Direction, data []byte) (passed int, alive bool) {
	l.mu.Lock()
	half, left := l.half[d], l.left[d]
	l.mu.Unlock()
	if half || len(data) == 0 {
		return 0, true
	}
	limited := left >= 0 && int64(len(data)) >= left
	if limited {
		data = data[:left]
	}
	passed, err := l.receiver(d).Write(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if left >= 0 {
		l.left[d] -= int64(passed)
	}
	return passed, !limited && (err == nil || l.half[d])
}

// halfClose ends one direction.
func (l *link) halfClose(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.half[d] = true
	if to := l.receiver(d); to != nil && !l.ended {
		_ = to.CloseWrite()
	}
}

// cut resets both connections.
func (l *link) cut() { l.end(reset) }

// close ends both connections after everything has been passed.
func (l *link) close() { l.end(func(c *net.TCPConn) { _ = c.Close() }) }

func (l *link) end(how func(*net.TCPConn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	l.die()
	how(l.client)
	if l.server != nil {
		how(l.server)
	}
}

// reset closes a connection so that the other side sees a reset, and loses what
// it has not read yet.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
