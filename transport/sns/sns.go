// Package sns publishes messages to topics of Amazon SNS.
//
// # The message
//
// As to SQS: a payload that is text is the message as it is, any other is encoded,
// what gobridge says is packed in the attribute gobridge, and headers are
// attributes as far as there is room (see package internal/awsmessage). There are
// ten attributes at most, though SNS takes more, for with raw delivery it drops a
// message with more on its way to SQS. The source of package transport/sqs reads all
// of it back, from raw delivery and from envelopes.
//
// The Subject is the message's subject if SNS takes it: less than 100 characters, no
// line breaks or control characters. Otherwise there is none; the attribute gobridge
// has it in any case.
//
// # Order and deduplication
//
// To a FIFO topic (its name ends in .fifo) the ordering key goes as MessageGroupId,
// for a message without a key its ID, and route/binding/ID/digest, the digest being
// that of the content, as MessageDeduplicationId: an attempt repeated within five
// minutes is there once, and nothing else is taken for one.
// A text that is no such ID is replaced by its SHA-256. A standard topic keeps no
// order and deduplicates nothing.
//
// # Answers
//
//	accepted                                     delivered
//	Throttled, KMSThrottling                     the topic asks to slow down
//	no connection, no credentials,               unavailable, whatever the message; a topic
//	AuthorizationError, NotFound, KMS errors     chosen by an expression that does not exist
//	                                             is the message's own failure
//	InvalidParameter, an entry that is the       permanent
//	sender's fault
//	connection lost, InternalError               transient: it may have been accepted
//
// If a batch is refused as a whole for what one of its messages is, it is halved
// until that message is alone.
package sns

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"gobridge/internal/awsclient"
)

// Connection is a client of SNS, which senders share. It connects when they do, and
// has nothing to close.
type Connection struct {
	client *sns.Client
	config aws.Config
}

// New makes a connection with the SDK's settings: Region, credentials, endpoint,
// retries. It calls nobody.
func New(config aws.Config) (*Connection, error) {
	if config.Region == "" {
		return nil, errors.New("sns: no Region")
	}
	config = awsclient.Marked(config)
	return &Connection{client: sns.NewFromConfig(config), config: config}, nil
}

// nameRule is how a topic is named: 256 characters with .fifo (SNS API reference,
// CreateTopic).
var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

// checkTopic reports what is wrong with the ARN of a topic.
func checkTopic(arn, region string) error {
	parts := strings.Split(arn, ":")
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sns" || len(parts[5]) > 256 || !nameRule.MatchString(strings.TrimSuffix(parts[5], ".fifo")) {
		return fmt.Errorf("topic %q: it is no ARN of a topic, like arn:aws:sns:%s:123456789012:orders", arn, region)
	}
	if parts[3] != region {
		return fmt.Errorf("topic %q: it is in Region %s, and the connection in %s", arn, parts[3], region)
	}
	return nil
}

func fifo(arn string) bool { return strings.HasSuffix(arn, ".fifo") }

// name is the last part of an ARN.
func name(arn string) string { return arn[strings.LastIndexByte(arn, ':')+1:] }
