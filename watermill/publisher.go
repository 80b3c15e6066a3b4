package mill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// ErrClosed is the error of a [Publisher] after Close.
var ErrClosed = errors.New("publisher closed")

// PublishFunc makes messages durable in their order, all of them or an error: in a
// transaction of the caller's,
//
//	func(ctx context.Context, all ...messaging.Envelope) error {
//		return store.PublishTx(ctx, tx, route, all...)
//	}
//
// or by [Into]. A [Publisher] calls it concurrently if it is used so itself.
type PublishFunc func(ctx context.Context, envelopes ...messaging.Envelope) error

// Route is what [Into] needs of a route: the handle that a bridge gives has it.
type Route interface {
	Publish(ctx context.Context, envelopes ...messaging.Envelope) ([]gobridge.Receipt, error)
}

// Into publishes into the outbox of a route.
func Into(route Route) PublishFunc {
	return func(ctx context.Context, envelopes ...messaging.Envelope) error {
		_, err := route.Publish(ctx, envelopes...)
		return err
	}
}

// PublisherOptions configure a [Publisher]. The zero value works.
type PublisherOptions struct {
	// OrderingKey returns the ordering key of a message; its metadata says it when
	// nil. It is called concurrently.
	OrderingKey func(topic string, m *message.Message) string
}

// Publisher publishes into the outbox. It is a message.Publisher, safe for
// concurrent use.
type Publisher struct {
	publish PublishFunc
	options PublisherOptions

	// mu is held for reading while something is published.
	mu     sync.RWMutex
	closed bool
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher into the outbox.
func NewPublisher(publish PublishFunc, options PublisherOptions) (*Publisher, error) {
	if publish == nil {
		return nil, errors.New("watermill publisher: no outbox to publish into")
	}
	return &Publisher{publish: publish, options: options}, nil
}

// Publish makes the messages durable, in one call of the outbox and in their
// order; after an error that is [gobridge.ErrOutboxFull], [gobridge.ErrRejected] or
// [gobridge.ErrInvalidRecord] none of them is, and after any other, publishing them
// again under the same UUIDs is safe. It works under the context of the first
// message, and does nothing if that of any has ended.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return fmt.Errorf("publish to %q: %w", topic, ErrClosed)
	}
	if len(messages) == 0 {
		return nil
	}
	all := make([]messaging.Envelope, len(messages))
	for i, m := range messages {
		if m == nil {
			return fmt.Errorf("publish to %q: message %d of the call is nil", topic, i+1)
		}
		var err error
		if all[i], err = p.envelope(topic, m); err != nil {
			return fmt.Errorf("publish to %q: message %q: %w", topic, m.UUID, err)
		}
	}
	if err := p.publish(messages[0].Context(), all...); err != nil {
		return fmt.Errorf("publish to %q: %w", topic, err)
	}
	return nil
}

// Close waits for what is being published, and refuses more. The outbox stays
// open, and a second call does nothing.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// protocol is how messages travel in metadata: as they are.
var protocol = mapping.Protocol{CloudEvents: "ce-"}

const (
	contentType = "content-type"
	ownEvent    = "gobridge-event"
	ownHeaders  = "gobridge-headers"
)

// envelope makes a message for the outbox.
func (p *Publisher) envelope(topic string, m *message.Message) (messaging.Envelope, error) {
	if err := m.Context().Err(); err != nil {
		return messaging.Envelope{}, fmt.Errorf("its context has ended: %w", err)
	}
	if topic == "" || strings.Contains(topic, " ") {
		return messaging.Envelope{}, &gobridge.FieldError{Field: "topic", Problem: "is empty or has a space; it names the message together with the UUID"}
	}
	in := mapping.Message{Payload: m.Payload, Pairs: make([]mapping.Pair, 0, len(m.Metadata)+1)}
	for name, value := range m.Metadata {
		switch name {
		case contentType:
			in.ContentType = value
		case ownEvent: // it says nothing here
		default:
			in.Pairs = append(in.Pairs, mapping.Pair{Name: name, Value: value})
		}
	}
	in.Pairs = append(in.Pairs, mapping.Pair{Name: ownEvent, Value: mapping.EventNone}) // whatever it looks like
	e, err := protocol.Decode(in)
	if err != nil {
		return e, fmt.Errorf("%w: metadata: %w", gobridge.ErrInvalidRecord, err)
	}
	e.ID, e.Subject = "", topic
	if m.UUID != "" {
		e.ID = topic + " " + m.UUID
	}
	if p.options.OrderingKey != nil {
		e.OrderingKey = p.options.OrderingKey(topic, m)
	}
	return e, nil
}
