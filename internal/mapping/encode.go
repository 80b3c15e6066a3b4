package mapping

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gobridge"
	"gobridge/internal/percent"
	"gobridge/messaging"
)

// Encode returns the delivery as the transport carries it, in the format: the
// attributes of an event first, then the message's headers, then gobridge's own
// pairs, each in an order that does not change. No name is there twice. The
// payload is the delivery's own unless the format is [Structured].
//
// [Plain] never fails. The others do, with a [*FieldError], if the message's ID,
// subject or content type is nothing that a CloudEvent can have.
func (p Protocol) Encode(d *gobridge.Delivery, f Format) (Message, error) {
	w := writer{p: p, pairs: make([]Pair, 0, len(d.Envelope.Headers)+16)}
	m := Message{ContentType: d.Envelope.ContentType, Payload: d.Envelope.Payload}
	if f == Plain && p.CloudEvents == headerPrefix && !inJSON(&d.Envelope, Binary) {
		if _, ok := came(d.Envelope.Headers); ok {
			f = Binary // its headers as they are make it that
		}
	}
	switch f {
	case Plain:
		w.headers(d.Envelope.Headers, slices.Sorted(maps.Keys(d.Envelope.Headers)), nil)
		if isCE(m.ContentType) || p.looksLike(m.ContentType, w.pairs) != Plain {
			w.event = EventNone
		}
		w.own(d, nil)
		m.Pairs = w.pairs
		return m, nil
	case Binary, Structured:
	default:
		return m, fmt.Errorf("%s is no format", f)
	}
	ev, err := eventOf(d)
	if err != nil {
		return m, err
	}
	if ev.made {
		w.event = EventMade
	}
	if inJSON(&d.Envelope, f) {
		if m.Payload, err = structure(ev.attributes, &d.Envelope); err != nil {
			return m, err
		}
		m.ContentType = structuredCE
		w.headers(d.Envelope.Headers, ev.rest, func(name string) bool {
			return p.repeats(ev.attributes, name) || strings.EqualFold(name, contentEncoding)
		})
	} else {
		w.attributes(ev.attributes)
		w.headers(d.Envelope.Headers, ev.rest, p.isAttribute)
	}
	w.own(d, &ev)
	m.Pairs = w.pairs
	return m, nil
}

// attribute returns the attribute's name of which name is the spelling beside a
// payload.
func (p Protocol) attribute(name string) (string, bool) {
	if p.CloudEvents == "" {
		return name, attributeName(name) && !isTrace(name)
	}
	if n := len(p.CloudEvents); len(name) >= n && p.prefixes(name[:n]) {
		return strings.ToLower(name[n:]), true
	}
	return "", false
}

// prefixes reports whether beginning is a prefix of attributes. AMQP has two,
// for ':' is not possible everywhere (AMQP binding 1.0.2, section 3.1.3.1).
func (p Protocol) prefixes(beginning string) bool {
	if strings.EqualFold(beginning, p.CloudEvents) {
		return true
	}
	const colon, underscore = "cloudEvents:", "cloudEvents_"
	return strings.EqualFold(p.CloudEvents, colon) && strings.EqualFold(beginning, underscore) ||
		strings.EqualFold(p.CloudEvents, underscore) && strings.EqualFold(beginning, colon)
}

func (p Protocol) isAttribute(name string) bool {
	_, is := p.attribute(name)
	return is
}

// repeats reports whether a pair beside an event in JSON is one of its attributes.
func (p Protocol) repeats(attributes Attributes, name string) bool {
	attribute, is := p.attribute(name)
	if !is {
		return false
	}
	_, is = attributes[attribute]
	return is || attribute == "datacontenttype"
}

// looksLike returns what a message with the content type and the pairs would be
// taken for.
func (p Protocol) looksLike(media string, pairs []Pair) Format {
	if isStructured(media) {
		return Structured
	}
	for _, pair := range pairs {
		if attribute, is := p.attribute(pair.Name); is && attribute == "specversion" {
			return Binary
		}
	}
	return Plain
}

// isStructured reports whether a content type is that of a CloudEvent in JSON.
func isStructured(contentType string) bool { return mediaType(contentType) == structuredCE }

// isCE reports whether a content type is that of events, in whatever format.
func isCE(contentType string) bool { return strings.HasPrefix(mediaType(contentType), anyCE) }

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// writer gathers pairs.
type writer struct {
	p     Protocol
	pairs []Pair
	extra []Pair
	event string
}

func (w *writer) add(name, value string) { w.pairs = append(w.pairs, Pair{name, value}) }

func (w *writer) attributes(attributes Attributes) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		switch {
		case w.p.CloudEvents != "" || !isTrace(name):
			w.add(w.p.CloudEvents+name, attributes[name])
		case w.event == "": // an event's own; one that was made has the message's
			w.extra = append(w.extra, Pair{headerPrefix + name, attributes[name]})
		}
	}
}

// headers adds the message's headers of these names; hidden ones can't stand by
// themselves.
func (w *writer) headers(headers messaging.Headers, names []string, hidden func(string) bool) {
	for _, name := range names {
		value := headers[name]
		hide := name == "" || isOwn(name) && !isLasting(name) || strings.EqualFold(name, contentType) ||
			hidden != nil && hidden(name) || w.p.Carries != nil && !w.p.Carries(name, value)
		if hide {
			w.extra = append(w.extra, Pair{name, value})
		} else {
			w.add(name, value)
		}
	}
}

// own adds gobridge's own pairs. Where an event would say something else than
// the message, the pair is there though it is empty.
func (w *writer) own(d *gobridge.Delivery, ev *event) {
	e := &d.Envelope
	var says messaging.Envelope
	if ev != nil && !ev.made {
		ev.attributes.fields(&says)
	}
	field := func(name, value, said string) {
		if value != "" || said != "" {
			w.add(name, value)
		}
	}
	field(ownID, e.ID, "")
	if id := d.DedupeID(); id != e.ID {
		w.add(ownDedupeID, id)
	}
	field(ownSubject, e.Subject, says.Subject)
	field(ownKey, e.OrderingKey, says.OrderingKey)
	if !e.CreatedAt.IsZero() {
		w.add(ownCreatedAt, formatTime(e.CreatedAt))
	} else if !says.CreatedAt.IsZero() {
		w.add(ownCreatedAt, "")
	}
	if !e.ExpiresAt.IsZero() {
		w.add(ownExpiresAt, formatTime(e.ExpiresAt))
	}
	field(ownHeaders, JoinHeaders(w.extra), "")
	field(ownEvent, w.event, "")
	field(ownRoute, d.Route, "")
	field(ownBinding, d.Binding, "")
	field(ownPartition, string(d.Partition), "")
	w.number(ownSeq, d.Seq)
	w.number(ownToken, d.Token.Version)
	w.number(ownAttempt, int64(d.Attempt))
	w.number(ownRedrives, int64(d.Redrives))
}

func (w *writer) number(name string, n int64) {
	if n != 0 {
		w.add(name, strconv.FormatInt(n, 10))
	}
}

// JoinHeaders writes headers as name=value&name=value in ascending order of
// names, with both percent-encoded: any parser of URL queries reads it.
func JoinHeaders(headers []Pair) string {
	if len(headers) == 0 {
		return ""
	}
	joined := make([]string, len(headers))
	for i, h := range headers {
		joined[i] = percent.Encode(h.Name, "&=+") + "=" + percent.Encode(h.Value, "&=+")
	}
	slices.Sort(joined)
	return strings.Join(joined, "&")
}

// SplitHeaders reads what [JoinHeaders] wrote. A name is there once; none is
// empty, or one of gobridge's own fields.
func SplitHeaders(joined string) ([]Pair, error) {
	if joined == "" {
		return nil, nil
	}
	parts := strings.Split(joined, "&")
	out := make([]Pair, 0, len(parts))
	seen := make(map[string]bool, len(parts))
	for _, part := range parts {
		rawName, rawValue, ok := strings.Cut(part, "=")
		name, err1 := percent.Decode(rawName)
		value, err2 := percent.Decode(rawValue)
		switch {
		case !ok || err1 != nil || err2 != nil:
			return nil, wrong(ownHeaders, "has %s; it is name=value&name=value, both percent-encoded", shown(part))
		case name == "":
			return nil, wrong(ownHeaders, "has a header without a name: %s", shown(part))
		case strings.EqualFold(name, ownKey):
			return nil, wrong(ownHeaders, "has %s, which stands by itself", name)
		case seen[name]:
			return nil, wrong(ownHeaders, "has %s twice", shown(name))
		}
		seen[name] = true
		out = append(out, Pair{name, value})
	}
	return out, nil
}
