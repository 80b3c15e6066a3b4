package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gobridge/internal/pause"
)

// What a client may be allowed to do, as numbers of bits (Kafka protocol, ACL
// operations).
const (
	opRead  = 3
	opWrite = 4
)

// coordinatorTries is how often a group is asked for that nobody coordinates yet: for
// some seconds.
const coordinatorTries = 12

// Connect implements [gobridge.Connector].
func (s *Sender) Connect(ctx context.Context) (string, error) {
	if s.options.TopicFrom != nil {
		return s.conn.look(ctx, func(ctx context.Context, l *look) (string, error) {
			_, err := l.topics(ctx, nil, opWrite)
			return "publishes to the topic that each message gives, at " + l.at(), err
		})
	}
	return s.conn.look(ctx, func(ctx context.Context, l *look) (string, error) {
		partitions, err := l.topics(ctx, []string{s.options.Topic}, opWrite)
		if err != nil {
			return "", err
		}
		finding := fmt.Sprintf("publishes to topic %s at %s, %s", s.options.Topic, l.at(), count(partitions, "partition"))
		limit, err := l.limit(ctx, s.options.Topic)
		if err == nil && limit < s.options.MaxMessageBytes {
			return "", fmt.Errorf("topic %s takes messages of up to %d bytes (max.message.bytes), and max_message_bytes is %d",
				s.options.Topic, limit, s.options.MaxMessageBytes)
		}
		return finding, nil // the limit is told to those who may know it
	})
}

// Connect implements [gobridge.Connector].
func (r *Receiver) Connect(ctx context.Context) (string, error) {
	return r.conn.look(ctx, func(ctx context.Context, l *look) (string, error) {
		partitions, err := l.topics(ctx, r.options.Topics, opRead)
		if errors.Is(err, errUnreached) {
			return "", err
		}
		if err := errors.Join(err, l.group(ctx, r.options.Group)); err != nil {
			return "", err
		}
		what := "topic "
		if len(r.options.Topics) > 1 {
			what = "topics "
		}
		return fmt.Sprintf("consumes %s%s at %s as group %s, %s", what, strings.Join(r.options.Topics, ", "), l.at(),
			r.options.Group, count(partitions, "partition")), nil
	})
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// look asks a cluster what is there. It changes nothing.
type look struct {
	client  *kgo.Client
	brokers []string
}

func (c *Connection) look(ctx context.Context, f func(context.Context, *look) (string, error)) (string, error) {
	seen := &watch{}
	client, err := c.client(false, seen, kgo.RequestRetries(3))
	if err != nil {
		return "", err
	}
	defer client.Close()
	finding, err := f(ctx, &look{client: client, brokers: c.options.Brokers})
	if err != nil {
		return "", fmt.Errorf("kafka: %w", seen.explain(err))
	}
	return finding, nil
}

func (l *look) at() string { return strings.Join(l.brokers, ", ") }

var errUnreached = errors.New("can't reach")

// topics returns how many partitions the topics have together, or all that is
// missing: topics, and the permission to do op.
func (l *look) topics(ctx context.Context, names []string, op int) (int, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	request.IncludeTopicAuthorizedOperations = true
	request.Topics = []kmsg.MetadataRequestTopic{} // nil would be all
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, l.client)
	if err != nil {
		return 0, fmt.Errorf("%w %s: %w", errUnreached, l.at(), err)
	}
	partitions := 0
	var errs []error
	for _, topic := range response.Topics {
		name := ""
		if topic.Topic != nil {
			name = *topic.Topic
		}
		err := kerr.ErrorForCode(topic.ErrorCode)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			errs = append(errs, fmt.Errorf("there is no topic %s, or no permission to see it: %w", name, err))
		case err != nil:
			errs = append(errs, fmt.Errorf("topic %s: %w", name, err))
		case !allowed(topic.AuthorizedOperations, op):
			errs = append(errs, fmt.Errorf("topic %s: no permission to %s", name, map[int]string{opRead: "read (READ)", opWrite: "write (WRITE)"}[op]))
		}
		partitions += len(topic.Partitions)
	}
	return partitions, errors.Join(errs...)
}

// allowed reports whether op is among the operations, or the broker does not tell.
func allowed(operations int32, op int) bool {
	return operations == math.MinInt32 || operations == 0 || operations&(1<<op) != 0
}

// group says whether the group can be used. A cluster that has had no group yet makes
// itself ready for them when it is asked for the first time.
func (l *look) group(ctx context.Context, name string) error {
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = []string{name}
	request.IncludeAuthorizedOperations = true
	response, err := request.RequestWith(ctx, l.client)
	waited := false
	for try := 0; try < coordinatorTries && unready(response, err) && ctx.Err() == nil; try++ {
		waited = true
		pause.For(ctx, errorPause)
		response, err = request.RequestWith(ctx, l.client)
	}
	if unready(response, err) || waited && ctx.Err() != nil {
		return fmt.Errorf("group %s: no broker coordinates it; look whether the cluster can make the topic __consumer_offsets: %w", name, kerr.CoordinatorNotAvailable)
	}
	if err != nil {
		return fmt.Errorf("group %s: %w", name, err)
	}
	for _, group := range response.Groups {
		err := kerr.ErrorForCode(group.ErrorCode)
		switch {
		case err != nil && !errors.Is(err, kerr.GroupIDNotFound): // it comes into being
			return fmt.Errorf("group %s: %w", name, err)
		case !allowed(group.AuthorizedOperations, opRead):
			return fmt.Errorf("group %s: no permission to read (READ)", name)
		case group.ProtocolType != "" && group.ProtocolType != "consumer":
			return fmt.Errorf("group %s is one of %s, not of consumers", name, group.ProtocolType)
		}
	}
	return nil
}

// unready reports whether no broker coordinates the group yet.
func unready(response *kmsg.DescribeGroupsResponse, err error) bool {
	if errors.Is(err, kerr.CoordinatorNotAvailable) {
		return true
	}
	return err == nil && slices.ContainsFunc(response.Groups, func(g kmsg.DescribeGroupsResponseGroup) bool {
		return g.ErrorCode == kerr.CoordinatorNotAvailable.Code
	})
}

// limit is the topic's max.message.bytes.
func (l *look) limit(ctx context.Context, topic string) (int, error) {
	request := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeTopic
	resource.ResourceName = topic
	resource.ConfigNames = []string{"max.message.bytes"}
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(ctx, l.client)
	if err != nil {
		return 0, err
	}
	for _, r := range response.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return 0, err
		}
		for _, c := range r.Configs {
			if c.Name == "max.message.bytes" && c.Value != nil {
				return strconv.Atoi(*c.Value)
			}
		}
	}
	return 0, errors.New("the broker does not tell")
}
