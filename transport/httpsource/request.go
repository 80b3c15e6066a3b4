package httpsource

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"gobridge/internal/percent"
	"gobridge/messaging"
)

// envelope makes a message of the request's headers.
func (rt *route) envelope(ctx context.Context, header http.Header) (messaging.Envelope, *problem) {
	e := messaging.Envelope{Subject: rt.subject}
	if p := checkOwn(header); p != nil {
		return e, p
	}
	if p := setContent(&e, header); p != nil {
		return e, p
	}
	ceID, p := setCloudEvent(ctx, &e, header)
	if p != nil {
		return e, p
	}
	if p := setFields(&e, header); p != nil {
		return e, p
	}
	if p := rt.setID(&e, header, ceID); p != nil {
		return e, p
	}
	setTrace(&e, header)
	for _, c := range rt.headers {
		if values := header[c.canonical]; len(values) > 0 {
			setHeader(&e, c.name, strings.Join(values, ", "))
		}
	}
	return e, nil
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

// setContent takes over what says how to read the body.
func setContent(e *messaging.Envelope, header http.Header) *problem {
	contentType, _, p := single(header, "Content-Type")
	if p != nil {
		return p
	}
	media, _, _ := strings.Cut(contentType, ";")
	if media = strings.ToLower(strings.TrimSpace(media)); strings.HasPrefix(media, "application/cloudevents") {
		return plainProblem(http.StatusUnsupportedMediaType, "CloudEvents are taken in binary mode only: "+
			"the attributes as ce- headers, and the data as the body.")
	}
	if contentType != "" {
		if _, _, err := mime.ParseMediaType(contentType); err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
			return invalid("Content-Type", "is no media type, like application/json or text/plain; charset=utf-8")
		}
	}
	e.ContentType = contentType
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
		if e.OrderingKey != "" && e.OrderingKey != key {
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
func (rt *route) setID(e *messaging.Envelope, header http.Header, ceID string) *problem {
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
	switch {
	case keyThere:
		id, err := parseIdempotencyKey(key)
		if err != nil {
			return invalid("Idempotency-Key", "%v", err)
		}
		e.ID = id
	case ceID != "":
		e.ID = ceID
	case there && webhookID != "":
		e.ID = webhookID
	default:
		e.ID = messaging.NewID()
	}
	return nil
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

// printable reports whether a text is valid UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || 0x7f <= r && r <= 0x9f
	})
}
