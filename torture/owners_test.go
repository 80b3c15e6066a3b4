package torture

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tenancy is a process's ownership of a partition, as the process logs it.
type tenancy struct {
	partition string
	version   int64
	pid       int
	from      time.Duration
	to        time.Duration // zero while it lasts, for all that the log says
}

// tenancyLine finds what a log line about a tenancy says of it.
var tenancyLine = regexp.MustCompile(`msg="(partition \w+)" partition=(\S+) version=(\d+)`)

// tenancies are all that there have been, in the order in which they began.
func (l *logbook) tenancies() []*tenancy {
	var out []*tenancy
	open := map[string]*tenancy{}
	for _, one := range l.matching("msg=\"partition ") {
		m := tenancyLine.FindStringSubmatch(one.text)
		if m == nil {
			continue
		}
		version, err := strconv.ParseInt(m[3], 10, 64)
		if err != nil {
			continue
		}
		name := m[2] + " " + m[3]
		switch m[1] {
		case logAcquired:
			open[name] = &tenancy{partition: m[2], version: version, pid: one.pid, from: one.at}
			out = append(out, open[name])
		case logReleased, logLost:
			if t := open[name]; t != nil {
				t.to = one.at
			}
		}
	}
	return out
}

// owners are the last tenancies of the partitions that have not ended.
func (l *logbook) owners() map[string]*tenancy {
	out := map[string]*tenancy{}
	for _, t := range l.tenancies() {
		if last := out[t.partition]; last == nil || last.version < t.version {
			out[t.partition] = t
		}
	}
	for p, t := range out {
		if t.to != 0 {
			delete(out, p)
		}
	}
	return out
}

// awaitShared waits until every partition is with a process that lives, and every
// process has its share.
func (c *crowd) awaitShared() {
	c.t.Helper()
	partitions := 2 * len(bindings) * c.partitions
	c.await("the processes share all partitions", func() bool {
		shares := map[int]int{}
		for _, t := range c.book.owners() {
			shares[t.pid]++
		}
		total := 0
		for _, p := range c.processes {
			c.mustRun(p)
			share := shares[p.command.Process.Pid]
			if share < partitions/len(c.processes) {
				return false
			}
			total += share
		}
		return total == partitions
	})
}

// awaitTakeover waits until all partitions that a process has lost at a moment are
// with somebody again, and returns how long the last of them was not.
func (c *crowd) awaitTakeover(lost []*tenancy, at time.Duration) time.Duration {
	c.t.Helper()
	var longest time.Duration
	c.await(fmt.Sprintf("all of %d partitions are taken over", len(lost)), func() bool {
		longest = 0
		next := map[string]*tenancy{}
		for _, t := range c.book.tenancies() {
			if t.from >= at && next[t.partition] == nil {
				next[t.partition] = t
			}
		}
		for _, t := range lost {
			taken := next[t.partition]
			if taken == nil || taken.version <= t.version {
				return false
			}
			longest = max(longest, taken.from-at)
		}
		return true
	})
	return longest
}

// held are the partitions that a process has now.
func (c *crowd) held(pid int) []*tenancy {
	var out []*tenancy
	for _, t := range c.book.owners() {
		if t.pid == pid {
			out = append(out, t)
		}
	}
	return out
}

// late is a delivery by a former owner, after the next one had begun.
type late struct {
	event
	by     int           // the process that sent it
	behind time.Duration // since the first delivery by a newer owner, or since its sender went on after that
}

// lates are all that came to the webhook under an older token than one before.
func (r *rig) lates() []late {
	senders := map[string]int{} // process by partition and version
	for _, t := range r.book.tenancies() {
		senders[fmt.Sprint(t.partition, t.version)] = t.pid
	}
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	var out []late
	resumed := map[int]time.Duration{}
	began := map[string][]event{} // of each partition the first delivery of each version, upwards
	for _, e := range r.history.events {
		if pid, what, ok := markOf(e); ok && strings.HasPrefix(what, "goes on") {
			resumed[pid] = e.at
		}
		if e.kind != arrived || e.binding != "hook" {
			continue
		}
		firsts := began[e.partition]
		if len(firsts) == 0 || firsts[len(firsts)-1].version < e.version {
			began[e.partition] = append(firsts, e)
			continue
		}
		if firsts[len(firsts)-1].version == e.version {
			continue
		}
		l := late{event: e, by: senders[fmt.Sprint(e.partition, e.version)]}
		for _, first := range firsts {
			if first.version > e.version {
				l.behind = e.at - max(first.at, resumed[l.by])
				break
			}
		}
		out = append(out, l)
	}
	return out
}

// markOf takes a mark about a process apart.
func markOf(e event) (pid int, what string, ok bool) {
	if e.kind != mark {
		return 0, "", false
	}
	words := strings.SplitN(e.note, " ", 3)
	if len(words) < 3 || words[0] != "process" {
		return 0, "", false
	}
	pid, err := strconv.Atoi(words[1])
	return pid, words[2], err == nil
}

// killed are the processes that were killed and can't say what they had under way.
func (r *rig) killed() map[int]bool {
	out := map[int]bool{}
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	for _, e := range r.history.events {
		if pid, what, ok := markOf(e); ok && strings.HasPrefix(what, "killed") {
			out[pid] = true
		}
	}
	return out
}

// wireSlack is what a busy machine may add to the time of a send.
const wireSlack = 2 * time.Second

// verifyLate checks that what came late was on its way at the takeover: it was
// logged by the process that sent it, unless that was killed; it came within
// the time of one send; and of a tenancy there are no more than it may have
// under way. It returns how late the latest was.
func (r *rig) verifyLate() (longest time.Duration) {
	r.t.Helper()
	killed := r.killed()
	perTenancy := map[string]int{}
	for _, l := range r.lates() {
		longest = max(longest, l.behind)
		said := r.book.matching(logLate, "partition="+l.partition+" ", "record="+l.id+" ")
		if !killed[l.by] && len(said) == 0 {
			r.t.Errorf("seed %d: process %d sent this late and does not say so: %s", r.seed, l.by, l.event)
		}
		if l.behind > sendTimeout+wireSlack {
			r.t.Errorf("seed %d: process %d sent this %s after the next owner, a send takes %s: %s",
				r.seed, l.by, l.behind, sendTimeout, l.event)
		}
		name := fmt.Sprint(l.partition, " version ", l.version)
		if perTenancy[name]++; perTenancy[name] == concurrency+1 {
			r.t.Errorf("seed %d: more than %d late deliveries for %s: %s", r.seed, concurrency, name, l.event)
		}
	}
	return longest
}
