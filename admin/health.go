package admin

import (
	"context"
	"net/http"
	"time"
)

// readyTime bounds the look at whether the process can work.
const readyTime = 5 * time.Second

// live says that the process answers.
func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	_ = writeJSON(w, map[string]any{"status": "live"}) // a constant can be written
}

// ready says whether the process can do its work. Why not, the log says: this is
// for anyone.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	if s.options.Ready != nil {
		if err := s.options.Ready(ctx); err != nil {
			s.log.Debug("not ready", "error", err)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = writeJSON(w, map[string]any{"status": "not ready"})
			return
		}
	}
	_ = writeJSON(w, map[string]any{"status": "ready"})
}
