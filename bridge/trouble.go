package bridge

import (
	"strings"
	"sync"
	"time"

	"gobridge"
)

// publishAfter is the least pause between two changes of what a partition's lease
// says of errors: each is a write.
const publishAfter = 10 * time.Second

// troubles are what last went wrong with each partition, for the leases to tell
// other processes. They are safe for concurrent use.
type troubles struct {
	now func() time.Time // the clock that people read

	mu  sync.Mutex
	all map[gobridge.Partition]*trouble
}

type trouble struct {
	newest, published note
	changed           time.Time // published, by the monotonic clock
}

type note struct {
	text string
	at   time.Time
}

// note takes down that something went wrong.
func (t *troubles) note(p gobridge.Partition, what string, err error) {
	text := bounded(what+": "+err.Error(), gobridge.MaxLeaseError)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[gobridge.Partition]*trouble{}
	}
	one := t.all[p]
	if one == nil {
		one = &trouble{}
		t.all[p] = one
	}
	one.newest = note{text, t.now().Round(0)}
}

// tell makes a lease say what last went wrong with its partition.
func (t *troubles) tell(l *gobridge.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.all[l.Partition]
	if one == nil {
		return
	}
	if now := time.Now(); one.newest != one.published && (one.changed.IsZero() || now.Sub(one.changed) >= publishAfter) {
		one.published, one.changed = one.newest, now
	}
	l.LastError, l.LastErrorAt = one.published.text, one.published.at
}

// bounded makes a text that a store can keep, of most bytes at most.
func bounded(text string, most int) string {
	const more = " ..."
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len(more)], "") + more
	}
	return text
}
