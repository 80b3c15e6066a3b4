package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"

	"gobridge"
	"gobridge/operate"
)

// apiPrefix begins every path of the API.
const apiPrefix = "/api/v1"

// endpoint is one operation of the API.
type endpoint struct {
	method, path string // path without apiPrefix
	role         Role
	parameters   []string // of the query; others are refused
	// serve answers, or returns what was wrong. It writes nothing before an error.
	serve func(s *Server, w http.ResponseWriter, r *http.Request) error
}

// endpoints are all of the API, in the order of its description.
func endpoints() []endpoint {
	return []endpoint{
		{"GET", "/status", RoleRead, nil, (*Server).getStatus},
		{"GET", "/delivery", RoleRead, nil, (*Server).getDelivery},
		{"GET", "/explain", RoleRead, []string{"q", "kind"}, (*Server).getExplain},
		{"GET", "/known", RoleRead, []string{"target"}, (*Server).getKnown},
		{"GET", "/removed", RoleRead, []string{"route", "binding"}, (*Server).getRemoved},
		{"GET", "/record", RoleRead, []string{"target", "id"}, (*Server).getRecord},
		{"GET", "/waiting", RoleRead, []string{"target"}, (*Server).getWaiting},
		{"GET", "/holding", RoleRead, []string{"target", "key", "id"}, (*Server).getHolding},
		{"GET", "/audit", RoleRead, []string{"limit"}, (*Server).getAudit},
		{"GET", "/config", RoleRead, nil, (*Server).getConfig},
		{"GET", "/dead", RoleRead, append([]string{"limit", "cursor"}, filterParameters...), (*Server).getDead},
		{"GET", "/dead/export", RoleRead, filterParameters, (*Server).getExport},
		{"POST", "/dead/import", RoleOperate, []string{"target", "dry_run"}, (*Server).postImport},
		{"POST", "/pause", RoleOperate, nil, (*Server).postPause},
		{"POST", "/halt", RoleOperate, nil, (*Server).postHalt},
		{"POST", "/resume", RoleOperate, nil, (*Server).postResume},
		{"POST", "/retry", RoleOperate, nil, (*Server).postRetry},
		{"POST", "/jobs", RoleOperate, nil, (*Server).postJob},
		{"POST", "/move", RoleOperate, nil, (*Server).postMove},
		{"POST", "/end-removed", RoleOperate, nil, (*Server).postEndRemoved},
		{"POST", "/reload", RoleOperate, nil, (*Server).postReload},
	}
}

// api serves the endpoints, and says of other paths and methods what there is.
func (s *Server) api() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, e := range endpoints() {
		methods[e.path] = append(methods[e.path], e.method)
		mux.Handle(e.method+" "+apiPrefix+e.path, s.allow(e.role, s.serve(e)))
	}
	for path, allowed := range methods {
		mux.Handle(apiPrefix+path, s.allow(RoleRead, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			writeProblem(w, problem{Status: http.StatusMethodNotAllowed, Title: "Method not allowed", Detail: "This takes " + strings.Join(allowed, ", ") + "."})
		})))
	}
	mux.Handle(apiPrefix+"/", s.allow(RoleRead, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problem{Status: http.StatusNotFound, Title: "No such thing", Detail: "GET " + apiPrefix + "/openapi.json describes what there is."})
	})))
	return mux
}

func (s *Server) serve(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.URL.Query() {
			if !slices.Contains(e.parameters, name) {
				writeProblem(w, *invalid(name, "is no parameter of this; those are %s", strings.Join(append([]string{"none"}, e.parameters...), ", ")))
				return
			}
		}
		if err := e.serve(s, w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

func (p *problem) Error() string { return p.Detail }

// fail answers with what was wrong.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	writeProblem(w, s.problemOf(r, err))
}

func (s *Server) problemOf(r *http.Request, err error) problem {
	var p *problem
	var tooLong *http.MaxBytesError
	var field *gobridge.FieldError
	switch {
	case errors.As(err, &p):
		return *p
	case errors.As(err, &tooLong):
		return problem{Status: http.StatusRequestEntityTooLarge, Title: "Too large", Detail: fmt.Sprintf("The body has more than %d bytes.", tooLong.Limit)}
	case errors.Is(err, gobridge.ErrNotFound):
		return problem{Status: http.StatusNotFound, Title: "Not found", Detail: err.Error()}
	case errors.As(err, &field), errors.Is(err, gobridge.ErrInvalidRecord):
		return problem{Status: http.StatusUnprocessableEntity, Title: "Invalid", Detail: err.Error()}
	case errors.Is(err, gobridge.ErrDeadLettersFull), errors.Is(err, gobridge.ErrLeaseHeld):
		return problem{Status: http.StatusConflict, Title: "Not now", Detail: err.Error()}
	case r.Context().Err() != nil:
		return problem{Status: 499, Title: "Gone", Detail: "The client has gone."}
	}
	s.log.Log(r.Context(), slog.LevelError, "a request to the admin listener failed", "path", r.URL.Path, "error", err)
	return problem{Status: http.StatusServiceUnavailable, Title: "Not done", Detail: err.Error()}
}

func writeJSON(w http.ResponseWriter, v any) error {
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(out, '\n')) // a client that has gone needs no more
	return nil
}

// readJSON reads a body: one JSON object without unknown fields.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return &problem{Status: http.StatusUnsupportedMediaType, Title: "Not JSON", Detail: "The body is JSON, with Content-Type: application/json."}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var tooLong *http.MaxBytesError
		if errors.As(err, &tooLong) {
			return err
		}
		return invalid("body", "is not the JSON object that this takes: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("body", "goes on after the JSON object")
	}
	return nil
}

// act says who acts, on what, and why; it is part of every body that changes
// something.
type act struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason"`
}

// Bounds of the texts of an act, in bytes.
const (
	maxBy     = 100
	maxReason = 1000
)

// who checks the act. The name is the caller's word; the role is what is known.
func (a *act) who(r *http.Request) (operate.Who, error) {
	switch {
	case strings.TrimSpace(a.Reason) == "":
		return operate.Who{}, invalid("reason", "is missing: say why, for those who read the audit")
	case len(a.Reason) > maxReason:
		return operate.Who{}, invalid("reason", "has %d bytes; the limit is %d", len(a.Reason), maxReason)
	case len(a.By) > maxBy:
		return operate.Who{}, invalid("by", "has %d bytes; the limit is %d", len(a.By), maxBy)
	}
	by := a.By
	if by == "" {
		by = "token of role " + CallerOf(r.Context()).Role.String()
	}
	return operate.Who{By: by, Reason: a.Reason}, nil
}

// mayPayload reports whether the caller may see payloads.
func (s *Server) mayPayload(ctx context.Context) bool {
	return CallerOf(ctx).Role >= s.options.Payloads
}
