// Package mqtt takes messages from topics of an MQTT 5 broker and publishes to
// them (OASIS Standard MQTT 5.0; "section" below is one of it).
//
// # Mapping
//
//	topic                     Subject, always: a broker says who may publish where, of the properties it says nothing
//	payload                   Payload
//	content type              ContentType
//	user properties           Headers, and gobridge's own fields (package internal/mapping)
//	message expiry interval   ExpiresAt, in whole seconds rounded up
//	response topic            header mqtt-response-topic
//	correlation data          header mqtt-correlation-data, in base64
//	payload format indicator  header mqtt-payload-format, "utf-8" when it is 1
//	retain                    header mqtt-retained, "true" on a message that was retained; going out, an option
//	gobridge-subject          header mqtt-subject, when it is not the topic
//
// A user property that is there more than once becomes one header, its values
// joined by commas. A header that no user property can be (invalid UTF-8, U+0000 and
// other control characters, more than 65,535 bytes) travels in gobridge-headers.
// CloudEvents go in and out as the MQTT binding has it, structured or binary.
//
// # Identity
//
// MQTT names no message. The ID is the user property that an option names, else
// gobridge-dedupe-id or gobridge-id, else source and id of a CloudEvent, else a new
// one. A message with a new one is known again, when the broker resends it after a
// broken connection, by its packet identifier, the DUP flag and its content, for as
// long as this process has not acknowledged it and runs the source without a break
// (section 4.4). After a crash, or when another process takes over, what was stored and
// not yet acknowledged comes again under another ID: that repeat is not recognised.
//
// # Order and acknowledgement
//
// Messages are handed over in the order in which they come. The broker keeps order
// per topic, QoS and publisher (section 4.6), with a shared subscription not at all
// across its members. Acknowledgements go out in order of receipt (section 4.6), each
// when its message is durable. Receive Maximum (section 4.9) bounds what is on its way.
//
// # Publishing
//
// A sender is a client of its own, with a session that ends with its connection:
// nothing is sent again behind the engine's back, and what a broker dislikes of one
// destination disturbs no other. A client that connects again has the same ID, which
// ends what is left of the old connection (section 3.1.4) before anything new is
// taken. So no publish that was given up appears behind a later one of its key: with
// QoS 1 it was sent before that one, with QoS 2 its connection is ended.
// Answers by code are those of the function outcome.
package mqtt

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"gobridge/internal/clienttls"
)

// Options are those of a connection.
type Options struct {
	// URLs are the broker's addresses, tried in turn: mqtt, mqtts, ws or wss, host,
	// port unless it is 1883, 8883, 80 or 443, and for a websocket the path. Several
	// must lead to the same sessions.
	URLs []string
	// ClientID begins the IDs of the clients by which [Receiver.Connect] and
	// [Sender.Connect] look.
	ClientID string
	// Username and Password, unless nil, are read with every connection.
	Username, Password func() (string, error)
	// TLS is how mqtts and wss encrypt; nil is the zero value. Its files are read with
	// every connection.
	TLS *clienttls.Options
	// KeepAlive is after how long a silent connection counts as broken: 1 s to
	// 65,535 s, 30 s when zero.
	KeepAlive time.Duration
	// MaxPacket, unless zero, is the largest packet in bytes that the broker takes, for
	// one that does not say so itself.
	MaxPacket int
	// Logger may be nil.
	Logger *slog.Logger
}

// Connection is a broker, as sources and destinations share it.
type Connection struct {
	options   Options
	urls      []*url.URL
	keepAlive time.Duration
	log       *slog.Logger

	limit atomic.Int64 // the largest packet that the broker takes, as last heard; zero when unknown

	mu         sync.Mutex
	publishers []*publisher // one of each sender
}

const defaultKeepAlive = 30 * time.Second

// New makes a connection, which connects when it is needed.
func New(options Options) (*Connection, error) {
	c := &Connection{options: options, keepAlive: options.KeepAlive, log: options.Logger}
	c.limit.Store(int64(options.MaxPacket))
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.keepAlive == 0 {
		c.keepAlive = defaultKeepAlive
	}
	if c.keepAlive < time.Second || c.keepAlive > 65535*time.Second {
		return nil, fmt.Errorf("mqtt: keep alive is %s; it is from 1 s to 65535 s", c.keepAlive)
	}
	if err := checkText(options.ClientID); err != nil || options.ClientID == "" {
		return nil, fmt.Errorf("mqtt: client ID %q: it is text that is not empty", options.ClientID)
	}
	if len(options.URLs) == 0 {
		return nil, errors.New("mqtt: there is no URL")
	}
	secure := false
	for _, text := range options.URLs {
		u, err := parseURL(text)
		if err != nil {
			return nil, err
		}
		c.urls = append(c.urls, u)
		secure = secure || encrypted(u)
	}
	if !secure && options.TLS != nil {
		return nil, errors.New("mqtt: TLS is configured, and no URL uses it; write mqtts or wss")
	}
	if secure {
		if options.TLS == nil {
			c.options.TLS = &clienttls.Options{}
		}
		if _, err := c.options.TLS.Load(); err != nil {
			return nil, fmt.Errorf("mqtt: %w", err)
		}
	}
	return c, nil
}

// Close ends the senders' clients. Receivers end with the context of their Receive.
func (c *Connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var closes sync.WaitGroup
	for _, p := range c.publishers {
		closes.Go(p.close)
	}
	closes.Wait()
	return nil
}

// randomID tells clients of several processes apart.
func randomID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ports are those of the schemes.
var ports = map[string]string{"mqtt": "1883", "mqtts": "8883", "ws": "80", "wss": "443"}

// parseURL reads the address of a broker.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("mqtt: the address is no URL")
	case u.User != nil:
		return nil, errors.New("mqtt: the URL has a user; give username and password beside it")
	case ports[u.Scheme] == "":
		return nil, fmt.Errorf("mqtt: the URL's scheme is %q; it is mqtt, mqtts, ws or wss", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("mqtt: the URL has no host")
	case u.Fragment != "" || u.RawQuery != "" && (u.Scheme == "mqtt" || u.Scheme == "mqtts"):
		return nil, errors.New("mqtt: the URL has a query or a fragment, which mean nothing here")
	case u.Path != "" && u.Path != "/" && (u.Scheme == "mqtt" || u.Scheme == "mqtts"):
		return nil, errors.New("mqtt: the URL has a path; topics stand elsewhere")
	}
	return u, nil
}

func encrypted(u *url.URL) bool { return u.Scheme == "mqtts" || u.Scheme == "wss" }

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = ports[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// shownURL leaves out what may be secret.
func shownURL(u *url.URL) string { return u.Scheme + "://" + hostPort(u) + u.Path }
