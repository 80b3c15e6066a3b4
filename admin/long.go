package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// keepOpen lets an answer go on for as long as it takes. The end of the request's
// time would end its context, and what is written from now on has writeTimeout anew.
func keepOpen(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // where there are no deadlines, none ends it
	extendWrite(w)
}

func extendWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// step is a line of the answer to something long: how far it is, and at last what
// came of it. A report beside a problem tells what was done until then.
type step[T any] struct {
	Progress *int64   `json:"progress,omitempty"`
	Report   *T       `json:"report,omitempty"`
	Problem  *problem `json:"problem,omitempty"`
}

// progressEvery is how often something long says how far it is, so that nothing
// between here and the client takes the connection for dead.
const progressEvery = 2 * time.Second

// long does what may take any time and answers with lines of JSON, of which the
// last has the report. What fails before the first line is answered with a problem
// as usual. It ends when the client goes: what was done until then stays.
func long[T any](s *Server, w http.ResponseWriter, r *http.Request, do func(ctx context.Context, progress func(int)) (T, error)) error {
	keepOpen(w)
	var done atomic.Int64
	lines := &lines{w: w, out: json.NewEncoder(w)}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-time.After(progressEvery):
				n := done.Load()
				lines.write(step[T]{Progress: &n})
			case <-stop:
				return
			}
		}
	}()
	report, err := do(r.Context(), func(n int) { done.Store(int64(n)) })
	close(stop)
	<-stopped
	if err == nil {
		lines.write(step[T]{Report: &report})
		return nil
	}
	p := s.problemOf(r, err)
	if lines.begun {
		lines.write(step[T]{Report: &report, Problem: p})
		return nil
	}
	with := *p
	if with.Report, err = json.Marshal(&report); err != nil {
		return err
	}
	return &with
}

// lines are the lines of an answer. Only one goroutine writes them at a time.
type lines struct {
	w     http.ResponseWriter
	out   *json.Encoder
	begun bool
}

func (l *lines) write(line any) {
	if !l.begun {
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.begun = true
	}
	extendWrite(l.w)
	_ = l.out.Encode(line) // the work of a client that has gone ends by its context
	_ = http.NewResponseController(l.w).Flush()
}

// patient reads a body that may take any time, as long as it goes on coming.
type patient struct {
	io.Reader
	w http.ResponseWriter
}

func (p *patient) Read(b []byte) (int, error) {
	c := http.NewResponseController(p.w)
	_ = c.SetReadDeadline(time.Now().Add(readTimeout))
	n, err := p.Reader.Read(b)
	if err != nil {
		_ = c.SetReadDeadline(time.Time{}) // it would end the context of what goes on
	}
	return n, err
}
