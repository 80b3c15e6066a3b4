package admin

import (
	"context"
	"net/http"

	"gobridge"
	"gobridge/operate"
)

// holdRequest is the body of pause, halt and resume.
type holdRequest struct {
	act
	Target string       `json:"target"`
	Key    operate.Text `json:"key,omitempty"`
	ID     operate.Text `json:"id,omitempty"`
}

// holder is Pause, Halt or Resume of a desk.
type holder func(ctx context.Context, t operate.Target, key, id string, who operate.Who) error

// hold reads the body and calls f with it, if the store and the configuration know
// the target: a misspelt one would hold nothing, and nobody would be told.
func (s *Server) hold(w http.ResponseWriter, r *http.Request, check func(in *holdRequest, t operate.Target) *problem, f holder) error {
	var in holdRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	t, p := targetOf("target", in.Target)
	if p == nil && in.Key != "" && in.ID != "" {
		p = invalid("id", "contradicts key: a message with a key is held by its key")
	}
	if p == nil {
		p = check(&in, t)
	}
	if p != nil {
		return p
	}
	if err := s.options.Desk.Known(r.Context(), t); err != nil {
		return err
	}
	who, err := s.who(r, in.act)
	if err != nil {
		return err
	}
	if err := f(r.Context(), t, string(in.Key), string(in.ID), who); err != nil {
		return err
	}
	return writeJSON(w, doneJSON{true})
}

// doneJSON is the answer to an act that has nothing to tell.
type doneJSON struct {
	Done bool `json:"done"`
}

func (s *Server) postPause(w http.ResponseWriter, r *http.Request) error {
	return s.hold(w, r, func(in *holdRequest, _ operate.Target) *problem {
		switch {
		case in.Key != "":
			return invalid("key", "does not belong here: a pause is of a route or a binding; a halt is of a key")
		case in.ID != "":
			return invalid("id", "does not belong here: a pause is of a route or a binding; a halt is of a message")
		}
		return nil
	}, func(ctx context.Context, t operate.Target, _, _ string, who operate.Who) error {
		return s.options.Desk.Pause(ctx, t, who)
	})
}

func (s *Server) postHalt(w http.ResponseWriter, r *http.Request) error {
	return s.hold(w, r, func(in *holdRequest, t operate.Target) *problem {
		switch {
		case t.Binding == "":
			return invalid("target", "is a route; a halt is of a key or a message of a binding, like orders/crm")
		case in.Key == "" && in.ID == "":
			return invalid("key", "is missing, and id too: a halt is of a key, or of a message without one")
		}
		return nil
	}, s.options.Desk.Halt)
}

func (s *Server) postResume(w http.ResponseWriter, r *http.Request) error {
	return s.hold(w, r, func(*holdRequest, operate.Target) *problem { return nil }, s.options.Desk.Resume)
}

// retryRequest is the body of a retry.
type retryRequest struct {
	act
	Filter filterJSON `json:"filter"`
}

// countJSON is the answer to an act on so many records.
type countJSON struct {
	Count int `json:"count"`
}

func (s *Server) postRetry(w http.ResponseWriter, r *http.Request) error {
	var in retryRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	filter, err := s.selection(r.Context(), &in.Filter)
	if err != nil {
		return err
	}
	who, err := s.who(r, in.act)
	if err != nil {
		return err
	}
	return long(s, w, r, func(ctx context.Context, _ func(int)) (countJSON, error) {
		n, err := s.options.Desk.Retry(ctx, filter, who)
		return countJSON{n}, err
	})
}

// selection reads a filter of something that is to be changed; the target that it
// names must be known.
func (s *Server) selection(ctx context.Context, in *filterJSON) (gobridge.Filter, error) {
	filter, p := in.filter()
	if p != nil {
		return filter, p
	}
	if filter.Route == "" && filter.Partition == "" {
		return filter, invalid("filter.route", "is missing, and partition too: what is changed is of a route or a part of it")
	}
	if filter.Route == "" {
		return filter, nil
	}
	t, p := targetOf("filter.route", operate.Target{Route: filter.Route, Binding: filter.Binding}.String())
	if p != nil {
		return filter, p
	}
	return filter, s.options.Desk.Known(ctx, t)
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

func (s *Server) postJob(w http.ResponseWriter, r *http.Request) error {
	var in jobRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	filter, err := s.selection(r.Context(), &in.Filter)
	switch {
	case err != nil:
		return err
	case in.Kind != operate.Redrive && in.Kind != operate.Discard:
		return invalid("kind", "is %q; it is redrive or discard", in.Kind)
	case in.Max < 0:
		return invalid("max", "is below zero")
	case in.Pace < 0:
		return invalid("pace", "is below zero")
	case in.Kind == operate.Discard && len(filter.States) == 0:
		return invalid("filter.states", "is missing: pending, dead or both")
	}
	var who operate.Who
	if !in.DryRun {
		if who, err = s.who(r, in.act); err != nil {
			return err
		}
	}
	job := operate.Job{Kind: in.Kind, Filter: filter, Max: in.Max, Pace: in.Pace, DryRun: in.DryRun}
	return long(s, w, r, func(ctx context.Context, progress func(int)) (operate.BulkReport, error) {
		return s.options.Desk.Do(ctx, job, who, progress)
	})
}

// moveRequest is the body of a move.
type moveRequest struct {
	act
	From string `json:"from"`
	To   string `json:"to"`
}

// moveJSON is what came of it.
type moveJSON struct {
	Moved   int       `json:"moved"`
	Expired int       `json:"expired"`
	Left    statsJSON `json:"left"`
}

func (s *Server) postMove(w http.ResponseWriter, r *http.Request) error {
	var in moveRequest
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	from, err := s.binding(r.Context(), "from", in.From)
	if err != nil {
		return err
	}
	to, err := s.binding(r.Context(), "to", in.To)
	if err != nil {
		return err
	}
	who, err := s.who(r, in.act)
	if err != nil {
		return err
	}
	return long(s, w, r, func(ctx context.Context, _ func(int)) (moveJSON, error) {
		result, err := s.options.Desk.Move(ctx, from, to, who)
		left := result.Left
		return moveJSON{result.Moved, result.Expired, statsJSON{left.Pending, left.Claimed, left.Dead}}, err
	})
}

// binding reads a target that is a known binding.
func (s *Server) binding(ctx context.Context, field, text string) (operate.Target, error) {
	t, p := targetOf(field, text)
	if p == nil && t.Binding == "" {
		p = invalid(field, "is a route; name a binding, like orders/crm")
	}
	if p != nil {
		return t, p
	}
	return t, s.options.Desk.Known(ctx, t)
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
	if err := s.options.Desk.Known(r.Context(), t); err != nil {
		return err
	}
	if !s.options.Desk.Removed(t.Route, t.Binding) {
		return newProblem(http.StatusConflict, "%s is in the configuration: only what was removed from it is ended as a whole", t)
	}
	who, err := s.who(r, in.act)
	if err != nil {
		return err
	}
	return long(s, w, r, func(ctx context.Context, _ func(int)) (countJSON, error) {
		n, err := s.options.Desk.EndRemoved(ctx, t, who)
		return countJSON{n}, err
	})
}

// reloadJSON is what a reload changed, for people.
type reloadJSON struct {
	Changed string `json:"changed"`
}

func (s *Server) postReload(w http.ResponseWriter, r *http.Request) error {
	var in act
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	if s.options.Reload == nil {
		return newProblem(http.StatusNotImplemented, "This process can't load its configuration anew; start it again.")
	}
	if _, err := s.who(r, in); err != nil {
		return err
	}
	keepOpen(w)
	changed, err := s.options.Reload(r.Context())
	if err != nil {
		return newProblem(http.StatusConflict, "%v", err)
	}
	return writeJSON(w, reloadJSON{changed})
}
