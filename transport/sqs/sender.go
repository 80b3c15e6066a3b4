package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge"
	"gobridge/internal/awsclient"
	"gobridge/internal/awsmessage"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// maxEntries is how many messages a batch has (SQS API reference, SendMessageBatch).
const maxEntries = 10

// SenderOptions configure a [Sender]. Queue or QueueFrom is required.
type SenderOptions struct {
	// Queue is the queue's name, URL or ARN.
	Queue string
	// QueueFrom gives the queue of a message.
	QueueFrom func(*messaging.Envelope) (string, error)
	// Format is "plain", the default, or "cloudevents_structured".
	Format string
	// Attributes are further attributes, by name; an empty value is left out. There
	// are six at most.
	Attributes map[string]func(*messaging.Envelope) (string, error)
	// Fair sends the ordering key as message group to a standard queue too, which
	// is fair among groups then. It keeps no order.
	Fair bool
}

// Sender sends to queues. Batches of ten have one message of a key: a queue may take
// a later message though an earlier one failed.
type Sender struct {
	conn    *Connection
	options SenderOptions
	encoder awsmessage.Encoder
	queue   queueName // unless QueueFrom is set
}

// Sender makes a sender.
func (c *Connection) Sender(options SenderOptions) (*Sender, error) {
	s := &Sender{conn: c, options: options}
	format, err := mapping.ParseFormat(options.Format)
	if err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	s.encoder = awsmessage.Encoder{Format: format, Attributes: options.Attributes}
	if err := s.encoder.Check(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	switch {
	case (options.Queue == "") == (options.QueueFrom == nil):
		return nil, errors.New("sqs: give a queue, or an expression for one")
	case options.QueueFrom == nil:
		if s.queue, err = parseQueue(options.Queue, c.config.Region); err != nil {
			return nil, fmt.Errorf("sqs: %w", err)
		}
	}
	return s, nil
}

// BatchLimits is what SendMessageBatch takes.
func (s *Sender) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: maxEntries, MaxBytes: awsmessage.MaxSize, OnePerKey: true}
}

// Carry says what speaks against a message: its size, an expression that fails.
func (s *Sender) Carry(e *messaging.Envelope) error {
	d := awsmessage.Longest(e)
	_, err := s.prepare(&d)
	return err
}

// outgoing is a delivery as an entry of a batch.
type outgoing struct {
	queue queueName
	entry types.SendMessageBatchRequestEntry
	size  int
	at    int // in the batch
}

// prepare makes the entry of a delivery. Its error says that there never will be one.
func (s *Sender) prepare(d *gobridge.Delivery) (outgoing, error) {
	out := outgoing{queue: s.queue}
	if s.options.QueueFrom != nil {
		name, err := s.options.QueueFrom(&d.Envelope)
		if err == nil {
			out.queue, err = parseQueue(name, s.conn.config.Region)
		}
		if err != nil {
			return out, fmt.Errorf("queue_from: %w", err)
		}
	}
	m, err := s.encoder.Encode(d)
	if err != nil {
		return out, err
	}
	if out.size = m.Size(); out.size > awsmessage.MaxSize {
		return out, fmt.Errorf("the message has %d bytes with its attributes (payload %d, body %d); SQS takes %d",
			out.size, len(d.Envelope.Payload), len(m.Body), awsmessage.MaxSize)
	}
	out.entry = types.SendMessageBatchRequestEntry{
		MessageBody: &m.Body, MessageAttributes: make(map[string]types.MessageAttributeValue, len(m.Attributes)),
	}
	for name, value := range m.Attributes {
		out.entry.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	key := d.Envelope.OrderingKey
	if out.queue.fifo() {
		if key == "" {
			key = d.Envelope.ID
		}
		out.entry.MessageDeduplicationId = aws.String(awsmessage.Token(d.DedupeID()))
	}
	if key != "" && (out.queue.fifo() || s.options.Fair) {
		out.entry.MessageGroupId = aws.String(awsmessage.Token(key))
	}
	return out, nil
}

// Send sends the batch, in as many calls as its queues and sizes need.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	errs := make([]error, len(batch))
	var requests [][]outgoing
	for i := range batch {
		out, err := s.prepare(&batch[i])
		if err != nil {
			errs[i] = gobridge.Permanent(err)
			continue
		}
		out.at = i
		requests = pack(requests, out)
	}
	for n, request := range requests {
		s.send(ctx, request, errs)
		if kind, _ := gobridge.Classify(errs[request[0].at]); kind == gobridge.OutcomeUnavailable {
			for _, rest := range requests[n+1:] {
				fail(errs, rest, gobridge.ErrNotSent)
			}
			break
		}
	}
	return errs
}

// pack puts a message into the first request for its queue that has room.
func pack(requests [][]outgoing, out outgoing) [][]outgoing {
	for i, request := range requests {
		size := out.size
		for _, other := range request {
			size += other.size
		}
		if request[0].queue == out.queue && len(request) < maxEntries && size <= awsmessage.MaxSize {
			requests[i] = append(request, out)
			return requests
		}
	}
	return append(requests, []outgoing{out})
}

func fail(errs []error, request []outgoing, err error) {
	for _, out := range request {
		errs[out.at] = err
	}
}

// send makes one call, and more if SQS refuses all of a request for one.
func (s *Sender) send(ctx context.Context, request []outgoing, errs []error) {
	queue := request[0].queue
	url, err := s.conn.resolve(ctx, queue)
	if err != nil {
		fail(errs, request, s.answer(queue, err))
		return
	}
	in := &sqs.SendMessageBatchInput{QueueUrl: &url}
	for i, out := range request {
		out.entry.Id = aws.String(strconv.Itoa(i))
		in.Entries = append(in.Entries, out.entry)
	}
	out, err := s.conn.client.SendMessageBatch(ctx, in)
	if err != nil {
		answer := s.answer(queue, fmt.Errorf("queue %s: %w", queue, err))
		if kind, _ := gobridge.Classify(answer); kind == gobridge.OutcomePermanent && len(request) > 1 {
			half := len(request) / 2
			s.send(ctx, request[:half], errs)
			s.send(ctx, request[half:], errs)
			return
		}
		fail(errs, request, answer)
		return
	}
	fail(errs, request, fmt.Errorf("queue %s: no answer for this message; it may have been accepted", queue))
	for _, done := range out.Successful {
		if at, ok := position(done.Id, request); ok {
			errs[at] = nil
		}
	}
	for _, failed := range out.Failed {
		if at, ok := position(failed.Id, request); ok {
			errs[at] = s.answer(queue, fmt.Errorf("queue %s: %w", queue, awsclient.Entry(failed.Code, failed.Message, failed.SenderFault)))
		}
	}
}

// position returns the place in the batch of an entry.
func position(id *string, request []outgoing) (int, bool) {
	i, err := strconv.Atoi(aws.ToString(id))
	if err != nil || i < 0 || i >= len(request) {
		return 0, false
	}
	return request[i].at, true
}

// answer says what an error means. A queue that a message asks for and that does not
// exist says nothing of the other messages.
func (s *Sender) answer(q queueName, err error) error {
	if s.conn.missing(q, err) && s.options.QueueFrom != nil {
		return err
	}
	return awsclient.Answer(err)
}
