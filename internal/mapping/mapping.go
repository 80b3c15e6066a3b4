// Package mapping says how a message travels beside and in a payload, for
// transports that have headers.
//
// # Beside the payload
//
// The message's own headers go under their names, and gobridge's own fields as
// pairs whose names begin with gobridge-:
//
//	gobridge-id             the message's ID
//	gobridge-dedupe-id      what the destination's deduplication goes by, where it is another
//	gobridge-subject        its subject
//	gobridge-ordering-key   its ordering key
//	gobridge-created-at     when it says it was made (RFC 3339)
//	gobridge-expires-at     when it expires (RFC 3339)
//	gobridge-headers        its headers that can't stand by themselves
//	gobridge-event          what to make of what looks like a CloudEvent: none, or made
//	gobridge-route, -binding, -partition, -seq, -token-version, -attempt, -redrives
//	                        tell of the delivery
//
// What is empty is left out, unless an event beside it says something else. Values
// are as they are, not escaped. A header can't stand by itself if its name is empty,
// content-type, begins with gobridge- or would be taken for an attribute of the event
// beside it, if it is content-encoding and the payload is in JSON, or if
// [Protocol].Carries says so; gobridge-headers has it as name=value&name=value, both
// percent-encoded, as [JoinHeaders] writes it. The time before which a message is not
// to be delivered has passed, and does not travel.
//
// # CloudEvents
//
// A message that came as a CloudEvent (its headers ce-* are the attributes of a
// valid one) goes out with the same attributes, all of them text, whatever became
// of the message in between; a redrive changes only gobridge-dedupe-id. Of any
// other an event is made:
//
//	id               the message's ID
//	source           "/gobridge/" and the route
//	type             the subject, or "gobridge.message" if it has none
//	time             when it says it was made, if it does
//	datacontenttype  its content type
//	partitionkey     its ordering key, if it has one
//	and as extensions, traceparent and tracestate, and each header whose name and
//	value an attribute can have
//
// and gobridge-event is "made", by which the other end gives the message back as
// it was. Headers that are no attributes stand beside the payload as always, and
// so does the trace context. In JSON, a payload that is JSON by its content type
// and its bytes stands in data as it is, and any other in data_base64; one with
// white space around it does too, for it would not come back exactly. A payload
// that is an event by its content type goes out in JSON in either mode: in binary
// mode it would be taken for the event itself.
//
// Where the attributes have no prefix (MQTT), traceparent, tracestate and baggage
// are always those of the message; the event's own go in gobridge-headers.
package mapping

import (
	"fmt"
	"strings"

	"gobridge/messaging"
)

// Pair is a name and a value beside a payload.
type Pair struct{ Name, Value string }

// Message is a message as a transport carries it. In Pairs a name may be there
// more than once: then its values are one list, separated by commas.
type Message struct {
	ContentType string
	Pairs       []Pair
	Payload     []byte
}

// Format says in which form messages go out.
type Format int

// The formats.
const (
	// Plain is the payload with headers beside it.
	Plain Format = iota
	// Binary is a CloudEvent in binary mode: the attributes beside the payload.
	Binary
	// Structured is a CloudEvent in structured mode: all of it in JSON.
	Structured
)

var formatNames = [...]string{"plain", "cloudevents", "cloudevents_structured"}

// String returns the format's name in the configuration.
func (f Format) String() string {
	if f >= 0 && int(f) < len(formatNames) {
		return formatNames[f]
	}
	return fmt.Sprintf("format(%d)", int(f))
}

// ParseFormat reads the name of a format; the empty name is [Plain].
func ParseFormat(name string) (Format, error) {
	for i, known := range formatNames {
		if name == known {
			return Format(i), nil
		}
	}
	if name == "" {
		return Plain, nil
	}
	return Plain, fmt.Errorf("format %q: it is one of %s", name, strings.Join(formatNames[:], ", "))
}

// Protocol is what a transport has of its own. It is used concurrently.
type Protocol struct {
	// CloudEvents is the prefix of CloudEvents attributes beside a payload: "ce_"
	// for Kafka, "ce-" for NATS, "cloudEvents:" or "cloudEvents_" for AMQP (both
	// are understood), "" for MQTT. Case does not matter in it.
	CloudEvents string

	// Carries reports whether a header of the message can stand by itself: its
	// name means nothing to the transport, and name and value arrive as they are.
	// Nil carries all. It is not asked about gobridge's own pairs, nor about
	// attributes.
	Carries func(name, value string) bool
}

// FieldError says what is wrong with a header, an attribute or a field.
type FieldError struct {
	// Name is that of the field, as the transport spells it.
	Name string
	// Problem goes on where the name ends ("is empty").
	Problem string
}

func (e *FieldError) Error() string { return e.Name + " " + e.Problem }

func wrong(name, format string, args ...any) error {
	return &FieldError{Name: name, Problem: fmt.Sprintf(format, args...)}
}

// shown is a value from outside as errors have it.
func shown(value string) string {
	const most = 60
	if len(value) > most {
		return fmt.Sprintf("%q...", value[:most])
	}
	return fmt.Sprintf("%q", value)
}

// Names of gobridge's own pairs.
const (
	ownPrefix    = "gobridge-"
	ownID        = "gobridge-id"
	ownDedupeID  = "gobridge-dedupe-id"
	ownSubject   = "gobridge-subject"
	ownKey       = messaging.HeaderOrderingKey
	ownCreatedAt = "gobridge-created-at"
	ownNotBefore = "gobridge-not-before"
	ownExpiresAt = "gobridge-expires-at"
	ownHeaders   = "gobridge-headers"
	ownEvent     = "gobridge-event"
	ownRoute     = "gobridge-route"
	ownBinding   = "gobridge-binding"
	ownPartition = "gobridge-partition"
	ownSeq       = "gobridge-seq"
	ownToken     = "gobridge-token-version"
	ownAttempt   = "gobridge-attempt"
	ownRedrives  = "gobridge-redrives"
	contentType  = "content-type"
	// contentEncoding is how the payload is packed, and not the JSON around it.
	contentEncoding = "content-encoding"
	headerPrefix    = "ce-" // of attributes among a message's headers
	noSubject       = "gobridge.message"
	madeSource      = "/gobridge/"
	anyCE           = "application/cloudevents"
	structuredCE    = anyCE + "+json"
	impliedType     = "application/json"
	cloudEventsV1   = "1.0"
)

// What gobridge-event can be.
const (
	// EventNone: this is no event, whatever it looks like.
	EventNone = "none"
	// EventMade: the event was made of a message, to be made again of it.
	EventMade = "made"
)

// isOwn reports whether a name is kept for gobridge.
func isOwn(name string) bool {
	return len(name) >= len(ownPrefix) && strings.EqualFold(name[:len(ownPrefix)], ownPrefix)
}

// isLasting reports whether a name of gobridge's own is that of a message's header.
func isLasting(name string) bool {
	return name == messaging.HeaderDeliveryCount || name == messaging.HeaderReceivedAt
}
