package sqs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge"
	"gobridge/internal/awsmessage"
	"gobridge/messaging"
)

// notification is a message of SNS in its envelope (SNS Developer Guide, "Parsing
// Amazon SNS message formats").
type notification struct {
	Type, MessageID, TopicArn, Timestamp string
	Subject                              string
	Message                              *string
	MessageAttributes                    map[string]struct{ Type, Value string }
}

// unwrap returns the notification that a message is, if it is one: a JSON object of
// the type Notification with the ARN of a topic, an ID, a time and a message, and no
// attributes beside it, for SNS puts them inside.
func unwrap(m *types.Message) (*notification, bool) {
	body := strings.TrimSpace(aws.ToString(m.Body))
	if !strings.HasPrefix(body, "{") || len(m.MessageAttributes) > 0 {
		return nil, false
	}
	var n notification
	if json.Unmarshal([]byte(body), &n) != nil {
		return nil, false
	}
	parts := strings.Split(n.TopicArn, ":")
	ok := n.Type == "Notification" && n.MessageID != "" && n.Timestamp != "" && n.Message != nil &&
		len(parts) == 6 && parts[0] == "arn" && parts[2] == "sns"
	return &n, ok
}

// content returns body and attributes.
func (n *notification) content() (awsmessage.Message, error) {
	out := awsmessage.Message{Body: *n.Message, Attributes: make(map[string]string, len(n.MessageAttributes))}
	for name, a := range n.MessageAttributes {
		if !strings.HasPrefix(a.Type, "Binary") {
			out.Attributes[name] = a.Value
			continue
		}
		value, err := base64.StdEncoding.DecodeString(a.Value)
		if err != nil {
			return out, fmt.Errorf("attribute %s of the notification is binary, but no base64", name)
		}
		out.Attributes[name] = string(value)
	}
	return out, nil
}

func content(m *types.Message) awsmessage.Message {
	out := awsmessage.Message{Body: aws.ToString(m.Body), Attributes: make(map[string]string, len(m.MessageAttributes))}
	for name, a := range m.MessageAttributes {
		if a.BinaryValue != nil {
			out.Attributes[name] = string(a.BinaryValue)
		} else {
			out.Attributes[name] = aws.ToString(a.StringValue)
		}
	}
	return out
}

// incoming makes of a message of SQS what a route takes.
func (r *Receiver) incoming(m *types.Message) gobridge.Incoming {
	id := aws.ToString(m.MessageId)
	group := ""
	if r.queue.fifo() {
		group = m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
	}
	in, subject := content(m), ""
	var err error
	if n, ok := unwrap(m); ok && !r.options.KeepEnvelopes {
		id, subject = n.MessageID, n.Subject
		in, err = n.content()
	}
	var e messaging.Envelope
	var known bool
	if err == nil {
		e, known, err = awsmessage.Decode(in)
	}
	if err != nil {
		raw := content(m)
		return gobridge.Incoming{Reject: err, Envelope: messaging.Envelope{
			ID: aws.ToString(m.MessageId), OrderingKey: group, Headers: raw.Attributes, Payload: []byte(raw.Body),
		}}
	}
	if e.ID == "" {
		e.ID = id
	}
	if known {
		return gobridge.Incoming{Envelope: e}
	}
	if e.OrderingKey == "" {
		e.OrderingKey = group
	}
	if e.Subject == "" {
		e.Subject = subject
	}
	sent, err := strconv.ParseInt(m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10, 64)
	if e.CreatedAt.IsZero() && err == nil && sent > 0 {
		e.CreatedAt = time.UnixMilli(sent).UTC()
	}
	return gobridge.Incoming{Envelope: e}
}
