package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// The bounds of a try to connect to one address.
const (
	reachTime = 5 * time.Second
	loginTime = 10 * time.Second
)

// Bounds that the client proposes to the server.
const (
	maxFrame    = 128 << 10 // RabbitMQ's own
	maxChannels = 2047
)

// dial connects to the first address that lets it in, beginning anywhere, so that
// clients spread over a cluster.
func (c *Connection) dial(purpose string) (*session, error) {
	addresses := c.options.Addresses
	first := rand.IntN(len(addresses)) //nolint:gosec // no secret
	var errs []error
	for i := range addresses {
		address := addresses[(first+i)%len(addresses)]
		s, err := c.dialOne(address, purpose)
		if err == nil {
			return s, nil
		}
		errs = append(errs, fmt.Errorf("connect to %s: %w", address, err))
		if c.ctx.Err() != nil {
			return nil, errClosed
		}
	}
	return nil, errors.Join(errs...)
}

func (c *Connection) dialOne(address, purpose string) (*session, error) {
	auth, err := c.credentials()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, loginTime)
	defer cancel()
	raw, err := c.reach(ctx, address)
	if err != nil {
		return nil, err
	}
	// The library's login knows no context, and neither closes nor ends when it fails.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	var conn io.ReadWriteCloser = raw
	frame := maxFrame
	if purpose == consume {
		conn, frame = newIntake(raw), maxRead+1<<10
	}
	client, err := amqp091.Open(conn, amqp091.Config{
		SASL:       []amqp091.Authentication{auth},
		Vhost:      c.options.VHost,
		ChannelMax: maxChannels,
		FrameSize:  frame,
		Heartbeat:  c.options.Heartbeat,
		Locale:     "en_US",
		Properties: amqp091.Table{"product": "gobridge", "connection_name": c.options.Name + " (" + purpose + ")"},
	})
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, explainLogin(err, c.options.VHost)
	}
	s := &session{
		amqp: client, raw: raw, address: address,
		closes: client.NotifyClose(make(chan *amqp091.Error, 1)),
		blocks: client.NotifyBlocked(make(chan amqp091.Blocking, 16)),
	}
	return s, nil
}

// credentials reads who to be.
func (c *Connection) credentials() (amqp091.Authentication, error) {
	if c.options.External {
		return &amqp091.ExternalAuth{}, nil
	}
	username, err := c.options.Username()
	if err != nil {
		return nil, fmt.Errorf("username: %w", err)
	}
	password, err := c.options.Password()
	if err != nil {
		return nil, fmt.Errorf("password: %w", err)
	}
	return &amqp091.PlainAuth{Username: username, Password: password}, nil
}

// reach connects, and encrypts if that is asked for.
func (c *Connection) reach(ctx context.Context, address string) (*wire, error) {
	var config *tls.Config
	if c.options.TLS != nil {
		var err error
		if config, err = c.options.TLS.Load(); err != nil {
			return nil, err
		}
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
	}
	dialer := net.Dialer{Timeout: reachTime}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(loginTime)) // lifted when logged in
	if config == nil {
		return &wire{conn}, nil
	}
	encrypted := tls.Client(conn, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	return &wire{encrypted}, nil
}

// wire is a connection that closes itself when reading fails. The client library
// waits for writes to end before it closes a connection whose silence has lasted
// too long, and a write to a peer that is gone does not end by itself.
type wire struct{ net.Conn }

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		_ = w.Close()
	}
	return n, err
}

// explainLogin says what a failed login means.
func explainLogin(err error, host string) error {
	var e *amqp091.Error
	switch {
	case errors.As(err, &e) && e.Server:
		return fmt.Errorf("log in: %s", e.Reason)
	case errors.Is(err, amqp091.ErrSASL):
		return errors.New("log in: the server has no such way to log in; external needs a certificate that it trusts, and its plugin rabbitmq_auth_mechanism_ssl")
	case errors.Is(err, amqp091.ErrCredentials):
		return errors.New("log in: the server ended the connection without a reason, as it does when username or password are wrong")
	case errors.Is(err, amqp091.ErrVhost):
		return fmt.Errorf("log in: the connection ended while virtual host %q was opened", host)
	}
	return fmt.Errorf("log in: %w", explain(err))
}
