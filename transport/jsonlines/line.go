package jsonlines

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"gobridge"
	"gobridge/messaging"
)

// maxNesting is short of the depth that encoding/json reads (10,000), for the
// line is one level deeper than the payload.
const maxNesting = 9_000

// appendLine appends the delivery's object, without the line's end.
func appendLine(dst []byte, d *gobridge.Delivery, at time.Time) []byte {
	e := &d.Envelope
	dst = append(dst, '{')
	dst = appendText(dst, "id", e.ID)
	if e.Subject != "" {
		dst = appendText(append(dst, ','), "subject", e.Subject)
	}
	if e.OrderingKey != "" {
		dst = appendText(append(dst, ','), "key", e.OrderingKey)
	}
	if e.ContentType != "" {
		dst = appendText(append(dst, ','), "content_type", e.ContentType)
	}
	dst = appendHeaders(dst, e.Headers)
	dst = appendText(append(dst, ','), "route", d.Route)
	dst = appendText(append(dst, ','), "binding", d.Binding)
	dst = appendText(append(dst, ','), "partition", string(d.Partition))
	dst = appendNumber(dst, "attempt", int64(d.Attempt))
	if d.Redrives > 0 {
		dst = appendNumber(dst, "redrives", int64(d.Redrives))
	}
	dst = appendNumber(dst, "seq", d.Seq)
	dst = appendNumber(dst, "version", d.Token.Version)
	dst = appendTime(dst, "created_at", e.CreatedAt)
	dst = appendTime(dst, "expires_at", e.ExpiresAt)
	dst = appendTime(dst, "delivered_at", at)
	dst = append(dst, ',')
	switch {
	case inline(e):
		dst = append(dst, `"data":`...)
		dst = append(dst, e.Payload...)
	case utf8.Valid(e.Payload):
		dst = append(dst, `"data_text":`...)
		dst = appendString(dst, e.Payload)
	default:
		dst = append(dst, `"data_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, e.Payload)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// inline reports whether the payload can stand in the line as it is, so that a
// reader finds its exact bytes.
func inline(e *messaging.Envelope) bool {
	p := e.Payload
	if len(p) == 0 || !e.IsJSON() || space(p[0]) || space(p[len(p)-1]) ||
		bytes.IndexByte(p, '\n') >= 0 || bytes.IndexByte(p, '\r') >= 0 || !utf8.Valid(p) {
		return false
	}
	if bytes.Count(p, []byte("["))+bytes.Count(p, []byte("{")) > maxNesting && nesting(p) > maxNesting {
		return false
	}
	return json.Valid(p)
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// nesting returns how deep the arrays and objects of a JSON text go.
func nesting(p []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

func appendHeaders(dst []byte, headers messaging.Headers) []byte {
	if len(headers) == 0 {
		return dst
	}
	var odd []string
	first := true
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			odd = append(odd, name)
			continue
		}
		if first {
			dst = append(dst, `,"headers":{`...)
			first = false
		} else {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, name), ':')
		dst = appendString(dst, value)
	}
	if !first {
		dst = append(dst, '}')
	}
	for i, name := range odd {
		if i == 0 {
			dst = append(dst, `,"headers_base64":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, `["`...)
		dst = base64.StdEncoding.AppendEncode(dst, []byte(name))
		dst = append(dst, `","`...)
		dst = base64.StdEncoding.AppendEncode(dst, []byte(headers[name]))
		dst = append(dst, `"]`...)
	}
	if len(odd) > 0 {
		dst = append(dst, ']')
	}
	return dst
}

// appendText appends a member whose value is a text, in base64 if JSON can't
// carry it.
func appendText(dst []byte, name, value string) []byte {
	dst = append(append(dst, '"'), name...)
	if utf8.ValidString(value) {
		dst = append(dst, `":`...)
		return appendString(dst, value)
	}
	dst = append(dst, `_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, []byte(value))
	return append(dst, '"')
}

func appendNumber(dst []byte, name string, value int64) []byte {
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return strconv.AppendInt(dst, value, 10)
}

func appendTime(dst []byte, name string, at time.Time) []byte {
	if at.IsZero() {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":"`...)
	dst = at.UTC().AppendFormat(dst, time.RFC3339Nano)
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

// appendString appends valid UTF-8 as a JSON string. Only what RFC 8259
// (section 7) demands is escaped, and U+2028 and U+2029, which some readers take
// for the end of a line.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		separator := c == 0xe2 && i+2 < len(s) && s[i+1] == 0x80 && s[i+2]&^1 == 0xa8
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f && !separator {
			continue
		}
		dst = append(dst, s[from:i]...)
		switch {
		case separator:
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[s[i+2]&15])
			i += 2
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
		}
		from = i + 1
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// line is what Decode reads.
type line struct {
	ID          text              `json:"id"`
	IDRaw       []byte            `json:"id_base64"`
	Subject     text              `json:"subject"`
	SubjectRaw  []byte            `json:"subject_base64"`
	Key         text              `json:"key"`
	KeyRaw      []byte            `json:"key_base64"`
	Type        text              `json:"content_type"`
	TypeRaw     []byte            `json:"content_type_base64"`
	Headers     map[string]string `json:"headers"`
	HeadersRaw  [][2][]byte       `json:"headers_base64"`
	Route       text              `json:"route"`
	RouteRaw    []byte            `json:"route_base64"`
	Binding     text              `json:"binding"`
	BindingRaw  []byte            `json:"binding_base64"`
	Partition   text              `json:"partition"`
	PartRaw     []byte            `json:"partition_base64"`
	Attempt     int               `json:"attempt"`
	Redrives    int               `json:"redrives"`
	Seq         int64             `json:"seq"`
	Version     int64             `json:"version"`
	CreatedAt   time.Time         `json:"created_at"`
	ExpiresAt   time.Time         `json:"expires_at"`
	DeliveredAt time.Time         `json:"delivered_at"`
	Data        json.RawMessage   `json:"data"`
	DataText    string            `json:"data_text"`
	DataRaw     []byte            `json:"data_base64"`
}

type text string

func (t text) or(raw []byte) string {
	if raw != nil {
		return string(raw)
	}
	return string(t)
}

// Decode reads a line that this package wrote and returns the delivery, with
// its payload's exact bytes, and when it was written. The token's owner is not
// in the line.
func Decode(data []byte) (gobridge.Delivery, time.Time, error) {
	var l line
	if err := json.Unmarshal(data, &l); err != nil {
		return gobridge.Delivery{}, time.Time{}, fmt.Errorf("JSON line: %w", err)
	}
	d := gobridge.Delivery{
		Envelope: messaging.Envelope{
			ID:          l.ID.or(l.IDRaw),
			Subject:     l.Subject.or(l.SubjectRaw),
			OrderingKey: l.Key.or(l.KeyRaw),
			ContentType: l.Type.or(l.TypeRaw),
			CreatedAt:   l.CreatedAt,
			ExpiresAt:   l.ExpiresAt,
		},
		Route:     l.Route.or(l.RouteRaw),
		Binding:   l.Binding.or(l.BindingRaw),
		Partition: gobridge.Partition(l.Partition.or(l.PartRaw)),
		Attempt:   l.Attempt,
		Redrives:  l.Redrives,
		Token:     gobridge.Token{Version: l.Version},
		Seq:       l.Seq,
	}
	switch {
	case l.Data != nil:
		d.Envelope.Payload = l.Data
	case l.DataRaw != nil:
		d.Envelope.Payload = l.DataRaw
	default:
		d.Envelope.Payload = []byte(l.DataText)
	}
	if n := len(l.Headers) + len(l.HeadersRaw); n > 0 {
		d.Envelope.Headers = make(messaging.Headers, n)
		for name, value := range l.Headers {
			d.Envelope.Headers[name] = value
		}
		for _, pair := range l.HeadersRaw {
			d.Envelope.Headers[string(pair[0])] = string(pair[1])
		}
	}
	return d, l.DeliveredAt, nil
}
