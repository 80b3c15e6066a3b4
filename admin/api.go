package admin

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gobridge/operate"
)

// apiPrefix begins every path of the API.
const apiPrefix = "/api/v1"

// descriptionPath is where the description is, without apiPrefix.
const descriptionPath = "/openapi.yaml"

// description is the API in OpenAPI 3.1.
//
//go:embed openapi.yaml
var description []byte

func (s *Server) getDescription(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml") // RFC 9512
	_, _ = w.Write(description)                        // a client that has gone needs no more
	return nil
}

// endpoint is one operation of the API.
type endpoint struct {
	method, path string // path without apiPrefix
	role         Role
	long         bool     // it may take longer than requestTime
	parameters   []string // of the query; others are refused
	// serve answers, or returns what was wrong. It writes nothing before an error.
	serve func(s *Server, w http.ResponseWriter, r *http.Request) error
}

// endpoints are all of the API, in the order of its description.
func endpoints() []endpoint {
	return []endpoint{
		{"GET", descriptionPath, RoleRead, false, nil, (*Server).getDescription},
		{"GET", "/status", RoleRead, false, nil, (*Server).getStatus},
		{"GET", "/delivery", RoleRead, false, nil, (*Server).getDelivery},
		{"GET", "/explain", RoleRead, false, []string{"q", "kind"}, (*Server).getExplain},
		{"GET", "/known", RoleRead, false, []string{"target"}, (*Server).getKnown},
		{"GET", "/removed", RoleRead, false, []string{"route", "binding"}, (*Server).getRemoved},
		{"GET", "/record", RoleRead, false, []string{"target", "id"}, (*Server).getRecord},
		{"GET", "/waiting", RoleRead, false, []string{"target"}, (*Server).getWaiting},
		{"GET", "/holding", RoleRead, false, []string{"target", "key", "id"}, (*Server).getHolding},
		{"GET", "/audit", RoleRead, false, []string{"limit"}, (*Server).getAudit},
		{"GET", "/config", RoleRead, false, nil, (*Server).getConfig},
		{"GET", "/dead", RoleRead, false, append([]string{"limit", "cursor"}, filterParameters...), (*Server).getDead},
		{"GET", "/dead/export", RoleRead, true, filterParameters, (*Server).getExport},
		{"POST", "/dead/import", RoleOperate, true, []string{"target", "dry_run", "by", "reason"}, (*Server).postImport},
		{"POST", "/pause", RoleOperate, false, nil, (*Server).postPause},
		{"POST", "/halt", RoleOperate, false, nil, (*Server).postHalt},
		{"POST", "/resume", RoleOperate, false, nil, (*Server).postResume},
		{"POST", "/retry", RoleOperate, true, nil, (*Server).postRetry},
		{"POST", "/jobs", RoleOperate, true, nil, (*Server).postJob},
		{"POST", "/move", RoleOperate, true, nil, (*Server).postMove},
		{"POST", "/end-removed", RoleOperate, true, nil, (*Server).postEndRemoved},
		{"POST", "/reload", RoleOperate, true, nil, (*Server).postReload},
	}
}

// api serves the endpoints, and says of other paths and methods what there is.
func (s *Server) api() http.Handler {
	mux := http.NewServeMux()
	methods := map[string]string{}
	for _, e := range endpoints() {
		methods[e.path] = e.method
		mux.Handle(e.method+" "+apiPrefix+e.path, s.allow(e.role, s.serve(e)))
	}
	for path, method := range methods {
		mux.Handle(apiPrefix+path, s.allow(RoleRead, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", method)
			writeProblem(w, newProblem(http.StatusMethodNotAllowed, "This takes %s.", method))
		})))
	}
	mux.Handle(apiPrefix+"/", s.allow(RoleRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, newProblem(http.StatusNotFound, "There is no %s; GET %s%s describes what there is.", r.URL.Path, apiPrefix, descriptionPath))
	})))
	return mux
}

// requestTime bounds what a request that is not long may take.
const requestTime = 30 * time.Second

func (s *Server) serve(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := checkQuery(r, e.parameters)
		if err == nil && !e.long {
			ctx, cancel := context.WithTimeout(r.Context(), requestTime)
			defer cancel()
			r = r.WithContext(ctx)
		}
		if err == nil {
			err = e.serve(s, w, r)
		}
		if err != nil {
			writeProblem(w, s.problemOf(r, err))
		}
	})
}

// checkQuery refuses what is no parameter: a misspelt filter would select too much.
func checkQuery(r *http.Request, known []string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("query", "can't be read: %v", err)
	}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return invalid(name, "is no parameter of this, which has none")
		case !slices.Contains(known, name):
			return invalid(name, "is no parameter of this; those are %s", strings.Join(known, ", "))
		case len(values) > 1:
			return invalid(name, "is given more than once")
		}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, v any) error { return writeStatus(w, http.StatusOK, v) }

func writeStatus(w http.ResponseWriter, status int, v any) error {
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(out, '\n')) // a client that has gone needs no more
	return nil
}

// readJSON reads a body: one JSON object without unknown fields.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return newProblem(http.StatusUnsupportedMediaType, "The body is JSON, with Content-Type: application/json.")
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

// who checks the act, logs it, and says who acts for the store's audit.
func (s *Server) who(r *http.Request, a act) (operate.Who, error) {
	if strings.TrimSpace(a.Reason) == "" {
		return operate.Who{}, invalid("reason", "is missing: say why, for those who read the audit")
	}
	if err := checkText("reason", a.Reason, maxReason); err != nil {
		return operate.Who{}, err
	}
	if err := checkText("by", a.By, maxBy); err != nil {
		return operate.Who{}, err
	}
	who := operate.Who{By: CallerOf(r.Context()).Named(a.By), Reason: a.Reason}
	s.log.Info("an act over the admin listener", "path", r.URL.Path, "by", who.By, "reason", who.Reason, "remote", r.RemoteAddr)
	return who, nil
}

// checkText refuses what would not fit the audit, or make mischief in the terminal
// of whoever reads it.
func checkText(field, text string, most int) error {
	switch {
	case len(text) > most:
		return invalid(field, "has %d bytes; the limit is %d", len(text), most)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return invalid(field, "has control characters, or is not UTF-8")
	}
	return nil
}

// mayPayload reports whether the caller may see payloads.
func (s *Server) mayPayload(ctx context.Context) bool {
	return CallerOf(ctx).Role >= s.options.Payloads
}
