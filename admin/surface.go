package admin

import (
	"context"
	"net/http"
	"time"

	"gobridge/operate"
)

// Console makes the web console's handler.
type Console func(*Surface) http.Handler

// Surface is what a console works with. It is safe for concurrent use.
type Surface struct {
	Desk Desk
	// Payloads is the role that may see payloads.
	Payloads Role
	// Config returns the configuration as it was loaded, without secrets; nil is none.
	Config func() string
	// Reload loads the configuration anew; nil can't.
	Reload func(ctx context.Context) (string, error)

	server *Server
}

// Status is the desk's, of a second ago at most: whoever asks meanwhile shares one
// look.
func (s *Surface) Status(ctx context.Context) (operate.Status, error) {
	return s.server.looks.get(ctx)
}

// Watch calls f with a new status every second or so until ctx ends, or f returns
// an error, which it returns. All who watch share one look. An error of the look
// itself goes to f.
func (s *Surface) Watch(ctx context.Context, f func(operate.Status, error) error) error {
	for {
		status, err := s.Status(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		if err := f(status, err); err != nil {
			return err
		}
		select {
		case <-time.After(lookAge):
		case <-s.server.closing:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// KeepOpen is for answers that take longer than half a minute, streams of events
// for instance: called before each write, it gives the client a minute to take it.
func (s *Surface) KeepOpen(w http.ResponseWriter) { keepOpen(w) }
