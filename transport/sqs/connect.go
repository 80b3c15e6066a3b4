package sqs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge/internal/awsclient"
)

// Connect looks whether the queue is there and may be received from.
func (r *Receiver) Connect(ctx context.Context) (string, error) {
	url, about, err := r.conn.look(ctx, r.queue)
	if err != nil {
		return "", err
	}
	// A deletion by a receipt handle that is none deletes nothing, and is refused
	// for another reason where the permission is missing.
	_, err = r.conn.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{
		QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{{Id: aws.String("0"), ReceiptHandle: aws.String("none")}},
	})
	var missing []error
	if denied(err) {
		missing = append(missing, fmt.Errorf("queue %s: messages may not be deleted (sqs:DeleteMessage): %w", r.queue, err))
	}
	// So does a change of its visibility timeout.
	_, err = r.conn.client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: &url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{{Id: aws.String("0"), ReceiptHandle: aws.String("none")}},
	})
	if denied(err) {
		missing = append(missing, fmt.Errorf("queue %s: messages may not be kept invisible (sqs:ChangeMessageVisibility): %w", r.queue, err))
	}
	if len(missing) > 0 {
		return "", errors.Join(missing...)
	}
	return fmt.Sprintf("takes messages off queue %s, %s", r.queue, about), nil
}

// Connect looks whether the queue is there and may be sent to.
func (s *Sender) Connect(ctx context.Context) (string, error) {
	if s.options.QueueFrom != nil {
		if _, err := s.conn.config.Credentials.Retrieve(ctx); err != nil {
			return "", err
		}
		return "sends to queues that messages choose in Region " + s.conn.config.Region + ", of which none was looked at", nil
	}
	url, about, err := s.conn.look(ctx, s.queue)
	if err != nil {
		return "", err
	}
	// A batch without messages sends nothing, and is refused for another reason
	// where the permission is missing.
	_, err = s.conn.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{}})
	if denied(err) {
		return "", fmt.Errorf("queue %s: messages may not be sent (sqs:SendMessage): %w", s.queue, err)
	}
	return fmt.Sprintf("sends to queue %s, %s", s.queue, about), nil
}

// look finds a queue and says what it is like. Its attributes are not needed to
// use it: they may be hidden.
func (c *Connection) look(ctx context.Context, q queueName) (url, about string, err error) {
	if url, err = c.resolve(ctx, q); err != nil {
		if denied(err) {
			err = fmt.Errorf("%w (the permission sqs:GetQueueUrl is not needed if the configuration has the queue's URL)", err)
		}
		return "", "", err
	}
	kind, order := "a standard queue", ", which keeps no order"
	if q.fifo() {
		kind, order = "a FIFO queue", ""
	}
	out, err := c.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	switch {
	case denied(err):
		return url, kind + order + "; more may not be looked at", nil
	case err != nil:
		c.missing(q, err)
		return "", "", fmt.Errorf("queue %s: %w", q, err)
	}
	parts := []string{kind + " in Region " + c.config.Region + order}
	if n := out.Attributes["ApproximateNumberOfMessages"]; n != "" {
		parts = append(parts, "about "+n+" messages waiting")
	}
	if out.Attributes["RedrivePolicy"] != "" {
		parts = append(parts, "with a dead-letter queue")
	}
	return url, strings.Join(parts, ", "), nil
}

// denied reports whether an error says that something is not permitted.
func denied(err error) bool {
	code := awsclient.CodeOf(err)
	return code == "accessdenied" || code == "authorizationerror" || code == "notauthorized"
}
