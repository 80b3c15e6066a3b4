package sqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge"
	"gobridge/internal/awsbatch"
	"gobridge/internal/pause"
	"gobridge/messaging"
)

// The defaults and bounds.
const (
	defaultReceivers  = 4
	defaultVisibility = time.Minute
	defaultPrefetch   = 1000
	minVisibility     = 3 * time.Second
	maxVisibility     = 12 * time.Hour

	// maxWait is the longest long poll (SQS API reference, ReceiveMessage).
	maxWait = 20 * time.Second
	// maxTake and maxTakeBytes bound a batch that is handed over.
	maxTake      = 500
	maxTakeBytes = 4 << 20
	// maxHandBytes bounds what is in hand, in bytes, but for what polls that are
	// under way bring.
	maxHandBytes = 16 << 20
	// lastPoll is how long a poll under way may go on at the end: one that is cut
	// off may have been given messages already, which nobody sees until their
	// visibility timeout is over. It is also how long SQS is given to notice.
	lastPoll = 500 * time.Millisecond

	minPollWait = 100 * time.Millisecond
	maxPollWait = 20 * time.Second
)

// ReceiverOptions configure a [Receiver]. Queue is required.
type ReceiverOptions struct {
	// Queue is the queue's name, URL or ARN.
	Queue string
	// Receivers is how many long polls are under way at a time; 4 when zero.
	Receivers int
	// Visibility is the visibility timeout of what is received, in whole seconds; a
	// minute when zero. It is extended for as long as a message is in hand.
	Visibility time.Duration
	// Prefetch is how many messages are in hand at most, though never fewer than ten
	// for each receiver; 1,000 when zero.
	Prefetch int
	// KeepEnvelopes keeps notifications of SNS as they come; otherwise what is in
	// them is the message.
	KeepEnvelopes bool
}

// Receiver takes messages off a queue. Any number of processes may take off one:
// SQS keeps the order of a group among them.
type Receiver struct {
	conn    *Connection
	options ReceiverOptions
	queue   queueName
}

// Receiver makes a receiver.
func (c *Connection) Receiver(options ReceiverOptions) (*Receiver, error) {
	r := &Receiver{conn: c, options: options}
	var err error
	if r.queue, err = parseQueue(options.Queue, c.config.Region); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	o := &r.options
	if o.Receivers == 0 {
		o.Receivers = defaultReceivers
	}
	if o.Visibility == 0 {
		o.Visibility = defaultVisibility
	}
	if o.Prefetch == 0 {
		o.Prefetch = defaultPrefetch
	}
	switch {
	case o.Visibility < minVisibility || o.Visibility > maxVisibility || o.Visibility%time.Second != 0:
		return nil, fmt.Errorf("sqs: visibility timeout %s; it is 3s to 12h, in whole seconds", o.Visibility)
	case o.Receivers < 0 || o.Prefetch < 0:
		return nil, errors.New("sqs: fewer than no receivers, or less than nothing in hand")
	}
	o.Prefetch = max(o.Prefetch, awsbatch.MaxEntries*o.Receivers)
	return r, nil
}

// wait is how long a long poll lasts: well below the visibility timeout, which
// counts from its beginning here, for nobody knows when SQS gave the messages out.
func (r *Receiver) wait() time.Duration {
	return min(maxWait, (r.options.Visibility / 3).Truncate(time.Second))
}

// run is one run of a receiver.
type run struct {
	*Receiver
	log    *slog.Logger
	hand   *hand
	gate   *gate
	gained chan *parcel // received
	kept   chan *parcel // durable, to be deleted
	cut    atomic.Bool  // a poll was cut off
	failed atomic.Int32 // how many pollers failed the last time
	// undeleted is how many messages are durable and were not deleted before the end.
	undeleted atomic.Int64
}

// Receive hands over what the queue has until ctx ends.
func (r *Receiver) Receive(ctx context.Context, take gobridge.Take) error {
	calls, stop := context.WithCancel(context.WithoutCancel(ctx)) // of what goes on after the end
	defer stop()
	ctx, end := context.WithCancel(ctx)
	defer end()
	n := &run{
		Receiver: r,
		log:      r.conn.log.With("queue", r.queue.String()),
		hand:     newHand(r.options.Visibility, r.queue.fifo()),
		gate:     newGate(r.options.Prefetch, maxHandBytes),
		gained:   make(chan *parcel, r.options.Prefetch),
		kept:     make(chan *parcel, r.options.Prefetch),
	}
	var polls, keeper, deletes sync.WaitGroup
	for range r.options.Receivers {
		polls.Go(func() { n.poll(ctx, calls) })
	}
	keeping, stopKeeping := context.WithCancel(calls)
	keeper.Go(func() { n.keep(keeping) })
	deleting, stopDeleting := context.WithCancel(calls)
	defer stopDeleting()
	defer context.AfterFunc(ctx, func() {
		if pause.For(deleting, lastCalls) {
			stopDeleting()
		}
	})()
	for range maxDeletes {
		deletes.Go(func() { n.delete(deleting) })
	}
	err := n.takeAll(ctx, take)
	end()
	polls.Wait()
	close(n.kept)
	deletes.Wait()
	n.sayUndeleted()
	stopKeeping()
	keeper.Wait()
	n.giveBack(calls)
	return err
}

// poll receives until ctx ends.
func (n *run) poll(ctx, calls context.Context) {
	failures := 0
	attempt := messaging.NewID()
	for n.gate.enter(ctx) {
		p, err := n.receive(ctx, calls, attempt)
		if p == nil {
			n.gate.leave(awsbatch.MaxEntries, 0)
		} else {
			n.gate.settle(awsbatch.MaxEntries-len(p.messages), p.bytes)
			n.hand.add(p)
			n.gained <- p // it has room for all that the gate lets in
		}
		switch {
		case err == nil:
			if failures > 0 && n.failed.Add(-1) == 0 {
				n.log.Info("the queue can be received from again")
			}
			failures, attempt = 0, messaging.NewID()
		case ctx.Err() != nil:
			return
		default:
			if failures == 0 && n.failed.Add(1) == 1 {
				n.log.Warn("the queue cannot be received from; it is tried again", "error", err)
			}
			pause.For(ctx, pause.Backoff(failures, minPollWait, maxPollWait))
			failures++
		}
	}
}

// receive makes one long poll. Without messages there is no parcel. A poll of a FIFO
// queue that is repeated under the same attempt gets the same messages, which would
// lie idle otherwise, and their group with them.
func (n *run) receive(ctx, calls context.Context, attempt string) (*parcel, error) {
	polling, stop := context.WithCancel(calls)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		if pause.For(polling, lastPoll) {
			n.cut.Store(true)
			stop()
		}
	})()
	url, err := n.conn.resolve(polling, n.queue)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(polling, n.wait()+callTime)
	defer cancel()
	in := &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: awsbatch.MaxEntries, WaitTimeSeconds: int32(n.wait().Seconds()),
		VisibilityTimeout:           int32(n.options.Visibility.Seconds()),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	if n.queue.fifo() {
		in.ReceiveRequestAttemptId = &attempt
	}
	began := time.Now()
	out, err := n.conn.client.ReceiveMessage(limited, in)
	if err != nil {
		n.conn.missing(n.queue, err)
		return nil, err
	}
	if len(out.Messages) == 0 {
		return nil, nil
	}
	p := &parcel{expires: began.Add(n.options.Visibility)}
	for i := range out.Messages {
		m := &out.Messages[i]
		in := n.incoming(m)
		p.bytes += int64(gobridge.EnvelopeSize(&in.Envelope))
		p.messages = append(p.messages, in)
		p.handles = append(p.handles, aws.ToString(m.ReceiptHandle))
	}
	return p, nil
}

// takeAll hands over until ctx ends. Its error says that take broke its word.
func (n *run) takeAll(ctx context.Context, take gobridge.Take) error {
	for {
		batch := n.gather(ctx)
		if batch == nil {
			return nil
		}
		for len(batch) > 0 {
			if batch = n.alive(batch); len(batch) == 0 {
				break
			}
			taking, cancel := context.WithCancelCause(ctx)
			n.hand.watch(batch, cancel)
			err := take(taking, incoming(batch))
			lost := context.Cause(taking)
			cancel(nil)
			switch {
			case err == nil:
				n.hand.durable(batch)
				for _, p := range batch {
					n.kept <- p
				}
				batch = nil
			case ctx.Err() != nil:
				return nil //nolint:nilerr // the end is no error
			case !errors.Is(lost, errLost):
				return err
			default:
				n.log.Warn("messages could not be kept invisible while the outbox was waited for; others may take them now")
			}
		}
	}
}

// gather waits for something to hand over and adds what else there is. It returns
// nil when ctx has ended.
func (n *run) gather(ctx context.Context) []*parcel {
	var batch []*parcel
	count, bytes := 0, int64(0)
	add := func(p *parcel) {
		batch = append(batch, p)
		count += len(p.messages)
		bytes += p.bytes
	}
	select {
	case <-ctx.Done():
		return nil
	case p := <-n.gained:
		add(p)
	}
	for count < maxTake && bytes < maxTakeBytes {
		select {
		case p := <-n.gained:
			add(p)
			continue
		default:
		}
		break
	}
	if ctx.Err() != nil {
		return nil
	}
	return batch
}

// alive drops parcels that others may have by now, for their order would be broken.
func (n *run) alive(batch []*parcel) []*parcel {
	var out []*parcel
	for _, p := range batch {
		if n.hand.usable(p) {
			out = append(out, p)
		} else {
			n.drop(p)
		}
	}
	return out
}

// drop lets go of a parcel.
func (n *run) drop(p *parcel) {
	n.hand.remove(p)
	n.gate.leave(len(p.messages), p.bytes)
}

func incoming(batch []*parcel) []gobridge.Incoming {
	var out []gobridge.Incoming
	for _, p := range batch {
		out = append(out, p.messages...)
	}
	return out
}
