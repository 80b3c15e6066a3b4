package torture

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"
)

// message is the payload of everything the producers send.
type message struct {
	ID  string `json:"id"`
	Key string `json:"key"` // empty for a message without order
	Seq int    `json:"seq"` // counts a key's messages from 1
	Pad string `json:"pad"`
}

func (m message) body() []byte {
	out, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return out
}

func digest(body []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(body)
	return h.Sum64()
}

// kind is what an event is about.
type kind uint8

const (
	sent    kind = iota // a producer sent it for the first time
	acked               // gobridge said that it has it
	arrived             // it reached a destination
	mark                // something was done to the process or to the disk
)

// event is one thing that the outside saw.
type event struct {
	at   time.Duration
	kind kind

	binding string
	id, key string
	seq     int
	digest  uint64

	// attempt is the number that an arrival carried; taken says that the
	// destination kept the message, whether or not gobridge got to know.
	attempt int
	taken   bool

	// partition and version are what a delivery to the webhook carried.
	partition string
	version   int64

	note string
}

func (e event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3fs ", e.at.Seconds())
	switch e.kind {
	case sent:
		fmt.Fprintf(&b, "sent    %s key=%s seq=%d", e.id, e.key, e.seq)
	case acked:
		fmt.Fprintf(&b, "acked   %s key=%s seq=%d", e.id, e.key, e.seq)
	case arrived:
		what := "refused"
		if e.taken {
			what = "taken"
		}
		fmt.Fprintf(&b, "%-7s %s key=%s seq=%d at %s, attempt %d", what, e.id, e.key, e.seq, e.binding, e.attempt)
	case mark:
		b.WriteString("--")
	}
	if e.note != "" {
		b.WriteString(" " + e.note)
	}
	return b.String()
}

// span is a stretch of time in which repeats need no attempt number: the old
// owner of a partition may still be sending when the new one begins.
type span struct{ from, to time.Duration }

// history is what the outside saw, in the order in which it did.
type history struct {
	start time.Time

	mu        sync.Mutex
	events    []event
	takeovers []span
	accepted  map[string]bool
	taken     map[string]map[string]bool // by binding and ID
	newest    time.Duration              // when the last message was taken for the first time
}

func newHistory() *history {
	return &history{start: time.Now(), accepted: map[string]bool{}, taken: map[string]map[string]bool{}}
}

// add records an event now, or at its time if it has one.
func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.at == 0 {
		e.at = time.Since(h.start)
	}
	h.events = append(h.events, e)
	switch {
	case e.kind == acked:
		h.accepted[e.id] = true
	case e.kind == arrived && e.taken:
		if h.taken[e.binding] == nil {
			h.taken[e.binding] = map[string]bool{}
		}
		if !h.taken[e.binding][e.id] {
			h.taken[e.binding][e.id] = true
			h.newest = e.at
		}
	}
}

func (h *history) mark(format string, args ...any) {
	h.add(event{kind: mark, note: fmt.Sprintf(format, args...)})
}

// takeover records a stretch in which ownership went from one to another.
func (h *history) takeover(from, to time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.takeovers = append(h.takeovers, span{from, to})
}

// missing counts accepted messages that a binding has not taken yet.
func (h *history) missing(binding string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for id := range h.accepted {
		if !h.taken[binding][id] {
			n++
		}
	}
	return n
}

// count counts the events that match.
func (h *history) count(match func(event) bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, e := range h.events {
		if match(e) {
			n++
		}
	}
	return n
}
