// Package webhook sends messages as HTTP POST requests, signed as Standard
// Webhooks has it (https://www.standardwebhooks.com).
//
// # The request
//
// The body is the payload, byte for byte, under its content type. With it go:
//
//	Webhook-Id               the ID that the receiver's deduplication goes by
//	Webhook-Timestamp        when this attempt was made, in seconds
//	Webhook-Signature        one signature for each secret
//	Gobridge-Id              the message's ID
//	Gobridge-Dedupe-Id       what Webhook-Id stands for, where it is another
//	Gobridge-Subject         its subject, if it has one
//	Gobridge-Ordering-Key    its ordering key, if it has one
//	Gobridge-Created-At      when it says it was made, if it does (RFC 3339)
//	Gobridge-Expires-At      when it expires, if it does (RFC 3339)
//	Gobridge-Content-Type    its content type, if Content-Type can't carry it or it is no
//	                         media type
//	Gobridge-Headers         the message's headers that can't stand by themselves
//	Gobridge-Event           what to make of what looks like a CloudEvent
//	Gobridge-Route           the route, Gobridge-Binding the binding
//	Gobridge-Partition       the partition
//	Gobridge-Seq             the record's number in the partition
//	Gobridge-Token-Version   the version of the partition's owner
//	Gobridge-Attempt         1 is surely the first attempt, more may be a repeat
//	Gobridge-Redrives        how often it came back from the dead letters, if ever
//
// The values of Gobridge headers are percent-encoded as those of CloudEvents
// are: '%', '"', space and every byte that is not visible ASCII is written %XX.
// In Webhook-Id '.' is too, for it separates the parts of what is signed; it is
// the message's ID, and after a redrive another one, which the receiver must
// not swallow. No two IDs have the same encoding.
//
// The message's own headers stand by themselves where HTTP can carry them,
// trace context among them. The others, those whose name HTTP reserves or this
// sender sets, and those whose value has control characters, bytes beyond ASCII
// or spaces at its ends, go together into Gobridge-Headers, written as
// name=value&name=value with both percent-encoded: any parser of URL queries
// reads it.
//
// # CloudEvents
//
// A message that came as a CloudEvent goes out as the same event in binary mode
// (CloudEvents 1.0.2, HTTP binding, section 3.1), its attributes percent-encoded
// as ce- headers. With Options.Format "cloudevents" every message does, and with
// "cloudevents_structured" as an event in JSON (section 3.2), which is the body
// and what is signed. Of a message that did not come as one, an event is made:
//
//	id               the message's ID; a redrive keeps it
//	source           "/gobridge/" and the route
//	type             the subject, or "gobridge.message" if it has none
//	time             when it says it was made, if it does
//	datacontenttype  its content type (in binary mode, Content-Type)
//	partitionkey     its ordering key, if it has one
//	traceparent, tracestate, and each header of the message whose name has only
//	                 lower-case letters and digits, as extensions
//
// and Gobridge-Event is "made", by which a bridge gives the message back as it
// was. In JSON, a payload that is JSON stands in data as it is, digit for digit,
// and any other in data_base64; so does JSON with white space around it, which
// would not come back exactly.
//
// # The answer
//
//	2xx                                  delivered
//	408, 409, 423, 424, 425, 5xx         transient: it may work later
//	400, 413, 415, 422, all other 4xx    permanent: this message will never be taken
//	429                                  the destination asks to slow down
//	401, 402, 403, 404, 405, 406, 407,   unavailable: the address or the credentials
//	410, 411, 414, 417, 421, 426, 428,   are wrong, whatever the message
//	and redirects, which are never followed
//
// A Retry-After (seconds or a date) with 429 or with a status that would be
// transient makes the whole binding wait that long. No connection (name not
// found, refused, TLS failure, a proxy that does not connect) is unavailable
// too: no message is to blame for it. A connection that breaks or falls silent is transient.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/internal/signature"
	"gobridge/messaging"
)

// The defaults and bounds.
const (
	defaultTimeout     = 30 * time.Second
	defaultConnections = 16
	maxResponseBody    = 64 << 10
	maxResponseHeader  = 64 << 10
	// maxOwnHeaders is how many headers the package comment lists, and Content-Type,
	// with a few attributes.
	maxOwnHeaders = 24
	// bodyTime bounds the wait for a response body once the status is known.
	bodyTime = 2 * time.Second
	// idleTime is shorter than the five seconds after which common servers close
	// an idle connection: a request sent at that very moment would fail.
	idleTime = 4 * time.Second
)

// Options configure a [Sender]. URL is required.
type Options struct {
	// URL is where to post to: http or https, absolute. A user and password in
	// it become basic authentication.
	URL string

	// Shown is what errors call the URL; without it, the URL less user, password
	// and query. Set it when the path is secret too.
	Shown string

	// Secrets sign; several are for rotation, and empty ones are left out. Each
	// is the base64 of 24 to 64 bytes, with or without "whsec_". Without any,
	// requests are not signed.
	Secrets []string

	// Headers go with every request.
	Headers map[string]string

	// Format is how messages go out: "plain" when empty, "cloudevents" or
	// "cloudevents_structured". The package comment has what each means.
	Format string

	// Timeout bounds one request, from connecting to the status; 30 s when zero.
	Timeout time.Duration

	// Connections is how many idle connections are kept: as many as there are
	// sends side by side; 16 when zero.
	Connections int

	// TLS configures https; nil takes the system's roots.
	TLS *tls.Config

	// Proxy, unless nil, is the proxy to go through. The environment is not read.
	Proxy *url.URL

	// Now is the clock for timestamps; time.Now when nil.
	Now func() time.Time
}

// Sender posts each delivery to one URL. It is safe for concurrent use.
type Sender struct {
	method, host string
	url          *url.URL
	shown        string // the URL as errors have it
	fixed        http.Header
	format       mapping.Format
	keys         *signature.Keys
	timeout      time.Duration
	now          func() time.Time
	transport    *http.Transport
}

// New returns a sender, or says what is wrong with the options.
func New(options Options) (*Sender, error) {
	target, err := parseURL(options.URL)
	if err != nil {
		return nil, err
	}
	s := &Sender{
		method:  http.MethodPost,
		host:    target.Host,
		shown:   shownURL(target),
		timeout: options.Timeout,
		now:     options.Now,
	}
	if options.Shown != "" {
		s.shown = options.Shown
	}
	if s.fixed, err = fixedHeaders(options.Headers, target.User); err != nil {
		return nil, err
	}
	target.User = nil
	s.url = target
	if s.format, err = mapping.ParseFormat(options.Format); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	if len(options.Secrets) > 0 {
		if s.keys, err = signature.New(options.Secrets); err != nil {
			return nil, fmt.Errorf("webhook secrets: %w", err)
		}
	}
	if s.timeout < 0 || options.Connections < 0 {
		return nil, errors.New("webhook: timeout and connections can't be negative")
	}
	if s.timeout == 0 {
		s.timeout = defaultTimeout
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.transport = newTransport(options, target.Hostname(), s.timeout)
	return s, nil
}

func parseURL(raw string) (*url.URL, error) {
	target, err := url.Parse(raw)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) { // its text has the whole URL, password included
			err = ue.Err
		}
		return nil, fmt.Errorf("webhook URL: %w", err)
	}
	switch {
	case target.Scheme != "http" && target.Scheme != "https":
		return nil, fmt.Errorf("webhook URL: scheme %q; it has to begin with http:// or https://", target.Scheme)
	case target.Hostname() == "":
		return nil, errors.New("webhook URL: no host; a URL is like https://example.com/hook")
	case target.Fragment != "":
		return nil, errors.New("webhook URL: has a fragment (#...), which is never sent")
	}
	if target.Path == "" {
		target.Path = "/"
	}
	return target, nil
}

// shownURL leaves out what may be secret: user, password and query.
func shownURL(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.RawQuery != "" {
		shown.RawQuery = "..."
	}
	return shown.String()
}

// fixedHeaders are those of every request.
func fixedHeaders(extra map[string]string, user *url.Userinfo) (http.Header, error) {
	fixed := http.Header{"User-Agent": {"gobridge"}}
	if user != nil {
		password, _ := user.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		fixed["Authorization"] = []string{"Basic " + basic}
	}
	seen := make(map[string]string, len(extra))
	for name, value := range extra {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !token(name):
			return nil, fmt.Errorf("webhook headers: %q is no header name", name)
		case seen[canonical] != "":
			return nil, fmt.Errorf("webhook headers: %q and %q are the same", seen[canonical], name)
		case reserved(canonical) && canonical != "Authorization" && canonical != "Cookie" && canonical != "User-Agent":
			return nil, fmt.Errorf("webhook headers: %s can't be set", canonical)
		case !plain(value):
			return nil, fmt.Errorf("webhook headers: the value of %s has control characters, "+
				"bytes beyond ASCII or spaces at its ends", canonical)
		case canonical == "Authorization" && user != nil:
			return nil, errors.New("webhook headers: Authorization beside a user in the URL; give one of them")
		}
		seen[canonical] = name
		fixed[canonical] = []string{value}
	}
	return fixed, nil
}

// Close closes the idle connections. Sends in flight go on.
func (s *Sender) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Send posts the deliveries, one after the other; the engine passes one at a
// time.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	out := make([]error, len(batch))
	failed := false
	for i := range batch {
		if failed {
			out[i] = gobridge.ErrNotSent
			continue
		}
		out[i] = s.post(ctx, &batch[i])
		failed = out[i] != nil
	}
	return out
}

func (s *Sender) post(ctx context.Context, d *gobridge.Delivery) error {
	header, payload, err := s.header(d)
	if err != nil {
		return gobridge.Permanent(fmt.Errorf("post to %s: %w", s.shown, err))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errSilent)
	defer cancel()
	var connected atomic.Bool
	if s.transport.Proxy != nil {
		ctx = traced(ctx, &connected)
	} else {
		connected.Store(true) // if not, the dialer says so
	}
	request := (&http.Request{
		Method:        s.method,
		URL:           s.url,
		Host:          s.host,
		Header:        header,
		Body:          http.NoBody,
		ContentLength: int64(len(payload)),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
	}).WithContext(ctx)
	if len(payload) > 0 {
		request.Body = io.NopCloser(bytes.NewReader(payload))
		// Lets the transport start over when nothing at all was written to a
		// connection that the server had closed; it never repeats a request that
		// may have arrived, for POST is not idempotent to it.
		request.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(payload)), nil
		}
	}
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return s.broken(ctx, err, connected.Load())
	}
	defer response.Body.Close()
	if 200 <= response.StatusCode && response.StatusCode <= 299 {
		drain(response, nil, cancel)
		return nil
	}
	text := make([]byte, 0, shownBody+1)
	text = drain(response, text, cancel)
	return s.refused(response, text)
}

// drain reads what the response's body has, within bounds of size and time, so
// that the connection can be used again, and returns its beginning as far as
// keep has room. Cancel ends the request, and so a read that hangs.
func drain(response *http.Response, keep []byte, cancel func()) []byte {
	if response.ContentLength == 0 {
		return keep
	}
	stop := time.AfterFunc(bodyTime, cancel)
	defer stop.Stop()
	body := io.LimitReader(response.Body, maxResponseBody)
	n, _ := io.ReadFull(body, keep[:cap(keep)])
	_, _ = io.Copy(io.Discard, body) // the answer is the status, whatever comes of the body
	return keep[:n]
}

// header builds the request's headers, and the body.
func (s *Sender) header(d *gobridge.Delivery) (http.Header, []byte, error) {
	h := newHeaders(len(s.fixed) + len(d.Envelope.Headers) + maxOwnHeaders)
	for name, value := range s.fixed {
		h.Header[name] = value
	}
	body, err := s.setMessage(h, d)
	if err != nil {
		return nil, nil, err
	}
	now := s.now()
	id := webhookID(d.DedupeID())
	h.set(signature.HeaderID, id)
	h.set(signature.HeaderTimestamp, signature.Timestamp(now))
	if s.keys != nil {
		signed, err := s.keys.Sign(id, now, body)
		if err != nil {
			return nil, nil, fmt.Errorf("sign: %w", err)
		}
		h.set(signature.HeaderSignature, signed)
	}
	return h.Header, body, nil
}

// Carry refuses what no CloudEvent can carry, if messages go out as such.
func (s *Sender) Carry(envelope *messaging.Envelope) error { return mapping.Carry(envelope, s.format) }

// broken is the answer when there is no response.
func (s *Sender) broken(ctx context.Context, err error, connected bool) error {
	wrapped := fmt.Errorf("post to %s: %w", s.shown, shortened{err})
	silent := errors.Is(context.Cause(ctx), errSilent)
	if silent {
		wrapped = fmt.Errorf("post to %s: %w after %s", s.shown, errSilent, s.timeout)
	}
	var u *unreachableError
	unreachable := errors.As(err, &u) && !silent || !connected && (silent || ctx.Err() == nil)
	if unreachable {
		return gobridge.Unavailable(wrapped)
	}
	return wrapped
}

// refused is the answer to a status that is not a success.
func (s *Sender) refused(response *http.Response, body []byte) error {
	err := fmt.Errorf("post to %s: %s", s.shown, statusText(response.StatusCode))
	if location := response.Header.Get("Location"); location != "" && response.StatusCode/100 == 3 {
		err = fmt.Errorf("%w, to %s; redirects are not followed, correct the URL", err, oneLine([]byte(shownLocation(location)), shownBody))
	}
	if text := sanitise(body); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return outcome(response.StatusCode, response.Header.Get("Retry-After"), s.now(), err)
}

// errSilent: the request's time was up.
var errSilent = errors.New("no answer")

func statusText(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}
