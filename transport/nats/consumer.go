package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// askTime bounds a request to the API of JetStream.
const askTime = 5 * time.Second

// Starts of a consumer that is made.
const (
	startAll = "all"
	startNew = "new"
)

// position is how far a receiver has got in a stream.
type position struct {
	made time.Time // when the stream was
	seq  uint64    // up to which the outbox has it
}

// consumer looks the consumer up, makes it if it is told to, and says what keeps it
// from being used.
func (r *Receiver) consumer(ctx context.Context, l *link, mayMake bool) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer in %s", askTime))
	defer cancel()
	ctx, stop := l.api(ctx)
	defer stop()
	consumer, err := l.js.Consumer(ctx, r.options.Stream, r.options.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && r.options.Declare && mayMake {
		consumer, err = r.declare(ctx, l)
	}
	if err != nil {
		return nil, r.missing(ctx, err)
	}
	if err := r.usable(&consumer.CachedInfo().Config); err != nil {
		return nil, &cannotError{err}
	}
	return consumer, nil
}

// missing says what is not there.
func (r *Receiver) missing(ctx context.Context, err error) error {
	o := &r.options
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &cannotError{fmt.Errorf("there is no stream %s", o.Stream)}
	case errors.Is(err, jetstream.ErrConsumerNotFound) && o.Declare:
		return &cannotError{fmt.Errorf("%w: stream %s has no consumer %s yet", jetstream.ErrConsumerNotFound, o.Stream, o.Consumer)}
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return &cannotError{fmt.Errorf("%w: stream %s has no consumer %s; make it, or set declare: true",
			jetstream.ErrConsumerNotFound, o.Stream, o.Consumer)}
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return fmt.Errorf("consumer %s of stream %s: %w", o.Consumer, o.Stream, err)
}

// declare makes the consumer. One that was lost while this receiver was at work
// goes on where it was.
func (r *Receiver) declare(ctx context.Context, l *link) (jetstream.Consumer, error) {
	o := &r.options
	config := jetstream.ConsumerConfig{
		Durable:       o.Consumer,
		Description:   "made by gobridge",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       o.AckWait,
		MaxDeliver:    -1,
		MaxAckPending: 2 * maxBatch,
	}
	switch len(o.Subjects) {
	case 0:
	case 1:
		config.FilterSubject = o.Subjects[0]
	default:
		config.FilterSubjects = o.Subjects
	}
	stream, err := l.js.Stream(ctx, o.Stream)
	if err != nil {
		return nil, err
	}
	made := stream.CachedInfo().Created
	switch at := r.position(); {
	case at.made.Equal(made) && at.seq > 0 && !o.Shared:
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, at.seq+1
	case !at.made.IsZero(): // a stream made anew, or one of which others may have lost something
	case o.Start == startNew:
		config.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	consumer, err := stream.CreateConsumer(ctx, config)
	if err != nil {
		return nil, err
	}
	r.log.Info("made the consumer", "stream", o.Stream, "consumer", o.Consumer, "start_seq", config.OptStartSeq)
	return consumer, nil
}

// usable says what is wrong with a consumer.
func (r *Receiver) usable(c *jetstream.ConsumerConfig) error {
	var wrong []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	add(c.DeliverSubject != "", "it is a push consumer; a pull consumer is needed")
	add(c.AckPolicy != jetstream.AckExplicitPolicy, "its ack_policy is not explicit")
	add(c.MaxDeliver > 0, "its max_deliver is %d, after which the server drops a message; -1 is needed", c.MaxDeliver)
	add(c.HeadersOnly, "it delivers headers only")
	add(c.PriorityPolicy != jetstream.PriorityPolicyNone, "it has priority groups")
	if want := r.options.Subjects; len(want) > 0 {
		have := c.FilterSubjects
		if c.FilterSubject != "" {
			have = []string{c.FilterSubject}
		}
		add(!sameSet(have, want), "it takes [%s], and subjects is [%s]; change one of them", strings.Join(have, " "), strings.Join(want, " "))
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("consumer %s of stream %s cannot be used: %s", r.options.Consumer, r.options.Stream, strings.Join(wrong, "; "))
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// ackWait returns after what time without a word the server delivers a message again.
func ackWait(c *jetstream.ConsumerConfig) time.Duration {
	wait := c.AckWait
	for _, b := range c.BackOff {
		wait = min(wait, b)
	}
	return max(wait, 100*time.Millisecond)
}

// longestWait is the longest that a message without a word may take to come again.
func longestWait(c *jetstream.ConsumerConfig) time.Duration {
	wait := c.AckWait
	for _, b := range c.BackOff {
		wait = max(wait, b)
	}
	return wait
}
