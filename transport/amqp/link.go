package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge/internal/pause"
)

// Waits between two tries to connect, and how long the goodbye may take.
const (
	minRetryWait = 100 * time.Millisecond
	maxRetryWait = 5 * time.Second
	closeWait    = time.Second
)

// link is a TCP connection that is made when it is needed, and again when it has
// ended.
type link struct {
	conn    *Connection
	purpose string

	mu       sync.Mutex
	current  *session
	dialling chan struct{} // closed when the try under way has ended; nil for none
	failed   error         // of the last try
	failures int           // in a row
	retryAt  time.Time     // before it the failure is the answer
	closed   bool
}

// get returns the session, and connects if there is none. Callers share a try; soon
// after one has failed its error is the answer.
func (l *link) get(ctx context.Context) (*session, error) {
	for asked := false; ; asked = true {
		l.mu.Lock()
		if l.current != nil && !l.current.over() {
			s := l.current
			l.mu.Unlock()
			return s, nil
		}
		if l.closed {
			l.mu.Unlock()
			return nil, errClosed
		}
		if l.dialling == nil {
			if l.failed != nil && (asked || time.Now().Before(l.retryAt)) {
				err := l.failed
				l.mu.Unlock()
				return nil, err
			}
			l.dialling = make(chan struct{})
			if !l.conn.start(l.dial) {
				l.dialling = nil
				l.mu.Unlock()
				return nil, errClosed
			}
		}
		over := l.dialling
		l.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: %w", l.conn.where(), ctx.Err())
		}
	}
}

// dial tries all addresses once.
func (l *link) dial() {
	s, err := l.conn.dial(l.purpose)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.dialling)
	l.dialling = nil
	if l.failed = err; err != nil {
		l.retryAt = time.Now().Add(pause.Backoff(l.failures, minRetryWait, maxRetryWait))
		l.failures++
		return
	}
	l.failures = 0
	l.current = s
	if l.closed || !l.conn.start(func() { s.watch(l.conn.log, l.purpose) }) {
		s.close()
	}
}

// close ends the session. No other follows.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	s := l.current
	l.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// session is a connection that has been made.
type session struct {
	amqp    *amqp091.Connection
	raw     *wire
	address string
	closes  chan *amqp091.Error
	blocks  chan amqp091.Blocking
	reason  atomic.Pointer[string] // why the server takes nothing just now; nil if it does

	mu   sync.Mutex
	idle []*publisher // channels for the next sends
}

// watch follows what becomes of the connection until it has ended.
func (s *session) watch(log *slog.Logger, purpose string) {
	for {
		select {
		case b, ok := <-s.blocks:
			switch {
			case !ok:
				s.blocks = nil
			case b.Active:
				s.reason.Store(&b.Reason)
				log.Warn("the broker takes no messages for now", "address", s.address, "reason", b.Reason)
			default:
				s.reason.Store(nil)
				log.Info("the broker takes messages again", "address", s.address)
			}
		case err, told := <-s.closes:
			if told {
				log.Warn("the connection to the broker ended", "address", s.address, "purpose", purpose, "error", explain(err).Error())
			}
			return
		}
	}
}

func (s *session) over() bool { return s.amqp.IsClosed() }

// blocked says why the server takes no messages just now, if it does not.
func (s *session) blocked() (string, bool) {
	if reason := s.reason.Load(); reason != nil {
		return *reason, true
	}
	return "", false
}

// cut ends the connection without a word.
func (s *session) cut() { _ = s.raw.Close() }

// close ends the connection, with a goodbye if the server hears it.
func (s *session) close() {
	_ = s.amqp.CloseDeadline(time.Now().Add(closeWait)) // it is closed, whatever comes of it
	s.cut()
}

// bounded cuts the connection if what is done with it has not ended soon after ctx
// has. The function returned says that it has ended.
func (s *session) bounded(ctx context.Context) (end func()) {
	ended, watched := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(watched)
		timer := time.NewTimer(closeWait)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			s.cut()
		}
	})
	return func() {
		close(ended)
		if !stop() {
			<-watched
		}
	}
}

// closure returns why a channel was closed, as its listener was told.
func closure(closes <-chan *amqp091.Error) error {
	if err, told := <-closes; told {
		return err
	}
	return errClosed
}

// isCode reports whether the server answered with one of the codes.
func isCode(err error, codes ...int) bool {
	var e *amqp091.Error
	if !errors.As(err, &e) || !e.Server {
		return false
	}
	for _, code := range codes {
		if e.Code == code {
			return true
		}
	}
	return false
}
