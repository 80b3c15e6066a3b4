package amqp

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
)

// blockedWait is how long a broker with an alarm is left alone.
const blockedWait = 5 * time.Second

// tooLarge is how RabbitMQ begins to say that a message is above its own
// max_message_size.
const tooLarge = "PRECONDITION_FAILED - message size"

// hints say what to do about an answer of the server.
var hints = map[int]string{
	amqp091.AccessRefused:      "give the user the permission (configure, write or read) for it",
	amqp091.NotFound:           "make it, or let it be declared",
	amqp091.ResourceLocked:     "another connection has it for itself",
	amqp091.PreconditionFailed: "it is there with other properties, or the server has a policy against this",
}

// answerError is an answer of the server, or the end of a connection.
type answerError struct{ err *amqp091.Error }

func (e *answerError) Unwrap() error { return e.err }

func (e *answerError) Error() string {
	switch {
	case e.err.Code == amqp091.ErrClosed.Code && !e.err.Server:
		return "the connection has ended"
	case !e.err.Server:
		return "the connection broke: " + e.err.Reason
	}
	text := fmt.Sprintf("%s (%d)", e.err.Reason, e.err.Code)
	if hint := hints[e.err.Code]; hint != "" && !strings.HasPrefix(e.err.Reason, tooLarge) {
		text += "; " + hint
	}
	return text
}

// explain makes an error of the client library readable; others stay as they are.
func explain(err error) error {
	var e *amqp091.Error
	var explained *answerError
	if errors.As(err, &explained) || !errors.As(err, &e) {
		return err
	}
	return &answerError{e}
}

// outcome says what the end of a channel or connection means for the messages that
// it left without an answer. Where each message has its own exchange, or an exchange
// or routing key, the server's no is about the message and not about all.
//
//	no connection, or broken; 320, 506, 530  unavailable
//	404, 402                                 unavailable; own exchange: transient
//	403, 405, 406                            unavailable; own exchange or key: transient
//	406 for the message's size, 311          permanent
//	all others                               transient: the message may be to blame
func outcome(err error, ownExchange, own bool) error {
	var e *amqp091.Error
	if !errors.As(err, &e) || !e.Server {
		return gobridge.Unavailable(err)
	}
	switch e.Code {
	case amqp091.ContentTooLarge:
		return gobridge.Permanent(err)
	case amqp091.ConnectionForced, amqp091.ResourceError, amqp091.NotAllowed:
		return gobridge.Unavailable(err)
	case amqp091.NotFound, amqp091.InvalidPath:
		if !ownExchange {
			return gobridge.Unavailable(err)
		}
	case amqp091.AccessRefused, amqp091.ResourceLocked, amqp091.PreconditionFailed:
		if strings.HasPrefix(e.Reason, tooLarge) {
			return gobridge.Permanent(err)
		}
		if !own {
			return gobridge.Unavailable(err)
		}
	}
	return err
}

// sizeLimit returns the server's max_message_size, if err says that a message is
// above it.
func sizeLimit(err error) (int64, bool) {
	var e *amqp091.Error
	if !errors.As(err, &e) || !e.Server || !strings.HasPrefix(e.Reason, tooLarge) {
		return 0, false
	}
	var size, limit int64
	if _, err := fmt.Sscanf(e.Reason, tooLarge+" %d is larger than configured max size %d", &size, &limit); err != nil {
		return 0, false
	}
	return limit, true
}
