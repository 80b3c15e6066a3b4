package httpsource

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"gobridge/internal/mapping"
	"gobridge/internal/percent"
	"gobridge/messaging"
)

// request is what a request's headers say.
type request struct {
	header http.Header
	mode   mode
	// made and none are what a bridge says of what looks like an event: made of a
	// message, or none.
	made, none bool
	// envelope is the message but for its payload, in binary mode.
	envelope messaging.Envelope
}

// read looks at the headers, before there is a body.
func (rt *route) read(header http.Header) (request, *problem) {
	in := request{header: header}
	if p := checkOwn(header); p != nil {
		return in, p
	}
	if p := in.readEvent(); p != nil {
		return in, p
	}
	contentType, p := content(header)
	if p != nil {
		return in, p
	}
	var attributes mapping.Attributes
	if !in.none {
		if in.mode, p = contentMode(contentType); p != nil {
			return in, p
		}
		if in.mode != modeBinary {
			return in, rt.checkJSON(&in)
		}
		if attributes, p = event(header); p != nil {
			return in, p
		}
	}
	if contentType == "" {
		contentType = attributes["datacontenttype"]
	}
	in.envelope, p = rt.envelope(&in, contentType, attributes)
	if p == nil {
		p = setEncoding(&in.envelope, header)
	}
	return in, p
}

// readEvent reads Gobridge-Event.
func (in *request) readEvent() *problem {
	kind, there, p := decoded(in.header, "Gobridge-Event")
	if p != nil || !there {
		return p
	}
	in.made, in.none = kind == mapping.EventMade, kind == mapping.EventNone
	if !in.made && !in.none {
		return invalid("Gobridge-Event", "is neither %s nor %s", mapping.EventNone, mapping.EventMade)
	}
	return nil
}

// checkJSON refuses headers that can't go with a body that is events in JSON.
func (rt *route) checkJSON(in *request) *problem {
	if encoding := in.header["Content-Encoding"]; encoding != nil && !strings.EqualFold(strings.Join(encoding, ","), "identity") {
		return plainProblem(http.StatusUnsupportedMediaType, "CloudEvents in JSON are not taken compressed.")
	}
	if in.mode != modeBatch {
		return nil
	}
	if rt.publish == nil {
		return plainProblem(http.StatusUnsupportedMediaType, "Batches of CloudEvents are not taken here; post each as "+structuredType+".")
	}
	for _, canonical := range slices.Sorted(maps.Keys(in.header)) { // the same one each time
		if canonical == "Idempotency-Key" || strings.HasPrefix(canonical, ownPrefix) {
			return invalid(canonical, "says something of one message, and a batch has several; each has its own attributes")
		}
	}
	return nil
}

// messages makes messages of the request and its body.
func (rt *route) messages(in *request, body []byte) ([]messaging.Envelope, *problem) {
	if in.mode == modeBinary {
		in.envelope.Payload = body
		return []messaging.Envelope{in.envelope}, nil
	}
	if in.mode == modeBatch {
		return rt.batch(in, body)
	}
	e, _, p := rt.structured(in, "", body)
	return []messaging.Envelope{e}, p
}

// structured makes a message of an event in JSON, and returns the event's own ID
// too.
func (rt *route) structured(in *request, place string, body []byte) (messaging.Envelope, string, *problem) {
	attributes, data, p := structured(place, body)
	if p != nil {
		return messaging.Envelope{}, "", p
	}
	e, p := rt.envelope(in, attributes["datacontenttype"], attributes)
	e.Payload = data
	return e, attributes.ID(), p
}

// batch makes messages of events in JSON (HTTP binding, section 3.3). Each is
// known by its own source and ID, even where the batch is signed: they are.
func (rt *route) batch(in *request, body []byte) ([]messaging.Envelope, *problem) {
	all, p := splitBatch(body, rt.maxBatch)
	if p != nil {
		return nil, p
	}
	out := make([]messaging.Envelope, len(all))
	for i, one := range all {
		var id string
		if out[i], id, p = rt.structured(in, fmt.Sprintf("events[%d].", i), one); p != nil {
			return nil, p
		}
		out[i].ID = id
	}
	return out, nil
}

// envelope makes a message of the headers and the attributes of an event, which
// are nil for none, without its payload.
func (rt *route) envelope(in *request, contentType string, attributes mapping.Attributes) (messaging.Envelope, *problem) {
	e := messaging.Envelope{Subject: rt.subject, ContentType: contentType}
	if p := rt.setHeaders(&e, in.header); p != nil {
		return e, p
	}
	eventID := ""
	if attributes != nil {
		eventID = setEvent(&e, attributes, in.made)
	}
	if p := setFields(&e, in.header); p != nil {
		return e, p
	}
	return e, rt.setID(&e, in.header, eventID)
}

// setHeaders takes over the headers that go with the message: those that a bridge
// put together, the trace context, and those that the route lists.
func (rt *route) setHeaders(e *messaging.Envelope, header http.Header) *problem {
	joined, _, p := single(header, "Gobridge-Headers")
	if p != nil {
		return p
	}
	extra, err := mapping.SplitHeaders(joined)
	if err != nil {
		return fromMapping("", err)
	}
	for _, h := range extra {
		setHeader(e, h.Name, h.Value)
	}
	setTrace(e, header)
	for _, c := range rt.headers {
		values := header[c.canonical]
		if len(values) == 0 {
			continue
		}
		if _, twice := e.Headers[c.name]; twice {
			return invalid("Gobridge-Headers", "has %s, which is there by itself too", c.name)
		}
		setHeader(e, c.name, strings.Join(values, ", "))
	}
	return nil
}

func setHeader(e *messaging.Envelope, name, value string) {
	if e.Headers == nil {
		e.Headers = make(messaging.Headers)
	}
	e.Headers[name] = value
}

// single returns the value of a header that may be there once.
func single(header http.Header, canonical string) (string, bool, *problem) {
	values := header[canonical]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	}
	return "", false, invalid(canonical, "is there %d times; it may be there once", len(values))
}

// content returns the content type.
func content(header http.Header) (string, *problem) {
	if original, there, p := decoded(header, "Gobridge-Content-Type"); there || p != nil {
		return original, p
	}
	contentType, _, p := single(header, "Content-Type")
	if p != nil || contentType == "" {
		return "", p
	}
	if _, _, err := mime.ParseMediaType(contentType); err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", invalid("Content-Type", "is no media type, like application/json or text/plain; charset=utf-8")
	}
	return contentType, nil
}

// setEncoding takes over how the body is packed.
func setEncoding(e *messaging.Envelope, header http.Header) *problem {
	encoding, there, p := single(header, "Content-Encoding")
	if p != nil {
		return p
	}
	if there && !strings.EqualFold(encoding, "identity") {
		setHeader(e, "content-encoding", encoding)
	}
	return nil
}

// setFields takes over the headers of gobridge's own.
func setFields(e *messaging.Envelope, header http.Header) *problem {
	key, there, p := decoded(header, "Gobridge-Ordering-Key")
	if p != nil {
		return p
	}
	if there {
		// A bridge's own word counts: the key may have changed on the way.
		if e.OrderingKey != "" && e.OrderingKey != key && header["Gobridge-Id"] == nil {
			return invalid("Gobridge-Ordering-Key", "is another key than the event's partitionkey")
		}
		e.OrderingKey = key
	}
	subject, there, p := decoded(header, "Gobridge-Subject")
	if p != nil {
		return p
	}
	if there {
		e.Subject = subject
	}
	for _, field := range []struct {
		name string
		at   *time.Time
	}{
		{"Gobridge-Created-At", &e.CreatedAt},
		{"Gobridge-Not-Before", &e.NotBefore},
		{"Gobridge-Expires-At", &e.ExpiresAt},
	} {
		if values := header[field.name]; len(values) == 1 && values[0] == "" && field.at == &e.CreatedAt && header["Gobridge-Id"] != nil {
			e.CreatedAt = time.Time{} // a bridge says so, whatever the event says
			continue
		}
		if p := setTime(field.at, header, field.name); p != nil {
			return p
		}
	}
	if !e.NotBefore.IsZero() && !e.ExpiresAt.IsZero() && !e.NotBefore.Before(e.ExpiresAt) {
		return invalid("Gobridge-Expires-At", "is not after Gobridge-Not-Before: the message could never be delivered")
	}
	return nil
}

const notATime = "is no time as RFC 3339 has it, like 2026-01-02T03:04:05Z"

func setTime(at *time.Time, header http.Header, canonical string) *problem {
	value, there, p := single(header, canonical)
	if p != nil || !there {
		return p
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return invalid(canonical, notATime)
	}
	if t.IsZero() {
		// It would stand for no time at all.
		return invalid(canonical, "is outside 1970 to 2261")
	}
	*at = t.UTC()
	return nil
}

// decoded returns the value of a percent-encoded header.
func decoded(header http.Header, canonical string) (string, bool, *problem) {
	raw, there, p := single(header, canonical)
	if p != nil || !there {
		return "", false, p
	}
	value, err := percent.Decode(raw)
	if err != nil {
		return "", false, invalid(canonical, "is not percent-encoded: %v", err)
	}
	return value, true, nil
}

// setID gives the message its ID. The package comment has the order.
func (rt *route) setID(e *messaging.Envelope, header http.Header, eventID string) *problem {
	webhookID, there, p := single(header, "Webhook-Id")
	if p != nil {
		return p
	}
	if rt.keys != nil {
		// What is signed is what counts: under another ID the same signature would
		// let the message in again. If there is none, the signature is not valid.
		e.ID = webhookID
		return nil
	}
	key, keyThere, p := single(header, "Idempotency-Key")
	if p != nil {
		return p
	}
	bridgeID, p := ownID(header)
	if p != nil {
		return p
	}
	switch {
	case keyThere:
		id, err := parseIdempotencyKey(key)
		if err != nil {
			return invalid("Idempotency-Key", "%v", err)
		}
		e.ID = id
	case bridgeID != "":
		e.ID = bridgeID
	case eventID != "":
		e.ID = eventID
	case there && webhookID != "":
		e.ID = webhookID
	default:
		e.ID = messaging.NewID()
	}
	return nil
}

// ownID returns the ID that gobridge's own headers give the message: that of its
// deduplication counts, or a redrive would be swallowed.
func ownID(header http.Header) (id string, p *problem) {
	for _, name := range []string{"Gobridge-Id", "Gobridge-Dedupe-Id"} {
		value, there, p := decoded(header, name)
		if p != nil {
			return "", p
		}
		if !there {
			continue
		}
		if value == "" {
			return "", invalid(name, "is empty; leave it out, or name the message")
		}
		id = value
	}
	return id, nil
}

// parseIdempotencyKey reads an Idempotency-Key. The draft of the HTTP API
// working group has a string of RFC 9651 ("abc", in quotes); most clients send
// the key bare. Both are taken, and name the same key: what begins with a quote
// must be such a string, without parameters, and anything else is the key itself.
func parseIdempotencyKey(value string) (string, error) {
	if value == "" || value == `""` {
		return "", errors.New("is empty")
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return "", fmt.Errorf("has the byte 0x%02x at position %d; a key is printable ASCII", value[i], i+1)
		}
	}
	if value[0] != '"' {
		return value, nil
	}
	var key strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; c {
		case '"':
			if i != len(value)-1 {
				return "", fmt.Errorf("goes on after its closing quote, at position %d", i+2)
			}
			return key.String(), nil
		case '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", fmt.Errorf(`has a \ at position %d that neither " nor \ follows`, i)
			}
			key.WriteByte(value[i])
		default:
			key.WriteByte(c)
		}
	}
	return "", errors.New("has no closing quote")
}

// setTrace takes over W3C Trace Context and Baggage. A traceparent that is not
// well formed is ignored, and tracestate with it, as the standard demands.
func setTrace(e *messaging.Envelope, header http.Header) {
	if parents := header["Traceparent"]; len(parents) == 1 && validTraceparent(parents[0]) {
		setHeader(e, messaging.HeaderTraceParent, parents[0])
		if state := joined(header["Tracestate"]); state != "" {
			setHeader(e, messaging.HeaderTraceState, state)
		}
	}
	if baggage := joined(header["Baggage"]); baggage != "" {
		setHeader(e, messaging.HeaderBaggage, baggage)
	}
}

// joined combines the lines of a list header (RFC 9110, section 5.3).
func joined(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values, ",")
}

// validTraceparent checks the form of W3C Trace Context, section 3.2.2: version,
// trace ID, parent ID and flags in lower-case hexadecimal. Later versions may go
// on after another '-'.
func validTraceparent(v string) bool {
	if len(v) < 55 || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return false
	}
	version, trace, parent, flags := v[:2], v[3:35], v[36:52], v[53:55]
	if !lowerHex(version) || !lowerHex(trace) || !lowerHex(parent) || !lowerHex(flags) {
		return false
	}
	if version == "ff" || strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "" {
		return false
	}
	return len(v) == 55 || version != "00" && v[55] == '-'
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}
