package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gobridge"
)

// Answer says in a sentence how one thing stands, and what changes it.
type Answer struct {
	Route   string `json:"route"`
	Binding string `json:"binding,omitempty"`
	// About says what the answer is about: "message m-1", "key k" or "binding".
	About string `json:"about"`
	// Cause is one of [gobridge.Cause] and the states of a binding.
	Cause string `json:"cause"`
	// Sentence is without its full stop.
	Sentence string `json:"sentence"`
	Steps    []Step `json:"steps,omitempty"`
	// Record is the message that decides, without its payload.
	Record *RecordView `json:"record,omitempty"`
}

// Question is what is to be explained: a route, a binding, an ordering key or a
// message's ID. Empty kinds are all tried.
type Question struct {
	Text string
	// OnlyKey and OnlyID restrict what the text may be.
	OnlyKey bool
	OnlyID  bool
}

// ErrNoQuestion says that a question has no text.
var ErrNoQuestion = errors.New("nothing is asked: name a message's ID, an ordering key, a binding or a route")

// Explain answers for everything that the question may mean, one answer for
// each binding concerned. There is always at least one.
func (d *Desk) Explain(ctx context.Context, q Question) ([]Answer, error) {
	if q.Text == "" {
		return nil, ErrNoQuestion // a store takes it for any record
	}
	v, err := d.look(ctx)
	if err != nil {
		return nil, err
	}
	var out []Answer
	if !q.OnlyKey && !q.OnlyID {
		if out, err = v.explainBindings(ctx, q.Text); err != nil {
			return nil, err
		}
	}
	if !q.OnlyKey {
		byID, err := v.explainID(ctx, q.Text)
		if err != nil {
			return nil, err
		}
		out = append(out, byID...)
	}
	if !q.OnlyID {
		byKey, err := v.explainKey(ctx, q.Text)
		if err != nil {
			return nil, err
		}
		out = append(out, byKey...)
	}
	if len(out) == 0 {
		out = append(out, v.unknown(q.Text))
	}
	v.addCommon(out)
	return out, nil
}

// addCommon adds to answers what holds up everything alike.
func (v *view) addCommon(answers []Answer) {
	add := func(what string, findings []Finding) {
		for i := range answers {
			a := &answers[i]
			if a.Cause == string(gobridge.CauseEnded) || a.Cause == causeFiltered {
				continue // that is over
			}
			for _, f := range findings {
				a.Sentence += "; " + what + ": " + f.Text
				a.Steps = append(a.Steps, f.Steps...)
			}
		}
	}
	add("the store as a whole", v.store)
	add("this process", v.desk.processFindings())
}

// causeFiltered is the cause of an answer about a message that a filter left out.
const causeFiltered = "filtered"

// explainBindings answers for the bindings that a text names.
func (v *view) explainBindings(ctx context.Context, text string) ([]Answer, error) {
	target, err := ParseTarget(text)
	if err != nil {
		return nil, nil //nolint:nilerr // it may still be an ID or a key
	}
	var out []Answer
	for _, b := range v.bindings {
		if b.Route != target.Route || target.Binding != "" && b.Binding != target.Binding {
			continue
		}
		s, err := v.status(ctx, b)
		if err != nil {
			return nil, err
		}
		a := Answer{Route: b.Route, Binding: b.Binding, About: "binding", Cause: s.State}
		parts := []string{v.traffic(&s)}
		for _, f := range s.Findings {
			parts = append(parts, f.Text)
			a.Steps = append(a.Steps, f.Steps...)
		}
		a.Sentence = b.name() + ": " + strings.Join(parts, "; ")
		out = append(out, a)
	}
	return out, nil
}

// traffic says what waits and who sees to it.
func (v *view) traffic(s *BindingStatus) string {
	text := "nothing waits"
	if s.Pending+s.Claimed > 0 {
		text = Thousands(s.Pending+s.Claimed) + " wait"
		if s.Pending+s.Claimed == 1 {
			text = "1 waits"
		}
		if !s.OldestPending.IsZero() {
			text += fmt.Sprintf(", the oldest for %s", Span(v.now.Sub(s.OldestPending)))
		}
	}
	if who := s.drained(); who != "" {
		text += ", and " + who
	}
	return text
}

// explainID answers for the records of a message.
func (v *view) explainID(ctx context.Context, id string) ([]Answer, error) {
	var out []Answer
	found := map[string]bool{} // routes
	missing := map[string][]*bindingOf{}
	for _, b := range v.bindings {
		held := false
		for i := range b.partitions {
			p := b.partitions[i].Partition
			e, err := v.desk.store.Explain(ctx, gobridge.ExplainQuery{Partition: p, Binding: b.Binding, EnvelopeID: id})
			if err != nil {
				return nil, err
			}
			if e.Cause == gobridge.CauseNotFound {
				continue
			}
			held = true
			out = append(out, v.answer(b, "message "+id, &e))
		}
		if held {
			found[b.Route] = true
		} else {
			missing[b.Route] = append(missing[b.Route], b)
		}
	}
	for route := range found {
		for _, b := range missing[route] {
			if b.plan != nil && b.plan.Filter != "" {
				out = append(out, v.filtered(b, id))
			}
		}
	}
	return out, nil
}

func (v *view) filtered(b *bindingOf, id string) Answer {
	return Answer{
		Route: b.Route, Binding: b.Binding, About: "message " + id, Cause: causeFiltered,
		Sentence: fmt.Sprintf("message %s is not for %s: its filter, %s, did not take it", id, b.name(), oneLine(b.plan.Filter)),
		Steps:    []Step{{"see what the filter takes", gobridgeDo("try", "--route", b.Route)}},
	}
}

// explainKey answers for the bindings where messages of a key wait, or where it
// is halted.
func (v *view) explainKey(ctx context.Context, key string) ([]Answer, error) {
	var out []Answer
	for _, b := range v.bindings {
		waits := false
		for i := range b.partitions {
			e, err := v.desk.store.Explain(ctx, gobridge.ExplainQuery{Partition: b.partitions[i].Partition, OrderingKey: key, HasKey: true})
			if err != nil {
				return nil, err
			}
			if key != "" && e.Cause != gobridge.CauseNotFound {
				waits = true
				out = append(out, v.answer(b, "key "+key, &e))
			}
		}
		for _, c := range v.controls {
			if !waits && c.Kind == gobridge.Halt && c.Route == b.Route && c.Binding == b.Binding && c.OrderingKey == key && key != "" {
				out = append(out, Answer{
					Route: b.Route, Binding: b.Binding, About: "key " + key, Cause: StateHalted,
					Sentence: v.haltedBy(&c).Text, Steps: []Step{letGoOn(&c)},
				})
			}
		}
	}
	return out, nil
}

// unknown answers for what is nowhere.
func (v *view) unknown(text string) Answer {
	a := Answer{About: text, Cause: string(gobridge.CauseNotFound)}
	a.Sentence = fmt.Sprintf("no route, binding, message or waiting key is named %s: the message was never accepted, or it ended longer ago than its identity is kept", text)
	var filters []string
	for _, b := range v.bindings {
		if b.plan != nil && b.plan.Filter != "" {
			filters = append(filters, fmt.Sprintf("%s takes %s", b.name(), oneLine(b.plan.Filter)))
		}
	}
	if len(filters) > 0 {
		a.Sentence += "; or every filter left it out: " + strings.Join(filters, ", ")
	}
	a.Steps = []Step{{"see what becomes of such a message", gobridgeDo("try", "--id", text)}}
	return a
}

// answer explains a record.
func (v *view) answer(b *bindingOf, about string, e *gobridge.Explanation) Answer {
	a := Answer{Route: b.Route, Binding: b.Binding, About: about, Cause: string(e.Cause)}
	r := e.Record
	a.Record = viewOf(r)
	subject := about
	if strings.HasPrefix(about, "key ") {
		subject = fmt.Sprintf("message %s, the next of %s,", r.Envelope.ID, about)
	}
	rest, steps := v.why(b, r, e.Cause, e)
	a.Sentence, a.Steps = fmt.Sprintf("%s to %s %s", subject, b.name(), rest), steps
	if f := v.clockAhead(b); f != nil && !r.State.Ended() { // its times may be wrong
		a.Sentence += "; " + f.Text
	}
	return a
}

// why says for a record why it is not being delivered, and what changes it.
func (v *view) why(b *bindingOf, r *gobridge.Record, cause gobridge.Cause, e *gobridge.Explanation) (string, []Step) {
	switch cause {
	case gobridge.CauseEnded:
		return v.ended(b, r)
	case gobridge.CausePaused:
		f := v.pausedBy(e.Control)
		return "waits: " + f.Text, f.Steps
	case gobridge.CauseHalted:
		return v.whyHalted(b, r, e)
	case gobridge.CauseClaimed, gobridge.CauseStranded:
		return v.inFlight(b, r, cause)
	case gobridge.CauseBlocked:
		if e.Head == nil {
			break
		}
		rest, steps := v.why(b, e.Head, e.HeadCause, e)
		return fmt.Sprintf("waits behind message %s of its key, which %s", e.Head.Envelope.ID, rest), steps
	case gobridge.CauseNotDue:
		return v.notDue(b, r)
	case gobridge.CauseExpired:
		return "has expired at " + clock(r.Envelope.ExpiresAt, v.now) + " and ends with the next look at it", nil
	}
	return v.claimable(b, r)
}

// claimable is about a record that nothing of its own holds.
func (v *view) claimable(b *bindingOf, r *gobridge.Record) (string, []Step) {
	for _, f := range []*Finding{v.removed(b), v.unowned(b), v.outage(b)} {
		if f == nil {
			continue
		}
		if f.State == StateDown {
			return "waits: " + b.name() + " is " + f.Text, f.Steps
		}
		return "waits: " + f.Text, f.Steps
	}
	if failedHere(r) {
		return v.retried(b, r, "is about to be tried again")
	}
	return "goes out with the next claim", nil
}

func (v *view) notDue(b *bindingOf, r *gobridge.Record) (string, []Step) {
	due := r.DueAt()
	if due.Equal(r.Envelope.NotBefore) && !r.RetryAt.After(v.now) {
		return "is not due before " + clock(due, v.now) + ": whoever sent it set that time",
			[]Step{{"if it must not go at all", gobridgeDo("discard", b.name(), "--id", r.Envelope.ID)}}
	}
	return v.retried(b, r, "is tried again at "+clock(due, v.now)+" (in "+Span(due.Sub(v.now))+")")
}

// failedHere reports whether a record has failed since it was stored or redriven: the
// error of a dead letter stays with it, and says nothing of how it fares now.
func failedHere(r *gobridge.Record) bool {
	return r.Error != "" && (r.Redrives == 0 || r.Attempts > 0 || !r.RetryAt.IsZero())
}

// retried is about a record that failed before.
func (v *view) retried(b *bindingOf, r *gobridge.Record, next string) (string, []Step) {
	steps := []Step{
		{mend(r.Error) + "; then wait, or have it tried at once", gobridgeDo("retry", b.name(), "--id", r.Envelope.ID)},
		{"or, if it must not go at all, discard it, which can't be undone" + soThat(r), gobridgeDo("discard", b.name(), "--id", r.Envelope.ID)},
	}
	return fmt.Sprintf("%s (%s) and %s", failedHow(r), oneLine(r.Error), next), steps
}

func (v *view) whyHalted(b *bindingOf, r *gobridge.Record, e *gobridge.Explanation) (string, []Step) {
	f := v.haltedBy(e.Control)
	head := r
	if e.Head != nil {
		head = e.Head
	}
	// A redrive, or a discard, may have left what was never tried at the head.
	if head.Attempts == 0 && !failedHere(head) && head.Unsettled == 0 {
		return "waits: " + f.Text, []Step{letGoOn(e.Control)}
	}
	return "waits: " + f.Text, []Step{
		f.Steps[1],
		{"or, if the message that failed must not go at all, discard it first, which can't be undone", gobridgeDo("discard", b.name(), "--id", head.Envelope.ID)},
	}
}

func (v *view) inFlight(b *bindingOf, r *gobridge.Record, cause gobridge.Cause) (string, []Step) {
	text := fmt.Sprintf("is with %s since %s", r.ClaimedBy.Owner, clock(r.ClaimedAt, v.now))
	if f := v.unowned(b); f != nil {
		return text + ", but " + f.Text, f.Steps
	}
	if cause == gobridge.CauseStranded {
		return text + ", who lost it; the next claim takes it over", nil
	}
	if f := v.outage(b); f != nil {
		return text + ", and the destination is " + f.Text, f.Steps
	}
	if failedHere(r) {
		return v.retried(b, r, text)
	}
	return text, nil
}

// ended says how a record ended.
func (v *view) ended(b *bindingOf, r *gobridge.Record) (string, []Step) {
	at := clock(r.EndedAt, v.now)
	switch r.State {
	case gobridge.StateDelivered:
		text := "was delivered at " + at
		if r.ReplayCount > 1 {
			text += fmt.Sprintf(", with attempt %d", r.ReplayCount)
		}
		return text + "; a repeat under its ID is a duplicate and goes nowhere",
			[]Step{{Text: "to have it delivered once more, post it under another ID"}}
	case gobridge.StateExpired:
		return "expired at " + clock(r.Envelope.ExpiresAt, v.now) + " before it could be delivered",
			[]Step{{Text: "if it is still wanted, post it again under another ID, to expire later"}}
	case gobridge.StateDead:
		return v.dead(b, r, at)
	}
	text := "was discarded at " + at
	if r.Reason != "" {
		text += ": " + oneLine(r.Reason)
	}
	return text, []Step{{"see by whom", gobridgeDo("audit")}}
}

func (v *view) dead(b *bindingOf, r *gobridge.Record, at string) (string, []Step) {
	text := fmt.Sprintf("is a dead letter since %s: %s", at, r.Reason)
	if r.Attempts > 0 {
		text += " after " + times(r.Attempts)
	}
	if r.Error != "" {
		text += ": " + oneLine(r.Error)
	}
	if r.Expired(v.now) {
		return text + "; it has expired, and is not delivered any more", []Step{
			{"take out what it says", gobridgeDo("dead", "export", b.name(), "--id", r.Envelope.ID)},
			{"or discard it, which can't be undone", gobridgeDo("dead", "discard", b.name(), "--id", r.Envelope.ID)},
		}
	}
	return text, []Step{
		{mend(r.Error) + ", then send it again", gobridgeDo("dead", "redrive", b.name(), "--id", r.Envelope.ID)},
		{"or discard it, which can't be undone", gobridgeDo("dead", "discard", b.name(), "--id", r.Envelope.ID)},
	}
}

// Get returns a record of a binding in whatever state, payload included where
// it is still there.
func (d *Desk) Get(ctx context.Context, t Target, id string) (gobridge.Record, error) {
	stats, err := d.store.Stats(ctx)
	if err != nil {
		return gobridge.Record{}, err
	}
	for _, b := range d.bindings(stats) {
		if b.Route != t.Route || b.Binding != t.Binding {
			continue
		}
		for _, s := range b.partitions {
			r, err := d.store.Get(ctx, gobridge.Ref{Partition: s.Partition, EnvelopeID: id, Binding: b.Binding})
			if !errors.Is(err, gobridge.ErrNotFound) {
				return r, err
			}
		}
	}
	return gobridge.Record{}, fmt.Errorf("message %q of %s: %w", id, t, gobridge.ErrNotFound)
}
