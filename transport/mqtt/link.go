package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session"
	"github.com/gorilla/websocket"

	"gobridge/internal/pause"
)

const (
	// connectTime bounds one try to connect, to one address.
	connectTime = 10 * time.Second
	noLimit     = 365 * 24 * time.Hour
	// goodbyeTime bounds the clean end of a connection.
	goodbyeTime = 2 * time.Second
)

// Waits between two tries to connect.
const (
	minWait = 100 * time.Millisecond
	maxWait = 15 * time.Second
	// steady is how long a connection holds that was no failure.
	steady = 10 * time.Second
	// minTakenOverWait and maxTakenOverWait hold after another client has connected
	// under the same ID: each return would throw that one out again.
	minTakenOverWait = 5 * time.Second
	maxTakenOverWait = time.Minute
)

// user is who wants a connection, and what for.
type user struct {
	clientID       string
	clean          bool // forget what the broker has of this client
	expiry         uint32
	receiveMaximum uint16
	session        session.SessionManager
	waits          func() bool            // see pinger
	unconfirmed    func(*packets.Publish) // takes messages of QoS 0; nil for none
	hooked         func(*wire)            // is told of the connection before it is used
}

// link is a connection to the broker that stands, or has stood.
type link struct {
	client *paho.Client
	wire   *wire
	terms  terms
	at     string // the address
}

// terms are what the broker grants (MQTT 5, section 3.2.2.3).
type terms struct {
	resumed   bool // it had the session still
	maxPacket int  // bytes; zero when it says nothing
	maxQoS    byte
	retains   bool
	shares    bool
	expiry    uint32 // of the session, in seconds
}

// connect tries the addresses in turn.
func (c *Connection) connect(ctx context.Context, u user) (*link, error) {
	var errs []error
	for _, address := range c.urls {
		l, err := c.connectTo(ctx, address, u)
		if err == nil {
			return l, nil
		}
		errs = append(errs, fmt.Errorf("connect to %s: %w", shownURL(address), err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (c *Connection) connectTo(ctx context.Context, address *url.URL, u user) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	packet, err := c.packet(u)
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	w := newWire(conn)
	if u.hooked != nil {
		u.hooked(w)
	}
	client := paho.NewClient(paho.ClientConfig{
		ClientID:      u.clientID,
		Conn:          w,
		Session:       u.session,
		PingHandler:   &pinger{wire: w, waits: u.waits, keepAlive: c.keepAlive},
		PacketTimeout: noLimit, // contexts bound all waits
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			if u.unconfirmed != nil {
				u.unconfirmed(p.Packet.Packet())
			}
			return true, nil
		}},
		OnClientError: w.fail,
	})
	ack, err := client.Connect(ctx, packet)
	if err != nil {
		w.fail(err)
		return nil, refused(ack, err)
	}
	l := &link{client: client, wire: w, terms: c.termsOf(ack, u), at: shownURL(address)}
	c.limit.Store(int64(l.terms.maxPacket))
	return l, nil
}

// packet is the CONNECT packet, with the credentials as they are now.
func (c *Connection) packet(u user) (*paho.Connect, error) {
	packet := &paho.Connect{
		ClientID:   u.clientID,
		CleanStart: u.clean,
		KeepAlive:  uint16(c.keepAlive / time.Second),
		Properties: &paho.ConnectProperties{
			SessionExpiryInterval: &u.expiry,
			MaximumPacketSize:     paho.Uint32(maxPacket),
			RequestProblemInfo:    true,
		},
	}
	if u.receiveMaximum > 0 {
		packet.Properties.ReceiveMaximum = &u.receiveMaximum
	}
	if c.options.Username != nil {
		name, err := c.options.Username()
		if err != nil {
			return nil, fmt.Errorf("read the user name: %w", err)
		}
		packet.UsernameFlag, packet.Username = true, name
	}
	if c.options.Password != nil {
		password, err := c.options.Password()
		if err != nil {
			return nil, fmt.Errorf("read the password: %w", err)
		}
		packet.PasswordFlag, packet.Password = true, []byte(password)
	}
	return packet, nil
}

// refused is why there is no connection.
func refused(ack *paho.Connack, err error) error {
	switch {
	case errors.Is(err, errOldBroker):
		return errOldBroker
	case ack != nil && ack.ReasonCode >= 0x80:
		said := ""
		if ack.Properties != nil {
			said = ack.Properties.ReasonString
		}
		return &codeError{code: ack.ReasonCode, said: said}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the broker closed the connection without an answer; does it speak MQTT 5, and does the address want TLS?")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", connectTime)
	}
	return err
}

func (c *Connection) termsOf(ack *paho.Connack, u user) terms {
	t := terms{resumed: ack.SessionPresent, maxQoS: 2, retains: true, shares: true, maxPacket: c.options.MaxPacket, expiry: u.expiry}
	p := ack.Properties
	if p == nil {
		return t
	}
	t.retains, t.shares = p.RetainAvailable, p.SharedSubAvailable
	if p.MaximumPacketSize != nil && (t.maxPacket == 0 || int(*p.MaximumPacketSize) < t.maxPacket) {
		t.maxPacket = int(*p.MaximumPacketSize)
	}
	if p.MaximumQoS != nil {
		t.maxQoS = *p.MaximumQoS
	}
	if p.SessionExpiryInterval != nil {
		t.expiry = *p.SessionExpiryInterval
	}
	return t
}

// dial connects to an address, and reads the certificates anew for it.
func (c *Connection) dial(ctx context.Context, address *url.URL) (net.Conn, error) {
	var config *tls.Config
	if encrypted(address) {
		var err error
		if config, err = c.options.TLS.Load(); err != nil {
			return nil, err
		}
	}
	switch address.Scheme {
	case "ws", "wss":
		return dialWebsocket(ctx, address, config)
	case "mqtts":
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", hostPort(address))
	default:
		return (&net.Dialer{}).DialContext(ctx, "tcp", hostPort(address))
	}
}

// websocketConn is a stream over a websocket: MQTT takes no notice of where its
// messages begin and end (MQTT 5, section 6).
type websocketConn struct {
	*websocket.Conn
	message io.Reader
}

func dialWebsocket(ctx context.Context, address *url.URL, config *tls.Config) (net.Conn, error) {
	d := websocket.Dialer{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, Subprotocols: []string{"mqtt"}}
	conn, response, err := d.DialContext(ctx, address.String(), nil)
	if response != nil {
		response.Body.Close()
	}
	if err != nil {
		if response != nil {
			return nil, fmt.Errorf("%w: %s", err, response.Status)
		}
		return nil, err
	}
	return &websocketConn{Conn: conn}, nil
}

func (c *websocketConn) Write(p []byte) (int, error) {
	if err := c.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *websocketConn) Read(p []byte) (int, error) {
	for {
		if c.message == nil {
			var err error
			if _, c.message, err = c.NextReader(); err != nil {
				if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway, websocket.CloseAbnormalClosure) {
					err = io.EOF
				}
				return 0, err
			}
		}
		n, err := c.message.Read(p)
		if errors.Is(err, io.EOF) {
			c.message, err = nil, nil
			if n == 0 {
				continue
			}
		}
		return n, err
	}
}

func (c *websocketConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// goodbye ends the connection cleanly, as far as the broker lets it, and waits for
// its goroutines.
func (l *link) goodbye() {
	stuck := time.AfterFunc(goodbyeTime, func() { l.wire.fail(errStuck) })
	defer stuck.Stop()
	_ = l.client.Disconnect(&paho.Disconnect{}) // it ends whatever comes of it
}

// schedule says how long to wait before the next try.
type schedule struct{ failures int }

// failed is for a try that led to no connection.
func (s *schedule) failed() time.Duration {
	s.failures++
	return pause.Backoff(s.failures-1, minWait, maxWait)
}

// lost is for a connection that ended, after having held for so long.
func (s *schedule) lost(held time.Duration, why error) time.Duration {
	var code *codeError
	takenOver := errors.As(why, &code) && code.code == codeTakenOver
	switch {
	case held > steady && !takenOver:
		s.failures = 0
		return pause.Jittered(minWait)
	case takenOver:
		s.failures++
		return pause.Backoff(s.failures-1, minTakenOverWait, maxTakenOverWait)
	}
	return s.failed()
}

// trouble logs what keeps a client from its broker: once, until it is another.
type trouble struct {
	log  *slog.Logger
	last string
}

func (t *trouble) say(what string, err error, again time.Duration) {
	text := err.Error()
	if text == t.last {
		return
	}
	t.last = text
	t.log.Warn(what, "error", err, "again_in", again.Round(time.Millisecond))
	var code *codeError
	if errors.As(err, &code) && code.code == codeTakenOver {
		t.log.Warn("another client has connected under this client ID and has taken over its session; " +
			"look for a second gobridge, or another program, with the same client_id")
	}
}

func (t *trouble) over() { t.last = "" }
