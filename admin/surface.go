package admin

import (
	"context"
	"net/http"
	"sync"
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
	return s.server.looks.status(ctx)
}

// Watch calls f with a new status every second or so until ctx ends, or f returns
// an error, which it returns. All who watch share one look. An error of the look
// itself goes to f.
func (s *Surface) Watch(ctx context.Context, f func(operate.Status, error) error) error {
	for {
		status, err := s.Status(ctx)
		if ctx.Err() != nil {
			return nil
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

const (
	// lookAge is for how long a look is good.
	lookAge = time.Second
	// lookTime bounds a look.
	lookTime = 10 * time.Second
)

// looks shares looks at the desk.
type looks struct {
	desk Desk

	mu      sync.Mutex
	last    operate.Status
	err     error
	at      time.Time
	running chan struct{} // closed when the look under way has ended; nil for none
}

func (l *looks) status(ctx context.Context) (operate.Status, error) {
	l.mu.Lock()
	if !l.at.IsZero() && time.Since(l.at) < lookAge {
		defer l.mu.Unlock()
		return l.last, l.err
	}
	running := l.running
	if running == nil {
		running = make(chan struct{})
		l.running = running
		go l.look(context.WithoutCancel(ctx), running)
	}
	l.mu.Unlock()
	select {
	case <-running:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.last, l.err
	case <-ctx.Done():
		return operate.Status{}, ctx.Err()
	}
}

// look asks the desk. It goes on when its asker has gone: others wait for it.
func (l *looks) look(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	status, err := l.desk.Status(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.err, l.at = status, err, time.Now()
	l.running = nil
	close(done)
}

// wait waits for the look under way.
func (l *looks) wait() {
	l.mu.Lock()
	running := l.running
	l.mu.Unlock()
	if running != nil {
		<-running
	}
}
