package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gobridge"
)

const selectSize = `SELECT (SELECT page_count FROM pragma_page_count()), (SELECT freelist_count FROM pragma_freelist_count()),
	(SELECT page_size FROM pragma_page_size())`

// disk watches how much of its disk the database takes.
type disk struct {
	file  string
	share float64
	every time.Duration
	// size returns the bytes in use and those that the file has spare, free
	// those that the disk has; free is nil where nobody can tell.
	size func(context.Context) (used, spare int64, err error)
	free func() (int64, error)

	mu      sync.Mutex
	looked  time.Time
	refusal error
}

// check returns an error while the database takes more than its share. It looks
// at most once a second.
func (d *disk) check(ctx context.Context) error {
	if d.free == nil || d.share >= 1 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.looked.IsZero() && time.Since(d.looked) < d.every {
		return d.refusal
	}
	used, spare, err := d.size(ctx)
	if err != nil {
		return d.refusal // a look that failed says nothing; the write itself will
	}
	free, err := d.free()
	if err != nil {
		return d.refusal
	}
	d.looked, d.refusal = time.Now(), nil
	if total := used + spare + free; float64(used) > d.share*float64(total) {
		d.refusal = fmt.Errorf("%w: it takes %d MiB and its disk, that of %s, has %d MiB left, less than %.0f %% of the two together",
			gobridge.ErrOutboxFull, used>>20, d.file, (spare+free)>>20, 100*(1-d.share))
	}
	return d.refusal
}

// fullError is what an operation returns when check has refused.
func fullError(op string, p gobridge.Partition, err error) error {
	out := &gobridge.Error{Op: op, Partition: p, Err: err}
	if errors.Is(err, gobridge.ErrOutboxFull) {
		out.Hint = "make room on the disk; or let the destinations take what waits, which makes room in the outbox"
	}
	return out
}
