package mqtt

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/eclipse/paho.golang/packets"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// Headers of what MQTT has a place of its own for.
const (
	headerResponseTopic = "mqtt-response-topic"
	headerCorrelation   = "mqtt-correlation-data"
	headerFormat        = "mqtt-payload-format"
	headerRetained      = "mqtt-retained"
	headerSubject       = "mqtt-subject"
)

const formatUTF8 = "utf-8"

// protocol is how messages travel here. CloudEvents attributes are user properties
// without a prefix (CloudEvents MQTT binding 1.0.2, section 3.1.3).
var protocol = mapping.Protocol{Carries: carries}

func carries(name, value string) bool {
	switch name {
	case headerResponseTopic, headerCorrelation, headerFormat, headerRetained:
		return true // they have their places
	}
	return checkText(name) == nil && checkText(value) == nil
}

// decode makes a message of a packet. Without an identity of its producer's the ID
// is empty. What can't be a message is returned as it came, with the reason.
func decode(p *packets.Publish, idProperty string, now time.Time) (messaging.Envelope, error) {
	m := mapping.Message{Payload: p.Payload}
	given := ""
	if p.Properties != nil {
		m.ContentType = p.Properties.ContentType
		for _, u := range p.Properties.User {
			m.Pairs = append(m.Pairs, mapping.Pair{Name: u.Key, Value: u.Value})
			if idProperty != "" && u.Key == idProperty {
				given = u.Value
			}
		}
	}
	e, err := protocol.Decode(m)
	if err != nil {
		e.Subject = p.Topic
		return e, err
	}
	if given != "" {
		e.ID = given
	}
	if e.Headers == nil {
		e.Headers = messaging.Headers{}
	}
	if own := property(p, "gobridge-subject"); own != "" && own != p.Topic {
		e.Headers[headerSubject] = own
	}
	e.Subject = p.Topic
	ownPlaces(p, &e, now)
	if len(e.Headers) == 0 {
		e.Headers = nil
	}
	return e, nil
}

// ownPlaces takes over what MQTT has a place of its own for.
func ownPlaces(p *packets.Publish, e *messaging.Envelope, now time.Time) {
	if p.Retain {
		e.Headers[headerRetained] = "true"
	}
	q := p.Properties
	if q == nil {
		return
	}
	if q.ResponseTopic != "" {
		e.Headers[headerResponseTopic] = q.ResponseTopic
	}
	if len(q.CorrelationData) > 0 {
		e.Headers[headerCorrelation] = base64.StdEncoding.EncodeToString(q.CorrelationData)
	}
	if q.PayloadFormat != nil && *q.PayloadFormat == 1 {
		e.Headers[headerFormat] = formatUTF8
	}
	if q.MessageExpiry != nil && e.ExpiresAt.IsZero() {
		e.ExpiresAt = now.Add(time.Duration(*q.MessageExpiry) * time.Second)
	}
}

func property(p *packets.Publish, name string) string {
	if p.Properties == nil {
		return ""
	}
	for _, u := range p.Properties.User {
		if u.Key == name {
			return u.Value
		}
	}
	return ""
}

// encode makes the packet of a delivery, and reports what MQTT can't carry of it.
func (s *Sender) encode(d *gobridge.Delivery, now time.Time) (*packets.Publish, error) {
	topic, err := s.topic(&d.Envelope)
	if err != nil {
		return nil, err
	}
	m, err := protocol.Encode(s.replacing(d), s.options.Format)
	if err != nil {
		return nil, err
	}
	p := &packets.Publish{Topic: topic, Payload: m.Payload, QoS: s.options.QoS, Retain: s.options.Retain}
	p.Properties = &packets.Properties{ContentType: m.ContentType, User: make([]packets.User, 0, len(m.Pairs)+len(s.headers))}
	if err := checkText(m.ContentType); err != nil {
		return nil, fmt.Errorf("the content type %w", err)
	}
	for _, pair := range m.Pairs {
		if own, err := place(p, pair); own || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := checkText(pair.Value); err != nil {
			return nil, fmt.Errorf("%s %w", pair.Name, err)
		}
		p.Properties.User = append(p.Properties.User, packets.User{Key: pair.Name, Value: pair.Value})
	}
	for _, more := range s.headers {
		value, err := more.value(&d.Envelope)
		if err != nil {
			return nil, fmt.Errorf("user property %s: %w", more.name, err)
		}
		if value == "" {
			continue
		}
		if err := checkText(value); err != nil {
			return nil, fmt.Errorf("user property %s %w", more.name, err)
		}
		p.Properties.User = append(p.Properties.User, packets.User{Key: more.name, Value: value})
	}
	if at := d.Envelope.ExpiresAt; !at.IsZero() {
		seconds := uint32(min(max(math.Ceil(at.Sub(now).Seconds()), 1), math.MaxUint32))
		p.Properties.MessageExpiry = &seconds
	}
	return p, nil
}

// replacing returns the delivery without the headers that are computed.
func (s *Sender) replacing(d *gobridge.Delivery) *gobridge.Delivery {
	if !slices.ContainsFunc(s.headers, func(more computed) bool { _, there := d.Envelope.Headers[more.name]; return there }) {
		return d
	}
	less := *d
	less.Envelope.Headers = maps.Clone(d.Envelope.Headers)
	for _, more := range s.headers {
		delete(less.Envelope.Headers, more.name)
	}
	return &less
}

// place puts a pair where MQTT has a place of its own for it, and reports whether
// it has.
func place(p *packets.Publish, pair mapping.Pair) (bool, error) {
	switch pair.Name {
	case headerResponseTopic:
		if err := checkTopic(pair.Value); err != nil {
			return true, fmt.Errorf("header %s: %w", pair.Name, err)
		}
		p.Properties.ResponseTopic = pair.Value
	case headerCorrelation:
		data, err := base64.StdEncoding.DecodeString(pair.Value)
		if err != nil || len(data) > maxText {
			return true, fmt.Errorf("header %s is not base64 of at most %d bytes", pair.Name, maxText)
		}
		p.Properties.CorrelationData = data
	case headerFormat:
		if one := byte(1); pair.Value == formatUTF8 && utf8.Valid(p.Payload) {
			p.Properties.PayloadFormat = &one
		}
	case headerRetained: // of the message as it came; what goes out is retained by an option
	default:
		return false, nil
	}
	return true, nil
}

// packetSize is how many bytes a packet has on the wire (section 2.1.4).
func packetSize(p *packets.Publish) int {
	rest := 0
	for _, b := range p.Buffers() {
		rest += len(b)
	}
	size := 1 + rest
	for n := rest; ; n >>= 7 {
		size++
		if n < 0x80 {
			return size
		}
	}
}
