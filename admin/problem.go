package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"gobridge"
)

// problem is an error as RFC 9457 has it, of the type about:blank: the status says
// of which kind it is, and its title is the status's own.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Field names what of the request was wrong, if one part was.
	Field string `json:"field,omitempty"`
	// Report is what something long had done until then.
	Report json.RawMessage `json:"report,omitempty"`
}

func (p *problem) Error() string { return p.Detail }

func newProblem(status int, format string, args ...any) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// invalid says what is wrong with a part of a request.
func invalid(field, format string, args ...any) *problem {
	p := newProblem(http.StatusBadRequest, "%s %s", field, fmt.Sprintf(format, args...))
	p.Field = field
	return p
}

func writeProblem(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the status is out; a client that has gone needs no more
}

// problemOf says of an error what the client should know, and logs what operators
// should.
func (s *Server) problemOf(r *http.Request, err error) *problem {
	var p *problem
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLong):
		return newProblem(http.StatusRequestEntityTooLarge, "The body has more than %d bytes.", tooLong.Limit)
	case errors.Is(err, gobridge.ErrNotFound):
		return newProblem(http.StatusNotFound, "%v", err)
	case errors.Is(err, gobridge.ErrInvalidCursor):
		return invalid("cursor", "is none that this store has given; without one the first page is answered")
	case errors.Is(err, gobridge.ErrInvalidRecord):
		return newProblem(http.StatusUnprocessableEntity, "%v", err)
	case errors.Is(err, gobridge.ErrDeadLettersFull), errors.Is(err, gobridge.ErrLeaseHeld):
		return newProblem(http.StatusConflict, "%v", err)
	case errors.Is(r.Context().Err(), context.DeadlineExceeded):
		return newProblem(http.StatusServiceUnavailable, "It took longer than %s.", requestTime)
	case r.Context().Err() != nil:
		return newProblem(http.StatusServiceUnavailable, "The client has gone, or the server ends: %v", err)
	}
	s.log.Log(r.Context(), slog.LevelError, "a request to the admin listener failed", "path", r.URL.Path, "error", err)
	return newProblem(http.StatusServiceUnavailable, "%v", err)
}
