package torture

import (
	"fmt"
	"slices"
	"strings"
)

// rule is a promise that a history can break.
type rule string

const (
	ruleLoss      rule = "lost"      // acknowledged, and not delivered
	ruleOrder     rule = "reordered" // a key's messages arrived out of order
	ruleDuplicate rule = "repeated"  // a repeat that nothing explains
	ruleInvented  rule = "invented"  // delivered, and never sent like that
)

// violation is one broken promise.
type violation struct {
	rule    rule
	binding string
	id, key string
	text    string
}

// check returns every promise that the history breaks at one of the bindings.
func (h *history) check(bindings ...string) []violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	messages := map[string]event{}
	for _, e := range h.events {
		if e.kind == sent {
			messages[e.id] = e
		}
	}
	var out []violation
	for _, binding := range bindings {
		c := checker{history: h, binding: binding, messages: messages,
			arrivals: map[string]int{}, attempts: map[attempt]bool{}, keys: map[string]*progress{}}
		for _, e := range h.events {
			if e.kind == arrived && e.binding == binding {
				c.arrival(e)
			}
		}
		c.losses()
		out = append(out, c.found...)
	}
	return out
}

// checker follows the arrivals at one binding.
type checker struct {
	history  *history
	binding  string
	messages map[string]event
	arrivals map[string]int // by ID
	attempts map[attempt]bool
	keys     map[string]*progress
	found    []violation
}

// attempt is one numbered attempt at a message.
type attempt struct {
	id     string
	number int
}

// progress is how far a key has come at a binding.
type progress struct{ reached, taken int }

func (c *checker) fail(r rule, e event, format string, args ...any) {
	c.found = append(c.found, violation{r, c.binding, e.id, e.key, fmt.Sprintf(format, args...)})
}

func (c *checker) arrival(e event) {
	original, known := c.messages[e.id]
	if !known || original.key != e.key || original.seq != e.seq || original.digest != e.digest {
		c.fail(ruleInvented, e, "%s key %q seq %d arrived; no producer sent that", e.id, e.key, e.seq)
		return
	}
	c.arrivals[e.id]++
	repeat := c.arrivals[e.id] > 1
	// Not the order tells which arrival is the repeat: a first attempt that was
	// given up can still be on its way when the second arrives. No number may
	// come twice, though.
	if (c.attempts[attempt{e.id, e.attempt}] || repeat && e.attempt < 1) && !c.inTakeover(e) {
		c.fail(ruleDuplicate, e, "%s arrived again at %.3fs with attempt %d, outside any takeover",
			e.id, e.at.Seconds(), e.attempt)
	}
	c.attempts[attempt{e.id, e.attempt}] = true
	if e.key == "" {
		return
	}
	at := c.keys[e.key]
	if at == nil {
		at = &progress{}
		c.keys[e.key] = at
	}
	if !repeat {
		c.order(e, at)
	}
	at.reached = max(at.reached, e.seq)
	if e.taken {
		at.taken = max(at.taken, e.seq)
	}
}

// order holds a first arrival against the key's progress. The producer had the
// answer for one message before it sent the next, so not even the first attempt
// of one may come before the destination took the one before.
func (c *checker) order(e event, at *progress) {
	switch {
	case e.seq < at.reached:
		c.fail(ruleOrder, e, "seq %d of key %s arrived first at %.3fs, after seq %d",
			e.seq, e.key, e.at.Seconds(), at.reached)
	case at.taken < e.seq-1:
		c.fail(ruleOrder, e, "seq %d of key %s arrived first at %.3fs, when only seq %d had been taken",
			e.seq, e.key, e.at.Seconds(), at.taken)
	}
}

func (c *checker) inTakeover(e event) bool {
	return slices.ContainsFunc(c.history.takeovers, func(s span) bool { return s.from <= e.at && e.at <= s.to })
}

func (c *checker) losses() {
	for _, e := range c.history.events {
		if e.kind == acked && !c.history.taken[c.binding][e.id] {
			c.fail(ruleLoss, e, "%s (key %q seq %d) was acknowledged at %.3fs and never taken",
				e.id, e.key, e.seq, e.at.Seconds())
		}
	}
}

// Bounds of a trace: what a person can take in.
const (
	traceBefore = 8
	traceAfter  = 4
)

// trace is the shortest useful account of a violation: what happened to the
// message and to its key at that binding just before and after, between the
// marks.
func (h *history) trace(v violation) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var about []event
	centre := 0
	for _, e := range h.events {
		mine := e.id == v.id || v.key != "" && e.key == v.key
		if e.kind != mark && (!mine || e.kind == arrived && e.binding != v.binding) {
			continue
		}
		about = append(about, e)
		if e.id == v.id {
			centre = len(about) - 1
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s: %s", v.rule, v.binding, v.text)
	for _, e := range about[max(0, centre-traceBefore):min(len(about), centre+1+traceAfter)] {
		fmt.Fprintf(&b, "\n\t%s", e)
	}
	return b.String()
}
