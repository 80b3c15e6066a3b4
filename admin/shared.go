package admin

import (
	"context"
	"sync"
	"time"
)

// shared asks once for all who ask at about the same time. It is safe for
// concurrent use.
type shared[T any] struct {
	ask   func(ctx context.Context) (T, error)
	age   time.Duration // for how long an answer is good
	limit time.Duration // how long asking may take

	mu      sync.Mutex
	last    T
	err     error
	at      time.Time
	running chan struct{} // closed when the asking under way has ended; nil for none
}

func (s *shared[T]) get(ctx context.Context) (T, error) {
	s.mu.Lock()
	if !s.at.IsZero() && time.Since(s.at) < s.age {
		defer s.mu.Unlock()
		return s.last, s.err
	}
	running := s.running
	if running == nil {
		running = make(chan struct{})
		s.running = running
		go s.refresh(context.WithoutCancel(ctx), running)
	}
	s.mu.Unlock()
	select {
	case <-running:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.last, s.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// refresh goes on when whoever asked has gone: others wait for the answer.
func (s *shared[T]) refresh(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	last, err := s.ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.err, s.at = last, err, time.Now()
	s.running = nil
	close(done)
}

// wait waits for the asking under way.
func (s *shared[T]) wait() {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running != nil {
		<-running
	}
}
