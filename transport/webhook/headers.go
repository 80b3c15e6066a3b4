package webhook

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/internal/percent"
	"gobridge/messaging"
)

// webhookID writes an ID so that the signature is unambiguous.
func webhookID(id string) string { return percent.Encode(id, ".") }

// headers builds a request's headers. The values, one of each, share one array.
type headers struct {
	http.Header
	values []string
}

func newHeaders(size int) *headers {
	return &headers{Header: make(http.Header, size), values: make([]string, 0, size)}
}

func (h *headers) set(canonical, value string) {
	h.values = append(h.values, value) // those set before stay in the old array if it moves
	last := len(h.values) - 1
	h.Header[canonical] = h.values[last : last+1 : last+1]
}

// carrier tells which of a message's headers can stand by themselves.
type carrier struct {
	headers messaging.Headers
	fixed   http.Header
	seen    map[string]bool // canonical names of those that are not lower case
}

// carries is asked in ascending order of names, in which upper case comes first:
// of two names that are one to HTTP, the one in lower case stands by itself.
func (c *carrier) carries(name, value string) bool {
	if !token(name) || !plain(value) {
		return false
	}
	canonical := http.CanonicalHeaderKey(name)
	if _, ours := c.fixed[canonical]; ours || reserved(canonical) || strings.HasPrefix(canonical, "Ce-") {
		return false
	}
	lower := strings.ToLower(name)
	if name == lower {
		return true
	}
	if _, twin := c.headers[lower]; twin || c.seen[canonical] {
		return false
	}
	if c.seen == nil {
		c.seen = make(map[string]bool)
	}
	c.seen[canonical] = true
	return true
}

// setMessage adds the content type, the message's headers and what gobridge says
// of message and delivery, and returns the body.
func (s *Sender) setMessage(h *headers, d *gobridge.Delivery) ([]byte, error) {
	c := carrier{headers: d.Envelope.Headers, fixed: s.fixed}
	m, err := mapping.Protocol{CloudEvents: "ce-", Carries: c.carries}.Encode(d, s.format)
	if err != nil {
		return nil, err
	}
	switch {
	case m.ContentType == "":
	case plain(m.ContentType):
		h.set("Content-Type", m.ContentType)
		if !mediaType(m.ContentType) { // a receiver may not read it as it is
			h.set("Gobridge-Content-Type", percent.Encode(m.ContentType, ""))
		}
	default:
		h.set("Gobridge-Content-Type", percent.Encode(m.ContentType, ""))
	}
	for _, pair := range m.Pairs {
		canonical := http.CanonicalHeaderKey(pair.Name)
		value := pair.Value
		switch _, ours := s.fixed[canonical]; {
		case ours: // an attribute that every request has
			continue
		case strings.HasPrefix(canonical, "Ce-"),
			strings.HasPrefix(canonical, "Gobridge-") && !lastingNames[canonical] && canonical != "Gobridge-Headers":
			value = percent.Encode(value, "")
		}
		h.set(canonical, value)
	}
	return m.Payload, nil
}

// reservedNames are the headers that a message can't set: those that belong to
// the connection or frame the request (RFC 9110, section 7.6.1), credentials,
// and those that would let the transport repeat a request by itself.
var reservedNames = map[string]bool{
	"Accept-Encoding":     true,
	"Authorization":       true,
	"Connection":          true,
	"Content-Length":      true,
	"Content-Type":        true,
	"Cookie":              true,
	"Expect":              true,
	"Host":                true,
	"Http2-Settings":      true,
	"Idempotency-Key":     true,
	"Keep-Alive":          true,
	"Proxy-Authorization": true,
	"Proxy-Connection":    true,
	"Te":                  true,
	"Trailer":             true,
	"Transfer-Encoding":   true,
	"Upgrade":             true,
	"User-Agent":          true,
	"X-Idempotency-Key":   true,
}

func reserved(canonical string) bool {
	return reservedNames[canonical] ||
		strings.HasPrefix(canonical, "Gobridge-") && !lastingNames[canonical] ||
		strings.HasPrefix(canonical, "Webhook-")
}

// lastingNames are gobridge's own headers that belong to the message.
var lastingNames = map[string]bool{
	"Gobridge-Delivery-Count": true,
	"Gobridge-Received-At":    true,
}

// token reports whether name is a header name (RFC 9110, section 5.6.2).
func token(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// mediaType reports whether a content type is one to HTTP (RFC 9110, section 8.3.1).
func mediaType(value string) bool {
	_, _, err := mime.ParseMediaType(value)
	return err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)
}

// plain reports whether a receiver gets the value as it is: ASCII without
// control characters, and no spaces at its ends, which a receiver cuts off.
func plain(value string) bool {
	for i := range len(value) {
		if c := value[i]; c > '~' || c < ' ' && c != '\t' {
			return false
		}
	}
	return value == strings.Trim(value, " \t")
}
