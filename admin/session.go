package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	sessionCookie = "gobridge_session"
	sessionLife   = 12 * time.Hour
	sessionIdle   = time.Hour
	maxSessions   = 1000
)

// Errors of a login.
var (
	// ErrWrongToken: no role has this token.
	ErrWrongToken = errors.New("no such token")
	// ErrTooManyFailures: too many wrong tokens came from this address.
	ErrTooManyFailures = errors.New("too many wrong tokens; wait a minute")
	// ErrWrongName: the name would not fit the audit.
	ErrWrongName = errors.New("the name is too long or has control characters")
)

// Caller is who asks.
type Caller struct {
	Role Role
	// Session is that of the console, empty for a request with a token.
	Session Session
}

// Session is what a console's page needs to know of its session. It is the zero
// value for a request without one.
type Session struct {
	// CSRF goes into the field "csrf" of every form.
	CSRF string
	// By is the name that was given at the login, for the audit.
	By string
	// Expired says that the request came with a session that is over, and Stale that it
	// came with a form of another session than its own.
	Expired, Stale bool
}

// Named is who acts, for the audit: what the caller says of himself, and what is
// known of him.
func (c Caller) Named(by string) string {
	known := c.Role.String() + " token"
	if by == "" {
		return known
	}
	return by + " (" + known + ")"
}

type callerKey struct{}

// CallerOf tells who asks.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// session is one login. It ends with its token: when that has no role any more,
// the session has none.
type session struct {
	token    string
	by       string
	csrf     string
	began    time.Time
	lastSeen time.Time
}

// sessions are known by the digest of their ID, so that a dump of the memory's map
// opens nothing.
type sessions struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]*session
}

func newID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails: it ends the process instead
	return hex.EncodeToString(b)
}

// begin makes a session and returns its ID.
func (s *sessions) begin(token, by string, now time.Time) string {
	id := newID()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[[sha256.Size]byte]*session{}
	}
	if len(s.all) >= maxSessions {
		s.dropOldest(now)
	}
	s.all[sha256.Sum256([]byte(id))] = &session{token: token, by: by, csrf: newID(), began: now, lastSeen: now}
	return id
}

// dropOldest makes room for one.
func (s *sessions) dropOldest(now time.Time) {
	var oldest [sha256.Size]byte
	var at time.Time
	for key, one := range s.all {
		if one.over(now) {
			delete(s.all, key)
		} else if at.IsZero() || one.lastSeen.Before(at) {
			oldest, at = key, one.lastSeen
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, oldest)
	}
}

func (one *session) over(now time.Time) bool {
	return now.Sub(one.began) > sessionLife || now.Sub(one.lastSeen) > sessionIdle
}

// find returns the session of an ID, and false if there is none or it is over.
func (s *sessions) find(id string, now time.Time) (session, bool) {
	key := sha256.Sum256([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[key]
	if one == nil {
		return session{}, false
	}
	if one.over(now) {
		delete(s.all, key)
		return session{}, false
	}
	one.lastSeen = now
	return *one, true
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, sha256.Sum256([]byte(id)))
}

// Login begins a session for whoever has the token, under a name for the audit, and
// sets its cookie; the one that the request came with ends. The errors are [ErrWrongToken], [ErrTooManyFailures] and
// [ErrWrongName].
func (s *Surface) Login(w http.ResponseWriter, r *http.Request, token, by string) error {
	srv := s.server
	if srv.tokens.role(token) == RoleNone {
		return srv.wrongToken(r)
	}
	if checkText("name", by, maxBy) != nil {
		return ErrWrongName
	}
	s.endSession(r)
	id := srv.sessions.begin(token, by, srv.options.Now())
	http.SetCookie(w, srv.cookie(id, int(sessionLife/time.Second)))
	return nil
}

// Logout ends the session of a request.
func (s *Surface) Logout(w http.ResponseWriter, r *http.Request) {
	s.endSession(r)
	http.SetCookie(w, s.server.cookie("", -1))
}

func (s *Surface) endSession(r *http.Request) {
	if c, err := r.Cookie(sessionCookie); err == nil {
		s.server.sessions.end(c.Value)
	}
}

func (s *Server) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: s.scheme() == "https", SameSite: http.SameSiteStrictMode,
	}
}

// wrongToken counts and logs a failure.
func (s *Server) wrongToken(r *http.Request) error {
	remote := remoteOf(r)
	if s.failures.add(remote, s.options.Now()) {
		return ErrTooManyFailures
	}
	s.log.Warn("a request to the admin listener had a wrong token", "remote", remote, "path", r.URL.Path)
	return ErrWrongToken
}

// remoteOf is where a request comes from: an address, or of IPv6 the network of one
// customer, who has as many addresses as he likes.
func remoteOf(r *http.Request) string {
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := address.Addr().Unmap().WithZone("")
	if network, err := ip.Prefix(64); ip.Is6() && err == nil {
		return network.String()
	}
	return ip.String()
}

// console checks the session of a request and hands it on.
func (s *Server) console(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		var caller Caller
		if c, err := r.Cookie(sessionCookie); err == nil {
			if one, ok := s.sessions.find(c.Value, s.options.Now()); ok {
				if caller.Role = s.tokens.role(one.token); caller.Role != RoleNone {
					caller.Session = Session{CSRF: one.csrf, By: one.by}
				}
			}
			caller.Session.Expired = caller.Role == RoleNone
		}
		if changes(r.Method) && caller.Role != RoleNone &&
			subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(caller.Session.CSRF)) != 1 {
			caller = Caller{Session: Session{Stale: true}} // nobody, who may change nothing
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// changes reports whether a method may change something.
func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}
