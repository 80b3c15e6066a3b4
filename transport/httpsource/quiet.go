package httpsource

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// quietFor is how long a trouble that goes on is not logged again. While a disk
// is full, a line for each refused message would fill it further.
const quietFor = 10 * time.Second

// trouble logs one kind of trouble: the first case at once, then one in
// quietFor with the number of those that were left out.
type trouble struct {
	mu      sync.Mutex
	since   time.Time // of the last line
	leftOut int
}

func (t *trouble) log(ctx context.Context, log *slog.Logger, level slog.Level, message string, attrs ...slog.Attr) {
	now := time.Now()
	t.mu.Lock()
	if !t.since.IsZero() && now.Sub(t.since) < quietFor {
		t.leftOut++
		t.mu.Unlock()
		return
	}
	leftOut := t.leftOut
	t.since, t.leftOut = now, 0
	t.mu.Unlock()
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("more_like_this", leftOut))
	}
	log.LogAttrs(ctx, level, message, attrs...)
}
