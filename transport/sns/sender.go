package sns

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"gobridge"
	"gobridge/internal/awsbatch"
	"gobridge/internal/awsclient"
	"gobridge/internal/awsmessage"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

const (
	// DefaultMaxSize and the bounds are those of the topic's MaximumMessageSize (SNS
	// Developer Guide, "Publishing large messages").
	DefaultMaxSize = 256 << 10
	minMaxSize     = 1 << 10
	// maxSubject is the number of characters that a subject stays below.
	maxSubject = 100
)

// SenderOptions configure a [Sender]. Topic or TopicFrom is required.
type SenderOptions struct {
	// Topic is the topic's ARN.
	Topic string
	// TopicFrom gives the ARN of the topic of a message.
	TopicFrom func(*messaging.Envelope) (string, error)
	// MaxSize is the MaximumMessageSize of the topics, in bytes, from 1 KiB to 1 MiB;
	// [DefaultMaxSize] when zero. It bounds a batch, too.
	MaxSize int
	// Format is "plain", the default, or "cloudevents_structured".
	Format string
	// Attributes are further attributes, by name; an empty value is left out. There
	// are six at most. Filter policies of subscriptions go by attributes.
	Attributes map[string]func(*messaging.Envelope) (string, error)
	// Fair sends the ordering key as message group to a standard topic too, for the
	// standard queues that are subscribed to it.
	Fair bool
}

// Sender publishes to topics. Batches of ten have one message of a key: a topic may
// take a later message though an earlier one failed.
type Sender struct {
	conn    *Connection
	options SenderOptions
	encoder awsmessage.Encoder
}

// Sender makes a sender.
func (c *Connection) Sender(options SenderOptions) (*Sender, error) {
	if options.MaxSize == 0 {
		options.MaxSize = DefaultMaxSize
	}
	s := &Sender{conn: c, options: options}
	format, err := mapping.ParseFormat(options.Format)
	if err != nil {
		return nil, fmt.Errorf("sns: %w", err)
	}
	s.encoder = awsmessage.Encoder{Format: format, Attributes: options.Attributes}
	if err := s.encoder.Check(); err != nil {
		return nil, fmt.Errorf("sns: %w", err)
	}
	switch {
	case (options.Topic == "") == (options.TopicFrom == nil):
		return nil, errors.New("sns: give a topic, or an expression for one")
	case options.MaxSize < minMaxSize || options.MaxSize > awsmessage.MaxSize:
		return nil, fmt.Errorf("sns: messages of up to %d bytes; a topic's MaximumMessageSize is %d to %d", options.MaxSize, minMaxSize, awsmessage.MaxSize)
	case options.TopicFrom == nil:
		if err := checkTopic(options.Topic, c.config.Region); err != nil {
			return nil, fmt.Errorf("sns: %w", err)
		}
	}
	return s, nil
}

// BatchLimits is what PublishBatch takes.
func (s *Sender) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: awsbatch.MaxEntries, MaxBytes: int64(s.options.MaxSize), OnePerKey: true}
}

// Carry says what speaks against a message: its size, an expression that fails.
func (s *Sender) Carry(e *messaging.Envelope) error {
	d := awsmessage.Longest(e)
	_, err := s.prepare(&d)
	return err
}

type entry = awsbatch.Entry[types.PublishBatchRequestEntry]

// prepare makes the entry of a delivery. Its error says that there never will be one.
func (s *Sender) prepare(d *gobridge.Delivery) (entry, error) {
	e := &d.Envelope
	out := entry{Target: s.options.Topic}
	if s.options.TopicFrom != nil {
		var err error
		if out.Target, err = s.options.TopicFrom(e); err == nil {
			err = checkTopic(out.Target, s.conn.config.Region)
		}
		if err != nil {
			return out, fmt.Errorf("topic_from: %w", err)
		}
	}
	m, err := s.encoder.Encode(d)
	if err != nil {
		return out, err
	}
	out.Value.Message = &m.Body
	out.Value.MessageAttributes = make(map[string]types.MessageAttributeValue, len(m.Attributes))
	for name, value := range m.Attributes {
		out.Value.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	out.Size = m.Size()
	if subjectFits(e.Subject) {
		out.Value.Subject = &e.Subject
		out.Size += len(e.Subject) // whether it counts is not said
	}
	if out.Size > s.options.MaxSize {
		return out, fmt.Errorf("the message has %d bytes with its attributes (payload %d, body %d); the topic takes %d",
			out.Size, len(e.Payload), len(m.Body), s.options.MaxSize)
	}
	key := e.OrderingKey
	if fifo(out.Target) {
		if key == "" {
			key = e.ID
		}
		out.Value.MessageDeduplicationId = aws.String(awsmessage.DedupeID(d))
	}
	if key != "" && (fifo(out.Target) || s.options.Fair) {
		out.Value.MessageGroupId = aws.String(awsmessage.Token(key))
	}
	return out, nil
}

// subjectFits reports whether SNS takes a subject (SNS API reference, Publish).
func subjectFits(subject string) bool {
	return subject != "" && strings.TrimSpace(subject) == subject && utf8.ValidString(subject) &&
		utf8.RuneCountInString(subject) < maxSubject && !strings.ContainsFunc(subject, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Send publishes the batch, in as many calls as its topics and sizes need.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	return awsbatch.Send(ctx, batch, s.options.MaxSize, s.prepare, s.call)
}

// call publishes a batch to one topic.
func (s *Sender) call(ctx context.Context, topic string, entries []types.PublishBatchRequestEntry, answer func(*string, error)) error {
	for i := range entries {
		entries[i].Id = awsbatch.ID(i)
	}
	out, err := s.conn.client.PublishBatch(ctx, &sns.PublishBatchInput{TopicArn: &topic, PublishBatchRequestEntries: entries})
	if err != nil {
		return s.answer(fmt.Errorf("topic %s: %w", name(topic), err))
	}
	for _, done := range out.Successful {
		answer(done.Id, nil)
	}
	for _, failed := range out.Failed {
		answer(failed.Id, s.answer(fmt.Errorf("topic %s: %w", name(topic), awsclient.Entry(failed.Code, failed.Message, failed.SenderFault))))
	}
	return nil
}

// answer says what an error means. A topic that a message asks for and that does not
// exist says nothing of the other messages.
func (s *Sender) answer(err error) error {
	if s.options.TopicFrom != nil && awsclient.CodeOf(err) == "notfound" {
		return err
	}
	return awsclient.Answer(err)
}

// Connect looks whether the topic is there and may be published to.
func (s *Sender) Connect(ctx context.Context) (string, error) {
	if s.options.TopicFrom != nil {
		if _, err := s.conn.config.Credentials.Retrieve(ctx); err != nil {
			return "", err
		}
		return "publishes to topics that messages choose in Region " + s.conn.config.Region + ", of which none was looked at", nil
	}
	topic := s.options.Topic
	about := "a standard topic, which keeps no order"
	if fifo(topic) {
		about = "a FIFO topic"
	}
	out, err := s.conn.client.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &topic})
	switch code := awsclient.CodeOf(err); {
	case code == "authorizationerror" || code == "accessdenied":
		about += "; more may not be looked at"
	case err != nil:
		return "", fmt.Errorf("topic %s: %w", name(topic), err)
	default:
		if n := out.Attributes["SubscriptionsConfirmed"]; n != "" {
			about += ", with " + n + " subscriptions"
		}
		if most, err := strconv.Atoi(out.Attributes["MaximumMessageSize"]); err == nil && most < s.options.MaxSize {
			return "", fmt.Errorf("topic %s takes messages of up to %d bytes, and max_message_size is %d", name(topic), most, s.options.MaxSize)
		}
	}
	// A batch without messages publishes nothing, and is refused for another reason
	// where the permission is missing.
	_, err = s.conn.client.PublishBatch(ctx, &sns.PublishBatchInput{TopicArn: &topic, PublishBatchRequestEntries: []types.PublishBatchRequestEntry{}})
	if code := awsclient.CodeOf(err); code == "authorizationerror" || code == "accessdenied" {
		return "", fmt.Errorf("topic %s: messages may not be published (sns:Publish): %w", name(topic), err)
	}
	return "publishes to topic " + name(topic) + ", " + about, nil
}
