package amqp

import (
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Queue says how a receiver declares its queue, and what it binds it to.
type Queue struct {
	// Classic makes a classic queue instead of a quorum queue.
	Classic bool
	// AllActive leaves out x-single-active-consumer, by which RabbitMQ hands the
	// messages to one consumer at a time.
	AllActive bool
	Bindings  []Binding
}

// Binding binds a queue to an exchange, which has to be there.
type Binding struct{ Exchange, RoutingKey string }

func (q *Queue) arguments() amqp091.Table {
	out := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
	if q.Classic {
		out[amqp091.QueueTypeArg] = amqp091.QueueTypeClassic
	}
	if !q.AllActive {
		out[amqp091.SingleActiveConsumerArg] = true
	}
	return out
}

func (q *Queue) check() error {
	for i, b := range q.Bindings {
		if b.Exchange == "" {
			return fmt.Errorf("binding %d: no exchange; to the default exchange every queue is bound already", i+1)
		}
		if err := short("exchange", b.Exchange); err != nil {
			return fmt.Errorf("binding %d: %w", i+1, err)
		}
		if err := short("routing key", b.RoutingKey); err != nil {
			return fmt.Errorf("binding %d: %w", i+1, err)
		}
	}
	return nil
}

// declareQueue makes a durable queue and its bindings, unless they are there.
func declareQueue(ch *amqp091.Channel, name string, q *Queue) error {
	if _, err := ch.QueueDeclare(name, true, false, false, false, q.arguments()); err != nil {
		return fmt.Errorf("declare queue %s: %w", name, explain(err))
	}
	for _, b := range q.Bindings {
		if err := ch.QueueBind(name, b.RoutingKey, b.Exchange, false, nil); err != nil {
			return fmt.Errorf("bind queue %s to exchange %s by %q: %w", name, b.Exchange, b.RoutingKey, explain(err))
		}
	}
	return nil
}
