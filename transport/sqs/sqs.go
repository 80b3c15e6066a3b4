// Package sqs takes messages off queues of Amazon SQS and sends messages to them.
//
// # The message
//
// A payload that is text is the body as it is; any other, and the empty one, is
// encoded, and the attribute gobridge-encoding says how. What gobridge says of a
// message is packed in the attribute gobridge, headers are attributes as far as
// there is room (see package internal/awsmessage). The source reads all of it back,
// and takes what others send: any body, with any attributes as headers.
//
// # Identity
//
// A message from the source has the ID that gobridge gave it, or else that of the
// CloudEvent that it is, or else the MessageId of the SNS notification that it was,
// or else the queue's MessageId. The first three outlive a message that was sent
// twice; the last is that of one sending. A MessageDeduplicationId is not taken for
// an ID: where a queue makes it from the body, two messages of the same body have
// the same.
//
// # Order
//
// A FIFO queue (its name ends in .fifo) keeps the order of a message group, and the
// group is the ordering key, in both directions. The source hands over a later
// message of a group only when the earlier ones are durable: SQS gives out no
// message of a group while one is in flight, and the source gives up what it has in
// hand when it can't keep it in flight. A standard queue keeps no order, whatever
// is sent to it.
//
// # Deduplication
//
// To a FIFO queue goes route/binding/ID/digest as MessageDeduplicationId, the digest
// being that of the content, so that an attempt repeated within five minutes is there
// once and nothing else is taken for one. A redrive has an ID of its own. A standard
// queue deduplicates nothing. A text that is no group ID or deduplication
// ID (at most 128 letters, digits and punctuation marks) is replaced by its SHA-256.
//
// # Answers
//
//	accepted                                      delivered
//	RequestThrottled, KmsThrottled, OverLimit     the queue asks to slow down
//	no connection, no credentials, AccessDenied,  unavailable, whatever the message; a
//	QueueDoesNotExist, Kms errors                 queue chosen by an expression that does
//	                                              not exist is the message's own failure
//	InvalidMessageContents, an entry that is      permanent
//	the sender's fault
//	connection lost, InternalError                transient: it may have been accepted
//
// If a batch is refused as a whole for what one of its messages is, it is halved
// until that message is alone.
package sqs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"gobridge/internal/awsclient"
)

// Connection is a client of SQS, which receivers and senders share. It connects
// when they do, and has nothing to close.
type Connection struct {
	client *sqs.Client
	config aws.Config
	log    *slog.Logger

	mu   sync.Mutex
	urls map[queueName]string
}

// maxURLs bounds the queues whose URLs are remembered.
const maxURLs = 1000

// Options configure a [Connection].
type Options struct {
	// Logger, unless nil, is told of what goes wrong and goes on by itself.
	Logger *slog.Logger
}

// New makes a connection with the SDK's settings: Region, credentials, endpoint,
// retries. It calls nobody.
func New(config aws.Config, options Options) (*Connection, error) {
	if config.Region == "" {
		return nil, errors.New("sqs: no Region")
	}
	log := options.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config = awsclient.Marked(config)
	return &Connection{client: sqs.NewFromConfig(config), config: config, log: log, urls: map[queueName]string{}}, nil
}

// queueName is a queue as a configuration has it. Either url or name is there.
type queueName struct {
	url   string
	name  string // without account
	owner string // the account; empty for the credentials' own
}

// nameRule is how a queue is named: 80 characters with .fifo (SQS API reference,
// CreateQueue).
var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// hostRule is where queues of a Region are, now and by a name from before (AWS General
// Reference, "Amazon SQS endpoints"). A call goes to the connection's Region whatever
// the URL of the queue says.
var hostRule = regexp.MustCompile(`^(?:sqs(?:-fips)?\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.com(?:\.cn)?$`)

// parseQueue reads a queue's name, URL or ARN.
func parseQueue(text, region string) (queueName, error) {
	var q queueName
	switch {
	case text == "":
		return q, errors.New("queue: it is empty")
	case strings.HasPrefix(text, "arn:"):
		parts := strings.Split(text, ":")
		if len(parts) != 6 || parts[2] != "sqs" {
			return q, fmt.Errorf("queue %q: it is no ARN of a queue", text)
		}
		if parts[3] != region {
			return q, fmt.Errorf("queue %q: it is in Region %s, and the connection in %s", text, parts[3], region)
		}
		q.owner, q.name = parts[4], parts[5]
	case strings.Contains(text, "://"):
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return q, fmt.Errorf("queue %q: it is no URL of a queue", text)
		}
		q.url = text
		if !nameRule.MatchString(strings.TrimSuffix(q.base(), ".fifo")) {
			return q, fmt.Errorf("queue %q: its URL does not end in the name of a queue", text)
		}
		if host := hostRule.FindStringSubmatch(u.Hostname()); host != nil && host[1]+host[2] != region {
			return q, fmt.Errorf("queue %q: it is in Region %s, and the connection in %s", text, host[1]+host[2], region)
		}
		return q, nil
	default:
		q.name = text
	}
	if !nameRule.MatchString(strings.TrimSuffix(q.name, ".fifo")) || len(q.name) > 80 {
		return q, fmt.Errorf("queue %q: a name has 1 to 80 letters, digits, '-' and '_', with .fifo at its end if it is a FIFO queue", q.name)
	}
	return q, nil
}

// base is the queue's name, without what is before it.
func (q queueName) base() string {
	if q.url != "" {
		return q.url[strings.LastIndexByte(q.url, '/')+1:]
	}
	return q.name
}

func (q queueName) fifo() bool { return strings.HasSuffix(q.base(), ".fifo") }

func (q queueName) String() string { return q.base() }

// key tells queues apart.
func (q queueName) key() string { return q.url + " " + q.owner + " " + q.name }
