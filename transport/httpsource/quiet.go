package httpsource

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// quietFor is how long a trouble that goes on is not logged again. While a disk
// is full, a line for each refused message would fill it further.
const quietFor = 10 * time.Second

// serverLog takes what the HTTP server has to say. Most of it is about single
// connections, and their clients' doing; that it can't take any more, for there
// are too many open, is for the operator.
type serverLog struct {
	log       *slog.Logger
	accepting trouble
}

func (l *serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "Accept error") {
		l.accepting.log(context.Background(), l.log, slog.LevelWarn, "connections are not taken", slog.String("error", text))
	} else {
		l.log.Debug("HTTP server", "error", text)
	}
	return len(line), nil
}

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
