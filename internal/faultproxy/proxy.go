// Package faultproxy is a TCP proxy on loopback that breaks connections when it
// is told to, for tests of what happens between a process and what it depends on.
//
// It knows bytes only, no protocol. All faults can be combined and switched while
// connections are in use.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Direction names one half of a connection by who sends in it.
type Direction int

// The two halves of a connection.
const (
	FromClient Direction = iota
	FromServer
)

func (d Direction) String() string {
	if d == FromClient {
		return "from the client"
	}
	return "from the server"
}

// dialTimeout bounds how long a client waits for the upstream to be reached.
const dialTimeout = 5 * time.Second

// Proxy passes what comes to its address on to its upstream and back. Its methods
// may be called from several goroutines.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	upstream string
	delay    time.Duration
	refuse   bool
	closed   bool
	limit    [2]int64         // bytes that a new connection passes; negative for no limit
	gate     [2]chan struct{} // closed while bytes may pass
	links    map[*link]struct{}

	accepted, refused atomic.Int64
	bytes             [2]atomic.Int64
}

// Counts is what a proxy has seen so far.
type Counts struct {
	Accepted   int64 // connections that were not refused
	Refused    int64 // connections that were reset at once; and accepted ones whose upstream could not be reached
	Live       int64 // connections now
	FromClient int64 // bytes passed to the upstream
	FromServer int64 // bytes passed to clients
}

// Start runs a proxy to an upstream, a TCP address as "127.0.0.1:8000", on a free
// port of 127.0.0.1. The upstream need not be there yet. Call Close in the end.
func Start(upstream string) (*Proxy, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{listener: listener, upstream: upstream, limit: [2]int64{-1, -1}, links: map[*link]struct{}{}}
	for d := range p.gate {
		p.gate[d] = make(chan struct{})
		close(p.gate[d])
	}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address that clients connect to, as "127.0.0.1:40000".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetUpstream sends new connections somewhere else. Live ones stay where they are.
func (p *Proxy) SetUpstream(address string) { p.locked(func() { p.upstream = address }) }

// Delay holds each chunk of bytes (up to 32 KiB) back for that long in either
// direction, live connections included. Chunks of a direction wait one after the
// other, so it bounds the throughput as well. 0 ends it.
func (p *Proxy) Delay(d time.Duration) { p.locked(func() { p.delay = d }) }

// Refuse makes the proxy reset new connections as soon as it has accepted them.
// Live ones stay.
func (p *Proxy) Refuse(on bool) { p.locked(func() { p.refuse = on }) }

// CutAfter makes each new connection die by a reset of both sides after n bytes
// in that direction; the n bytes still pass. Negative n ends it for connections
// from then on.
func (p *Proxy) CutAfter(d Direction, n int64) { p.locked(func() { p.limit[d] = n }) }

// Stall makes the proxy a black hole, or ends that: connections stay open and new
// ones are accepted, and nothing passes, no end of a connection either. What
// was sent meanwhile passes late when it ends, as from a network that comes
// back, even when its sender has given up.
func (p *Proxy) Stall(on bool) {
	p.StallFrom(FromClient, on)
	p.StallFrom(FromServer, on)
}

// StallFrom is Stall for one direction. Without what comes from the server, say,
// requests are carried out and nobody learns of it.
func (p *Proxy) StallFrom(d Direction, on bool) {
	p.locked(func() {
		if stalled := p.stalled(d); on && !stalled {
			p.gate[d] = make(chan struct{})
		} else if !on && stalled {
			close(p.gate[d])
		}
	})
}

func (p *Proxy) stalled(d Direction) bool {
	select {
	case <-p.gate[d]:
		return false
	default:
		return true
	}
}

// Cut resets all live connections on both sides. New ones work.
func (p *Proxy) Cut() {
	for _, l := range p.live() {
		l.cut()
	}
}

// HalfClose ends one direction of all live connections: the receiver reads the
// end, and what the sender sends from then on is dropped. The other direction
// goes on.
func (p *Proxy) HalfClose(d Direction) {
	for _, l := range p.live() {
		l.halfClose(d)
	}
}

// Counts returns what the proxy has seen so far.
func (p *Proxy) Counts() Counts {
	return Counts{
		Accepted:   p.accepted.Load(),
		Refused:    p.refused.Load(),
		Live:       int64(len(p.live())),
		FromClient: p.bytes[FromClient].Load(),
		FromServer: p.bytes[FromServer].Load(),
	}
}

// Close resets all connections, stops listening and returns when nothing of the
// proxy runs any more. It may be called again.
func (p *Proxy) Close() {
	p.locked(func() { p.closed = true })
	_ = p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) locked(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Proxy) live() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*link, 0, len(p.links))
	for l := range p.links {
		out = append(out, l)
	}
	return out
}

// accept takes connections until the proxy is closed.
func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if p.isClosed() {
				return
			}
			time.Sleep(time.Millisecond) // out of file descriptors, say
			continue
		}
		client := conn.(*net.TCPConn) // what a TCP listener gives
		l := p.add(client)
		if l == nil {
			p.refused.Add(1)
			reset(client)
			continue
		}
		p.accepted.Add(1)
		p.running.Go(func() { p.serve(l) })
	}
}

func (p *Proxy) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// add registers a connection, unless it is to be refused.
func (p *Proxy) add(client *net.TCPConn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		return nil
	}
	l := newLink(client, p.limit)
	p.links[l] = struct{}{}
	return l
}

// serve connects a client with the upstream until both directions have ended.
func (p *Proxy) serve(l *link) {
	defer p.locked(func() { delete(p.links, l) })
	defer l.cut()
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	if err := l.dial(upstream); err != nil {
		p.refused.Add(1)
		return
	}
	var other sync.WaitGroup
	other.Go(func() { p.pump(l, FromServer) })
	p.pump(l, FromClient)
	other.Wait()
	l.close()
}

// hold waits as long as a chunk is to be held back. It reports false if the
// connection has been cut meanwhile.
func (p *Proxy) hold(l *link, d Direction) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay > 0 {
		select {
		case <-l.dead.Done():
			return false
		case <-time.After(delay):
		}
	}
	p.mu.Lock()
	gate := p.gate[d]
	p.mu.Unlock()
	select {
	case <-l.dead.Done():
		return false
	case <-gate:
		return true
	}
}
