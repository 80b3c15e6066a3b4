package bridgetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gobridge"
)

// Attempts returns every attempt at a binding so far, in order.
func (h *Harness) Attempts(binding string) []Attempt {
	h.tb.Helper()
	return h.binding(binding).attempts()
}

// Delivered returns what a binding has taken so far, in order.
func (h *Harness) Delivered(binding string) []gobridge.Delivery {
	h.tb.Helper()
	var out []gobridge.Delivery
	for _, a := range h.Attempts(binding) {
		if a.Err == nil {
			out = append(out, a.Delivery)
		}
	}
	return out
}

// Dead returns the dead letters of a binding, oldest first within each partition.
func (h *Harness) Dead(binding string) []gobridge.Record {
	h.tb.Helper()
	b := h.binding(binding)
	var out []gobridge.Record
	for _, p := range b.partitions {
		out = append(out, h.deadOf(b, p)...)
	}
	return out
}

func (h *Harness) deadOf(b *binding, p gobridge.Partition) []gobridge.Record {
	h.tb.Helper()
	var out []gobridge.Record
	query := gobridge.DeadQuery{Filter: gobridge.Filter{Partition: p}, Limit: 1000}
	for {
		page, err := h.store.QueryDead(h.tb.Context(), query)
		if err != nil {
			h.tb.Fatalf("look at the dead letters of %s: %v", b, err)
		}
		out = append(out, page.Records...)
		if query.Cursor = page.Cursor; query.Cursor == "" {
			return out
		}
	}
}

// Pending returns what a binding has not been brought yet, up to 10,000 records
// in no particular order.
func (h *Harness) Pending(binding string) []gobridge.Record {
	h.tb.Helper()
	return h.pending(h.binding(binding), most)
}

// RequireDelivered ends the test unless a binding has taken n messages so far,
// and returns them in order.
func (h *Harness) RequireDelivered(binding string, n int) []gobridge.Delivery {
	h.tb.Helper()
	got := h.Delivered(binding)
	if len(got) != n {
		h.fatal(binding, "has taken", len(got), n)
	}
	return got
}

// RequireAttempts ends the test unless n deliveries to a binding have been tried
// so far, and returns them in order.
func (h *Harness) RequireAttempts(binding string, n int) []Attempt {
	h.tb.Helper()
	got := h.Attempts(binding)
	if len(got) != n {
		h.fatal(binding, "was tried with", len(got), n)
	}
	return got
}

// RequirePending ends the test unless n messages wait for a binding, whatever
// they wait for, and returns them in no particular order.
func (h *Harness) RequirePending(binding string, n int) []gobridge.Record {
	h.tb.Helper()
	got := h.Pending(binding)
	if len(got) != n {
		h.fatal(binding, "waits for", len(got), n)
	}
	return got
}

// RequireDead ends the test unless a binding has n dead letters, and returns
// them, oldest first within each partition.
func (h *Harness) RequireDead(binding string, n int) []gobridge.Record {
	h.tb.Helper()
	got := h.Dead(binding)
	if len(got) != n {
		h.fatal(binding, "has dead letters of", len(got), n)
	}
	return got
}

// RequireEmpty ends the test if a message waits for any binding, or is a dead
// letter of it.
func (h *Harness) RequireEmpty() {
	h.tb.Helper()
	var b strings.Builder
	for _, c := range h.bindings {
		if len(h.pending(c, 1))+len(h.Dead(c.String())) > 0 {
			b.WriteString(h.describe(c))
		}
	}
	if b.Len() > 0 {
		h.tb.Fatalf("the outbox is not empty\n%s", b.String())
	}
}

func (h *Harness) fatal(name, what string, got, want int) {
	h.tb.Helper()
	b := h.binding(name)
	h.tb.Fatalf("%s %s %s, want %d\n%s", b, what, count(got), want, h.describe(b))
}

func count(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

// shown is how many lines of a kind a failure has.
const shown = 20

// describe tells all that a reader wants to know of a binding.
func (h *Harness) describe(b *binding) string {
	h.tb.Helper()
	var out strings.Builder
	list := func(title string, n int, line func(i int) string) {
		if n == 0 {
			return
		}
		fmt.Fprintf(&out, "  %s:\n", title)
		for i := range min(n, shown) {
			fmt.Fprintf(&out, "    %s\n", line(i))
		}
		if n > shown {
			fmt.Fprintf(&out, "    and %d more\n", n-shown)
		}
	}
	tried, pending, dead := b.attempts(), h.pending(b, most), h.Dead(b.String())
	list(b.String()+" was tried with", len(tried), func(i int) string {
		what := "taken"
		if err := tried[i].Err; err != nil {
			what = err.Error()
		}
		e := &tried[i].Delivery.Envelope
		return fmt.Sprintf("%s, attempt %d: %s", name(e.ID, e.Subject, e.OrderingKey), tried[i].Delivery.Attempt, what)
	})
	list(b.String()+" waits for", len(pending), func(i int) string {
		e := &pending[i].Envelope
		return name(e.ID, e.Subject, e.OrderingKey) + ": " + h.why(b, &pending[i])
	})
	list("dead letters of "+b.String(), len(dead), func(i int) string {
		e := &dead[i].Envelope
		return fmt.Sprintf("%s: %s: %s", name(e.ID, e.Subject, e.OrderingKey), dead[i].Reason, dead[i].Error)
	})
	if out.Len() == 0 {
		fmt.Fprintf(&out, "  nothing has ever come to %s\n", b)
	}
	return out.String()
}

func name(id, subject, key string) string {
	out := fmt.Sprintf("%q", id)
	if subject != "" {
		out += fmt.Sprintf(" %q", subject)
	}
	if key != "" {
		out += fmt.Sprintf(" of key %q", key)
	}
	return out
}

// why says why a pending record has not been delivered.
func (h *Harness) why(b *binding, r *gobridge.Record) string {
	x, err := h.store.Explain(h.tb.Context(), gobridge.ExplainQuery{
		Partition: r.Partition, Binding: r.Binding, EnvelopeID: r.Envelope.ID,
	})
	if err != nil && !errors.Is(err, gobridge.ErrNotFound) {
		return err.Error()
	}
	return h.cause(b, r, &x) + lastError(r)
}

func (h *Harness) cause(b *binding, r *gobridge.Record, x *gobridge.Explanation) string {
	now := h.Now()
	switch x.Cause {
	case gobridge.CauseNotDue:
		due := r.DueAt()
		if !due.After(now) {
			return "it is due, but not by the clock of the store: open the store with the harness's clock, see NewWithClock"
		}
		return fmt.Sprintf("it is not due before %s, in %s", due.Format(time.RFC3339Nano), due.Sub(now))
	case gobridge.CauseBlocked:
		return fmt.Sprintf("it waits behind %q of the same key, which is %s", x.Head.Envelope.ID, x.HeadCause)
	case gobridge.CausePaused, gobridge.CauseHalted:
		return fmt.Sprintf("it is %s by %q: %s", x.Cause, x.Control.By, x.Control.Reason)
	case gobridge.CauseClaimable:
		if left := b.leftAloneUntil().Sub(now); left > 0 {
			return fmt.Sprintf("the destination asked to be left alone for %s more", left)
		}
		return "it can be delivered with the next Drain"
	}
	return "it is " + string(x.Cause)
}

func lastError(r *gobridge.Record) string {
	if r.Error == "" {
		return ""
	}
	return "; it was tried, and the answer was: " + r.Error
}
