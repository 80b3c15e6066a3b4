package httpsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"gobridge"
	"gobridge/messaging"
)

// problem is an answer as RFC 9457 has it.
type problem struct {
	// Type is "about:blank" when the status says it all, and otherwise one of
	// the types below.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Field is the header or the part of the message that is wrong.
	Field string `json:"field,omitempty"`

	challenge  string // WWW-Authenticate
	allow      string // Allow
	retryAfter int    // Retry-After, in seconds
}

// The types of problems.
const (
	typeInvalid  = "urn:gobridge:problem:invalid-message"
	typeTooLarge = "urn:gobridge:problem:too-large"
	typeReused   = "urn:gobridge:problem:identity-reused"
	typeRejected = "urn:gobridge:problem:rejected"
	typeFull     = "urn:gobridge:problem:outbox-full"
	typeStore    = "urn:gobridge:problem:store-unavailable"
	typeBusy     = "urn:gobridge:problem:busy"
)

// How long to stay away, in seconds. A full outbox takes a while to drain.
const (
	waitBusy  = 1
	waitStore = 2
	waitFull  = 5
)

func plainProblem(status int, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

func unauthorized(challenge, detail string) *problem {
	p := plainProblem(http.StatusUnauthorized, detail)
	p.challenge = challenge
	return p
}

func invalid(field, format string, args ...any) *problem {
	return &problem{
		Type: typeInvalid, Title: "Invalid message", Status: http.StatusBadRequest,
		Detail: field + " " + fmt.Sprintf(format, args...) + ".", Field: field,
	}
}

func tooLarge(field string, limit int64) *problem {
	return &problem{
		Type: typeTooLarge, Title: "Too large", Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf("The %s has more than %d bytes, which is the limit.", field, limit), Field: field,
	}
}

// fromAccept says what an error of Accept means to the client, and nothing of
// what is behind it.
func fromAccept(err error) *problem {
	switch {
	case errors.Is(err, gobridge.ErrTooLarge), errors.Is(err, gobridge.ErrInvalidRecord):
		return fromField(err)
	case errors.Is(err, gobridge.ErrIdentityReused):
		return &problem{
			Type: typeReused, Title: "Message ID reused", Status: http.StatusUnprocessableEntity,
			Detail: "A message with this ID and other content is known already. Give each message an ID of its own.",
		}
	case errors.Is(err, gobridge.ErrRejected):
		return &problem{
			Type: typeRejected, Title: "Message rejected", Status: http.StatusUnprocessableEntity,
			Detail: "The route's expressions failed on this message; a part that they need may be missing.",
		}
	case errors.Is(err, gobridge.ErrOutboxFull):
		return &problem{
			Type: typeFull, Title: "Outbox full", Status: http.StatusServiceUnavailable,
			Detail: "There is no room for another message just now.", retryAfter: waitFull,
		}
	default:
		return &problem{
			Type: typeStore, Title: "Store unavailable", Status: http.StatusServiceUnavailable,
			Detail: "The message could not be stored just now, or it is not known whether it was. " +
				"Repeating it under the same ID is safe.",
			retryAfter: waitStore,
		}
	}
}

// ofBatch says of which message of a batch the problem is, where the error does,
// and returns the message's ID.
func (p *problem) ofBatch(err error, messages []messaging.Envelope) string {
	var in *gobridge.Error
	if errors.As(err, &in) && in.Ref.EnvelopeID != "" {
		for i := range messages {
			if messages[i].ID == in.Ref.EnvelopeID {
				p.Detail += fmt.Sprintf(" It is events[%d] of the batch.", i)
				return messages[i].ID
			}
		}
	}
	return fmt.Sprintf("one of %d", len(messages))
}

func fromField(err error) *problem {
	p := &problem{
		Type: typeInvalid, Title: "Invalid message", Status: http.StatusBadRequest,
		Detail: "The message can never be stored.",
	}
	if errors.Is(err, gobridge.ErrTooLarge) {
		p.Type, p.Title, p.Status = typeTooLarge, "Too large", http.StatusRequestEntityTooLarge
	}
	var fe *gobridge.FieldError
	if errors.As(err, &fe) {
		p.Field = clientName(fe.Field)
		p.Detail = fmt.Sprintf("The %s %s.", p.Field, fe.Problem)
		if fe.Limit > 0 {
			p.Detail = fmt.Sprintf("The %s has %d %s, the limit is %d.", p.Field, fe.Size, fe.Problem, fe.Limit)
		}
	}
	return p
}

// clientName is what a field of a record is called over HTTP.
func clientName(field string) string {
	switch field {
	case "Envelope":
		return "message"
	case "Envelope.ID":
		return "id"
	case "Envelope.OrderingKey":
		return "ordering key"
	case "Envelope.ContentType":
		return "content type"
	case "Envelope.CreatedAt":
		return "creation time"
	case "Envelope.NotBefore":
		return "not-before time"
	case "Envelope.ExpiresAt":
		return "expiry time"
	}
	return strings.ToLower(strings.TrimPrefix(field, "Envelope."))
}

func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = []string{"application/problem+json"}
	h["Cache-Control"] = []string{"no-store"}
	if p.challenge != "" {
		h["Www-Authenticate"] = []string{p.challenge}
	}
	if p.allow != "" {
		h["Allow"] = []string{p.allow}
	}
	if p.retryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(p.retryAfter)}
	}
	body, err := json.Marshal(p)
	if err != nil { // it is made of texts and a number
		body = []byte("{}")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // if the client is gone, there is nobody to tell
}
