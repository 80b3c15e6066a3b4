package dynamodb

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Impatient makes the store try again without a wait, and sweep without a rest.
func (s *Store) Impatient() {
	s.pace = 0
	s.sleep = func(ctx context.Context, _ time.Duration) error {
		runtime.Gosched()
		return ctx.Err()
	}
}

// AfterPage calls f when claims have read that many pages of partitions.
func (s *Store) AfterPage(n int64, f func()) {
	var read atomic.Int64
	s.observer = pageObserver(func() {
		if read.Add(1) == n {
			f()
		}
	})
}

type pageObserver func()

func (f pageObserver) Observe(e Event) {
	if e.Metric == DynamoDBOutboxClaimScanPages {
		f()
	}
}

// SleepBy lets waits pass by moving a clock.
func (s *Store) SleepBy(advance func(time.Duration)) {
	s.sleep = func(ctx context.Context, d time.Duration) error {
		advance(d)
		return ctx.Err()
	}
}

// MoreThroughput is what helps where a limit was met.
var MoreThroughput = moreThroughput
