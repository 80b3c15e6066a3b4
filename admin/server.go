package admin

import (
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
)

// Bounds of the listener.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = time.Minute
	maxHeaderBytes    = 32 << 10
	maxConnections    = 512
	grace             = 5 * time.Second
)

// Server is the admin listener.
type Server struct {
	options    Options
	log        *slog.Logger
	tokens     *tokens
	failures   failures
	sessions   sessions
	looks      *looks
	hosts      []string
	address    net.IP
	anyAddress bool

	server   *http.Server
	listener net.Listener  // set by Listen
	closing  chan struct{} // closed when the server ends: streams end
	end      sync.Once
}

// New checks the options and returns a server that does not listen yet.
func New(options Options) (*Server, error) {
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	options.setDefaults()
	s := &Server{
		options: options, log: options.Logger,
		tokens:  &tokens{read: options.Read, operate: options.Operate, log: options.Logger},
		looks:   &looks{desk: options.Desk},
		closing: make(chan struct{}),
	}
	known, err := s.tokens.load()
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	s.tokens.known = known
	s.nameHosts()
	s.server = &http.Server{
		Handler:           s.guard(s.handler()),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(&serverLog{s.log}, "", 0),
	}
	if options.CertFile != "" {
		s.server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate}
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
	if s.options.Console != nil {
		mux.Handle("/", s.console(s.options.Console(&Surface{
			Desk: s.options.Desk, Payloads: s.options.Payloads, Config: s.options.Config, Reload: s.options.Reload, server: s,
		})))
	}
	return mux
}

// allow lets in whoever has a token of the role.
func (s *Server) allow(role Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := bearer(r.Header)
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer realm="gobridge"`)
			writeProblem(w, problem{
				Status: http.StatusUnauthorized, Title: "No token",
				Detail: "This needs a token of role " + role.String() + " in the header Authorization: Bearer.",
			})
			return
		}
		have := s.tokens.role(token)
		if have == RoleNone {
			s.refuseToken(w, r)
			return
		}
		if have < role {
			writeProblem(w, problem{
				Status: http.StatusForbidden, Title: "Not allowed",
				Detail: "The token has the role " + have.String() + "; this needs " + role.String() + ".",
			})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, Caller{Role: have})))
	})
}

func (s *Server) refuseToken(w http.ResponseWriter, r *http.Request) {
	if errors.Is(s.wrongToken(r), ErrTooManyFailures) {
		w.Header().Set("Retry-After", "60")
		writeProblem(w, problem{Status: http.StatusTooManyRequests, Title: "Too many wrong tokens", Detail: "Wait a minute."})
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="gobridge", error="invalid_token"`)
	writeProblem(w, problem{Status: http.StatusUnauthorized, Title: "Wrong token", Detail: "No role has this token."})
}

func (s *Server) scheme() string {
	if s.options.CertFile != "" {
		return "https"
	}
	return "http"
}

// certificate reads the certificate for a new connection, so that a renewed one is
// taken up.
func (s *Server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(s.options.CertFile, s.options.KeyFile)
	if err != nil {
		s.log.Error("the certificate of the admin listener can't be read", "error", err)
		return nil, errors.New("no certificate")
	}
	return &pair, nil
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
// flight. It returns nil after an orderly end. The server must be listening.
func (s *Server) Run(ctx context.Context) error {
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
		return fmt.Errorf("admin: %w", err)
	case <-ctx.Done():
	}
	s.end.Do(func() { close(s.closing) })
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if s.server.Shutdown(graceful) != nil {
		_ = s.server.Close() // whoever is still at it has had the time
	}
	<-served
	s.looks.wait()
	return nil
}

// serverLog takes what net/http has to say.
type serverLog struct{ log *slog.Logger }

func (l *serverLog) Write(line []byte) (int, error) {
	l.log.Debug("admin listener", "message", string(line))
	return len(line), nil
}
