package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
	"gobridge/internal/pause"
)

// defaultAckWait is short: after a break, what was on its way to the old connection
// is delivered again only when it has passed, by servers that can't be asked to.
const defaultAckWait = 10 * time.Second

// ReceiverOptions configure a [Receiver]. Stream and Consumer are required.
type ReceiverOptions struct {
	// Stream is the stream's name, Consumer that of its durable pull consumer.
	Stream, Consumer string

	// Declare makes the consumer if it is not there: explicit acknowledgement, no
	// end of redeliveries, at most 1,000 messages not acknowledged, and what follows.
	// One that is there is left as it is. The stream is never made.
	Declare bool
	// Subjects are those of the stream that are consumed, wildcards included; all
	// when empty. A consumer that is there must have the same.
	Subjects []string
	// Start is where a consumer that is made begins: "all" (or empty) with the first
	// message of the stream, "new" with the next.
	Start string
	// AckWait is the consumer's; 10 s when zero.
	AckWait time.Duration

	// Shared lets several processes consume side by side. Messages have no order
	// then.
	Shared bool

	// Logger is told of trouble; nil for nobody.
	Logger *slog.Logger
}

// Receiver takes messages from a stream. Its methods may be called by one goroutine
// at a time.
type Receiver struct {
	conn    *Connection
	options ReceiverOptions
	log     *slog.Logger

	mu sync.Mutex
	at position
}

// Receiver makes a receiver, or says what is wrong with the options.
func (c *Connection) Receiver(options ReceiverOptions) (*Receiver, error) {
	if err := checkName("stream", options.Stream, false); err != nil {
		return nil, err
	}
	if err := checkName("consumer", options.Consumer, false); err != nil {
		return nil, err
	}
	for _, s := range options.Subjects {
		if err := checkFilter(s); err != nil {
			return nil, fmt.Errorf("nats: subject %w", err)
		}
	}
	switch options.Start {
	case "":
		options.Start = startAll
	case startAll, startNew:
	default:
		return nil, fmt.Errorf("nats: start %q; it is all or new", options.Start)
	}
	if options.AckWait == 0 {
		options.AckWait = defaultAckWait
	}
	if options.AckWait < 100*time.Millisecond {
		return nil, errors.New("nats: ack_wait is below 100ms")
	}
	r := &Receiver{conn: c, options: options, log: options.Logger}
	if r.log == nil {
		r.log = c.log
	}
	return r, nil
}

// Solo reports whether one process at a time may receive: with several there is no
// order.
func (r *Receiver) Solo() bool { return !r.options.Shared }

// Receive hands over what the stream delivers, as the port says.
func (r *Receiver) Receive(ctx context.Context, take gobridge.Take) error {
	in := newIntake(ctx, r, take)
	wait := minWait
	for ctx.Err() == nil {
		began := time.Now()
		l, err := r.conn.await(ctx)
		if err == nil {
			err = in.session(ctx, l)
		}
		var lasting *cannotError
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &lasting) || errors.Is(err, errClosed):
			in.end()
			return err
		default:
			if time.Since(began) > time.Second {
				wait = minWait
			}
			r.log.Warn("the stream is taken up again", "stream", r.options.Stream, "consumer", r.options.Consumer, "error", err)
			pause.For(ctx, wait)
			wait = min(2*wait, maxWait)
		}
	}
	in.end()
	return nil
}

// cannotError says that it is of no use to go on before something has changed.
type cannotError struct{ err error }

func (e *cannotError) Error() string { return e.err.Error() }
func (e *cannotError) Unwrap() error { return e.err }

// nextSubject is where the consumer is asked for messages (NATS ADR-13).
func (r *Receiver) nextSubject() string {
	prefix := "$JS.API."
	if domain := r.conn.options.Domain; domain != "" {
		prefix = "$JS." + domain + ".API."
	}
	return prefix + "CONSUMER.MSG.NEXT." + r.options.Stream + "." + r.options.Consumer
}

func (r *Receiver) position() position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// seen remembers the stream that is consumed, and forgets the place in one that was
// made again, or that has lost its end.
func (r *Receiver) seen(made time.Time, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.made.Equal(made) || r.at.seq > last {
		r.at = position{made: made}
	}
}

// back goes back to a place from which the stream has other messages now.
func (r *Receiver) back(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at.seq = min(r.at.seq, seq)
}

// reached remembers how far the outbox has it.
func (r *Receiver) reached(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at.seq = max(r.at.seq, seq)
}

// Connect looks for the stream and the consumer.
func (r *Receiver) Connect(ctx context.Context) (string, error) {
	l, err := r.conn.get(ctx)
	if err != nil {
		return "", err
	}
	o := &r.options
	server := l.nc.ConnectedUrlRedacted()
	consumer, err := r.consumer(ctx, l, false)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && o.Declare {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		ctx, stop := l.api(ctx)
		defer stop()
		stream, err := l.js.Stream(ctx, o.Stream)
		if err != nil {
			return "", r.missing(ctx, err)
		}
		return fmt.Sprintf("makes consumer %s of stream %s at %s, which has %d messages, and consumes it",
			o.Consumer, o.Stream, server, stream.CachedInfo().State.Msgs), nil
	}
	if err != nil {
		return "", err
	}
	info := consumer.CachedInfo()
	return fmt.Sprintf("consumes stream %s by consumer %s at %s, %d messages waiting",
		o.Stream, o.Consumer, server, info.NumPending+uint64(max(info.NumAckPending, 0))), nil
}
