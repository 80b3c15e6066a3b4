package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
)

// blames are the answers that one record deserves and all of its batch get.
var blames = []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp}

// elsewhere are the answers that no message is to blame for: the cluster, the
// topic, the permissions or the settings are not as they must be.
var elsewhere = []error{
	kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID,
	kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.SecurityDisabled,
	kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable, kerr.BrokerNotAvailable,
	kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.KafkaStorageError,
	kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.NetworkException,
	kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType, kerr.PolicyViolation,
	kerr.InvalidRequiredAcks,
}

// blamesRecord reports whether a batch was refused for what is in it.
func blamesRecord(err error) bool { return isAny(err, blames) }

// isRecreated reports whether the topic is another than the client knows.
func isRecreated(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID)
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// itsTopic are the answers that a message deserves which names the topic itself.
var itsTopic = []error{kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed}

// outcome says what an answer to a record that was alone in its batch means; named
// says that the message gives the topic. The package comment has the table.
func outcome(topic string, named bool, err error) error {
	if err == nil {
		return nil
	}
	var answer *kerr.Error
	wrapped := fmt.Errorf("produce to %s: %w", topic, err)
	switch {
	case blamesRecord(err), errors.Is(err, kerr.InvalidTopicException):
		return gobridge.Permanent(wrapped)
	case named && isAny(err, itsTopic):
		return wrapped
	case errors.Is(err, kerr.ThrottlingQuotaExceeded):
		return gobridge.RetryAfter(0, wrapped)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		return gobridge.Unavailable(fmt.Errorf("produce to %s: no answer in time; it may have arrived: %w", topic, err))
	case isAny(err, elsewhere), !errors.As(err, &answer): // without an answer it is the connection
		return gobridge.Unavailable(wrapped)
	}
	return wrapped
}
