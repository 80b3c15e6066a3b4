package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"gobridge/operate"
)

// holdRequest is the body of pause, halt and resume.
type holdRequest struct {
	act
	Target string       `json:"target"`
	Key    operate.Text `json:"key,omitempty"`
	ID     operate.Text `json:"id,omitempty"`
}

// hold reads the body and calls f with it.
func (s *Server) hold(w http.ResponseWriter, r *http.Request, f func(ctx context.Context, t operate.Target, key, id string, who operate.Who) error) error {
	var in holdRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	t, p := targetOf("target", in.Target)
	if p != nil {
		return p
	}
	if in.Key != "" && in.ID != "" {
		return invalid("id", "contradicts key: a message with a key is held by its key")
	}
	who, err := in.who(r)
	if err != nil {
		return err
	}
	if err := f(r.Context(), t, string(in.Key), string(in.ID), who); err != nil {
		return err
	}
	return writeJSON(w, map[string]any{"done": true})
}

func (s *Server) postPause(w http.ResponseWriter, r *http.Request) error {
	return s.hold(w, r, func(ctx context.Context, t operate.Target, key, id string, who operate.Who) error {
		if key != "" || id != "" {
			return invalid("key", "does not belong here: a pause is of a route or a binding; halt holds a key")
		}
		return s.options.Desk.Pause(ctx, t, who)
	})
}

func (s *Server) postHalt(w http.ResponseWriter, r *http.Request) error {
	return s.hold(w, r, func(ctx context.Context, t operate.Target, key, id string, who operate.Who) error {
		if key == "" && id == "" {
			return invalid("key", "is missing, and id too: a halt is of a key, or of a message without one")
		}
		return s.options.Desk.Halt(ctx, t, key, id, who)
	})
}

func (s *Server) postResume(w http.ResponseWriter, r *http.Request) error {
	return s.hold(w, r, s.options.Desk.Resume)
}

// retryRequest is the body of a retry.
type retryRequest struct {
	act
	Filter filterJSON `json:"filter"`
}

func (s *Server) postRetry(w http.ResponseWriter, r *http.Request) error {
	var in retryRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	filter, p := in.Filter.filter()
	if p != nil {
		return p
	}
	who, err := in.who(r)
	if err != nil {
		return err
	}
	n, err := s.options.Desk.Retry(r.Context(), filter, who)
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]any{"count": n})
}

// jobRequest is the body of a bulk change.
type jobRequest struct {
	act
	Kind   operate.BulkKind `json:"kind"`
	Filter filterJSON       `json:"filter"`
	Max    int              `json:"max,omitempty"`
	Pace   float64          `json:"pace,omitempty"`
	DryRun bool             `json:"dry_run,omitempty"`
}

// step is a line of the answer to something long: how far it is, and at last what
// came of it. A report beside a problem tells what was done until then.
type step[T any] struct {
	Progress int      `json:"progress,omitempty"`
	Report   *T       `json:"report,omitempty"`
	Problem  *problem `json:"problem,omitempty"`
}

// stream answers with lines of JSON, the first of them at once.
type stream[T any] struct {
	w http.ResponseWriter
	e *json.Encoder
}

func newStream[T any](w http.ResponseWriter) *stream[T] {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &stream[T]{w, json.NewEncoder(w)}
}

func (s *stream[T]) write(one step[T]) {
	_ = s.e.Encode(one) // a client that has gone ends the work by its context
	_ = http.NewResponseController(s.w).Flush()
}

func (s *Server) postJob(w http.ResponseWriter, r *http.Request) error {
	var in jobRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	filter, p := in.Filter.filter()
	switch {
	case p != nil:
		return p
	case in.Kind != operate.Redrive && in.Kind != operate.Discard:
		return invalid("kind", "is %q; it is redrive or discard", in.Kind)
	case in.Max < 0:
		return invalid("max", "is below zero")
	case in.Pace < 0:
		return invalid("pace", "is below zero")
	case in.Kind == operate.Discard && len(filter.States) == 0:
		return invalid("filter.states", "is missing: pending, dead or both")
	}
	if in.DryRun && in.Reason == "" {
		in.Reason = "dry run"
	}
	who, err := in.who(r)
	if err != nil {
		return err
	}
	out := newStream[operate.BulkReport](w)
	job := operate.Job{Kind: in.Kind, Filter: filter, Max: in.Max, Pace: in.Pace, DryRun: in.DryRun}
	report, err := s.options.Desk.Do(r.Context(), job, who, func(n int) { out.write(step[operate.BulkReport]{Progress: n}) })
	last := step[operate.BulkReport]{Report: &report}
	if err != nil {
		p := s.problemOf(r, err)
		last.Problem = &p
	}
	out.write(last)
	return nil
}

// moveRequest is the body of a move.
type moveRequest struct {
	act
	From string `json:"from"`
	To   string `json:"to"`
}

// moveResult is what came of it.
type moveResult struct {
	Moved   int       `json:"moved"`
	Expired int       `json:"expired"`
	Left    statsJSON `json:"left"`
}

func (s *Server) postMove(w http.ResponseWriter, r *http.Request) error {
	var in moveRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	from, p := targetOf("from", in.From)
	if p != nil {
		return p
	}
	to, p := targetOf("to", in.To)
	if p != nil {
		return p
	}
	who, err := in.who(r)
	if err != nil {
		return err
	}
	result, err := s.options.Desk.Move(r.Context(), from, to, who)
	if err != nil {
		return err
	}
	left := result.Left
	return writeJSON(w, moveResult{result.Moved, result.Expired, statsJSON{string(left.Partition), left.Pending, left.Claimed, left.Dead}})
}

// endRequest is the body of what ends the records of a removed binding.
type endRequest struct {
	act
	Target string `json:"target"`
}

func (s *Server) postEndRemoved(w http.ResponseWriter, r *http.Request) error {
	var in endRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	t, p := targetOf("target", in.Target)
	if p != nil {
		return p
	}
	who, err := in.who(r)
	if err != nil {
		return err
	}
	n, err := s.options.Desk.EndRemoved(r.Context(), t, who)
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]any{"count": n})
}

func (s *Server) postReload(w http.ResponseWriter, r *http.Request) error {
	if s.options.Reload == nil {
		return &problem{Status: http.StatusNotImplemented, Title: "No reload", Detail: "This process can't load its configuration anew; start it again."}
	}
	what, err := s.options.Reload(r.Context())
	if err != nil {
		return &problem{Status: http.StatusConflict, Title: "Not reloaded", Detail: err.Error()}
	}
	return writeJSON(w, map[string]any{"changed": what})
}

// getExport needs the role that may see payloads: they are in it.
func (s *Server) getExport(w http.ResponseWriter, r *http.Request) error {
	if !s.mayPayload(r.Context()) {
		return &problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "An export has payloads, which need the role " + s.options.Payloads.String() + "."}
	}
	filter, p := queryFilter(r.URL.Query())
	if p != nil {
		return p
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Trailer", exportTrailer)
	_, err := s.options.Desk.Export(r.Context(), filter, w, nil, nil)
	if err != nil {
		w.Header().Set(exportTrailer, "failed: "+err.Error())
		return nil //nolint:nilerr // the status is out; the trailer says it
	}
	w.Header().Set(exportTrailer, "complete")
	return nil
}

// exportTrailer says at the end of an export whether it is whole.
const exportTrailer = "Gobridge-Export"

// maxImport bounds an import, in bytes: larger ones go in parts.
const maxImport = 4 << 30

func (s *Server) postImport(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	dry, p := queryBool(q, "dry_run")
	if p != nil {
		return p
	}
	var to operate.Target
	if q.Get("target") != "" {
		if to, p = targetOf("target", q.Get("target")); p != nil {
			return p
		}
	}
	// The answer begins while the body is still being read.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		return err
	}
	out := newStream[operate.ImportReport](w)
	body := http.MaxBytesReader(w, r.Body, maxImport)
	defer func() { _, _ = io.Copy(io.Discard, io.LimitReader(body, maxBody)) }()
	report, err := s.options.Desk.Import(r.Context(), body, to, dry, func(n int) { out.write(step[operate.ImportReport]{Progress: n}) })
	last := step[operate.ImportReport]{Report: &report}
	if err != nil {
		p := s.problemOf(r, err)
		last.Problem = &p
	}
	out.write(last)
	return nil
}
