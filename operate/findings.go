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
		State: StateRemoved,
		Text:  "the configuration has no binding " + b.name() + ": what it holds is kept and goes nowhere; a bridge that runs goes on with the others, but none can be started until this is settled",
		Steps: []Step{{Text: "put it back into the configuration, or list " + b.name() + " under parked: to let its messages wait"}},
	}
	if to := v.elsewhere(b); to != "" {
		f.Steps = append(f.Steps, Step{"or move what waits to another binding, this one for example, behind what waits there", gobridgeDo("move", b.name(), to)})
	}
	f.Steps = append(f.Steps, Step{"or discard it, which can't be undone", gobridgeDo("discard", b.name())})
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
		switch {
		case v.desk.leases == nil || o.alive:
		case !o.known || o.lease.Released:
			return &Finding{State: StateNoOwner, Text: "no process drains " + b.part(s.Partition) + "; what waits is kept",
				Steps: []Step{{"start a bridge with its configuration", gobridgeDo("run")}}}
		case len(v.store) > 0:
			// It may well live: whoever can't write can't renew its lease.
			return &Finding{
				State: StateStaleOwner, Since: o.lease.RenewedAt,
				Text: fmt.Sprintf("its owner %s has not renewed its lease since %s, which it can't while the store takes no writes", o.lease.Token.Owner, clock(o.lease.RenewedAt, v.now)),
			}
		default:
			return &Finding{
				State: StateStaleOwner, Since: o.lease.RenewedAt,
				Text: fmt.Sprintf("the process that delivered it, %s, has ended or does not reach the store: it gave no sign since %s, and no other has taken over; what waits is kept",
					o.lease.Token.Owner, clock(o.lease.RenewedAt, v.now)),
				Steps: []Step{{"start it again as it was started before, which does no harm if it still runs", gobridgeDo("run")}},
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
		text := fmt.Sprintf("down since %s: %s; messages are taken, kept and wait, and it is tried again by itself", clock(c.Since, v.now), oneLine(c.Error))
		if c.NextProbe.After(v.now) {
			text += " at " + clock(c.NextProbe, v.now) + " (in " + Span(c.NextProbe.Sub(v.now)) + ")"
		}
		return &Finding{
			State: StateDown, Since: c.Since, Text: text,
			Steps: []Step{{mend(c.Error) + "; then wait, or have it tried at once", gobridgeDo("retry", b.name())}},
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
		return "start the destination, or mend the way to it"
	case has("certificate", "tls:", "x509"):
		return "fix the certificate"
	case has("no such host", "404", "405", "410", "421", "redirect"):
		return "fix the address"
	case has("401", "403", "407", "nauthorized", "orbidden"):
		return "it refuses our credential: put a good one where the configuration takes it from, and reload (SIGHUP; a variable of the environment wants a restart)"
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
		State: StateFull, Text: fmt.Sprintf("full: %s of %s wait, and %s", Thousands(waiting), Thousands(b.plan.MaxOutboxDepth), then),
		Steps: []Step{
			{"let it drain, or raise max_outbox_depth", nil},
			{"or discard what waits, which can't be undone", gobridgeDo("discard", b.name())},
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
				State: StateDeadFull,
				Text:  fmt.Sprintf("%s is at its limit of %s, which are kept: whatever fails next stays pending and halts its key; all else is delivered", b.part(s.Partition), v.deadLimit(s)),
				Steps: []Step{
					{"see what they failed for", gobridgeDo("dead", "list", b.name())},
					{"mend that, and send them again", gobridgeDo("dead", "redrive", b.name())},
					{"or discard them, which can't be undone", gobridgeDo("dead", "discard", b.name())},
					{"or raise max_dead_letters, and restart", nil},
				},
			}
		}
	}
	return nil
}

// deadLimit says how many dead letters a partition has, and what bounds them.
func (v *view) deadLimit(s *gobridge.Stats) string {
	if v.limits.MaxDead > 0 && s.Dead >= v.limits.MaxDead {
		return Thousands(s.Dead) + " dead letters (max_dead_letters)"
	}
	return Thousands(v.limits.MaxDeadBytes>>20) + " MiB of dead letters"
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
		f.Text = fmt.Sprintf("%s keys are halted, the first, %s, %s", Thousands(n), haltOf(c), v.haltedSince(c))
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
	what := "key " + c.OrderingKey
	if c.OrderingKey == "" {
		what = "message " + c.EnvelopeID
	}
	return &Finding{
		State: StateHalted, Since: c.Since, Text: what + " is halted " + v.haltedSince(c) + "; its messages are taken and wait, all else goes on",
		Steps: []Step{
			{"see which message failed, and how to end it if it is bad", gobridgeDo("explain", haltOf(c))},
			{"mend the cause, then let it go on: the message that failed is sent again first", resumeOf(c)},
		},
	}
}

// resumeOf is the command that lifts a halt.
func resumeOf(c *gobridge.Control) []string {
	name := c.Route + "/" + c.Binding
	if c.OrderingKey == "" {
		return gobridgeDo("resume", name, "--id", c.EnvelopeID)
	}
	return gobridgeDo("resume", name, "--key", c.OrderingKey)
}

// letGoOn is the step where nothing that a halt holds has failed: a person halted it,
// or what failed is not there any more.
func letGoOn(c *gobridge.Control) Step {
	if process(c.By) == "" {
		return Step{"let it go on", resumeOf(c)}
	}
	return Step{"the message that failed has ended, and what waits has not been tried: let it go on", resumeOf(c)}
}

// haltedSince says since when something is halted, by whom and why. A bridge halts by
// itself, and is no person that could be asked.
func (v *view) haltedSince(c *gobridge.Control) string {
	by := c.By
	if process(by) != "" {
		by = "the bridge " + by
	}
	return because(c.Since, by, c.Reason, v.now)
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
		if r == nil || !failedHere(r) || e.Cause == gobridge.CauseHalted || r.State.Ended() {
			continue
		}
		f := &Finding{
			State: StateFailing, Since: r.StoredAt, Note: v.passing(r),
			Text: fmt.Sprintf("the oldest message, %s, %s: %s%s", r.Envelope.ID, failedHow(r), oneLine(r.Error), v.goesOn(r)),
			Steps: []Step{
				{mend(r.Error) + "; then wait, or have it tried at once", gobridgeDo("retry", b.name())},
				{"or, if it must not go at all, discard it, which can't be undone" + soThat(r), gobridgeDo("discard", b.name(), "--id", r.Envelope.ID)},
			},
		}
		return f, nil
	}
	return nil, nil
}

// goesOn says what becomes of a record that failed, by itself.
func (v *view) goesOn(r *gobridge.Record) string {
	text := "; it is tried again by itself"
	if due := r.DueAt(); due.After(v.now) {
		text += " at " + clock(due, v.now) + " (in " + Span(due.Sub(v.now)) + ")"
	}
	if r.Envelope.OrderingKey != "" {
		text += ", and its key " + r.Envelope.OrderingKey + " waits behind it"
	}
	return text
}

// soThat says what it is good for that a record ends.
func soThat(r *gobridge.Record) string {
	if r.Envelope.OrderingKey == "" {
		return ""
	}
	return ", so that its key goes on"
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
	text := Thousands(dead) + " dead letters wait for a person"
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
				Text: fmt.Sprintf("the newest message of %s is dated %s, %s ahead of this machine's clock (%s): this clock is wrong, or that of the machine which stored it; nothing is lost, order is kept, delivery goes on",
					b.name(), v.now.Add(ahead).Format("2006-01-02 15:04"), Span(ahead), v.now.Format("2006-01-02 15:04")),
				Steps: []Step{{"compare the machines' clocks and set the wrong one right; then have what failed tried at once, for its wait may be as wrong", gobridgeDo("retry", b.name())}},
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
	const most = 400 // what is wrong with everything may take its room
	f := Finding{State: StateUnwritable, Text: cut(err.Error(), most)}
	var detail *gobridge.Error
	if errors.As(err, &detail) && detail.Hint != "" {
		f.Text = cut(detail.Err.Error(), most)
		f.Steps = []Step{{Text: detail.Hint}}
	}
	var holder interface{ Holder() (pid int, name string) }
	var stuck interface{ Stuck() bool }
	const safe = "; as long as that lasts, new messages are refused and nothing is delivered; what was accepted is kept, and all goes on by itself afterwards"
	switch {
	case errors.Is(err, gobridge.ErrLocked):
		f.State = StateLocked
		f.Text += safe
		if errors.As(err, &holder) {
			if pid, _ := holder.Holder(); pid > 0 {
				f.Steps = append(f.Steps, Step{
					fmt.Sprintf("if it does not come to an end, end process %d on %s", pid, d.host), []string{"kill", strconv.Itoa(pid)},
				})
			}
		}
	case errors.As(err, &stuck) && stuck.Stuck():
		f.State = StateDisk
		f.Text += "; until there is room next to nothing can be written: new messages are refused, deliveries come to a stand and may be repeated, nothing can be discarded; " +
			"what was accepted is kept, and all goes on by itself afterwards"
	case errors.Is(err, gobridge.ErrOutboxFull):
		f.State = StateDisk
		f.Text += "; new messages are refused, what was accepted is kept and delivered"
	case errors.Is(err, gobridge.ErrThrottled):
		f.State = StateThrottled
		f.Text += "; nothing is lost, everything is slower"
	default:
		f.Text += safe
	}
	return []Finding{f}
}
