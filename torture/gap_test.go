package torture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// gap is a time in which a partition of the webhook had acknowledged messages
// that it had not taken yet, and none of its messages came.
type gap struct {
	partition string
	from, to  time.Duration
	// version is the token's of the delivery that ended it, before that of the one
	// before it, zero for none.
	before, version int64
}

func (g gap) long() time.Duration { return g.to - g.from }

func (g gap) String() string {
	return fmt.Sprintf("%s at %s from %.3fs to %.3fs, token version %d after %d",
		g.long().Round(time.Millisecond), g.partition, g.from.Seconds(), g.to.Seconds(), g.version, g.before)
}

// longest is the longest of gaps, a zero one if there is none.
func longest(gaps []gap) gap {
	if len(gaps) == 0 {
		return gap{}
	}
	return slices.MaxFunc(gaps, func(a, b gap) int { return cmp.Compare(a.long(), b.long()) })
}

// gaps are the times before each delivery.
func (h *history) gaps() []gap {
	h.mu.Lock()
	defer h.mu.Unlock()
	answered := map[string]time.Duration{}
	for _, e := range h.events {
		if e.kind == acked {
			answered[e.id] = e.at
		}
	}
	came := map[string]bool{}
	partitions := map[string][]event{} // first deliveries, in their order
	for _, e := range h.events {
		if _, known := answered[e.id]; known && e.kind == arrived && e.binding == "hook" && e.taken && !came[e.id] {
			came[e.id] = true
			partitions[e.partition] = append(partitions[e.partition], e)
		}
	}
	var out []gap
	for _, p := range slices.Sorted(maps.Keys(partitions)) {
		out = append(out, gapsOf(partitions[p], answered)...)
	}
	return out
}

// gapsOf returns the gaps of one partition. What waits before a delivery is what
// comes with it or later and has been answered by then.
func gapsOf(deliveries []event, answered map[string]time.Duration) []gap {
	waits := make([]time.Duration, len(deliveries)) // since when something has waited
	for i, e := range slices.Backward(deliveries) {
		waits[i] = answered[e.id]
		if i+1 < len(deliveries) {
			waits[i] = min(waits[i], waits[i+1])
		}
	}
	var out []gap
	last := event{}
	for i, e := range deliveries {
		out = append(out, gap{e.partition, min(max(last.at, waits[i]), e.at), e.at, last.version, e.version})
		last = e
	}
	return out
}

// handovers are the gaps that end with the first delivery of another owner. They
// begin when the former one was told to stop, or began to hand over, if that is
// later than what the deliveries say.
func (r *rig) handovers() []gap {
	owners := map[string]int{} // process by partition and version
	for _, t := range r.book.tenancies() {
		owners[fmt.Sprint(t.partition, " ", t.version)] = t.pid
	}
	told := map[int]time.Duration{} // by process
	r.history.mu.Lock()
	for _, e := range r.history.events {
		if pid, what, ok := markOf(e); ok && strings.HasPrefix(what, "is told to stop") {
			told[pid] = e.at
		}
	}
	r.history.mu.Unlock()
	var out []gap
	for _, g := range r.history.gaps() {
		if g.before == 0 || g.before == g.version {
			continue
		}
		former := owners[fmt.Sprint(g.partition, " ", g.before)]
		if at, stopped := told[former]; stopped && at < g.to {
			g.from = max(g.from, at)
		}
		for _, l := range r.book.matching(logHandover, "partition="+g.partition+" ") {
			if l.pid == former && l.at < g.to {
				g.from = max(g.from, l.at)
			}
		}
		out = append(out, g)
	}
	return out
}
