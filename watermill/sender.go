package mill

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// SenderOptions configure a [Sender]. The zero value works.
type SenderOptions struct {
	// Topic returns where a message goes; its subject when nil. An error is
	// permanent: this message will never have a topic. It is called concurrently.
	Topic func(envelope *messaging.Envelope) (string, error)

	// Classify says what an error of the publisher means, by [gobridge.Permanent],
	// [gobridge.Unavailable] or [gobridge.RetryAfter] around it; when nil, every
	// error is transient. It is called concurrently.
	Classify func(err error) error
}

// Sender delivers to a publisher of Watermill. It is safe for concurrent use if
// the publisher is, as Watermill demands.
type Sender struct {
	publisher message.Publisher
	options   SenderOptions
}

var (
	_ gobridge.Sender  = (*Sender)(nil)
	_ gobridge.Carrier = (*Sender)(nil)
)

// NewSender returns a sender to the publisher, which stays the caller's to close
// after the bridge has ended.
func NewSender(publisher message.Publisher, options SenderOptions) (*Sender, error) {
	if publisher == nil {
		return nil, errors.New("watermill sender: no publisher to send to")
	}
	return &Sender{publisher: publisher, options: options}, nil
}

// Send publishes the deliveries one by one; the engine passes one.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	out := make([]error, len(batch))
	failed := false
	for i := range batch {
		if failed {
			out[i] = gobridge.ErrNotSent
			continue
		}
		out[i] = s.send(ctx, &batch[i])
		failed = out[i] != nil
	}
	return out
}

func (s *Sender) send(ctx context.Context, d *gobridge.Delivery) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	topic, err := s.topic(&d.Envelope)
	if err != nil {
		return gobridge.Permanent(err)
	}
	m, err := newMessage(d, topic)
	if err != nil {
		return gobridge.Permanent(err)
	}
	m.SetContext(ctx)
	if err := s.publisher.Publish(topic, m); err != nil {
		err = fmt.Errorf("publish to %q: %w", topic, err)
		if s.options.Classify != nil {
			if told := s.options.Classify(err); told != nil { // no error is no delivery
				return told
			}
		}
		return err
	}
	return nil
}

// Carry refuses a message without a topic.
func (s *Sender) Carry(envelope *messaging.Envelope) error {
	_, err := s.topic(envelope)
	return err
}

func (s *Sender) topic(e *messaging.Envelope) (string, error) {
	if s.options.Topic == nil {
		if e.Subject == "" {
			return "", errors.New("no topic: the message has no subject")
		}
		return e.Subject, nil
	}
	topic, err := s.options.Topic(e)
	switch {
	case err != nil:
		return "", fmt.Errorf("no topic: %w", err)
	case topic == "":
		return "", errors.New("no topic: Topic returned an empty one")
	}
	return topic, nil
}

// newMessage makes a message of Watermill. Metadata can hold every header but
// those whose names are gobridge's own. On another topic than its subject a UUID
// could be that of a message from another topic.
func newMessage(d *gobridge.Delivery, topic string) (*message.Message, error) {
	encoded, err := protocol.Encode(d, mapping.Plain)
	if err != nil {
		return nil, err
	}
	id := d.DedupeID()
	if uuid, ok := strings.CutPrefix(id, topic+" "); ok && topic == d.Envelope.Subject && uuid != "" {
		id = uuid
	}
	m := message.NewMessage(id, encoded.Payload)
	if encoded.ContentType != "" {
		m.Metadata[contentType] = encoded.ContentType
	}
	for _, pair := range encoded.Pairs {
		// What says that the message lacks what an event beside it has is empty: here
		// is no event.
		lacking := pair.Value == "" && isOwn(pair.Name)
		if pair.Name != ownEvent && pair.Name != ownHeaders && !lacking {
			m.Metadata[pair.Name] = pair.Value
		}
	}
	var hidden []mapping.Pair
	for name, value := range d.Envelope.Headers {
		own, taken := m.Metadata[name]
		switch {
		case taken && own == value: // it stands by itself
		case taken || isOwn(name):
			hidden = append(hidden, mapping.Pair{Name: name, Value: value})
		default:
			m.Metadata[name] = value
		}
	}
	if len(hidden) > 0 {
		m.Metadata[ownHeaders] = mapping.JoinHeaders(hidden)
	}
	return m, nil
}

// isOwn reports whether a name is kept for gobridge.
func isOwn(name string) bool { return strings.HasPrefix(strings.ToLower(name), "gobridge-") }
