package torture

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// longestGap is the longest time in which a partition of the webhook had
// acknowledged messages that it had not taken yet, and none of its messages
// came; the text says where that was.
func (h *history) longestGap() (longest time.Duration, where string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	type message struct{ acked, came time.Duration }
	known := map[string]*message{}
	partitions := map[string][]*message{}
	for _, e := range h.events {
		switch {
		case e.kind == acked:
			if known[e.id] == nil {
				known[e.id] = &message{}
			}
			known[e.id].acked = e.at
		case e.kind == arrived && e.binding == "hook" && e.taken:
			m := known[e.id]
			if m == nil { // it can come before its producer has the answer
				m = &message{}
				known[e.id] = m
			}
			if m.came == 0 {
				m.came = e.at
				partitions[e.partition] = append(partitions[e.partition], m)
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(partitions)) {
		// In the order in which they came. The oldest that waits when one comes is
		// the one with the earliest answer among those that come later.
		all := partitions[p]
		oldest := make([]time.Duration, len(all))
		for i := len(all) - 1; i >= 0; i-- {
			oldest[i] = all[i].acked
			if i+1 < len(all) {
				oldest[i] = min(oldest[i], oldest[i+1])
			}
		}
		last := time.Duration(0)
		for i, m := range all {
			since := max(last, oldest[i])
			if gap := m.came - since; m.acked != 0 && gap > longest {
				longest = gap
				where = fmt.Sprintf("%s, %.3fs to %.3fs", p, since.Seconds(), m.came.Seconds())
			}
			last = m.came
		}
	}
	return longest, where
}
