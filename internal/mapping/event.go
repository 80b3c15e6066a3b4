package mapping

import (
	"errors"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gobridge"
	"gobridge/messaging"
)

// Attributes are the context attributes of a CloudEvent by their names, and
// their values as text (CloudEvents 1.0.2, sections 2 and 3).
type Attributes map[string]string

// ID is the identity of the event, which is its source and its id together,
// with a space between: a source has none, so no two identities meet.
func (a Attributes) ID() string { return a["source"] + " " + a["id"] }

// Check returns what is wrong with the attributes, as a [*FieldError] that has
// the prefix before the attribute's name.
func (a Attributes) Check(prefix string) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		switch {
		case !attributeName(name):
			return wrong(prefix+name, "is no attribute name: it has lower-case letters and digits only")
		case name == "data":
			return wrong(prefix+name, "is no attribute: data is the payload")
		case !text(a[name]):
			return wrong(prefix+name, "is not valid UTF-8, or has control characters")
		}
	}
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if value, there := a[name]; !there {
			return wrong(prefix+name, "is missing; a CloudEvent has specversion, id, source and type")
		} else if value == "" {
			return wrong(prefix+name, "is empty")
		}
	}
	if version := a["specversion"]; version != cloudEventsV1 {
		return wrong(prefix+"specversion", "is %s; version 1.0 is understood", shown(version))
	}
	if err := checkURI(prefix+"source", a["source"]); err != nil {
		return err
	}
	return a.checkOptional(prefix)
}

func (a Attributes) checkOptional(prefix string) error {
	if subject, there := a["subject"]; there && subject == "" {
		return wrong(prefix+"subject", "is empty; leave it out")
	}
	if schema, there := a["dataschema"]; there {
		if err := checkURI(prefix+"dataschema", schema); err != nil {
			return err
		}
		if u, err := url.Parse(schema); err != nil || !u.IsAbs() {
			return wrong(prefix+"dataschema", "is no absolute URI, like https://example.com/schema")
		}
	}
	if media, there := a["datacontenttype"]; there && !isMediaType(media) {
		return wrong(prefix+"datacontenttype", "is %s, which is no media type, like application/json or text/plain; charset=utf-8", shown(media))
	}
	if at, there := a["time"]; there {
		if _, err := parseTime(prefix+"time", at); err != nil {
			return err
		}
	}
	return nil
}

func checkURI(name, value string) error {
	if strings.ContainsFunc(value, unicode.IsSpace) {
		return wrong(name, "has white space, which no URI reference has")
	}
	if _, err := url.Parse(value); err != nil {
		return wrong(name, "is no URI reference, like /shop/orders")
	}
	return nil
}

func isMediaType(value string) bool {
	_, _, err := mime.ParseMediaType(value)
	return err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)
}

func parseTime(name, value string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return t, wrong(name, "is %s, which is no time as RFC 3339 has it, like 2026-01-02T03:04:05Z", shown(value))
	}
	t = t.UTC()
	if year := t.Year(); year < 1970 || year > 2261 {
		return t, wrong(name, "is outside 1970 to 2261")
	}
	return t, nil
}

// Restore gives a message of which an event was made the headers that became
// extensions, where it has not got them already.
func (a Attributes) Restore(e *messaging.Envelope) {
	for name, value := range a {
		if _, beside := e.Headers[name]; beside || takenNames[name] {
			continue
		}
		if e.Headers == nil {
			e.Headers = make(messaging.Headers)
		}
		e.Headers[name] = value
	}
}

// Apply makes the attributes, which are valid, part of the message: type becomes
// the subject, partitionkey the ordering key and time CreatedAt, and all of them
// stay with it as ce- headers but datacontenttype, which is the content type.
func (a Attributes) Apply(e *messaging.Envelope) {
	a.fields(e)
	if e.Headers == nil {
		e.Headers = make(messaging.Headers, len(a))
	}
	for name, value := range a {
		if name != "datacontenttype" {
			e.Headers[headerPrefix+name] = value
		}
	}
}

func (a Attributes) fields(e *messaging.Envelope) {
	e.Subject = a["type"]
	if key, there := a["partitionkey"]; there {
		e.OrderingKey = key
	}
	if at, there := a["time"]; there {
		e.CreatedAt, _ = parseTime("time", at)
	}
}

// attributeName reports whether name is that of an attribute (section 3.1.1).
func attributeName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// text reports whether an attribute can have the value: valid UTF-8 without
// control characters (section 3.1.2).
func text(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || 0x7f <= r && r <= 0x9f
	})
}

// event is a message seen as a CloudEvent.
type event struct {
	attributes Attributes // without datacontenttype
	made       bool
	// rest are the names of the headers that are no attributes, in order.
	rest []string
}

// eventOf returns the event as which a message goes out.
func eventOf(d *gobridge.Delivery) (event, error) {
	if ev, ok := came(d.Envelope.Headers); ok {
		return ev, nil
	}
	return makeEvent(d)
}

// came returns the event as which the message came, if it did.
func came(headers messaging.Headers) (event, bool) {
	if _, there := headers[headerPrefix+"specversion"]; !there {
		return event{}, false
	}
	ev := event{attributes: make(Attributes, 8)}
	for name, value := range headers {
		attribute, is := strings.CutPrefix(name, headerPrefix)
		switch {
		case !is:
			ev.rest = append(ev.rest, name)
		case attribute == "datacontenttype":
			return event{}, false // the content type says it
		default:
			ev.attributes[attribute] = value
		}
	}
	if ev.attributes.Check("") != nil {
		return event{}, false
	}
	slices.Sort(ev.rest)
	return ev, true
}

// takenNames are attributes that a message's headers don't become; baggage has
// its place beside the payload only.
var takenNames = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "datacontenttype": true, "dataschema": true,
	"subject": true, "time": true, "data": true, "partitionkey": true, messaging.HeaderBaggage: true,
}

func makeEvent(d *gobridge.Delivery) (event, error) {
	e := &d.Envelope
	ev := event{made: true, attributes: Attributes{
		"specversion": cloudEventsV1, "id": e.ID, "source": madeSource + d.Route, "type": e.Subject,
	}}
	if err := madeFrom(e); err != nil {
		return event{}, err
	}
	if e.Subject == "" {
		ev.attributes["type"] = noSubject
	}
	if !e.CreatedAt.IsZero() {
		ev.attributes["time"] = formatTime(e.CreatedAt)
	}
	if e.OrderingKey != "" && text(e.OrderingKey) {
		ev.attributes["partitionkey"] = e.OrderingKey
	}
	for name, value := range e.Headers {
		isAttribute := attributeName(name) && !takenNames[name] && value != "" && text(value)
		if isAttribute {
			ev.attributes[name] = value
		}
		if !isAttribute || isTrace(name) {
			ev.rest = append(ev.rest, name)
		}
	}
	slices.Sort(ev.rest)
	return ev, nil
}

// madeFrom returns why no event can be made of the message.
func madeFrom(e *messaging.Envelope) error {
	switch {
	case e.ID == "" || !text(e.ID):
		return wrong("the message's ID", "is %s, which no CloudEvent can have as its id: it is empty, not valid UTF-8, or has control characters", shown(e.ID))
	case !text(e.Subject):
		return wrong("the subject", "is %s, which no CloudEvent can have as its type: it is not valid UTF-8, or has control characters", shown(e.Subject))
	}
	return nil
}

// Carry returns the error with which [Protocol.Encode] would refuse the message
// in the format, or nil.
func Carry(e *messaging.Envelope, f Format) error {
	if f == Plain {
		return nil
	}
	if _, ok := came(e.Headers); !ok {
		if err := madeFrom(e); err != nil {
			return err
		}
	}
	if inJSON(e, f) {
		return declarable(e.ContentType)
	}
	return nil
}

// inJSON reports whether a message goes out in JSON: in binary mode, a payload
// that is an event by its content type would be taken for the event itself.
func inJSON(e *messaging.Envelope, f Format) bool {
	return f == Structured || f == Binary && isCE(e.ContentType)
}

// isTrace reports whether a name is that of the trace context, which has a place
// of its own beside an event's attributes.
func isTrace(name string) bool {
	return name == messaging.HeaderTraceParent || name == messaging.HeaderTraceState || name == messaging.HeaderBaggage
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
