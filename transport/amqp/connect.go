package amqp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Connect implements [gobridge.Connector]. The permission to read is not looked
// at, for that would take messages off the queue.
func (r *Receiver) Connect(ctx context.Context) (string, error) {
	var queue amqp091.Queue
	s, err := r.conn.consuming.look(ctx, func(ch *amqp091.Channel) (err error) {
		queue, err = ch.QueueDeclarePassive(r.options.Queue, true, false, false, false, nil)
		return err
	})
	var found string
	switch {
	case err == nil:
		found = fmt.Sprintf("consumes queue %s at %s, %d messages waiting, %d consumers", r.options.Queue, s.address, queue.Messages, queue.Consumers)
	case s != nil && r.options.Declare != nil && isCode(err, amqp091.NotFound):
		found = fmt.Sprintf("declares and consumes queue %s at %s", r.options.Queue, s.address)
	default:
		return "", fmt.Errorf("consume queue %s: %w", r.options.Queue, explain(err))
	}
	absent, err := r.absent(ctx)
	if len(absent) > 0 {
		found += ", once there is what it is to be bound to: exchange " + strings.Join(absent, ", ")
	}
	return found, err
}

// absent returns the exchanges to bind the queue to that are not there. Another route
// may be about to declare them.
func (r *Receiver) absent(ctx context.Context) (names []string, err error) {
	if r.options.Declare == nil {
		return nil, nil
	}
	for _, b := range r.options.Declare.Bindings {
		_, err := r.conn.consuming.look(ctx, func(ch *amqp091.Channel) error {
			return ch.ExchangeDeclarePassive(b.Exchange, "direct", true, false, false, false, nil)
		})
		switch {
		case isCode(err, amqp091.NotFound):
			if !slices.Contains(names, b.Exchange) {
				names = append(names, b.Exchange)
			}
		case err != nil:
			return nil, fmt.Errorf("bind queue %s to exchange %s: %w", r.options.Queue, b.Exchange, explain(err))
		}
	}
	return names, nil
}

// Connect implements [gobridge.Connector]. The permission to write is not looked
// at, for that would publish.
func (s *Sender) Connect(ctx context.Context) (string, error) {
	o := &s.options
	var what string
	session, err := s.conn.publishing.look(ctx, func(ch *amqp091.Channel) error {
		switch {
		case o.ExchangeFrom != nil:
			what = "publishes to exchanges that messages name"
			return nil
		case o.Exchange != "":
			what = "publishes to exchange " + o.Exchange
			return ch.ExchangeDeclarePassive(o.Exchange, "direct", true, false, false, false, nil)
		case o.RoutingKeyFrom != nil:
			what = "publishes to queues that messages name"
			return nil
		}
		what = "publishes to queue " + o.RoutingKey
		_, err := ch.QueueDeclarePassive(o.RoutingKey, true, false, false, false, nil)
		return err
	})
	switch {
	case err == nil:
		return fmt.Sprintf("%s at %s", what, session.address), nil
	case session != nil && o.DeclareExchange != "" && isCode(err, amqp091.NotFound):
		return fmt.Sprintf("declares %s exchange %s at %s, and publishes to it", o.DeclareExchange, o.Exchange, session.address), nil
	}
	return "", fmt.Errorf("%s: %w", s.what, explain(err))
}

// look does something that changes nothing on a channel of its own.
func (l *link) look(ctx context.Context, at func(*amqp091.Channel) error) (*session, error) {
	s, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	defer s.bounded(ctx)()
	ch, err := s.amqp.Channel()
	if err != nil {
		return s, fmt.Errorf("open a channel: %w", err)
	}
	err = at(ch)
	_ = ch.Close() // if it is not closed already
	return s, err
}
