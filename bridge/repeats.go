package bridge

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// repeatAfter is the least pause before something that goes on is said again;
	// it doubles each time, up to repeatMost.
	repeatAfter = 10 * time.Second
	repeatMost  = 10 * time.Minute
	// calm is how long something must not have happened to be news again.
	calm = time.Minute
)

// repeats sees to it that what happens again and again is said at once, then at
// growing intervals, with how often it has happened. It is safe for concurrent use.
type repeats struct {
	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	since time.Time // the first time
	last  time.Time
	next  time.Time // from when on it is said again
	pause time.Duration
	times int
}

// news notes that something happened, and returns whether to say so, and what to
// add then if it is not the first time.
func (r *repeats) news(what string) (say bool, attrs []slog.Attr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	one := r.seen[what]
	if one == nil || now.Sub(one.last) >= max(calm, one.pause) {
		if r.seen == nil {
			r.seen = map[string]*repeat{}
		}
		r.seen[what] = &repeat{since: now, last: now, next: now.Add(repeatAfter), pause: repeatAfter, times: 1}
		return true, nil
	}
	one.last = now
	one.times++
	if now.Before(one.next) {
		return false, nil
	}
	one.pause = min(2*one.pause, repeatMost)
	one.next = now.Add(one.pause)
	return true, []slog.Attr{slog.Int("times", one.times), slog.Duration("for", now.Sub(one.since))}
}
