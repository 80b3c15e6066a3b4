package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// The bounds of a batch, and the largest payload when none is set: RabbitMQ's own.
const (
	batchRecords          = 100
	batchBytes            = 4 << 20
	defaultMaxMessageSize = 128 << 20
)

// Text gives a text for a message.
type Text func(*messaging.Envelope) (string, error)

// SenderOptions configure a [Sender].
type SenderOptions struct {
	// Exchange is where to publish to: the default exchange when empty, which routes
	// to the queue that the routing key names. ExchangeFrom, unless nil, gives it for
	// each message instead.
	Exchange     string
	ExchangeFrom Text

	// RoutingKey goes with every message. RoutingKeyFrom, unless nil, gives it for
	// each instead.
	RoutingKey     string
	RoutingKeyFrom Text

	// Headers are further headers, by name. An empty one is left out.
	Headers map[string]Text

	// Format says whether messages go out as CloudEvents.
	Format mapping.Format

	// DropUnroutable takes a message for delivered that no queue gets: the flag
	// mandatory is not set.
	DropUnroutable bool

	// MaxMessageSize is the largest payload that the broker takes, in bytes; 128 MiB
	// when zero.
	MaxMessageSize int64

	// DeclareExchange, unless empty, is the type of the exchange, which is made, and
	// durable, if it is not there: topic, direct, fanout or headers.
	DeclareExchange string

	// Logger, unless nil, is told of publishes that a broker does not answer.
	Logger *slog.Logger
}

// Sender publishes to an exchange.
type Sender struct {
	conn    *Connection
	options SenderOptions
	log     *slog.Logger
	what    string // for messages
	chosen  bool   // each message has an exchange or routing key of its own

	// lingering are sends that have been answered and may still be under way.
	lingering atomic.Int64
}

var (
	_ gobridge.BatchSender = (*Sender)(nil)
	_ gobridge.Carrier     = (*Sender)(nil)
	_ gobridge.Connector   = (*Sender)(nil)
)

// Sender returns a sender, or says what is wrong with the options.
func (c *Connection) Sender(o SenderOptions) (*Sender, error) {
	if o.MaxMessageSize == 0 {
		o.MaxMessageSize = defaultMaxMessageSize
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	s := &Sender{conn: c, options: o, log: o.Logger, chosen: o.ExchangeFrom != nil || o.RoutingKeyFrom != nil}
	switch {
	case o.ExchangeFrom != nil:
		s.what = "publish"
	case o.Exchange != "":
		s.what = "publish to exchange " + o.Exchange
	case o.RoutingKeyFrom == nil:
		s.what = "publish to queue " + o.RoutingKey
	default:
		s.what = "publish to the default exchange"
	}
	return s, nil
}

func (o *SenderOptions) check() error {
	if err := errors.Join(short("exchange", o.Exchange), short("routing key", o.RoutingKey)); err != nil {
		return err
	}
	for name := range o.Headers {
		if !carries(name, "") || strings.HasPrefix(strings.ToLower(name), "gobridge-") || name == "" {
			return fmt.Errorf("header %q can't be set: the name is kept for what RabbitMQ or gobridge say with it", name)
		}
	}
	switch o.DeclareExchange {
	case "", "topic", "direct", "fanout", "headers":
	default:
		return fmt.Errorf("exchange type %q: want topic, direct, fanout or headers", o.DeclareExchange)
	}
	switch {
	case o.MaxMessageSize < 0:
		return errors.New("the largest message can't be negative")
	case o.Exchange != "" && o.ExchangeFrom != nil || o.RoutingKey != "" && o.RoutingKeyFrom != nil:
		return errors.New("an exchange or a routing key both fixed and from the message; give one of them")
	case o.DeclareExchange != "" && o.Exchange == "":
		return errors.New("an exchange can be declared only if it has a fixed name")
	case o.Exchange == "" && o.ExchangeFrom == nil && o.RoutingKey == "" && o.RoutingKeyFrom == nil:
		return errors.New("neither an exchange nor a queue to publish to")
	}
	return nil
}

// BatchLimits implements [gobridge.BatchSender]. A broker that refuses a message, or
// returns it, takes later ones of the same channel all the same: so a batch has one
// record of a key.
func (s *Sender) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: batchRecords, MaxBytes: batchBytes, OnePerKey: true}
}

// Send publishes the deliveries, all at once, and answers when each is confirmed.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	f := &flight{sender: s, errs: make([]error, len(batch)), done: make(chan struct{})}
	for i := range batch {
		o, err := s.outgoing(&batch[i])
		if err != nil {
			f.errs[i] = gobridge.Permanent(fmt.Errorf("%s: %w", s.what, err))
			continue
		}
		o.index = i
		o.own()
		f.errs[i] = errPending
		f.messages = append(f.messages, o)
	}
	if len(f.messages) == 0 {
		return f.errs
	}
	if s.lingering.Load() > 0 {
		f.fail(f.messages, gobridge.Unavailable(fmt.Errorf(
			"%s: the broker has not answered an earlier publish, which must not overtake this one", s.what)))
		return f.errs
	}
	if err := ctx.Err(); err != nil {
		f.fail(f.messages, fmt.Errorf("%s: %w", s.what, err))
		return f.errs
	}
	if !s.conn.start(func() { f.run(ctx) }) {
		f.fail(f.messages, gobridge.Unavailable(errClosed))
		return f.errs
	}
	select {
	case <-f.done:
		return f.errs
	case <-ctx.Done():
	}
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-f.done:
		return f.errs
	case <-timer.C:
		return f.abandon(ctx)
	}
}

// outcome says what an answer means for the messages that it left without one.
func (s *Sender) outcome(err error) error {
	return outcome(err, s.options.ExchangeFrom != nil, s.chosen)
}
