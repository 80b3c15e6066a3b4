package mqtt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gobridge/internal/pause"
)

// publisher is the client of a sender. It connects when it is first used, and again
// for as long as it is open.
type publisher struct {
	connection *Connection
	clientID   string

	ctx  context.Context // ends with close
	stop context.CancelFunc
	done chan struct{} // closed when run has ended

	mu      sync.Mutex
	started bool
	session *outgoing     // while connected
	err     error         // why not, while it waits for the next try
	news    chan struct{} // closed with every change
}

func newPublisher(c *Connection, clientID string) *publisher {
	p := &publisher{connection: c, clientID: clientID, done: make(chan struct{}), news: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// errOver: the connection of the configuration has been closed.
var errOver = errors.New("mqtt: the connection has been closed")

// use returns the session, after waiting for a try to connect that is under way. Its
// error says why there is none just now.
func (p *publisher) use(ctx context.Context) (*outgoing, error) {
	for {
		p.mu.Lock()
		if p.ctx.Err() != nil {
			p.mu.Unlock()
			return nil, errOver
		}
		if !p.started {
			p.started = true
			go p.run()
		}
		session, err, news := p.session, p.err, p.news
		p.mu.Unlock()
		if session != nil || err != nil {
			return session, err
		}
		select {
		case <-news:
		case <-p.ctx.Done():
			return nil, errOver
		case <-ctx.Done():
			return nil, fmt.Errorf("connect: %w", context.Cause(ctx))
		}
	}
}

func (p *publisher) set(session *outgoing, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.err = session, err
	close(p.news)
	p.news = make(chan struct{})
}

func (p *publisher) run() {
	defer close(p.done)
	log := p.connection.log.With("client", p.clientID)
	said := trouble{log: log}
	var tries schedule
	for p.ctx.Err() == nil {
		session, err := p.connect(p.ctx)
		var wait time.Duration
		if err != nil {
			wait = tries.failed()
			said.say("the publisher does not reach its broker", err, wait)
			p.set(nil, err)
		} else {
			began := time.Now()
			said.over()
			log.Info("the publisher is connected", "broker", session.link.at)
			p.set(session, nil)
			if err = p.hold(session); err == nil {
				return
			}
			wait = tries.lost(time.Since(began), err)
			said.say("the publisher has lost its broker", err, wait)
			if tries.failures == 0 {
				err = nil // those who send wait for the next try
			}
			p.set(nil, err)
		}
		if !pause.For(p.ctx, wait) {
			return
		}
		p.set(nil, nil)
	}
}

// connect begins a session of its own.
func (p *publisher) connect(ctx context.Context) (*outgoing, error) {
	o := newOutgoing()
	l, err := p.connection.connect(ctx, user{
		clientID: p.clientID, clean: true, receiveMaximum: 1, session: o, hooked: func(w *wire) { o.wire = w },
	})
	if err != nil {
		return nil, err
	}
	o.link = l
	return o, nil
}

// hold waits for the end of the connection, and returns its reason, nil if it is
// this side's.
func (p *publisher) hold(o *outgoing) error {
	select {
	case <-o.wire.ended:
		<-o.link.client.Done()
		return o.wire.why()
	case <-p.ctx.Done():
		p.set(nil, errOver)
		o.link.goodbye()
		return nil
	}
}

// close ends the client.
func (p *publisher) close() {
	p.mu.Lock()
	p.stop()
	started := p.started
	p.started = true
	p.mu.Unlock()
	if started {
		<-p.done
	}
}
