package nats

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	client "github.com/nats-io/nats.go"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/internal/percent"
)

// Names of headers that mean something here.
const (
	contentType     = "content-type"
	gobridgeHeaders = "gobridge-headers" // visible ASCII as it is
	msgID           = "Nats-Msg-Id"
	expectedStream  = "Nats-Expected-Stream"
)

// protocol is how messages travel in NATS.
var protocol = mapping.Protocol{CloudEvents: "ce-", Carries: carries}

// carries reports whether a header of a message can stand by itself.
func carries(name, value string) bool {
	return headerName(name) && name == strings.ToLower(name) && !reserved(name) && plain(value)
}

// headerName reports whether the client takes name as that of a header (NATS
// ADR-4, and what HTTP keeps for separators is left out).
func headerName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || strings.IndexByte(`"()/,:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return name != ""
}

// reserved reports whether a header means something to servers or to clients:
// nats-* commands a stream, and a client takes status and description for an
// answer of the server.
func reserved(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "nats-") || lower == "status" || lower == "description" || lower == contentType
}

// plain reports whether a value arrives as it is.
func plain(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c == 0x7f {
			return false
		}
	}
	return strings.TrimSpace(value) == value
}

// escaped reports whether the values of a header are percent-encoded.
func escaped(name string) bool {
	return name != gobridgeHeaders && (strings.HasPrefix(name, "gobridge-") || strings.HasPrefix(name, "ce-"))
}

// encode writes a delivery as a message without a subject.
func encode(d *gobridge.Delivery, format mapping.Format) (*client.Msg, error) {
	m, err := protocol.Encode(d, format)
	if err != nil {
		return nil, err
	}
	out := &client.Msg{Data: m.Payload, Header: make(client.Header, len(m.Pairs)+3)}
	for _, p := range m.Pairs {
		value := p.Value
		if escaped(p.Name) {
			value = percent.Encode(value, "")
		}
		out.Header[p.Name] = []string{value}
	}
	if m.ContentType != "" {
		if !plain(m.ContentType) {
			return nil, fmt.Errorf("content type %q has control characters or spaces at its ends, which no header of NATS has", shown(m.ContentType))
		}
		out.Header[contentType] = []string{m.ContentType}
	}
	return out, nil
}

// headerSize returns how many bytes the headers are on the wire (NATS ADR-4).
func headerSize(h client.Header) int {
	size := len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		for _, value := range values {
			size += len(name) + len(": \r\n") + len(value)
		}
	}
	return size
}

// incoming makes a message of what a stream delivered.
func incoming(m *client.Msg, meta *client.MsgMetadata) gobridge.Incoming {
	in := mapping.Message{Payload: m.Data}
	for _, spelling := range slices.Sorted(maps.Keys(m.Header)) {
		name := strings.ToLower(spelling)
		for _, value := range m.Header[spelling] {
			if name == contentType {
				in.ContentType = value
				continue
			}
			if escaped(name) {
				// Not everybody encodes, so a stray '%' stands for itself.
				if decoded, err := percent.Decode(value); err == nil {
					value = decoded
				}
			}
			in.Pairs = append(in.Pairs, mapping.Pair{Name: name, Value: value})
		}
	}
	// In an order that is the same with every delivery, however names are spelt.
	slices.SortStableFunc(in.Pairs, func(a, b mapping.Pair) int { return strings.Compare(a.Name, b.Name) })
	e, err := protocol.Decode(in)
	if e.ID == "" {
		e.ID = identity(meta)
	}
	if e.Subject == "" {
		e.Subject = m.Subject
	}
	if e.CreatedAt.IsZero() {
		e.CreatedAt = meta.Timestamp.UTC()
	}
	return gobridge.Incoming{Envelope: e, Reject: err}
}

// identity names a message of a stream. A stream that is made again counts from 1
// again, but at other times.
func identity(meta *client.MsgMetadata) string {
	return meta.Stream + "/" + strconv.FormatUint(meta.Sequence.Stream, 10) + "/" + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)
}
