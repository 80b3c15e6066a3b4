package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// tokenAge is for how long tokens are not asked for again.
const tokenAge = 3 * time.Second

// tokens know which role a token has.
type tokens struct {
	read, operate func() ([]string, error)
	now           func() time.Time
	log           *slog.Logger

	mu     sync.Mutex
	known  []knownToken
	readAt time.Time
	failed bool
}

// knownToken is a token's digest. Digests have one length, so that the time of a
// comparison says nothing.
type knownToken struct {
	sum  [sha256.Size]byte
	role Role
}

// load reads the tokens, all of them or none.
func (k *tokens) load() ([]knownToken, error) {
	var out []knownToken
	for _, of := range []struct {
		read func() ([]string, error)
		role Role
	}{{k.read, RoleRead}, {k.operate, RoleOperate}} {
		if of.read == nil {
			continue
		}
		all, err := of.read()
		if err != nil {
			return nil, fmt.Errorf("tokens of role %s: %w", of.role, err)
		}
		for _, token := range all {
			switch {
			case token == "":
			case len(token) < minToken:
				return nil, fmt.Errorf("a token of role %s has %d characters; it has %d or more, as `openssl rand -hex 32` makes them", of.role, len(token), minToken)
			default:
				out = append(out, knownToken{sha256.Sum256([]byte(token)), of.role})
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("every token is empty")
	}
	return out, nil
}

// current returns the tokens, read anew if those known are not of now.
func (k *tokens) current() []knownToken {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if now.Sub(k.readAt) < tokenAge && !k.readAt.IsZero() {
		return k.known
	}
	k.readAt = now
	switch known, err := k.load(); {
	case err == nil:
		k.known, k.failed = known, false
	case !k.failed:
		k.failed = true
		k.log.Error("the admin tokens can't be read anew; those from before hold", "error", err)
	}
	return k.known
}

// role returns what a token may do. All are compared, so that their number is all
// that the time depends on.
func (k *tokens) role(token string) Role {
	sum := sha256.Sum256([]byte(token))
	role := RoleNone
	for _, known := range k.current() {
		if subtle.ConstantTimeCompare(sum[:], known.sum[:]) == 1 {
			role = max(role, known.role)
		}
	}
	return role
}

// bearer returns the token of an Authorization header (RFC 6750, section 2.1).
func bearer(header http.Header) (string, bool) {
	values := header["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	return strings.TrimLeft(token, " "), ok && strings.EqualFold(scheme, "Bearer")
}

// failures counts wrong tokens by address, so that guessing fills no log. A right
// one always gets in: nobody can lock an operator out.
type failures struct {
	mu sync.Mutex
	by map[string]*failureCount
}

type failureCount struct {
	n     int
	since time.Time
}

const (
	failureWindow  = time.Minute
	failuresTold   = 10   // within the window; more are refused without a word in the log
	failuresAtMost = 1024 // addresses
)

// add counts a failure, and reports whether there are too many.
func (f *failures) add(address string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]*failureCount{}
	}
	c := f.by[address]
	if c == nil || now.Sub(c.since) > failureWindow {
		if len(f.by) >= failuresAtMost {
			f.forget(now)
		}
		c = &failureCount{since: now}
		f.by[address] = c
	}
	c.n++
	return c.n > failuresTold
}

// forget makes room: what is old goes, or all if nothing is.
func (f *failures) forget(now time.Time) {
	for address, c := range f.by {
		if now.Sub(c.since) > failureWindow {
			delete(f.by, address)
		}
	}
	if len(f.by) >= failuresAtMost {
		clear(f.by)
	}
}
