package httpsource

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"gobridge"
	"gobridge/internal/signature"
	"gobridge/messaging"
)

// RouteOptions configure one path. The zero value takes messages from anyone.
type RouteOptions struct {
	// Tokens are bearer tokens that are let in (RFC 6750, section 2.1); several
	// are for rotation, and empty ones are left out.
	Tokens []string

	// Secrets let in what one of them has signed as Standard Webhooks has it. A
	// route has Tokens or Secrets, not both. Only ID, time and body are signed:
	// use TLS where headers matter.
	Secrets []string
	// ReplayWindow is how far a signature's timestamp may be from now, either
	// way; 5 min when zero. A repetition within it is a duplicate, for the
	// webhook-id is the message's ID.
	ReplayWindow time.Duration

	// Headers names the request headers that go with the message, beside those
	// that always do.
	Headers []string

	// Subject is that of messages that bring none; the path without its leading
	// slash when empty.
	Subject string

	// MaxBody bounds a body, a batch's too; the server's when zero.
	MaxBody int64

	// Publish takes a batch of CloudEvents, in one call; without it, there are none.
	Publish Publish
	// MaxBatch is how many events a batch has at most; 1,000 when zero.
	MaxBatch int
}

// Publish makes messages durable in their order and returns a receipt for each,
// in which Duplicate says that all of them were there before. Its errors are those
// of [gobridge.Accept], and an error means that the batch is not accepted: what
// may be stored of it is a duplicate when it comes again. The Publish of a route's
// handle in the engine is one.
type Publish func(ctx context.Context, envelopes ...messaging.Envelope) ([]gobridge.Receipt, error)

// Accept is Publish of one envelope, a [gobridge.Accept].
func (p Publish) Accept(ctx context.Context, envelope messaging.Envelope) (gobridge.Receipt, error) {
	receipts, err := p(ctx, envelope)
	if err != nil {
		return gobridge.Receipt{}, err
	}
	return receipts[0], nil
}

const defaultMaxBatch = 1000

const defaultReplayWindow = 5 * time.Minute

type route struct {
	path    string
	subject string
	accept  gobridge.Accept
	tokens  [][sha256.Size]byte
	keys    *signature.Keys
	window  time.Duration
	now     func() time.Time
	headers []carried
	maxBody int64

	publish  Publish
	maxBatch int

	rejected trouble
}

// carried is a request header that goes with the message.
type carried struct{ canonical, name string }

func (s *Server) newRoute(path string, o RouteOptions, accept gobridge.Accept) (*route, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, errors.New("a path begins with a slash")
	}
	if accept == nil {
		return nil, errors.New("no accept function")
	}
	if o.MaxBody < 0 || o.MaxBatch < 0 || o.ReplayWindow < 0 {
		return nil, errors.New("limits and windows can't be negative")
	}
	if len(o.Tokens) > 0 && len(o.Secrets) > 0 {
		return nil, errors.New("has bearer tokens and signature secrets; give one of them")
	}
	r := &route{
		path: path, subject: o.Subject, accept: accept,
		window: o.ReplayWindow, now: s.options.Now, maxBody: o.MaxBody,
		publish: o.Publish, maxBatch: o.MaxBatch,
	}
	if r.subject == "" {
		r.subject = strings.TrimPrefix(path, "/")
	}
	orDefault(&r.maxBody, s.options.MaxBody)
	orDefault(&r.maxBatch, defaultMaxBatch)
	orDefault(&r.window, defaultReplayWindow)
	for _, token := range o.Tokens {
		if token != "" {
			r.tokens = append(r.tokens, sha256.Sum256([]byte(token)))
		}
	}
	if len(o.Tokens) > 0 && len(r.tokens) == 0 {
		return nil, errors.New("bearer tokens: only empty ones given")
	}
	if len(o.Secrets) > 0 {
		var err error
		if r.keys, err = signature.New(o.Secrets); err != nil {
			return nil, fmt.Errorf("signature secrets: %w", err)
		}
	}
	for _, name := range o.Headers {
		if err := checkCarried(name); err != nil {
			return nil, err
		}
		r.headers = append(r.headers, carried{http.CanonicalHeaderKey(name), strings.ToLower(name)})
	}
	return r, nil
}

// checkCarried refuses headers that can't go with a message.
func checkCarried(name string) error {
	for i := range len(name) {
		c := name[i] | 0x20
		if (c < 'a' || c > 'z') && (name[i] < '0' || name[i] > '9') && name[i] != '-' && name[i] != '_' {
			return fmt.Errorf("headers: %q is no header name: it has letters, digits, '-' and '_'", name)
		}
	}
	lower := strings.ToLower(name)
	switch lower {
	case "":
		return errors.New("headers: an empty name")
	case "authorization", "cookie", "proxy-authorization":
		return fmt.Errorf("headers: %s is a credential, and is not stored", lower)
	case "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
		"transfer-encoding", "upgrade":
		return fmt.Errorf("headers: %s belongs to the connection", lower)
	case "content-type", "content-encoding", "idempotency-key", "traceparent", "tracestate", "baggage":
		return fmt.Errorf("headers: %s is looked after already; leave it out", lower)
	}
	for _, prefix := range []string{"ce-", "gobridge-", "webhook-"} {
		if strings.HasPrefix(lower, prefix) {
			return fmt.Errorf("headers: %s: names that begin with %s are looked after already; leave it out", lower, prefix)
		}
	}
	return nil
}

// authorize checks the bearer token, where the route wants one.
func (r *route) authorize(header http.Header) *problem {
	if len(r.tokens) == 0 {
		return nil
	}
	values := header["Authorization"]
	if len(values) != 1 {
		return unauthorized(`Bearer realm="gobridge"`, "This route wants a bearer token in the Authorization header.")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return unauthorized(`Bearer realm="gobridge"`, "This route wants the Bearer scheme in the Authorization header.")
	}
	// Digests have one length, so that the comparison's time says nothing, and
	// all are compared, so that their number is all it depends on.
	sum := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	match := 0
	for i := range r.tokens {
		match |= subtle.ConstantTimeCompare(sum[:], r.tokens[i][:])
	}
	if match == 0 {
		return unauthorized(`Bearer realm="gobridge", error="invalid_token"`, "The bearer token is not valid for this route.")
	}
	return nil
}

// verify checks the signature, where the route wants one.
func (r *route) verify(header http.Header, body []byte) *problem {
	if r.keys == nil {
		return nil
	}
	if err := r.keys.Verify(header, body, r.now(), r.window); err != nil {
		return unauthorized(`StandardWebhooks realm="gobridge"`, "The signature is not valid: "+err.Error()+".")
	}
	return nil
}
