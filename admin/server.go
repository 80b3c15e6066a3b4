package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"gobridge/operate"
)

// Bounds of the listener.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = time.Minute
	idleTimeout       = time.Minute
	maxHeaderBytes    = 32 << 10
	maxConnections    = 512

	lookAge   = time.Second // for how long a status is good
	lookTime  = 10 * time.Second
	readyTime = 5 * time.Second
)

// Server is the admin listener.
type Server struct {
	options    Options
	log        *slog.Logger
	tokens     *tokens
	failures   failures
	sessions   sessions
	looks      *shared[operate.Status]
	readiness  *shared[struct{}]
	hosts      []string
	address    net.IP
	anyAddress bool
	certs      certificates

	server   *http.Server
	listener net.Listener  // set by Listen
	closing  chan struct{} // closed when the server ends: streams end
	end      sync.Once
	grace    time.Duration // for requests in flight at the end
	working  sync.RWMutex  // read by every request; locked for good at the end
}

// New checks the options and returns a server that does not listen yet.
func New(options Options) (*Server, error) {
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	options.setDefaults()
	s := &Server{
		options: options, log: options.Logger,
		tokens:  &tokens{read: options.Read, operate: options.Operate, now: options.Now, log: options.Logger},
		looks:   &shared[operate.Status]{ask: options.Desk.Status, age: lookAge, limit: lookTime},
		closing: make(chan struct{}), grace: 5 * time.Second,
	}
	s.readiness = &shared[struct{}]{age: lookAge, limit: readyTime, ask: func(ctx context.Context) (struct{}, error) {
		return struct{}{}, options.Ready(ctx)
	}}
	known, err := s.tokens.load()
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	s.tokens.known = known
	s.certs = certificates{cert: options.CertFile, key: options.KeyFile, log: options.Logger}
	s.nameHosts()
	s.server = &http.Server{
		Handler:           s.guard(s.handler()),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(&serverLog{s.log}, "", 0),
	}
	if options.CertFile != "" {
		s.server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certs.get}
	}
	return s, nil
}

// handler joins everything that the listener serves.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/live", s.live)
	mux.HandleFunc("GET /health/ready", s.ready)
	mux.Handle(apiPrefix+"/", s.api())
	if s.options.Metrics != nil {
		mux.Handle("GET /metrics", s.allow(RoleRead, s.options.Metrics))
	}
	if s.options.Console == nil {
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			writeProblem(w, newProblem(http.StatusNotFound, "There is no %s here; the API is under %s.", r.URL.Path, apiPrefix))
		})
		return mux
	}
	mux.Handle("/", s.console(s.options.Console(&Surface{
		Desk: s.options.Desk, Payloads: s.options.Payloads, Config: s.options.Config, Reload: s.options.Reload, server: s,
	})))
	return mux
}

// allow lets in whoever has a token of the role.
func (s *Server) allow(role Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := bearer(r.Header)
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer realm="gobridge"`)
			writeProblem(w, newProblem(http.StatusUnauthorized, "This needs a token of role %s in the header Authorization: Bearer.", role))
			return
		}
		have := s.tokens.role(token)
		switch {
		case have == RoleNone && errors.Is(s.wrongToken(r), ErrTooManyFailures):
			w.Header().Set("Retry-After", "60")
			writeProblem(w, newProblem(http.StatusTooManyRequests, "Too many wrong tokens came from this address; wait a minute."))
		case have == RoleNone:
			w.Header().Set("WWW-Authenticate", `Bearer realm="gobridge", error="invalid_token"`)
			writeProblem(w, newProblem(http.StatusUnauthorized, "The token is wrong: no role has it."))
		case have < role:
			w.Header().Set("WWW-Authenticate", `Bearer realm="gobridge", error="insufficient_scope"`)
			writeProblem(w, newProblem(http.StatusForbidden, "The token has the role %s; this needs %s.", have, role))
		default:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, Caller{Role: have})))
		}
	})
}

func (s *Server) scheme() string {
	if s.options.CertFile != "" {
		return "https"
	}
	return "http"
}

// Listen begins to listen; [Server.Run] serves.
func (s *Server) Listen(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	s.listener = netutil.LimitListener(listener, maxConnections)
	return nil
}

// URL is where the server listens; it must be listening.
func (s *Server) URL() string { return s.scheme() + "://" + s.listener.Addr().String() }

// Close stops listening, for a server that is not run after all.
func (s *Server) Close() error {
	if s.listener == nil {
		return nil
	}
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends, then ends streams and waits a little for requests in
// flight. It returns nil after an orderly end, when no request uses the desk any
// more. The server must be listening, and can't be run again.
func (s *Server) Run(ctx context.Context) error {
	base, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	s.server.BaseContext = func(net.Listener) context.Context { return base }
	served := make(chan error, 1)
	go func() {
		if s.server.TLSConfig != nil {
			served <- s.server.ServeTLS(s.listener, "", "")
		} else {
			served <- s.server.Serve(s.listener)
		}
	}()
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("admin: %w", err)
	case <-ctx.Done():
	}
	s.end.Do(func() { close(s.closing) })
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if s.server.Shutdown(graceful) != nil {
		_ = s.server.Close() // whoever is still at it has had the time
	}
	abort()
	s.working.Lock()
	s.looks.wait()
	s.readiness.wait()
	return err
}

// serverLog takes what net/http has to say: what strangers do wrong, as a rule.
type serverLog struct{ log *slog.Logger }

func (l *serverLog) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(line, []byte("panic serving")) {
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, "admin listener", "message", string(line))
	return len(line), nil
}
