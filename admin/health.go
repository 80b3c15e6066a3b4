package admin

import "net/http"

// healthJSON is the answer of the health checks.
type healthJSON struct {
	Status string `json:"status"`
}

// live says that the process answers.
func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	_ = writeJSON(w, healthJSON{"live"}) // a constant can be written
}

// ready says whether the process can do its work, as of a second ago at most: it is
// for anyone, and must cost no more however often it is asked. Why not, the log says.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	_, err := s.readiness.get(r.Context())
	if err != nil {
		s.log.Debug("not ready", "error", err)
		_ = writeStatus(w, http.StatusServiceUnavailable, healthJSON{"not ready"})
		return
	}
	_ = writeJSON(w, healthJSON{"ready"})
}
