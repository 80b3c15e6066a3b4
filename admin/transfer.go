package admin

import (
	"context"
	"io"
	"log/slog"
	"net/http"

	"gobridge/operate"
)

// maxImport bounds an import, in bytes: larger ones go in parts.
const maxImport = 4 << 30

// getExport needs the role that may see payloads: they are in it. An export that
// fails in the middle breaks its connection off, so that nobody takes it for whole.
func (s *Server) getExport(w http.ResponseWriter, r *http.Request) error {
	if !s.mayPayload(r.Context()) {
		return newProblem(http.StatusForbidden, "An export has payloads, which need the role %s.", s.options.Payloads)
	}
	filter, p := queryFilter(r.URL.Query())
	if p != nil {
		return p
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &export{w: w}
	_, err := s.options.Desk.Export(r.Context(), filter, out, nil, nil)
	switch {
	case err != nil && out.begun:
		s.log.Log(r.Context(), slog.LevelWarn, "an export over the admin listener broke off", "error", err)
		panic(http.ErrAbortHandler) // this is how net/http is told
	case err != nil:
		return err
	}
	return nil
}

// export is the answer that an export goes into.
type export struct {
	w     http.ResponseWriter
	begun bool
}

func (e *export) Write(b []byte) (int, error) {
	e.begun = true
	keepOpen(e.w)
	return e.w.Write(b)
}

func (s *Server) postImport(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	dry, p := queryBool(q, "dry_run")
	if p != nil {
		return p
	}
	var to operate.Target
	if q.Get("target") != "" {
		var err error
		if to, err = s.binding(r.Context(), "target", q.Get("target")); err != nil {
			return err
		}
	}
	var who operate.Who
	if !dry {
		var err error
		if who, err = s.who(r, act{By: q.Get("by"), Reason: q.Get("reason")}); err != nil {
			return err
		}
	}
	// The answer may begin while the body is still being read.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		return err
	}
	body := http.MaxBytesReader(w, r.Body, maxImport)
	defer func() { _, _ = io.Copy(io.Discard, io.LimitReader(&patient{body, w}, maxBody)) }()
	return long(s, w, r, func(ctx context.Context, progress func(int)) (operate.ImportReport, error) {
		return s.options.Desk.Import(ctx, &patient{body, w}, to, who, dry, progress)
	})
}
