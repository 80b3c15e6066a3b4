package mapping

import (
	"slices"
	"strings"
	"time"

	"gobridge/internal/spelling"
	"gobridge/messaging"
)

// knownNames are gobridge's own pairs: those of which a message is made first,
// and then those that tell of a delivery and are dropped, so that a repeat has
// the content of the first.
var knownNames = []string{
	ownID, ownDedupeID, ownSubject, ownKey, ownCreatedAt, ownNotBefore, ownExpiresAt, ownHeaders, ownEvent,
	ownRoute, ownBinding, ownPartition, ownSeq, ownToken, ownAttempt, ownRedrives,
	messaging.HeaderDeliveryCount, messaging.HeaderReceivedAt,
}

// Decode is the inverse of [Protocol.Encode], and reads what others sent: a
// CloudEvent in JSON by its content type, one in binary mode by the attribute
// specversion, and anything else as it is.
//
// The ID is gobridge-dedupe-id, else gobridge-id, else source and id of the
// event, else empty. An error, a [*FieldError], says that this is no message: a
// pair whose name begins with gobridge- and which is not known, or whose value
// can't be right, or a CloudEvent that is not valid. Other kinds of events than
// JSON, batches among them, are payloads like any other.
//
// The envelope's payload is m's, or a part of it. With an error the envelope is what
// came: payload, content type and all pairs as headers, but for those that no message
// can have, one without a name and one with the ordering key's.
func (p Protocol) Decode(m Message) (messaging.Envelope, error) {
	e, err := p.decode(m)
	if err != nil {
		return raw(m), err
	}
	return e, nil
}

// raw is what came, of what is no message.
func raw(m Message) messaging.Envelope {
	e := messaging.Envelope{ContentType: m.ContentType, Payload: m.Payload, Headers: make(messaging.Headers, len(m.Pairs))}
	for _, pair := range m.Pairs {
		if pair.Name != "" && !strings.EqualFold(pair.Name, ownKey) {
			join(e.Headers, pair)
		}
	}
	return e
}

// join adds a header; one that is there already becomes a list.
func join(headers messaging.Headers, pair Pair) {
	if before, again := headers[pair.Name]; again {
		pair.Value = before + "," + pair.Value
	}
	headers[pair.Name] = pair.Value
}

func (p Protocol) decode(m Message) (messaging.Envelope, error) {
	r := reader{p: p, own: make(map[string]string, 16), headers: make(messaging.Headers, len(m.Pairs))}
	e := messaging.Envelope{ContentType: m.ContentType, Payload: m.Payload}
	if err := r.readOwn(m.Pairs); err != nil {
		return e, err
	}
	looks := Plain
	if r.own[ownEvent] != EventNone {
		looks = p.looksLike(m.ContentType, m.Pairs)
	}
	var err error
	switch looks {
	case Structured:
		r.attributes, e.Payload, err = Unstructure(m.Payload)
		if err == nil {
			err = r.besideJSON(m.Pairs)
		}
		e.ContentType = r.attributes["datacontenttype"]
	case Binary:
		if err = r.binary(m.Pairs); e.ContentType == "" {
			e.ContentType = r.attributes["datacontenttype"]
		}
	default:
		r.plain(m.Pairs, nil)
	}
	if err == nil {
		err = r.finish(&e)
	}
	return e, err
}

// reader takes a message apart.
type reader struct {
	p          Protocol
	own        map[string]string // by lower-case name
	attributes Attributes        // nil if this is no event
	headers    messaging.Headers
}

// readOwn gathers gobridge's own pairs.
func (r *reader) readOwn(pairs []Pair) error {
	for _, pair := range pairs {
		if !isOwn(pair.Name) || isLasting(pair.Name) {
			continue
		}
		name := strings.ToLower(pair.Name)
		if !slices.Contains(knownNames, name) {
			return unknown(pair.Name)
		}
		if _, twice := r.own[name]; twice {
			return wrong(name, "is there more than once; it may be there once")
		}
		r.own[name] = pair.Value
	}
	return nil
}

// unknown is the error of a name that looks like one of gobridge's own: a
// misspelt ordering key would cost the message its order, and nobody would know.
func unknown(name string) error {
	useful := knownNames[:slices.Index(knownNames, ownRoute)]
	ends := make([]string, len(useful))
	for i, known := range useful {
		ends[i] = strings.TrimPrefix(known, ownPrefix)
	}
	if guess := spelling.Nearest(name[len(ownPrefix):], ends); guess != "" {
		return wrong(shownName(name), "is no header of gobridge; the nearest is %s", ownPrefix+guess)
	}
	return wrong(shownName(name), "is no header of gobridge; those that say something of a message are %s", strings.Join(useful, ", "))
}

func shownName(name string) string {
	const most = 80
	if len(name) > most || !text(name) {
		return shown(name)
	}
	return name
}

// plain takes over the headers, those aside that are left out.
func (r *reader) plain(pairs []Pair, leaveOut func(name string) bool) {
	for _, pair := range pairs {
		if isOwn(pair.Name) && !isLasting(pair.Name) || leaveOut != nil && leaveOut(pair.Name) {
			continue
		}
		join(r.headers, pair)
	}
}

// binary takes over attributes and headers of an event in binary mode.
func (r *reader) binary(pairs []Pair) error {
	r.attributes = make(Attributes, 8)
	for _, pair := range pairs {
		name, is := r.p.attribute(pair.Name)
		if !is {
			continue
		}
		if _, twice := r.attributes[name]; twice {
			return wrong(shownName(pair.Name), "is there more than once; it may be there once")
		}
		r.attributes[name] = pair.Value
	}
	r.plain(pairs, r.p.isAttribute)
	return r.attributes.Check(r.p.CloudEvents)
}

// besideJSON takes over the headers beside an event in JSON, which may repeat
// its attributes.
func (r *reader) besideJSON(pairs []Pair) error {
	r.plain(pairs, func(name string) bool { return r.p.repeats(r.attributes, name) })
	return r.attributes.Check("")
}

// finish sets what the pairs and the attributes say.
func (r *reader) finish(e *messaging.Envelope) error {
	extra, err := SplitHeaders(r.own[ownHeaders])
	if err != nil {
		return err
	}
	for _, h := range extra {
		if _, twice := r.headers[h.Name]; twice {
			return wrong(ownHeaders, "has %s, which is there by itself too", shown(h.Name))
		}
		r.headers[h.Name] = h.Value
	}
	switch kind, there := r.own[ownEvent]; {
	case there && kind != EventNone && kind != EventMade:
		return wrong(ownEvent, "is %s; it is %s or %s", shown(kind), EventNone, EventMade)
	case r.attributes == nil:
	case kind == EventMade:
		e.Headers = r.headers
		r.attributes.Restore(e)
	default:
		e.ID, e.Headers = r.attributes.ID(), r.headers
		r.attributes.Apply(e)
	}
	delete(r.headers, "") // no message has one
	e.Headers = nil
	if len(r.headers) > 0 {
		e.Headers = r.headers
	}
	if subject, there := r.own[ownSubject]; there {
		e.Subject = subject
	}
	if key, there := r.own[ownKey]; there {
		e.OrderingKey = key
	}
	if err := r.identity(e); err != nil {
		return err
	}
	return r.times(e)
}

func (r *reader) identity(e *messaging.Envelope) error {
	for _, name := range []string{ownID, ownDedupeID} { // the later counts
		if id, there := r.own[name]; there {
			if id == "" {
				return wrong(name, "is empty; leave it out, or name the message")
			}
			e.ID = id
		}
	}
	return nil
}

func (r *reader) times(e *messaging.Envelope) error {
	for _, field := range []struct {
		name string
		at   *time.Time
	}{
		{ownCreatedAt, &e.CreatedAt},
		{ownNotBefore, &e.NotBefore},
		{ownExpiresAt, &e.ExpiresAt},
	} {
		value, there := r.own[field.name]
		if !there {
			continue
		}
		if value == "" && field.name == ownCreatedAt && r.attributes != nil {
			*field.at = time.Time{} // whatever the event says
			continue
		}
		t, err := parseTime(field.name, value)
		if err != nil {
			return err
		}
		*field.at = t
	}
	if !e.NotBefore.IsZero() && !e.ExpiresAt.IsZero() && !e.NotBefore.Before(e.ExpiresAt) {
		return wrong(ownExpiresAt, "is not after %s: the message could never be delivered", ownNotBefore)
	}
	return nil
}
