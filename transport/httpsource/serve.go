package httpsource

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"

	"gobridge"
	"gobridge/messaging"
)

// ServeHTTP answers one request. The server is its own handler, for tests and
// for those who bring a listener of their own.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("request panicked", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
			plainProblem(http.StatusInternalServerError, "Something went wrong that was not the request's fault. "+
				"Repeating it under the same ID is safe.").write(w)
		}
	}()
	taken, p := s.serve(w, r)
	if p != nil {
		p.write(w)
		return
	}
	taken.write(w)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) (receipts, *problem) {
	var none receipts
	rt := (*s.routes.Load())[r.URL.Path]
	if rt == nil {
		return none, plainProblem(http.StatusNotFound, "No route has this path.")
	}
	if r.Method != http.MethodPost {
		p := plainProblem(http.StatusMethodNotAllowed, "Messages are sent by POST.")
		p.allow = http.MethodPost
		return none, p
	}
	if p := rt.authorize(r.Header); p != nil {
		return none, p
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return none, &problem{
			Type: typeBusy, Title: "Busy", Status: http.StatusServiceUnavailable,
			Detail: "Too many requests are being worked on just now.", retryAfter: waitBusy,
		}
	}
	in, p := rt.read(r.Header)
	if p != nil {
		return none, p
	}
	body, p := rt.body(w, r)
	if p != nil {
		return none, p
	}
	if p := rt.verify(r.Header, body); p != nil {
		return none, p
	}
	messages, p := rt.messages(&in, body)
	if p != nil {
		return none, p
	}
	return s.store(r, rt, messages, in.mode == modeBatch)
}

// store makes the messages durable. From here on it does not matter whether the
// client is still there: they are complete, and a client that comes back with
// them finds duplicates.
func (s *Server) store(r *http.Request, rt *route, messages []messaging.Envelope, batch bool) (receipts, *problem) {
	taken := receipts{batch: batch}
	if len(messages) == 0 {
		return taken, nil // a batch may be empty
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.options.AcceptTimeout)
	defer cancel()
	var err error
	if batch {
		taken.all, err = rt.publish(ctx, messages...)
	} else {
		taken.all = make([]gobridge.Receipt, 1)
		taken.all[0], err = rt.accept(ctx, messages[0])
	}
	if err == nil {
		return taken, nil
	}
	p := fromAccept(err)
	id := messages[0].ID
	if batch {
		id = p.ofBatch(err, messages)
	}
	switch p.Type {
	case typeStore:
		s.notStored.log(ctx, s.log, slog.LevelError, "message not stored", slog.String("path", rt.path),
			slog.String("id", id), slog.String("error", err.Error()))
	case typeRejected:
		rt.rejected.log(ctx, s.log, slog.LevelWarn, "message rejected", slog.String("path", rt.path),
			slog.String("id", id), slog.String("error", err.Error()))
	}
	return receipts{}, p
}

// body reads the payload, no further than its limit.
func (rt *route) body(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	if r.ContentLength > rt.maxBody {
		w.Header().Set("Connection", "close") // the rest of the body is not read
		return nil, tooLarge("payload", rt.maxBody)
	}
	if r.ContentLength == 0 || r.Body == nil {
		return nil, nil
	}
	limited := http.MaxBytesReader(w, r.Body, rt.maxBody)
	var body []byte
	var err error
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(limited, body)
	} else {
		body, err = io.ReadAll(limited)
	}
	if err == nil {
		return body, nil
	}
	var over *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &over):
		return nil, tooLarge("payload", rt.maxBody)
	case errors.As(err, &network) && network.Timeout():
		return nil, plainProblem(http.StatusRequestTimeout, "The body did not arrive in time.")
	default:
		return nil, plainProblem(http.StatusBadRequest, "The body did not arrive whole.")
	}
}

// receipts is what became of a request's messages.
type receipts struct {
	all   []gobridge.Receipt
	batch bool
}

func (r receipts) write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Cache-Control"] = []string{"no-store"}
	status, tail := http.StatusOK, "}\n"
	if len(r.all) > 0 {
		status = http.StatusAccepted
		if r.all[0].Duplicate {
			status, tail = http.StatusOK, `,"duplicate":true}`+"\n"
		}
	}
	var body []byte
	if r.batch {
		body = append(body, `{"ids":[`...)
		for i := range r.all {
			if i > 0 {
				body = append(body, ',')
			}
			body = appendJSONString(body, r.all[i].EnvelopeID)
		}
		body = append(body, ']')
	} else {
		body = make([]byte, 0, len(r.all[0].EnvelopeID)+32)
		body = append(body, `{"id":`...)
		body = appendJSONString(body, r.all[0].EnvelopeID)
	}
	body = append(body, tail...)
	w.WriteHeader(status)
	_, _ = w.Write(body) // if the client is gone, it will ask again
}

func appendJSONString(dst []byte, s string) []byte {
	simple := !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r > '~' || r == '"' || r == '\\'
	})
	if simple {
		dst = append(append(dst, '"'), s...)
		return append(dst, '"')
	}
	quoted, err := json.Marshal(s)
	if err != nil { // a string always has an encoding
		return append(dst, `""`...)
	}
	return append(dst, quoted...)
}
