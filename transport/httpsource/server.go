// Package httpsource takes messages over HTTP: POST to a route's path, and the
// body is the payload.
//
//   - 202 says that the message is durable, and 200 that it already was; both
//     have its ID. Everything else is an RFC 9457 problem, and nothing was stored
//     that a repetition under the same ID would not meet again.
//   - The ID is, in this order: the webhook-id on a route with signatures, the
//     Idempotency-Key, Gobridge-Dedupe-Id, Gobridge-Id, the source and ID of a
//     CloudEvent, a webhook-id without signature, or a new one.
//   - Content-Type, Content-Encoding, trace context and baggage, and the headers
//     that the route lists, go with the message.
//   - Gobridge-Id, Gobridge-Ordering-Key, Gobridge-Subject, Gobridge-Created-At,
//     Gobridge-Not-Before and Gobridge-Expires-At set what their names say. Their
//     values are percent-encoded, as those of CloudEvents are. Any other name that
//     begins with Gobridge- is refused with 400, unless a bridge sends it: a
//     misspelt ordering key would lose the order without a word.
//
// # CloudEvents
//
// CloudEvents 1.0 are taken in all modes of their HTTP binding (1.0.2, section 3):
// binary, structured as application/cloudevents+json, and batches as
// application/cloudevents-batch+json. An event's source and its ID with a space
// between are the message's ID; type becomes the subject, partitionkey the
// ordering key and time CreatedAt, unless Gobridge headers say something else
// (another ordering key is refused, except from a bridge). All attributes but
// datacontenttype stay with the message as ce- headers, and are text there. In
// JSON, data is taken byte for byte as it stands in the body, so that no number
// changes; without datacontenttype it is application/json.
//
// A batch becomes durable in one call, in its order. If one of its events is not
// valid, or the outbox has no room for all, nothing is stored, and the problem says
// which event it is where that is known (events[0] is the first). After any other
// error (the store could not be used, an ID had other content before) some may be
// stored, and posting the same batch again is safe. Duplicates in it are fine,
// and so are batches of none. The answer is {"ids":[...]} in the batch's order: 202,
// or 200 with "duplicate":true if all were there before, or there are none. What
// says something of one message (Idempotency-Key, Gobridge headers) is refused with
// a batch; the headers that the route lists and the trace context go with each of its
// messages. Each event is known by its own source and ID, on a route with signatures
// too: the signature is over the whole body. The limits are the route's on the body
// and on the number of events.
//
// # From bridge to bridge
//
// What a webhook of gobridge sends is the message that it was: headers that could
// not stand by themselves (Gobridge-Headers), a content type that is none to HTTP
// (Gobridge-Content-Type), an event that was made of it or that it only looks like
// (Gobridge-Event). Those of its headers that stand by themselves are taken if the
// route lists them. A repeat has the ID and the content of the first delivery, and
// a redrive an ID of its own; for that Gobridge-Route, -Binding, -Partition, -Seq,
// -Token-Version, -Attempt, -Redrives, -Delivery-Count and -Received-At are let
// through and not used.
package httpsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"gobridge"
)

// Options configure a [Server]. The zero value of every field but Address works.
type Options struct {
	// Address is host:port to listen on.
	Address string

	// CertFile and KeyFile, or TLS, make it HTTPS. TLS has its certificates.
	CertFile, KeyFile string
	TLS               *tls.Config

	// ReadHeaderTimeout bounds the arrival of a request's headers, 5 s when zero;
	// ReadTimeout that of the whole request, 30 s; IdleTimeout the wait for the
	// next request on a connection, 60 s.
	ReadHeaderTimeout time.Duration
	ReadTimeout       time.Duration
	IdleTimeout       time.Duration
	// AcceptTimeout bounds the wait for the store; 15 s when zero.
	AcceptTimeout time.Duration
	// Grace bounds the wait for requests in flight at the end; 10 s when zero.
	Grace time.Duration

	// MaxHeaderBytes bounds a request's headers; 32 KiB when zero.
	MaxHeaderBytes int
	// MaxBody bounds a payload where the route does not; 1 MiB when zero.
	MaxBody int64
	// MaxConcurrent is how many requests are worked on side by side; one more is
	// told to come again. 1,024 when zero. With MaxBody it bounds the memory.
	MaxConcurrent int

	// Now is the clock for signatures; time.Now when nil.
	Now func() time.Time
	// Logger gets what operators should know; nil discards.
	Logger *slog.Logger
}

// Server listens on one address and serves many routes.
type Server struct {
	options Options
	routes  atomic.Pointer[map[string]*route] // not changed any more once it listens
	slots   chan struct{}
	log     *slog.Logger
	server  *http.Server
	// listener is set by Listen.
	listener net.Listener

	notStored trouble
}

// New returns a server without routes that does not listen yet.
func New(options Options) (*Server, error) {
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("HTTP source: %w", err)
	}
	options.setDefaults()
	s := &Server{
		options: options,
		slots:   make(chan struct{}, options.MaxConcurrent),
		log:     options.Logger,
	}
	s.routes.Store(&map[string]*route{})
	s.server = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: options.ReadHeaderTimeout,
		ReadTimeout:       options.ReadTimeout,
		// Counted from the end of the headers, so it has room for the body, the
		// store and the answer.
		WriteTimeout:   options.ReadTimeout + options.AcceptTimeout + 5*time.Second,
		IdleTimeout:    options.IdleTimeout,
		MaxHeaderBytes: options.MaxHeaderBytes,
		ErrorLog:       log.New(&serverLog{log: s.log}, "", 0),
	}
	if err := s.configureTLS(); err != nil {
		return nil, fmt.Errorf("HTTP source: %w", err)
	}
	return s, nil
}

func (o *Options) check() error {
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return fmt.Errorf("address %q: it is host:port, like 127.0.0.1:8080", o.Address)
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("a certificate and its key go together: CertFile and KeyFile")
	}
	if o.CertFile != "" && o.TLS != nil {
		return errors.New("give CertFile and KeyFile, or TLS")
	}
	for _, d := range []time.Duration{o.ReadHeaderTimeout, o.ReadTimeout, o.IdleTimeout, o.AcceptTimeout, o.Grace} {
		if d < 0 {
			return errors.New("timeouts can't be negative")
		}
	}
	if o.MaxHeaderBytes < 0 || o.MaxBody < 0 || o.MaxConcurrent < 0 {
		return errors.New("limits can't be negative")
	}
	return nil
}

func (o *Options) setDefaults() {
	orDefault(&o.ReadHeaderTimeout, 5*time.Second)
	orDefault(&o.ReadTimeout, 30*time.Second)
	orDefault(&o.IdleTimeout, time.Minute)
	orDefault(&o.AcceptTimeout, 15*time.Second)
	orDefault(&o.Grace, 10*time.Second)
	orDefault(&o.MaxHeaderBytes, 32<<10)
	orDefault(&o.MaxBody, 1<<20)
	orDefault(&o.MaxConcurrent, 1024)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func orDefault[T int | int64 | time.Duration](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

func (s *Server) configureTLS() error {
	switch {
	case s.options.TLS != nil:
		s.server.TLSConfig = s.options.TLS.Clone()
	case s.options.CertFile != "":
		certificate, err := tls.LoadX509KeyPair(s.options.CertFile, s.options.KeyFile)
		if err != nil {
			return fmt.Errorf("certificate %s with key %s: %w", s.options.CertFile, s.options.KeyFile, err)
		}
		s.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	}
	return nil
}

// Handle serves a route at the path, and gives its messages to accept. All
// routes are added before the server listens.
func (s *Server) Handle(path string, options RouteOptions, accept gobridge.Accept) error {
	if s.listener != nil {
		return fmt.Errorf("HTTP source: path %q: the server is listening already", path)
	}
	routes := *s.routes.Load()
	if routes[path] != nil {
		return fmt.Errorf("HTTP source: path %q belongs to two routes", path)
	}
	r, err := s.newRoute(path, options, accept)
	if err != nil {
		return fmt.Errorf("HTTP source: path %q: %w", path, err)
	}
	routes[path] = r
	return nil
}

// Adopt serves the routes of another server, which does not listen and gets no
// more routes, in the place of its own: all from one moment on, and without a
// connection being refused or broken off. Requests that are being worked on end as
// they began. The options of the other server are not used, but for what its routes
// took from them.
func (s *Server) Adopt(other *Server) { s.routes.Store(other.routes.Load()) }

// Listen begins to listen; [Server.Run] serves. It is separate so that an
// address in use is an error at start.
func (s *Server) Listen(ctx context.Context) error {
	if s.listener != nil {
		return errors.New("HTTP source: listening already")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("HTTP source: %w", err)
	}
	s.listener = listener
	return nil
}

// Addr is where the server listens, nil before it does.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Close stops listening, for a server that is not run after all.
func (s *Server) Close() error {
	if s.listener == nil {
		return nil
	}
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Run serves until ctx ends, then takes no more requests and waits for those in
// flight, for the grace at most. It listens if that has not been done. It
// returns nil after an orderly end, and can be called once.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if err := s.Listen(ctx); err != nil {
			return err
		}
	}
	served := make(chan error, 1)
	go func() {
		if s.server.TLSConfig != nil {
			served <- s.server.ServeTLS(s.listener, "", "")
		} else {
			served <- s.server.Serve(s.listener)
		}
	}()
	select {
	case err := <-served:
		return fmt.Errorf("HTTP source: %w", err)
	case <-ctx.Done():
	}
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Grace)
	defer cancel()
	err := s.server.Shutdown(graceful)
	if err != nil {
		_ = s.server.Close()
		err = fmt.Errorf("HTTP source: requests were still in flight after %s", s.options.Grace)
	}
	if stopped := <-served; err == nil && !errors.Is(stopped, http.ErrServerClosed) {
		err = fmt.Errorf("HTTP source: %w", stopped)
	}
	return err
}
