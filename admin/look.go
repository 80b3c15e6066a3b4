package admin

import (
	"cmp"
	"net/http"

	"gobridge"
	"gobridge/operate"
)

func (s *Server) getStatus(w http.ResponseWriter, r *http.Request) error {
	status, err := s.looks.get(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, status)
}

// deliveryJSON is the health of the delivery to one binding.
type deliveryJSON struct {
	Route            string  `json:"route"`
	Binding          string  `json:"binding"`
	Healthy          bool    `json:"healthy"`
	State            string  `json:"state"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	LimitSeconds     float64 `json:"limit_seconds,omitempty"` // zero is none
}

// getDelivery answers 503 if anything has waited for longer than its limit.
func (s *Server) getDelivery(w http.ResponseWriter, r *http.Request) error {
	status, err := s.looks.get(r.Context())
	if err != nil {
		return err
	}
	out := struct {
		Healthy  bool           `json:"healthy"`
		Bindings []deliveryJSON `json:"bindings"`
	}{true, []deliveryJSON{}}
	for _, b := range status.Bindings {
		limit := s.options.UnhealthyAfter
		if f := s.options.UnhealthyAfterOf; f != nil {
			limit = cmp.Or(f(b.Route, b.Binding), limit)
		}
		one := deliveryJSON{
			Route: b.Route, Binding: b.Binding, State: b.State, OldestAgeSeconds: b.OldestAgeSeconds,
			Healthy: limit < 0 || b.OldestAgeSeconds <= limit.Seconds(), LimitSeconds: max(0, limit.Seconds()),
		}
		out.Healthy = out.Healthy && one.Healthy
		out.Bindings = append(out.Bindings, one)
	}
	if !out.Healthy {
		return writeStatus(w, http.StatusServiceUnavailable, out)
	}
	return writeJSON(w, out)
}

func (s *Server) getExplain(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	kind := q.Get("kind")
	switch {
	case q.Get("q") == "":
		return invalid("q", "is missing: a message's ID, an ordering key, a binding or a route")
	case kind != "" && kind != "key" && kind != "id":
		return invalid("kind", "is neither key nor id")
	}
	answers, err := s.options.Desk.Explain(r.Context(), operate.Question{Text: q.Get("q"), OnlyKey: kind == "key", OnlyID: kind == "id"})
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]any{"answers": answers})
}

// queryTarget reads the parameter target.
func queryTarget(r *http.Request) (operate.Target, error) {
	text := r.URL.Query().Get("target")
	if text == "" {
		return operate.Target{}, invalid("target", "is missing: a route (orders), a binding (orders/billing) or a partition (orders/billing/0)")
	}
	t, p := targetOf("target", text)
	if p != nil {
		return t, p
	}
	return t, nil
}

func (s *Server) getKnown(w http.ResponseWriter, r *http.Request) error {
	t, err := queryTarget(r)
	if err == nil {
		err = s.options.Desk.Known(r.Context(), t)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]any{"known": true})
}

func (s *Server) getRemoved(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if q.Get("route") == "" {
		return invalid("route", "is missing")
	}
	return writeJSON(w, map[string]any{"removed": s.options.Desk.Removed(q.Get("route"), q.Get("binding"))})
}

func (s *Server) getRecord(w http.ResponseWriter, r *http.Request) error {
	t, err := queryTarget(r)
	if err != nil {
		return err
	}
	id := r.URL.Query().Get("id")
	if id == "" {
		return invalid("id", "is missing: the message's ID")
	}
	record, err := s.options.Desk.Get(r.Context(), t, id)
	if err != nil {
		return err
	}
	out, err := toRecordJSON(record, s.mayPayload(r.Context()))
	if err != nil {
		return err
	}
	return writeJSON(w, out)
}

func (s *Server) getWaiting(w http.ResponseWriter, r *http.Request) error {
	t, err := queryTarget(r)
	if err != nil {
		return err
	}
	n, err := s.options.Desk.Waiting(r.Context(), t)
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]any{"waiting": n})
}

func (s *Server) getHolding(w http.ResponseWriter, r *http.Request) error {
	t, err := queryTarget(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if q.Get("key") != "" && q.Get("id") != "" {
		return invalid("id", "contradicts key: a message with a key is held by its key")
	}
	controls, err := s.options.Desk.Holding(r.Context(), t, q.Get("key"), q.Get("id"))
	if err != nil {
		return err
	}
	out := []controlJSON{}
	for _, c := range controls {
		out = append(out, toControlJSON(c))
	}
	return writeJSON(w, map[string]any{"controls": out})
}

func (s *Server) getAudit(w http.ResponseWriter, r *http.Request) error {
	limit, p := queryInt(r.URL.Query(), "limit", 100, gobridge.AuditLimit)
	if p != nil {
		return p
	}
	entries, err := s.options.Desk.Audit(r.Context(), limit)
	if err != nil {
		return err
	}
	out := []auditJSON{}
	for _, e := range entries {
		out = append(out, auditJSON{e.At, string(e.Action), operate.Text(e.Scope), e.Count, e.By, e.Reason})
	}
	return writeJSON(w, map[string]any{"entries": out})
}

func (s *Server) getConfig(w http.ResponseWriter, _ *http.Request) error {
	if s.options.Config == nil {
		return newProblem(http.StatusNotImplemented, "This process was not started from a configuration file.")
	}
	return writeJSON(w, map[string]any{"config": s.options.Config()})
}

// maxDeadPage is the largest page of dead letters.
const maxDeadPage = 1000

func (s *Server) getDead(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	filter, p := queryFilter(q)
	if p != nil {
		return p
	}
	limit, p := queryInt(q, "limit", 100, maxDeadPage)
	if p != nil {
		return p
	}
	page, err := s.options.Desk.Dead(r.Context(), gobridge.DeadQuery{Filter: filter, Limit: limit, Cursor: q.Get("cursor")})
	if err != nil {
		return err
	}
	if page.Records == nil {
		page.Records = []operate.RecordView{} // a list, though an empty one
	}
	return writeJSON(w, page)
}
