package sqs

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge"
	"gobridge/internal/awsbatch"
	"gobridge/internal/awsclient"
	"gobridge/internal/awsmessage"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

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
	return gobridge.BatchLimits{MaxRecords: awsbatch.MaxEntries, MaxBytes: awsmessage.MaxSize, OnePerKey: true}
}

// Carry says what speaks against a message: its size, an expression that fails.
func (s *Sender) Carry(e *messaging.Envelope) error {
	d := awsmessage.Longest(e)
	_, err := s.prepare(&d)
	return err
}

// outgoing is a message on its way to a queue.
type outgoing struct {
	queue queueName
	types.SendMessageBatchRequestEntry
}

type entry = awsbatch.Entry[outgoing]

// prepare makes the entry of a delivery. Its error says that there never will be one.
func (s *Sender) prepare(d *gobridge.Delivery) (entry, error) {
	var out entry
	queue := s.queue
	if s.options.QueueFrom != nil {
		name, err := s.options.QueueFrom(&d.Envelope)
		if err == nil {
			queue, err = parseQueue(name, s.conn.config.Region)
		}
		if err != nil {
			return out, fmt.Errorf("queue_from: %w", err)
		}
	}
	m, err := s.encoder.Encode(d)
	if err != nil {
		return out, err
	}
	if out.Size = m.Size(); out.Size > awsmessage.MaxSize {
		return out, fmt.Errorf("the message has %d bytes with its attributes (payload %d, body %d); SQS takes %d",
			out.Size, len(d.Envelope.Payload), len(m.Body), awsmessage.MaxSize)
	}
	out.Target, out.Value.queue, out.Value.MessageBody = queue.key(), queue, &m.Body
	out.Value.MessageAttributes = make(map[string]types.MessageAttributeValue, len(m.Attributes))
	for name, value := range m.Attributes {
		out.Value.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	key := d.Envelope.OrderingKey
	if queue.fifo() {
		if key == "" {
			key = d.Envelope.ID
		}
		out.Value.MessageDeduplicationId = aws.String(awsmessage.DedupeID(d))
	}
	if key != "" && (queue.fifo() || s.options.Fair) {
		out.Value.MessageGroupId = aws.String(awsmessage.Token(key))
	}
	return out, nil
}

// Send sends the batch, in as many calls as its queues and sizes need.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	return awsbatch.Send(ctx, batch, awsmessage.MaxSize, s.prepare, s.call)
}

// call sends a batch to one queue.
func (s *Sender) call(ctx context.Context, _ string, entries []outgoing, answer func(*string, error)) error {
	queue := entries[0].queue
	url, err := s.conn.resolve(ctx, queue)
	if err != nil {
		return s.answer(queue, err)
	}
	in := &sqs.SendMessageBatchInput{QueueUrl: &url}
	for i, e := range entries {
		e.Id = awsbatch.ID(i)
		in.Entries = append(in.Entries, e.SendMessageBatchRequestEntry)
	}
	out, err := s.conn.client.SendMessageBatch(ctx, in)
	if err != nil {
		return s.answer(queue, fmt.Errorf("queue %s: %w", queue, err))
	}
	for _, done := range out.Successful {
		answer(done.Id, nil)
	}
	for _, failed := range out.Failed {
		answer(failed.Id, s.answer(queue, fmt.Errorf("queue %s: %w", queue, awsclient.Entry(failed.Code, failed.Message, failed.SenderFault))))
	}
	return nil
}

// answer says what an error means. A queue that a message asks for and that does not
// exist says nothing of the other messages.
func (s *Sender) answer(q queueName, err error) error {
	if s.conn.missing(q, err) && s.options.QueueFrom != nil {
		return err
	}
	return awsclient.Answer(err)
}
