package webhook

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gobridge"
	"gobridge/internal/percent"
)

// headerExtra carries the headers that can't stand by themselves.
const headerExtra = "Gobridge-Headers"

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

// setMeta adds what gobridge says of the delivery.
func setMeta(h *headers, d *gobridge.Delivery) {
	set := func(name, value string) {
		if value != "" {
			h.set(name, percent.Encode(value, ""))
		}
	}
	e := &d.Envelope
	set("Gobridge-Id", e.ID)
	set("Gobridge-Subject", e.Subject)
	set("Gobridge-Ordering-Key", e.OrderingKey)
	set("Gobridge-Route", d.Route)
	set("Gobridge-Binding", d.Binding)
	set("Gobridge-Partition", string(d.Partition))
	set("Gobridge-Seq", strconv.FormatInt(d.Seq, 10))
	set("Gobridge-Token-Version", strconv.FormatInt(d.Token.Version, 10))
	set("Gobridge-Attempt", strconv.Itoa(d.Attempt))
	if d.Redrives > 0 {
		set("Gobridge-Redrives", strconv.Itoa(d.Redrives))
	}
	if !e.CreatedAt.IsZero() {
		set("Gobridge-Created-At", e.CreatedAt.UTC().Format(time.RFC3339Nano))
	}
	if !e.ExpiresAt.IsZero() {
		set("Gobridge-Expires-At", e.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
}

// setMessage adds the content type and the message's own headers.
func setMessage(h *headers, d *gobridge.Delivery, fixed http.Header) {
	var extra []string
	add := func(name, value string) {
		extra = append(extra, percent.Encode(name, "&=+")+"="+percent.Encode(value, "&=+"))
	}
	switch contentType := d.Envelope.ContentType; {
	case contentType == "":
	case plain(contentType):
		h.set("Content-Type", contentType)
	default:
		add("content-type", contentType)
	}
	var other []string // names that are not lower case, which may meet as HTTP sees them
	for name, value := range d.Envelope.Headers {
		if name != strings.ToLower(name) {
			other = append(other, name)
		} else if !setOwn(h, name, value, fixed) {
			add(name, value)
		}
	}
	slices.Sort(other)
	for _, name := range other {
		value := d.Envelope.Headers[name]
		if _, taken := h.Header[http.CanonicalHeaderKey(name)]; taken || !setOwn(h, name, value, fixed) {
			add(name, value)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		h.set(headerExtra, strings.Join(extra, "&"))
	}
}

// setOwn adds a header of the message if HTTP can carry it.
func setOwn(h *headers, name, value string, fixed http.Header) bool {
	if !token(name) {
		return false
	}
	canonical := http.CanonicalHeaderKey(name)
	if _, ours := fixed[canonical]; ours || reserved(canonical) {
		return false
	}
	if strings.HasPrefix(canonical, "Ce-") {
		value = percent.Encode(value, "")
	} else if !plain(value) {
		return false
	}
	h.set(canonical, value)
	return true
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
