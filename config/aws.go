package config

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// AWS is a connection.
type AWS struct {
	Region   string     `config:"region" example:"eu-central-1" doc:"The AWS Region; that of the environment when absent."`
	Profile  string     `config:"profile" example:"production" doc:"A profile of the shared files ~/.aws/config and ~/.aws/credentials, which may take on a role. The credentials are those of the environment when neither this nor keys is there: variables, shared files, or the machine's role."`
	Keys     *AWSKeys   `config:"keys" doc:"Keys to sign with. Better leave them out where the environment has a role."`
	Endpoint *URL       `config:"endpoint" doc:"Another address than AWS's own, for an emulator or a private endpoint."`
	TLS      *ClientTLS `config:"tls" doc:"How connections are encrypted, for an endpoint whose certificate the system does not trust, or which wants one; that of AWS needs none of it."`
}

// AWSKeys are what requests are signed with.
type AWSKeys struct {
	AccessKey    Secret  `config:"access_key,required" example:"${file:secrets/aws-access-key}" doc:"The ID of the access key. Keys in files are read anew when they are used."`
	SecretKey    Secret  `config:"secret_key,required" example:"${file:secrets/aws-secret-key}" doc:"The secret access key."`
	SessionToken *Secret `config:"session_token" doc:"The session token of temporary keys."`
}

// SQSSource takes messages off a queue.
type SQSSource struct {
	Connection        ConnectionName `config:"connection,required" doc:"The connection, by its name."`
	Queue             string         `config:"queue,required" example:"orders.fifo" doc:"The queue's name, URL or ARN. With a name or an ARN, its URL is asked for (sqs:GetQueueUrl). A FIFO queue's name ends in .fifo."`
	VisibilityTimeout Duration       `config:"visibility_timeout" default:"1m" doc:"How long messages stay with a process that died, in whole seconds from 10s to 12h. Those in hand are kept for as long as it takes."`
	Receivers         int            `config:"receivers" min:"1" max:"64" default:"4" doc:"How many long polls are under way at a time."`
	Prefetch          int            `config:"prefetch" min:"10" max:"10000" default:"1000" doc:"How many messages are in hand at most: received, and not yet stored and deleted. Never fewer than ten for each receiver."`
	SNSEnvelopes      string         `config:"sns_envelopes" enum:"unwrap,keep" default:"unwrap" doc:"What becomes of notifications of SNS that come in its envelope of JSON, for a subscription without raw delivery: unwrap takes what is in them, keep takes them as they are."`
}

// SQSBinding sends messages to a queue.
type SQSBinding struct {
	Connection ConnectionName      `config:"connection,required" doc:"The connection, by its name."`
	Queue      string              `config:"queue" one:"queue" example:"billing.fifo" doc:"The queue's name, URL or ARN, as in the source. Only a FIFO queue keeps the order."`
	QueueFrom  *TextExpr           `config:"queue_from" one:"queue" example:"\"orders-\" + payload.country" doc:"An expression for the queue. A message on which it fails, or for which it gives nothing that can be a queue, is rejected."`
	Attributes map[string]TextExpr `config:"attributes" keys:"header" doc:"Further message attributes, each by an expression for its value, six at most. An empty one is left out."`
	Format     string              `config:"format" enum:"plain,cloudevents_structured" default:"plain" doc:"How messages go out: plain is the payload, cloudevents_structured a CloudEvent in JSON."`
	Fair       Switch              `config:"fair" default:"false" doc:"Whether the ordering key goes as message group to a standard queue too, which is fair among groups then, so that one with many messages does not keep the others waiting. It keeps no order."`
}

// SNSBinding publishes messages to a topic.
type SNSBinding struct {
	Connection     ConnectionName      `config:"connection,required" doc:"The connection, by its name."`
	Topic          string              `config:"topic" one:"topic" example:"arn:aws:sns:eu-central-1:123456789012:orders.fifo" doc:"The topic's ARN. A FIFO topic's name ends in .fifo; only such a one keeps the order."`
	TopicFrom      *TextExpr           `config:"topic_from" one:"topic" example:"\"arn:aws:sns:eu-central-1:123456789012:\" + payload.country" doc:"An expression for the topic's ARN. A message on which it fails, or for which it gives no such ARN, is rejected."`
	MaxMessageSize Size                `config:"max_message_size" default:"256KiB" doc:"The MaximumMessageSize of the topic, from 1KiB to 1MiB. Messages that are larger with their attributes are rejected."`
	Attributes     map[string]TextExpr `config:"attributes" keys:"header" doc:"Further message attributes, each by an expression for its value, six at most: for the filter policies of subscriptions. An empty one is left out."`
	Format         string              `config:"format" enum:"plain,cloudevents_structured" default:"plain" doc:"How messages go out: plain is the payload, cloudevents_structured a CloudEvent in JSON."`
	Fair           Switch              `config:"fair" default:"false" doc:"Whether the ordering key goes as message group to a standard topic too, for the standard queues that are subscribed to it, which are fair among groups then."`
}

func (s *SQSSource) describe() string {
	return "sqs queue " + shortQueue(s.Queue) + " by " + string(s.Connection)
}

func (b *SQSBinding) describe() string {
	queue := shortQueue(b.Queue)
	if b.QueueFrom != nil {
		queue = b.QueueFrom.Source
	}
	return "sqs queue " + queue + " by " + string(b.Connection)
}

func (b *SNSBinding) describe() string {
	topic := b.Topic[strings.LastIndexByte(b.Topic, ':')+1:]
	if b.TopicFrom != nil {
		topic = b.TopicFrom.Source
	}
	return "sns topic " + topic + " by " + string(b.Connection)
}

// shortQueue is the name in a queue's name, URL or ARN.
func shortQueue(queue string) string { return queue[strings.LastIndexAny(queue, ":/")+1:] }

// accountOf is the account in a queue's URL or ARN; empty if only its name is there.
func accountOf(queue string) string {
	parts := strings.FieldsFunc(queue, func(r rune) bool { return r == ':' || r == '/' })
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}

func isFIFO(name string) bool { return strings.HasSuffix(name, ".fifo") }

// The bounds of what AWS takes.
const (
	minVisibility = 10 * time.Second
	maxVisibility = 12 * time.Hour
	minSNSMessage = 1 << 10
	maxSNSMessage = 1 << 20
	maxAttributes = 6
)

// checkAWS reports what is wrong between the fields of routes, and bounds.
func (d *decoder) checkAWS(c *Config) {
	taken := map[string][]string{} // routes by connection and queue
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[route]
		if s := r.Source.SQS; s != nil {
			where := join("routes", route) + ".source.sqs"
			if v := time.Duration(s.VisibilityTimeout); v > 0 && (v < minVisibility || v > maxVisibility || v%time.Second != 0) {
				at := where + ".visibility_timeout"
				d.reportAt(d.at[at], at, "write 10s to 12h", "%s is out of bounds, or not in whole seconds", s.VisibilityTimeout)
			}
			key := string(s.Connection) + " " + shortQueue(s.Queue)
			for _, other := range taken[key] {
				a, b := accountOf(s.Queue), accountOf(c.Routes[other].Source.SQS.Queue)
				if s.Queue == "" || a != b && a != "" && b != "" {
					continue
				}
				at := where + ".queue"
				d.reportAt(d.at[at], at, "give each route a queue of its own, or one route several destinations",
					"queue %s is that of route %s, too: each message would go to one of them", quote(s.Queue), other)
				break
			}
			taken[key] = append(taken[key], route)
		}
		for _, binding := range slices.Sorted(maps.Keys(r.Bindings)) {
			b := r.Bindings[binding]
			where := join(join("routes", route)+".bindings", binding)
			if b.SQS != nil {
				d.checkAttributes(b.SQS.Attributes, where+".sqs.attributes")
			}
			if b.SNS != nil {
				d.checkAttributes(b.SNS.Attributes, where+".sns.attributes")
				if n := b.SNS.MaxMessageSize; n > 0 && (n < minSNSMessage || n > maxSNSMessage) {
					at := where + ".sns.max_message_size"
					d.reportAt(d.at[at], at, "write 1KiB to 1MiB", "%d bytes are out of bounds", n)
				}
			}
		}
	}
}

func (d *decoder) checkAttributes(attributes map[string]TextExpr, where string) {
	if len(attributes) > maxAttributes {
		d.reportAt(d.at[where], where, "leave some out", "%d attributes are more than %d: a message has ten, and the others are needed", len(attributes), maxAttributes)
	}
}

// warnAWS returns where order is lost.
func (d *decoder) warnAWS(c *Config) []Problem {
	var out []Problem
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[route]
		source := r.Source.SQS
		fifoSource := source != nil && isFIFO(source.Queue)
		if source != nil && !fifoSource && r.OrderingKey != nil {
			at := join("routes", route) + ".source.sqs.queue"
			out = append(out, d.problem(d.at[at], at, "take messages off a FIFO queue, or leave ordering_key out",
				"a standard queue gives messages out in no order, which is then the order of the keys of route %s", route))
		}
		for _, binding := range slices.Sorted(maps.Keys(r.Bindings)) {
			b := r.Bindings[binding]
			var at, target string
			switch {
			case b.SQS != nil && b.SQS.QueueFrom == nil:
				at, target = ".sqs.queue", shortQueue(b.SQS.Queue)
			case b.SNS != nil && b.SNS.TopicFrom == nil:
				at, target = ".sns.topic", b.SNS.Topic
			default:
				continue
			}
			if !isFIFO(target) && (r.OrderingKey != nil || fifoSource) {
				at = join(join("routes", route)+".bindings", binding) + at
				out = append(out, d.problem(d.at[at], at, "send to one whose name ends in .fifo, if the order matters there",
					"messages of route %s have an order, and %s keeps none: AWS may give them out in any", route, target))
			}
		}
	}
	return out
}
