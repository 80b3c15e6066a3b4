// Package pause has the pauses between two tries of what failed.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d, and reports false if ctx ended first.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Jittered returns d less up to a half at random, so that those who failed together do
// not come again together.
func Jittered(d time.Duration) time.Duration { return d - rand.N(d/2+1) } //nolint:gosec // jitter

// Backoff returns how long to wait after so many failures in a row before this one: the
// shortest wait doubled with each, up to the longest, jittered.
func Backoff(failures int, shortest, longest time.Duration) time.Duration {
	d := longest
	if doubled := shortest << min(failures, 32); doubled>>min(failures, 32) == shortest {
		d = min(doubled, longest)
	}
	return Jittered(d)
}
