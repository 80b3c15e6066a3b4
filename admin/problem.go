package admin

import (
	"encoding/json"
	"net/http"
)

// problem is an error as RFC 9457 has it.
type problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	// Field names what of the request was wrong, if one part was.
	Field string `json:"field,omitempty"`
}

func writeProblem(w http.ResponseWriter, p problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the status is out; a client that has gone needs no more
}
