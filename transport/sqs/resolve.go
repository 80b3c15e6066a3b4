package sqs

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"gobridge/internal/awsclient"
)

// callTime bounds a call that waits for nothing.
const callTime = 15 * time.Second

// resolve returns a queue's URL, asking for it when it is needed for the first time.
func (c *Connection) resolve(ctx context.Context, q queueName) (string, error) {
	if q.url != "" {
		return q.url, nil
	}
	c.mu.Lock()
	known, ok := c.urls[q]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	in := &sqs.GetQueueUrlInput{QueueName: &q.name}
	if q.owner != "" {
		in.QueueOwnerAWSAccountId = &q.owner
	}
	out, err := c.client.GetQueueUrl(ctx, in)
	if err != nil {
		return "", fmt.Errorf("queue %s: %w", q, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.urls) >= maxURLs {
		clear(c.urls)
	}
	c.urls[q] = aws.ToString(out.QueueUrl)
	return c.urls[q], nil
}

// missing reports whether an error says that there is no such queue, and forgets
// its URL then: it may be made anew.
func (c *Connection) missing(q queueName, err error) bool {
	switch awsclient.CodeOf(err) {
	case "queuedoesnotexist", "nonexistentqueue":
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.urls, q)
		return true
	}
	return false
}
