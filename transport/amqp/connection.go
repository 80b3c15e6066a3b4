package amqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"gobridge/internal/clienttls"
)

// The defaults and bounds of a connection.
const (
	defaultHeartbeat = 10 * time.Second
	maxHeartbeat     = 10 * time.Minute
	maxShortString   = 255
)

// What a TCP connection is for.
const (
	consume = "consume"
	publish = "publish"
)

// Options configure a [Connection]. Addresses is required, and a user with a
// password or External.
type Options struct {
	// Addresses are the nodes of the cluster, as host:port. One of them is used, and
	// the next if that can't be reached.
	Addresses []string

	// VHost is the virtual host; "/" when empty.
	VHost string

	// Username and Password log in. They are asked at each connection.
	Username, Password func() (string, error)

	// External logs in by the client's certificate (SASL EXTERNAL) instead.
	External bool

	// TLS encrypts, unless nil. Its files are read at each connection.
	TLS *clienttls.Options

	// Heartbeat is how long silence may last before a connection is taken for
	// dead, in whole seconds; 10 s when zero. The server may ask for less.
	Heartbeat time.Duration

	// Name is what the server shows the connection as; "gobridge" when empty.
	Name string

	// Logger, unless nil, is told about connections that end.
	Logger *slog.Logger
}

// Connection is what receivers and senders share: a TCP connection to consume, and
// another to publish, for a server that is short of memory stops reading from
// those that publish. Both are made when they are needed. It is safe for
// concurrent use.
type Connection struct {
	options Options
	log     *slog.Logger

	ctx    context.Context // done when it is closed
	cancel context.CancelFunc

	// running is what has to end before Close returns. Nothing is added once mu has
	// been held with closed set.
	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool

	consuming, publishing *link
}

// New checks the options. It connects to nothing.
func New(o Options) (*Connection, error) {
	if o.VHost == "" {
		o.VHost = "/"
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = defaultHeartbeat
	}
	if o.Name == "" {
		o.Name = "gobridge"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Connection{options: o, log: o.Logger, ctx: ctx, cancel: cancel}
	c.consuming = &link{conn: c, purpose: consume}
	c.publishing = &link{conn: c, purpose: publish}
	return c, nil
}

func (o *Options) check() error {
	if len(o.Addresses) == 0 {
		return errors.New("amqp: no addresses; give at least one, like localhost:5672")
	}
	for _, address := range o.Addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return fmt.Errorf("amqp: address %q: want host:port, like localhost:5672", address)
		}
	}
	if err := short("virtual host", o.VHost); err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	user := o.Username != nil && o.Password != nil
	switch {
	case o.Heartbeat < time.Second || o.Heartbeat > maxHeartbeat || o.Heartbeat%time.Second != 0:
		return fmt.Errorf("amqp: heartbeat %s: want whole seconds, from 1s to %s", o.Heartbeat, maxHeartbeat)
	case o.External && (o.Username != nil || o.Password != nil):
		return errors.New("amqp: external beside a user; give one of them")
	case o.External && (o.TLS == nil || o.TLS.Cert == ""):
		return errors.New("amqp: external needs tls with a client certificate (cert and key)")
	case !o.External && !user:
		return errors.New("amqp: no credentials; give username and password, or external with a client certificate")
	}
	if o.TLS != nil {
		if _, err := o.TLS.Load(); err != nil {
			return fmt.Errorf("amqp: %w", err)
		}
	}
	return nil
}

// short returns what is wrong with a text that the protocol wants in one byte of
// length (AMQP 0-9-1, 4.2.5.3).
func short(what, text string) error {
	switch {
	case len(text) > maxShortString:
		return fmt.Errorf("the %s has %d bytes; AMQP allows %d", what, len(text), maxShortString)
	case !utf8.ValidString(text):
		return fmt.Errorf("the %s is not UTF-8, which AMQP wants", what)
	}
	return nil
}

// Close ends both connections, and returns when nothing runs any more. Receivers
// and senders are of no use then.
func (c *Connection) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.consuming.close()
	c.publishing.close()
	c.cancel()
	c.running.Wait()
	return nil
}

// start runs f until it ends by itself, and reports false if the connection is
// closed.
func (c *Connection) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Go(f)
	return true
}

// errClosed is the answer after Close.
var errClosed = errors.New("amqp: the connection is closed")

var _ io.Closer = (*Connection)(nil)

// where names the server and the virtual host for messages.
func (c *Connection) where() string {
	return fmt.Sprintf("%s, virtual host %s", strings.Join(c.options.Addresses, ","), c.options.VHost)
}
