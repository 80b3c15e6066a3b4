package bridgetest

import (
	"sync"
	"time"
)

// Clock is a clock that stands still until [Harness.Advance] moves it. Hand its
// Now to the store and to the code under test.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows the present time.
func NewClock() *Clock { return &Clock{now: time.Now().Round(0)} }

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *Clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}
