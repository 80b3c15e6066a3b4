package dynamodb

import (
	"slices"
	"sync/atomic"

	"gobridge"
)

// watcher is a function that wants to know of new work.
type watcher struct {
	f       func(gobridge.Partition)
	stopped atomic.Bool
}

// Notify implements [gobridge.Notifier] for what this handle changes. Of other
// processes' changes DynamoDB tells nobody in time: drainers poll.
func (s *Store) Notify(f func(gobridge.Partition)) (stop func()) {
	w := &watcher{f: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers == nil {
		s.watchers = map[*watcher]struct{}{}
	}
	s.watchers[w] = struct{}{}
	return func() {
		w.stopped.Store(true)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}
}

// announce tells every watcher that records of these partitions may have become
// claimable.
func (s *Store) announce(touched []gobridge.Partition) {
	if len(touched) == 0 {
		return
	}
	touched = slices.Compact(slices.Sorted(slices.Values(touched)))
	s.mu.Lock()
	watchers := make([]*watcher, 0, len(s.watchers))
	for w := range s.watchers {
		watchers = append(watchers, w)
	}
	s.mu.Unlock()
	for _, w := range watchers {
		for _, p := range touched {
			if !w.stopped.Load() {
				w.f(p)
			}
		}
	}
}
