package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
	"gobridge/internal/pause"
)

// What one take gets at most, and the prefetch when none is set.
const (
	maxBatch        = 500
	maxBatchBytes   = 4 << 20
	defaultPrefetch = 1000
	maxPrefetch     = 65535
)

// slowAnswer is after what time a server that does not answer is spoken of, remind
// how often the same failure is.
const (
	slowAnswer = 15 * time.Second
	remind     = time.Minute
)

// ReceiverOptions configure a [Receiver]. Queue is required.
type ReceiverOptions struct {
	// Queue is the queue to consume.
	Queue string

	// Prefetch is how many messages may be delivered and not acknowledged; 1,000
	// when zero. The server knows no bound in bytes. In a quorum queue that is not
	// empty, a smaller number than before endangers the order (package comment).
	Prefetch int

	// Shared lets several processes consume at a time. The queue spreads its messages
	// over them, and their order is lost.
	Shared bool

	// Dedupe says what names a message.
	Dedupe Dedupe

	// Declare, unless nil, makes the queue and its bindings if they are not there.
	Declare *Queue

	// Logger, unless nil, is told when consuming ends and begins again.
	Logger *slog.Logger
}

// Receiver consumes a queue.
type Receiver struct {
	conn    *Connection
	options ReceiverOptions
	log     *slog.Logger
	queue   bool // it has been seen to deliver again, as no stream does
}

var (
	_ gobridge.Solo      = (*Receiver)(nil)
	_ gobridge.Connector = (*Receiver)(nil)
)

// Receiver returns a receiver, or says what is wrong with the options.
func (c *Connection) Receiver(o ReceiverOptions) (*Receiver, error) {
	if o.Prefetch == 0 {
		o.Prefetch = defaultPrefetch
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Queue == "" {
		return nil, errors.New("amqp: no queue")
	}
	if err := short("queue", o.Queue); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	if o.Prefetch < 0 || o.Prefetch > maxPrefetch {
		return nil, fmt.Errorf("amqp: prefetch %d: want 1 to %d", o.Prefetch, maxPrefetch)
	}
	if o.Declare != nil {
		if err := o.Declare.check(); err != nil {
			return nil, fmt.Errorf("amqp: declare queue %s: %w", o.Queue, err)
		}
	}
	return &Receiver{conn: c, options: o, log: o.Logger.With("queue", o.Queue)}, nil
}

// Solo reports whether one process at a time may consume.
func (r *Receiver) Solo() bool { return !r.options.Shared }

// Receive implements [gobridge.Receiver].
func (r *Receiver) Receive(ctx context.Context, take gobridge.Take) error {
	var said string
	var saidAt time.Time
	for failures := 0; ; failures++ {
		taken, err := r.consume(ctx, take)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		if errors.Is(err, errClosed) && r.conn.ctx.Err() != nil {
			return err
		}
		if taken {
			failures = 0
		}
		wait := pause.Backoff(failures, minRetryWait, maxRetryWait)
		if why := err.Error(); why != said || time.Since(saidAt) > remind {
			said, saidAt = why, time.Now()
			r.log.Warn("the queue is not consumed; it is tried again", "error", why, "in", wait)
		}
		if !pause.For(ctx, wait) {
			return nil
		}
	}
}

// arrival is a delivery on its way to take.
type arrival struct {
	message gobridge.Incoming
	tag     uint64
}

// consume consumes until ctx or the consumer ends, and reports whether it took
// anything.
func (r *Receiver) consume(ctx context.Context, take gobridge.Take) (taken bool, err error) {
	s, err := r.conn.consuming.get(ctx)
	if err != nil {
		return false, err
	}
	defer s.bounded(ctx)()
	ch, err := s.amqp.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", explain(err))
	}
	closes := ch.NotifyClose(make(chan *amqp091.Error, 1))
	deliveries, err := r.open(s, ch)
	if err != nil {
		_ = ch.Close() // most often it is closed already
		return false, err
	}
	arrivals := make(chan arrival, r.options.Prefetch)
	pumped := make(chan error, 1)
	go func() {
		err := r.pump(deliveries, arrivals)
		for range deliveries { // so that the library's goroutine ends
		}
		pumped <- err
	}()
	taken, err = r.takeAll(ctx, ch, arrivals, take)
	// What is not acknowledged goes back to the queue with this. It ends
	// when the server has read all acknowledgements, or the connection is dead.
	_ = ch.Close()
	for range arrivals { // so that the pump ends
	}
	if refused := <-pumped; refused != nil {
		err = refused
	}
	if err == nil {
		err = explain(closure(closes))
	}
	return taken, err
}

// pump makes messages of deliveries, until they end or one has come from a stream.
func (r *Receiver) pump(deliveries <-chan amqp091.Delivery, arrivals chan<- arrival) error {
	defer close(arrivals)
	for d := range deliveries {
		r.queue = r.queue || d.Redelivered
		// Other messages may have such a header too, and come again after this.
		if _, offset := d.Headers[streamOffset].(int64); offset && !r.queue {
			return fmt.Errorf("queue %s gives its messages offsets (%s), as a stream does: a stream keeps no place for a consumer, and messages would be lost; consume a queue that gets the same messages",
				r.options.Queue, streamOffset)
		}
		// There is room for as many as the server delivers without an answer.
		arrivals <- arrival{message: incoming(&d, r.options.Dedupe), tag: d.DeliveryTag}
	}
	return nil
}

// open consumes on a channel.
func (r *Receiver) open(s *session, ch *amqp091.Channel) (<-chan amqp091.Delivery, error) {
	// A queue without a leader leaves questions open until it has one.
	defer time.AfterFunc(slowAnswer, func() {
		r.log.Warn("the broker has not answered yet; the queue may have no leader", "address", s.address, "after", slowAnswer)
	}).Stop()
	if r.options.Declare != nil {
		if err := declareQueue(ch, r.options.Queue, r.options.Declare); err != nil {
			return nil, err
		}
	}
	if err := r.alone(ch); err != nil {
		return nil, err
	}
	if err := ch.Qos(r.options.Prefetch, 0, false); err != nil {
		return nil, fmt.Errorf("set the prefetch: %w", explain(err))
	}
	deliveries, err := ch.Consume(r.options.Queue, "gobridge", false, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("consume queue %s: %w", r.options.Queue, explain(err))
	}
	r.log.Info("consuming", "address", s.address)
	return deliveries, nil
}

// alone returns an error if the queue has another consumer and is not shared. It may
// be one of ours whose connection is dead and which the server does not know to be:
// what that one holds goes back to its place when it goes, and nothing may be taken
// from behind it.
func (r *Receiver) alone(ch *amqp091.Channel) error {
	if r.options.Shared {
		return nil
	}
	state, err := ch.QueueDeclarePassive(r.options.Queue, true, false, false, false, nil)
	switch {
	case err != nil:
		return fmt.Errorf("consume queue %s: %w", r.options.Queue, explain(err))
	case state.Consumers > 0:
		return fmt.Errorf("queue %s has %d other consumers, which would break its order; a connection that is dead goes after two heartbeats, and a queue for several consumers needs shared",
			r.options.Queue, state.Consumers)
	}
	return nil
}

// takeAll takes and acknowledges until ctx or the arrivals end.
func (r *Receiver) takeAll(ctx context.Context, ch *amqp091.Channel, arrivals <-chan arrival, take gobridge.Take) (taken bool, err error) {
	var batch []gobridge.Incoming
	for {
		var last uint64
		batch, last = gather(ctx, arrivals, batch[:0])
		switch {
		case ctx.Err() != nil:
			return taken, context.Cause(ctx)
		case ch.IsClosed(): // its listener knows why; what is here comes again
			return taken, nil
		case len(batch) == 0:
			return taken, errCancelled
		}
		if err := take(ctx, batch); err != nil {
			return taken, fmt.Errorf("take: %w", err)
		}
		taken = true
		// The channel has this consumer only, and all before these are acknowledged.
		if err := ch.Ack(last, true); err != nil {
			return taken, nil //nolint:nilerr // it is closed, and its listener knows why
		}
		clear(batch)
	}
}

// errCancelled: the server ended the consumer, and nothing else.
var errCancelled = errors.New("the server cancelled the consumer, as it does when the queue is deleted or its node is lost")

// gather waits for an arrival and adds what else is there. It returns nothing when
// ctx has ended or no more will come.
func gather(ctx context.Context, arrivals <-chan arrival, batch []gobridge.Incoming) ([]gobridge.Incoming, uint64) {
	var last uint64
	bytes := 0
	add := func(a arrival) {
		batch, last = append(batch, a.message), a.tag
		bytes += gobridge.EnvelopeSize(&a.message.Envelope)
	}
	select {
	case a, ok := <-arrivals:
		if !ok {
			return nil, 0
		}
		add(a)
	case <-ctx.Done():
		return nil, 0
	}
	for len(batch) < maxBatch && bytes < maxBatchBytes {
		select {
		case a, ok := <-arrivals:
			if !ok {
				return batch, last
			}
			add(a)
		default:
			return batch, last
		}
	}
	return batch, last
}
