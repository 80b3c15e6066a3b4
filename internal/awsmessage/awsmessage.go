// Package awsmessage is how a message becomes the body and the attributes of one
// of SQS or SNS, which have the same rules, and how it is read back.
//
// # The body
//
// A payload of text stands as it is. AWS takes some characters only, and no empty
// body, so any other payload is encoded, and the attribute gobridge-encoding says
// how:
//
//	base64   the body is the payload in base64 (RFC 4648, section 4)
//	empty    the payload is empty; the body is one hyphen
//
// # The attributes
//
// A message has ten attributes at most, none of them empty:
//
//	gobridge           what gobridge says of the message and the delivery, as
//	                   id=..&subject=..&ordering-key=..&attempt=..
//	gobridge-headers   the headers that can't stand by themselves, as
//	                   name=value&name=value
//	gobridge-encoding  see above
//	content-type       the content type, if there is one
//	                   the attributes that the configuration asks for
//	                   the message's headers, under their names
//
// Names and values within gobridge and gobridge-headers are percent-encoded: any
// parser of URL queries reads them. If all of a message's headers can be
// attributes, up to seven stand by themselves, otherwise six, less the attributes
// of the configuration: traceparent and tracestate first, then attributes of
// CloudEvents, then the others by name. The attributes of an event stand together or
// not at all. Those of the configuration take the place of headers of the same name.
// All attributes are of the type String.
package awsmessage

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// Limits of a message (SQS Developer Guide, "Message quotas" and "Message
// metadata"; SNS takes more than ten attributes, but drops such a message on its
// way to SQS).
const (
	// MaxAttributes is how many attributes a message has.
	MaxAttributes = 10
	// MaxSize bounds body and attributes together, in bytes, of one message and of
	// a batch.
	MaxSize = 1 << 20
	// MaxOwn is how many attributes a configuration can ask for, so that what
	// gobridge needs has its place.
	MaxOwn = MaxAttributes - 4

	maxName  = 256
	typeName = "String"
)

// Names of gobridge's own attributes, and of what stands for an empty body.
const (
	attrMeta        = "gobridge"
	attrHeaders     = "gobridge-headers"
	attrEncoding    = "gobridge-encoding"
	attrContentType = "content-type"

	encodingBase64 = "base64"
	encodingEmpty  = "empty"
	emptyBody      = "-"

	metaPrefix = "gobridge-"
)

// cloudEvents is the prefix of CloudEvents attributes, as over HTTP. CloudEvents
// defines no binding for SQS and SNS, so that events are sent in JSON only.
const cloudEvents = "ce-"

// noEvents is a prefix that no header has.
const noEvents = "\x00"

// Message is a message of SQS or SNS.
type Message struct {
	Body       string
	Attributes map[string]string // of the type String
}

// Size is what counts towards MaxSize: the body, and name, type and value of each
// attribute.
func (m *Message) Size() int {
	n := len(m.Body)
	for name, value := range m.Attributes {
		n += len(name) + len(typeName) + len(value)
	}
	return n
}

// Encoder makes messages. Its fields are not changed once it is used.
type Encoder struct {
	// Format is [mapping.Plain] or [mapping.Structured].
	Format mapping.Format
	// Attributes are further attributes by name; an empty value is left out.
	Attributes map[string]func(*messaging.Envelope) (string, error)
}

// Check reports what is wrong with what is asked for.
func (e *Encoder) Check() error {
	if e.Format == mapping.Binary {
		return errors.New("CloudEvents have no binary mode here; take cloudevents_structured")
	}
	if len(e.Attributes) > MaxOwn {
		return fmt.Errorf("%d attributes are asked for; a message has %d, of which gobridge needs %d",
			len(e.Attributes), MaxAttributes, MaxAttributes-MaxOwn)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Attributes)) {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	return nil
}

// CheckName reports what is wrong with the name of an attribute.
func CheckName(name string) error {
	switch {
	case !nameFits(name):
		return fmt.Errorf("attribute %q: a name has 1 to %d of the characters A-Z, a-z, 0-9, '_', '-' and '.', does "+
			"not begin with AWS. or Amazon., and has no period at its ends and no two in a row", name, maxName)
	case reserved(name):
		return fmt.Errorf("attribute %q: gobridge uses this name itself", name)
	}
	return nil
}

// reserved reports whether an attribute of this name is gobridge's own.
func reserved(name string) bool {
	name = strings.ToLower(name)
	return name == attrMeta || strings.HasPrefix(name, metaPrefix) || name == attrContentType
}

// Encode makes the message of a delivery. An error means that there is none.
func (e *Encoder) Encode(d *gobridge.Delivery) (Message, error) {
	own, prefix := e.standing(d.Envelope.Headers, e.Format)
	protocol := mapping.Protocol{CloudEvents: prefix, Carries: func(name, _ string) bool {
		return slices.Contains(own, name) || e.Attributes[name] != nil
	}}
	in, err := protocol.Encode(d, e.Format)
	if err != nil {
		return Message{}, err
	}
	out := Message{Attributes: make(map[string]string, MaxAttributes)}
	if encoding := out.setBody(in.Payload); encoding != "" {
		out.Attributes[attrEncoding] = encoding
	}
	var meta []mapping.Pair
	for _, p := range in.Pairs {
		rest, isMeta := strings.CutPrefix(p.Name, metaPrefix)
		switch {
		case isMeta && p.Name != attrHeaders:
			meta = append(meta, mapping.Pair{Name: rest, Value: p.Value})
		case e.Attributes[p.Name] != nil: // the configuration's come below
		default:
			out.Attributes[p.Name] = p.Value
		}
	}
	switch {
	case in.ContentType == "":
	case textFits(in.ContentType):
		out.Attributes[attrContentType] = in.ContentType
	default:
		meta = append(meta, mapping.Pair{Name: attrContentType, Value: in.ContentType})
	}
	if len(meta) > 0 {
		out.Attributes[attrMeta] = mapping.JoinHeaders(meta)
	}
	return out, e.addAttributes(&out, &d.Envelope)
}

// standing returns which headers stand by themselves, and the prefix of attributes of
// CloudEvents. If those of an event can't all stand, none of them does, and the
// message goes out as one that is no event.
func (e *Encoder) standing(headers messaging.Headers, format mapping.Format) (own []string, prefix string) {
	own = e.fitting(headers, false)
	if _, event := headers[cloudEvents+"specversion"]; !event || format != mapping.Plain {
		return own, cloudEvents
	}
	for name := range headers {
		if isEvents(name) && e.Attributes[name] == nil && !slices.Contains(own, name) {
			return e.fitting(headers, true), noEvents
		}
	}
	return own, cloudEvents
}

// isEvents reports whether a header would be taken for an attribute of an event.
func isEvents(name string) bool {
	return len(name) >= len(cloudEvents) && strings.EqualFold(name[:len(cloudEvents)], cloudEvents)
}

// fitting returns which headers can stand by themselves and have room, those of
// events left out if they are to be.
func (e *Encoder) fitting(headers messaging.Headers, leaveOut bool) []string {
	own, all := make([]string, 0, len(headers)), 0
	for name, value := range headers {
		if e.Attributes[name] != nil {
			continue
		}
		all++
		if !reserved(name) && nameFits(name) && textFits(value) && (!leaveOut || !isEvents(name)) {
			own = append(own, name)
		}
	}
	slices.SortFunc(own, byPreference)
	// The others need an attribute, beside gobridge, the encoding and the content type.
	room := MaxAttributes - 3 - len(e.Attributes)
	if len(own) < all || len(own) > room {
		room--
	}
	return own[:min(len(own), room)]
}

// setBody sets the body and returns its encoding.
func (m *Message) setBody(payload []byte) string {
	text := string(payload)
	switch {
	case text == "":
		m.Body = emptyBody
		return encodingEmpty
	case !textFits(text):
		m.Body = base64.StdEncoding.EncodeToString(payload)
		return encodingBase64
	}
	m.Body = text
	return ""
}

func (e *Encoder) addAttributes(out *Message, envelope *messaging.Envelope) error {
	for _, name := range slices.Sorted(maps.Keys(e.Attributes)) {
		value, err := e.Attributes[name](envelope)
		switch {
		case err != nil:
			return fmt.Errorf("attribute %s: %w", name, err)
		case value == "":
		case !textFits(value):
			return fmt.Errorf("attribute %s: its value has a character that no attribute can have", name)
		default:
			out.Attributes[name] = value
		}
	}
	return nil
}

// byPreference puts first what is to stand by itself.
func byPreference(a, b string) int {
	rank := func(name string) int {
		switch {
		case name == messaging.HeaderTraceParent:
			return 0
		case name == messaging.HeaderTraceState:
			return 1
		case strings.HasPrefix(name, cloudEvents):
			return 2
		}
		return 3
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
}

// Decode reads a message. Attributes of any type are given as their text, binary
// ones as their bytes. The envelope's ID is empty if the message has no identity of
// its producer's. known says that gobridge sent it, so that whatever it does not
// say is not there. An error means that this is no message.
func Decode(m Message) (envelope messaging.Envelope, known bool, err error) {
	var in mapping.Message
	if in.Payload, err = m.payload(); err != nil {
		return envelope, false, err
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		switch value := m.Attributes[name]; {
		case name == attrMeta || name == attrEncoding:
		case strings.EqualFold(name, attrContentType):
			in.ContentType = value
		default:
			in.Pairs = append(in.Pairs, mapping.Pair{Name: name, Value: value})
		}
	}
	text, known := m.Attributes[attrMeta]
	meta, err := mapping.SplitHeaders(text)
	if err != nil {
		return envelope, false, fmt.Errorf("attribute %s is no name=value&name=value, both percent-encoded", attrMeta)
	}
	for _, p := range meta {
		if p.Name == attrContentType {
			in.ContentType = p.Value
		} else {
			in.Pairs = append(in.Pairs, mapping.Pair{Name: metaPrefix + p.Name, Value: p.Value})
		}
	}
	envelope, err = mapping.Protocol{CloudEvents: cloudEvents}.Decode(in)
	return envelope, known, err
}

func (m *Message) payload() ([]byte, error) {
	switch encoding, encoded := m.Attributes[attrEncoding]; {
	case !encoded:
		return []byte(m.Body), nil
	case encoding == encodingEmpty && m.Body == emptyBody:
		return nil, nil
	case encoding == encodingEmpty:
		return nil, fmt.Errorf("attribute %s says that there is no payload, but the body is not %q", attrEncoding, emptyBody)
	case encoding == encodingBase64:
		payload, err := base64.StdEncoding.Strict().DecodeString(m.Body)
		if err != nil {
			return nil, fmt.Errorf("attribute %s says base64, which the body is not: %w", attrEncoding, err)
		}
		return payload, nil
	default:
		return nil, fmt.Errorf("attribute %s has a value that is not known; it can be %s or %s", attrEncoding, encodingBase64, encodingEmpty)
	}
}

// Longest returns a delivery of an envelope about which as much is to be said as
// of any: no delivery of it makes a larger message.
func Longest(e *messaging.Envelope) gobridge.Delivery {
	name := strings.Repeat("x", 64)
	return gobridge.Delivery{
		Envelope: *e, Route: name, Binding: name, Partition: gobridge.NewShard(name, name, 254, 256),
		Attempt: math.MaxInt32, Redrives: math.MaxInt32, Token: gobridge.Token{Version: math.MaxInt64}, Seq: math.MaxInt64,
	}
}
