package amqp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
	"gobridge/messaging"
)

// directReply is the address of answers on the connection that asked. A message of
// another connection that has it closes the channel.
const directReply = "amq.rabbitmq.reply-to"

// What is kept for what tells of a delivery, in bytes and in headers: it is not known
// yet when a message is accepted.
const (
	headerRoom = 1024
	entryRoom  = 16
)

// outgoing is a message on its way out.
type outgoing struct {
	index         int // in the batch
	exchange, key string
	publishing    amqp091.Publishing
	size          int // of the content header's frame
}

// outgoing makes what is published of a delivery. Its errors are the message's own
// and for good.
func (s *Sender) outgoing(d *gobridge.Delivery) (outgoing, error) {
	o := outgoing{exchange: s.options.Exchange, key: s.options.RoutingKey}
	var err error
	if s.options.ExchangeFrom != nil {
		if o.exchange, err = s.options.ExchangeFrom(&d.Envelope); err != nil {
			return o, fmt.Errorf("exchange: %w", err)
		}
	}
	if s.options.RoutingKeyFrom != nil {
		if o.key, err = s.options.RoutingKeyFrom(&d.Envelope); err != nil {
			return o, fmt.Errorf("routing key: %w", err)
		}
	}
	p := &o.publishing
	rest := *d
	rest.Envelope.Headers = setProperties(p, d.Envelope.Headers)
	m, err := protocol.Encode(&rest, s.options.Format)
	if err != nil {
		return o, err
	}
	p.ContentType, p.MessageId, p.DeliveryMode, p.Body = m.ContentType, messageID(d.DedupeID()), amqp091.Persistent, m.Payload
	if d.Envelope.CreatedAt.Unix() > 0 {
		p.Timestamp = d.Envelope.CreatedAt
	}
	if !d.Envelope.ExpiresAt.IsZero() {
		p.Expiration = strconv.FormatInt(max(1, min(time.Until(d.Envelope.ExpiresAt).Milliseconds(), maxExpiration)), 10)
	}
	p.Headers = make(amqp091.Table, len(m.Pairs))
	for _, pair := range m.Pairs {
		if pair.Name == headerEncoding { // not there if the body is JSON with the payload in it
			p.ContentEncoding = pair.Value
			continue
		}
		p.Headers[pair.Name] = pair.Value
	}
	for name, from := range s.options.Headers {
		value, err := from(&d.Envelope)
		if err != nil {
			return o, fmt.Errorf("header %s: %w", name, err)
		}
		if value != "" {
			p.Headers[name] = value
		}
	}
	return o, s.check(&o)
}

// messageID is an ID as the property message-id: one that the property has no room
// for, or that is not UTF-8, stands there as its digest.
func messageID(id string) string {
	if short("", id) == nil {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// maxExpiration is the longest time to live that RabbitMQ takes, in milliseconds:
// 2^32-1.
const maxExpiration = 1<<32 - 1

// check returns what the protocol, or the broker by its settings, can't carry.
func (s *Sender) check(o *outgoing) error {
	p := &o.publishing
	for what, text := range map[string]string{
		"exchange": o.exchange, "routing key": o.key, "content type": p.ContentType,
	} {
		if err := short(what, text); err != nil {
			return err
		}
	}
	for name := range p.Headers {
		if err := short("name of a header", name); err != nil {
			return err
		}
	}
	if len(p.Headers) > maxEntries { // if it came back, it could not be read
		return fmt.Errorf("there are %d headers, with those that tell of the delivery; %d can be sent", len(p.Headers), maxEntries)
	}
	if o.size = headerSize(p); o.size > maxFrame {
		return fmt.Errorf("the headers and properties have %d bytes; an AMQP frame has %d", o.size, maxFrame)
	}
	if int64(len(p.Body)) > s.options.MaxMessageSize {
		return fmt.Errorf("the payload has %d bytes; the broker takes %d (max_message_size)", len(p.Body), s.options.MaxMessageSize)
	}
	return nil
}

// headerSize is the size of the frame that has the properties: its head and end,
// class, weight, body size and flags, then the properties (AMQP 0-9-1, 4.2.6.1).
func headerSize(p *amqp091.Publishing) int {
	size := 8 + 14 + 1
	for _, text := range []string{
		p.ContentType, p.ContentEncoding, p.CorrelationId, p.ReplyTo, p.Expiration, p.MessageId, p.Type, p.AppId,
	} {
		size += 1 + len(text)
	}
	size += 1 + 1 + 8 + 4 // priority, delivery mode, timestamp, size of the headers
	for name, value := range p.Headers {
		written, _ := value.(string) // all are
		size += 1 + len(name) + 1 + 4 + len(written)
	}
	return size
}

// setProperties sets the properties that headers stand for, and returns the other
// headers.
func setProperties(p *amqp091.Publishing, headers messaging.Headers) messaging.Headers {
	rest := make(messaging.Headers, len(headers))
	for name, value := range headers {
		if !setProperty(p, name, value) {
			rest[name] = value
		}
	}
	return rest
}

// setProperty sets the property that a header stands for, and reports whether it
// is one that can be set.
func setProperty(p *amqp091.Publishing, name, value string) bool {
	if value == "" || short("", value) != nil {
		return false
	}
	switch name {
	case headerCorrelation:
		p.CorrelationId = value
	case headerReplyTo:
		if value == directReply {
			return false
		}
		p.ReplyTo = value
	case headerType:
		p.Type = value
	case headerAppID:
		p.AppId = value
	case headerPriority:
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != value {
			return false
		}
		p.Priority = uint8(n) //nolint:gosec // eight bits
	default:
		return false
	}
	return true
}

// carries reports whether a header of a message can stand by itself in the headers
// table, or as content-encoding: RabbitMQ makes nothing of it, and it comes back as
// it is.
func carries(name, value string) bool {
	switch name {
	case headerCC, headerBCC, deliveryCount, acquiredCount, headerUserID, headerExchange,
		headerCorrelation, headerReplyTo, headerType, headerAppID, headerPriority, headerTimestamp:
		return false
	case headerEncoding: // it becomes a property
		return value != "" && short("", value) == nil
	}
	return short("", name) == nil
}

// Carry implements [gobridge.Carrier].
func (s *Sender) Carry(e *messaging.Envelope) error {
	o, err := s.outgoing(&gobridge.Delivery{Envelope: *e})
	if err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	if o.size > maxFrame-headerRoom {
		return fmt.Errorf("%s: the headers and properties have %d bytes; there is room for %d in an AMQP frame", s.what, o.size, maxFrame-headerRoom)
	}
	if n := len(o.publishing.Headers); n > maxEntries-entryRoom {
		return fmt.Errorf("%s: there are %d headers; there is room for %d", s.what, n, maxEntries-entryRoom)
	}
	return nil
}

// own returns a copy of the message that outlives the batch.
func (o *outgoing) own() { o.publishing.Body = bytes.Clone(o.publishing.Body) }
