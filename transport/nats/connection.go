package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge/internal/pause"
)

// Waits between two attempts to connect.
const (
	minWait = 100 * time.Millisecond
	maxWait = 5 * time.Second
	// lasting is how long a connection has to have been there for the next attempt
	// to be made at once.
	lasting = time.Second
)

// flushTime bounds the wait for the server to have read what was written.
const flushTime = 2 * time.Second

// errClosed says that a connection was used after its end.
var errClosed = errors.New("the connection to NATS has been closed")

// Connection is what routes share: one connection to one of the servers, made when
// it is first needed and made again whenever it is lost, for ever. It is safe for
// concurrent use.
type Connection struct {
	options Options
	log     *slog.Logger

	ctx   context.Context // ends with Close
	close context.CancelFunc
	loop  sync.WaitGroup

	mu      sync.Mutex
	started bool
	closed  bool
	live    *link
	err     error         // why the last attempt failed; nil until one has since the last link
	changed chan struct{} // closed with the next change
}

// New checks the options and connects to nothing.
func New(options Options) (*Connection, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	if options.Name == "" {
		options.Name = "gobridge"
	}
	c := &Connection{options: options, log: options.Logger, changed: make(chan struct{})}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.ctx, c.close = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the connection when the server has read what was sent. It may be
// called again.
func (c *Connection) Close() error {
	c.mu.Lock()
	c.closed = true
	live := c.live
	c.mu.Unlock()
	if live != nil {
		live.flush()
	}
	c.close()
	c.loop.Wait()
	return nil
}

// set changes the state and tells those who wait.
func (c *Connection) set(live *link, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live, c.err = live, err
	close(c.changed)
	c.changed = make(chan struct{})
}

// get returns the connection. Without one it waits for the attempt that is being
// made, and says why the last one failed if there was one.
func (c *Connection) get(ctx context.Context) (*link, error) {
	for {
		live, changed, err := c.state()
		if live != nil || err != nil {
			return live, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: %w", c.options.shown(), context.Cause(ctx))
		}
	}
}

// await waits for a connection until ctx ends.
func (c *Connection) await(ctx context.Context) (*link, error) {
	for {
		live, changed, err := c.state()
		if live != nil || errors.Is(err, errClosed) {
			return live, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// state returns how things are, and begins to connect.
func (c *Connection) state() (*link, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, errClosed
	}
	if !c.started {
		c.started = true
		c.loop.Go(c.run)
	}
	return c.live, c.changed, c.err
}

// run keeps a connection until Close.
func (c *Connection) run() {
	wait, said := minWait, ""
	for c.ctx.Err() == nil {
		began := time.Now()
		l, err := c.dial()
		if err != nil {
			c.set(nil, err)
			if text := err.Error(); text != said && c.ctx.Err() == nil {
				said = text
				c.log.Warn("cannot connect to NATS; it is tried again and again", "error", err)
			}
		} else {
			said = ""
			c.log.Info("connected to NATS", "server", l.nc.ConnectedUrl())
			c.set(l, nil)
			select {
			case <-l.ended:
			case <-c.ctx.Done():
			}
			l.nc.Close()
			<-l.ended
			c.set(nil, nil)
			if c.ctx.Err() == nil {
				c.log.Warn("the connection to NATS broke; it is made again", "error", l.reason())
			}
			if time.Since(began) > lasting {
				wait = minWait
			}
		}
		pause.For(c.ctx, pause.Jittered(wait))
		wait = min(2*wait, maxWait)
	}
	c.set(nil, errClosed)
}

// dial makes one connection, with secrets as they are now. The client's own way of
// connecting again is not used: it would keep what was published in between and
// send it later, when a retry has long overtaken it.
func (c *Connection) dial() (*link, error) {
	o := &c.options
	options, err := o.secrets()
	if err != nil {
		return nil, err
	}
	l := &link{log: c.log, ended: make(chan struct{}), seenChanged: make(chan struct{}), watches: map[*watch]struct{}{}}
	d := &dialer{ctx: c.ctx}
	options = append(options,
		client.Name(o.Name),
		client.NoReconnect(),
		client.IgnoreDiscoveredServers(),
		client.SkipHostLookup(),
		client.SetCustomDialer(d),
		client.Timeout(connectTime),
		client.FlusherTimeout(0), // see conn
		client.PingInterval(pingInterval),
		client.MaxPingsOutstanding(pingsMissed),
		client.ErrorHandler(func(_ *client.Conn, _ *client.Subscription, err error) { l.trouble(err) }),
		client.DisconnectErrHandler(func(_ *client.Conn, err error) { l.lost(err) }),
		client.ClosedHandler(func(*client.Conn) { close(l.ended) }),
	)
	if o.InboxPrefix != "" {
		options = append(options, client.CustomInboxPrefix(o.InboxPrefix))
	}
	nc, err := client.Connect(strings.Join(o.Servers, ","), options...)
	cause := d.done()
	if err != nil {
		if cause != nil && (errors.Is(err, client.ErrNoServers) || c.ctx.Err() != nil) {
			err = cause
		}
		return nil, fmt.Errorf("connect to %s: %w", o.shown(), err)
	}
	l.nc, l.wire = nc, d.last
	if o.Domain != "" {
		l.js, err = jetstream.NewWithDomain(nc, o.Domain)
	} else {
		l.js, err = jetstream.New(nc)
	}
	if err != nil {
		nc.Close()
		<-l.ended
		return nil, fmt.Errorf("connect to %s: %w", o.shown(), err)
	}
	return l, nil
}

// maxPayload returns the server's limit, 0 while it is not known.
func (c *Connection) maxPayload() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return 0
	}
	return c.live.nc.MaxPayload()
}

// dialer makes the TCP connections of one attempt.
type dialer struct {
	ctx context.Context

	mu   sync.Mutex
	stop []func() bool
	last *progress
	err  error
}

// Dial connects. A connection that ends drops at once what it has not sent:
// nothing that was given up may reach the server later.
//
// What it returns ends with a write that fails: the client would go on, without what
// it could not write.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	plain := newDialer()
	conn, err := plain.DialContext(d.ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.err = err
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it ends a little later otherwise
	}
	d.stop = append(d.stop, context.AfterFunc(d.ctx, func() { _ = conn.Close() }))
	d.last = &progress{Conn: conn}
	return d.last, nil
}

// progress is a connection that ends when nothing can be written for writeTime.
type progress struct {
	net.Conn
	failed atomic.Pointer[error] // of the write that ended it
}

// Write writes in pieces, each of which has its time: how long all of it takes is up
// to the network.
func (c *progress) Write(p []byte) (int, error) {
	done := 0
	for {
		piece := p[done:min(len(p), done+writePiece)]
		err := c.SetWriteDeadline(time.Now().Add(writeTime))
		if err == nil {
			var n int
			n, err = c.Conn.Write(piece)
			done += n
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("the server has read nothing for %s: %w", writeTime, err)
			}
			c.failed.CompareAndSwap(nil, &err)
			_ = c.Close()
			return done, err
		}
		if done == len(p) {
			return done, nil
		}
	}
}

// done ends the attempt, and returns why TCP failed, if it did.
func (d *dialer) done() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, stop := range d.stop {
		stop()
	}
	return d.err
}

// link is one connection to one server, from beginning to end.
type link struct {
	nc    *client.Conn
	wire  *progress
	js    jetstream.JetStream
	log   *slog.Logger
	ended chan struct{} // closed when it is

	mu          sync.Mutex
	why         error // it ended
	seen        error // the last error the client has told of
	seenChanged chan struct{}
	watches     map[*watch]struct{}
}

// watch waits for the server to refuse a subject.
type watch struct {
	refused func(subject string, err error)
}

func (l *link) lost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.why == nil {
		l.why = err
	}
}

// reason returns why the connection ended.
func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil && !errors.Is(l.why, net.ErrClosed) {
		return l.why
	}
	if failed := l.wire.failed.Load(); failed != nil {
		return *failed
	}
	return client.ErrConnectionClosed
}

// trouble takes up what the server says without having been asked: it answers
// nothing to a publication that it refuses.
func (l *link) trouble(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = err
	close(l.seenChanged)
	l.seenChanged = make(chan struct{})
	subject, is := refusedSubject(err)
	if !is {
		l.log.Warn("NATS reports trouble", "error", err)
		l.why = err
		return
	}
	for w := range l.watches {
		w.refused(subject, err)
	}
}

// watch calls refused, one call at a time, for each subject that the server
// refuses to have published to, until stop is called.
func (l *link) watch(refused func(subject string, err error)) (stop func()) {
	w := &watch{refused}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[w] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watches, w)
	}
}

// api returns a context that ends when the server refuses a request to the API of
// JetStream, with that as its cause.
func (l *link) api(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := l.watch(func(subject string, err error) {
		if strings.HasPrefix(subject, "$JS.") {
			cancel(err)
		}
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// caughtUp waits until the watches have been told of every refusal that came
// before the answer to a flush.
func (l *link) caughtUp(ctx context.Context) {
	for {
		last := l.nc.LastError()
		l.mu.Lock()
		seen, changed := l.seen, l.seenChanged
		l.mu.Unlock()
		if !errors.Is(last, client.ErrPermissionViolation) || seen == last { //nolint:errorlint // this very one
			return
		}
		select {
		case <-changed:
		case <-l.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// flush waits until the server has read what was written, for a while.
func (l *link) flush() { _ = l.nc.FlushTimeout(flushTime) }

// refusedSubject returns the subject to which a publication was refused.
func refusedSubject(err error) (string, bool) {
	if !errors.Is(err, client.ErrPermissionViolation) {
		return "", false
	}
	_, quoted, ok := strings.Cut(err.Error(), "Publish to ")
	if !ok {
		return "", false
	}
	quoted, err = strconv.QuotedPrefix(quoted)
	if err != nil {
		return "", false
	}
	subject, err := strconv.Unquote(quoted)
	return subject, err == nil
}
