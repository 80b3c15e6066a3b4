package nats

import (
	"errors"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
)

// Error codes of the API of JetStream that a publication can get (the server's
// errors.json).
const (
	codeTooLarge       jetstream.ErrorCode = 10054 // message size exceeds maximum allowed
	codeStoreFailed    jetstream.ErrorCode = 10077 // with the reason in its text
	codeHeaderTooLarge jetstream.ErrorCode = 10097
	codeInProcess      jetstream.ErrorCode = 10158 // duplicate message id is in process
)

// slowDown is how long a server that has too much to do is left alone.
const slowDown = time.Second

// outcome says what a failed publication means. The package comment has the table.
// Where an expression chose the subject, that nobody has it or that it is forbidden
// is the message's own failure.
func outcome(err error, chosen bool) error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		return apiOutcome(api, err)
	case errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, client.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrInvalidJSAck) || errors.Is(err, client.ErrPermissionViolation):
		if chosen {
			return err
		}
		return gobridge.Unavailable(err)
	case errors.Is(err, client.ErrMaxPayload) || errors.Is(err, client.ErrBadSubject) || errors.Is(err, client.ErrBadHeaderMsg):
		return gobridge.Permanent(err)
	case errors.Is(err, client.ErrHeadersNotSupported):
		return gobridge.Unavailable(err)
	}
	return err
}

func apiOutcome(api *jetstream.APIError, err error) error {
	switch {
	case api.ErrorCode == codeTooLarge || api.ErrorCode == codeHeaderTooLarge:
		return gobridge.Permanent(err)
	case api.ErrorCode == codeInProcess:
		return err
	case api.ErrorCode == codeStoreFailed && strings.Contains(api.Description, "per subject"):
		return err
	case api.Code == 429:
		return gobridge.RetryAfter(slowDown, err)
	}
	return gobridge.Unavailable(err)
}
