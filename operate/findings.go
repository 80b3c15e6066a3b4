package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gobridge"
)

// findings returns what is to be said of a binding, the most pressing first.
func (v *view) findings(ctx context.Context, b *bindingOf) ([]Finding, error) {
	var out []Finding
	add := func(f *Finding) {
		if f != nil {
			out = append(out, *f)
		}
	}
	removed := v.removed(b)
	add(removed)
	add(v.paused(b))
	if removed == nil {
		add(v.unowned(b))
	}
	add(v.outage(b))
	quiet := len(out) == 0
	add(v.full(b))
	add(v.deadFull(b))
	out = append(out, v.halted(b)...)
	if quiet {
		failing, err := v.failing(ctx, b)
		if err != nil {
			return nil, err
		}
		add(failing)
	}
	add(v.deadLetters(b))
	add(v.clockAhead(b))
	return out, nil
}

func (v *view) removed(b *bindingOf) *Finding {
	if v.desk.plan.Load() == nil || b.plan != nil {
		return nil
	}
	if v.desk.parked(b) {
		return &Finding{State: StateParked, Note: true, Text: "the configuration has no such binding, and parks its records"}
	}
	f := &Finding{
		State: StateRemoved, Text: "the configuration has no such binding: its messages go nowhere, and a bridge refuses to start with them",
		Steps: []Step{{Text: "restore it, or list " + b.name() + " under parked: to let its records wait"}},
	}
	if to := v.elsewhere(b); to != "" {
		f.Steps = append(f.Steps, Step{"or move them to another binding", gobridgeDo("move", b.name(), to)})
	}
	f.Steps = append(f.Steps, Step{"or end them", gobridgeDo("discard", b.name())})
	return f
}

// elsewhere returns a configured binding that could take a removed one's records.
func (v *view) elsewhere(b *bindingOf) string {
	best := ""
	for _, p := range v.desk.plan.Load().Bindings {
		if best == "" || p.Route == b.Route && !strings.HasPrefix(best, b.Route+"/") {
			best = p.Route + "/" + p.Binding
		}
	}
	return best
}

func (v *view) paused(b *bindingOf) *Finding {
	for _, c := range v.controls {
		if c.Kind == gobridge.Pause && c.Route == b.Route && (c.Binding == "" || c.Binding == b.Binding) {
			return v.pausedBy(&c)
		}
	}
	return nil
}

func (v *view) pausedBy(c *gobridge.Control) *Finding {
	return &Finding{
		State: StatePaused, Since: c.Since, Text: c.Scope() + " is paused " + because(c.Since, c.By, c.Reason, v.now),
		Steps: []Step{{"let it go on", gobridgeDo("resume", Target{Route: c.Route, Binding: c.Binding}.String())}},
	}
}

func (v *view) unowned(b *bindingOf) *Finding {
	for i := range b.partitions {
		s := &b.partitions[i]
		o := v.owners[s.Partition]
		run := []Step{{"start a bridge", gobridgeDo("run")}}
		switch {
		case v.desk.leases == nil || o.alive:
		case !o.known || o.lease.Released:
			what := "it"
			if len(b.partitions) > 1 {
				what = "its partition " + string(s.Partition)
			}
			return &Finding{State: StateNoOwner, Text: "no process drains " + what, Steps: run}
		case len(v.store) > 0:
			// It may well live: whoever can't write can't renew its lease.
			return &Finding{
				State: StateStaleOwner, Since: o.lease.RenewedAt,
				Text: fmt.Sprintf("its owner %s has not renewed its lease since %s, for which the store must take writes", o.lease.Token.Owner, clock(o.lease.RenewedAt, v.now)),
			}
		default:
			return &Finding{
				State: StateStaleOwner, Since: o.lease.RenewedAt,
				Text:  fmt.Sprintf("its owner %s died: it gave no sign since %s", o.lease.Token.Owner, clock(o.lease.RenewedAt, v.now)),
				Steps: run,
			}
		}
	}
	return nil
}

func (v *view) outage(b *bindingOf) *Finding {
	for i := range b.partitions {
		c := v.down(&b.partitions[i])
		if c == nil {
			continue
		}
		text := fmt.Sprintf("down since %s: %s", clock(c.Since, v.now), oneLine(c.Error))
		return &Finding{
			State: StateDown, Since: c.Since, Text: text,
			Steps: []Step{{mend(c.Error) + "; it is tried again by itself, or at once with", gobridgeDo("retry", b.name())}},
		}
	}
	return nil
}

// mend says in general what an error of a destination asks for.
func mend(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;()\"", r) })
	for i := range words {
		words[i] = strings.TrimRight(words[i], ":.")
	}
	has := func(any ...string) bool {
		for _, one := range any {
			if _, err := strconv.Atoi(one); err == nil && slices.Contains(words, one) || err != nil && strings.Contains(text, one) {
				return true // a status is a word of its own, not a part of an address
			}
		}
		return false
	}
	switch {
	case has("connection refused", "timeout", "deadline exceeded", "unreachable", "reset by peer", "EOF"):
		return "bring it up, or the way to it"
	case has("certificate", "tls:", "x509"):
		return "fix the certificate"
	case has("no such host", "404", "405", "410", "421", "redirect"):
		return "fix the address"
	case has("401", "403", "407", "nauthorized", "orbidden"):
		return "fix the credential"
	case has("429"):
		return "it asks to slow down: lower the rate"
	}
	return "mend the destination"
}

func (v *view) full(b *bindingOf) *Finding {
	if b.plan == nil || b.plan.MaxOutboxDepth == 0 {
		return nil
	}
	waiting := b.sum(func(s *gobridge.Stats) int64 { return s.Pending + s.Claimed })
	if waiting < int64(b.plan.MaxOutboxDepth) {
		return nil
	}
	then := "its copies of new messages go to the dead letters"
	if b.plan.RejectsWhenFull {
		then = "new messages are refused for the whole route"
	}
	return &Finding{
		State: StateFull, Text: fmt.Sprintf("full: %d of %d wait, and %s", waiting, b.plan.MaxOutboxDepth, then),
		Steps: []Step{
			{"let it drain, or raise max_outbox_depth", nil},
			{"or end what waits", gobridgeDo("discard", b.name())},
		},
	}
}

func (v *view) deadFull(b *bindingOf) *Finding {
	for i := range b.partitions {
		s := &b.partitions[i]
		// A dead letter that did not fit in bytes leaves its key halted.
		tight := v.limits.MaxDeadBytes > 0 && s.DeadBytes >= v.limits.MaxDeadBytes
		if v.limits.MaxDead > 0 && s.Dead >= v.limits.MaxDead || tight {
			return &Finding{
				State: StateDeadFull, Text: fmt.Sprintf("there is no room for more dead letters than these %d: whatever fails next halts its key", s.Dead),
				Steps: []Step{
					{"mend what they failed for, and send them again", gobridgeDo("dead", "redrive", b.name())},
					{"or end them", gobridgeDo("dead", "discard", b.name())},
				},
			}
		}
	}
	return nil
}

func (v *view) halted(b *bindingOf) []Finding {
	var halts []gobridge.Control
	for _, c := range v.controls {
		if c.Kind == gobridge.Halt && c.Route == b.Route && c.Binding == b.Binding {
			halts = append(halts, c)
		}
	}
	if len(halts) == 0 {
		return nil
	}
	c := &halts[0]
	f := v.haltedBy(c)
	if n := len(halts); n > 1 {
		f.Text = fmt.Sprintf("%d keys are halted, the first, %s, %s", n, haltOf(c), because(c.Since, c.By, c.Reason, v.now))
	}
	return []Finding{*f}
}

func haltOf(c *gobridge.Control) string {
	if c.OrderingKey != "" {
		return c.OrderingKey
	}
	return c.EnvelopeID
}

func (v *view) haltedBy(c *gobridge.Control) *Finding {
	what, flag := "key "+c.OrderingKey, []string{"--key", c.OrderingKey}
	if c.OrderingKey == "" {
		what, flag = "message "+c.EnvelopeID, []string{"--id", c.EnvelopeID}
	}
	name := c.Route + "/" + c.Binding
	return &Finding{
		State: StateHalted, Since: c.Since, Text: what + " is halted " + because(c.Since, c.By, c.Reason, v.now),
		Steps: []Step{
			{"see what it waits for", gobridgeDo("explain", haltOf(c))},
			{"mend it, then let it go on", append(gobridgeDo("resume", name), flag...)},
		},
	}
}

// failing speaks of the oldest record if it is being tried again and again.
func (v *view) failing(ctx context.Context, b *bindingOf) (*Finding, error) {
	for i := range b.partitions {
		s := &b.partitions[i]
		if s.Pending+s.Claimed == 0 {
			continue
		}
		e, err := v.desk.store.Explain(ctx, gobridge.ExplainQuery{Partition: s.Partition})
		if err != nil {
			return nil, err
		}
		r := e.Record
		if r == nil || r.Error == "" || e.Cause == gobridge.CauseHalted || r.State.Ended() {
			continue
		}
		f := &Finding{
			State: StateFailing, Since: r.StoredAt, Note: v.passing(r),
			Text: fmt.Sprintf("the oldest message, %s, %s: %s", r.Envelope.ID, failedHow(r), oneLine(r.Error)),
			Steps: []Step{
				{mend(r.Error) + ", then try it at once", gobridgeDo("retry", b.name())},
				{"or end it, so that its key goes on", gobridgeDo("discard", b.name(), "--id", r.Envelope.ID)},
			},
		}
		return f, nil
	}
	return nil, nil
}

// passing reports whether a failure may well be over before anybody has got up:
// the record is young and about to be tried again.
func (v *view) passing(r *gobridge.Record) bool {
	const soon, young = 30 * time.Second, time.Minute
	return r.DueAt().Sub(v.now) < soon && v.now.Sub(r.StoredAt) < young
}

// failedHow says how often a record has failed.
func failedHow(r *gobridge.Record) string {
	if r.Attempts > 0 {
		return "failed " + times(r.Attempts)
	}
	return "did not get through"
}

func (v *view) deadLetters(b *bindingOf) *Finding {
	dead := b.sum(func(s *gobridge.Stats) int64 { return s.Dead })
	if dead == 0 {
		return nil
	}
	text := fmt.Sprintf("%d dead letters wait for a person", dead)
	if dead == 1 {
		text = "1 dead letter waits for a person"
	}
	return &Finding{State: StateDead, Note: true, Text: text, Steps: []Step{{"see why", gobridgeDo("dead", "list", b.name())}}}
}

// clockSlack is how far a stamp may be ahead without a word.
const clockSlack = time.Minute

func (v *view) clockAhead(b *bindingOf) *Finding {
	for i := range b.partitions {
		if ahead := b.partitions[i].NewestStamp.Sub(v.now); ahead > clockSlack {
			return &Finding{
				State: StateClock, Note: true,
				Text:  fmt.Sprintf("the newest stamp is %s ahead of this clock: a clock was wrong, here or there; order is kept all the same", Span(ahead)),
				Steps: []Step{{"waits that it set too long end with", gobridgeDo("retry", b.name())}},
			}
		}
	}
	return nil
}

// checkStore says what keeps the store as a whole from writing.
func (d *Desk) checkStore(ctx context.Context) []Finding {
	checker, ok := d.store.(gobridge.Checker)
	if !ok {
		return nil
	}
	err := checker.Check(ctx)
	if err == nil {
		return nil
	}
	f := Finding{State: StateUnwritable, Text: oneLine(err.Error())}
	var detail *gobridge.Error
	if errors.As(err, &detail) && detail.Hint != "" {
		f.Text = oneLine(detail.Err.Error())
		f.Steps = []Step{{Text: detail.Hint}}
	}
	var holder interface{ Holder() (pid int, name string) }
	switch {
	case errors.Is(err, gobridge.ErrLocked):
		f.State = StateLocked
		if errors.As(err, &holder) {
			if pid, _ := holder.Holder(); pid > 0 {
				f.Steps = append(f.Steps, Step{"if it does not come to an end, end it", []string{"kill", strconv.Itoa(pid)}})
			}
		}
	case errors.Is(err, gobridge.ErrOutboxFull):
		f.State = StateDisk
	case errors.Is(err, gobridge.ErrThrottled):
		f.State = StateThrottled
	}
	return []Finding{f}
}
