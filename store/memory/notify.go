package memory

import (
	"slices"
	"sync/atomic"

	"gobridge"
)

// watcher is a function that wants to know of new work.
type watcher struct {
	handle  *Store
	f       func(gobridge.Partition)
	stopped atomic.Bool
}

// Notify implements [gobridge.Notifier]. Calls come from the goroutine that
// made the change, after it.
func (s *Store) Notify(f func(gobridge.Partition)) (stop func()) {
	w := &watcher{handle: s, f: f}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.db.watchers == nil {
		s.db.watchers = map[*watcher]struct{}{}
	}
	s.db.watchers[w] = struct{}{}
	return func() {
		w.stopped.Store(true)
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		delete(s.db.watchers, w)
	}
}

// announce tells every watcher that records of these partitions may have
// become claimable: which ones, if the change came through its own handle.
func (s *Store) announce(touched []gobridge.Partition) {
	if len(touched) == 0 {
		return
	}
	slices.Sort(touched)
	touched = slices.Compact(touched)
	s.db.mu.Lock()
	watchers := make([]*watcher, 0, len(s.db.watchers))
	for w := range s.db.watchers {
		watchers = append(watchers, w)
	}
	s.db.mu.Unlock()
	for _, w := range watchers {
		told := touched
		if w.handle != s {
			told = []gobridge.Partition{""}
		}
		for _, p := range told {
			if !w.stopped.Load() {
				w.f(p)
			}
		}
	}
}
