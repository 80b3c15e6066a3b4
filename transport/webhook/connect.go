package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// maxConnectTime bounds connecting and, again, the TLS handshake.
const maxConnectTime = 10 * time.Second

// unreachableError says that there was no connection to send anything on.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// newTransport returns the connection pool of a sender. It speaks HTTP/1.1:
// over HTTP/2 all sends would share one connection and fail with it.
func newTransport(options Options, hostname string, timeout time.Duration) *http.Transport {
	connections := options.Connections
	if connections == 0 {
		connections = defaultConnections
	}
	// Less than the whole, or a host that does not answer would look like one
	// that is slow.
	limit := min(maxConnectTime, timeout/2)
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if options.TLS != nil {
		config = options.TLS.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	d := &dialer{net: net.Dialer{Timeout: limit}, limit: limit, config: config, hostname: hostname}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		TLSClientConfig:        config, // for a proxy's tunnel
		TLSHandshakeTimeout:    limit,
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConns:           connections,
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
	if options.Proxy != nil {
		t.Proxy = http.ProxyURL(options.Proxy)
		t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("the proxy answered %s", statusText(response.StatusCode))
			}
			return nil
		}
	}
	return t
}

// traced tells whether a request got a connection: that is not only a matter of the
// dialer where a proxy connects.
func traced(ctx context.Context, connected *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
}

// dialer connects, and marks every failure to do so.
type dialer struct {
	net      net.Dialer
	limit    time.Duration
	config   *tls.Config
	hostname string
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, &unreachableError{err}
	}
	return conn, nil
}

func (d *dialer) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := d.config
	if config.ServerName == "" {
		config = config.Clone()
		// Not always the sender's own host: a proxy may be spoken to by TLS.
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			config.ServerName = d.hostname
		}
	}
	limited, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(limited); err != nil {
		conn.Close()
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer in %s; is it https that is spoken there?", d.limit)
		}
		return nil, &unreachableError{fmt.Errorf("TLS handshake: %w", err)}
	}
	return secure, nil
}
