package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"gobridge/operate"
)

const (
	// maxCards bounds the troubles that the overview tells in full.
	maxCards = 20
	// pageRows is how many rows a page of a list has.
	pageRows = 100
)

// trouble is a binding, or the store, with what is to be said of it.
type trouble struct {
	Name, Href string
	State      string
	Tone       string
	Figures    []figure
	Findings   []finding
	// More leads to more of the kind.
	More *link
}

type figure struct{ Name, Value string }

// finding is a sentence with what to do.
type finding struct {
	State string
	Tone  string
	Text  string
	Steps []step
}

// row is a binding in the table.
type row struct {
	Name, Href, Destination string
	State, Tone             string
	Pending, Claimed, Dead  int64
	DeadHref                string
	Oldest, In, Out, Probe  string
	Chart                   chart
}

// overview is the first page.
type overview struct {
	Headline, Tone string
	Now            time.Time
	Needs          []trouble
	MoreNeeds      int
	Notes          []trouble
	MoreNotes      int

	Bindings, Pending, Claimed, Dead string
	Oldest                           string
	In, Out                          string
	Flow, Depth                      chart

	Rows  []row
	Pages pager
}

func lookOverview(c *console, r *http.Request, v *view) (any, error) {
	status, err := c.look(r.Context(), v)
	if err != nil {
		return nil, err
	}
	out := overview{Headline: v.Head.Text, Tone: v.Head.Tone, Now: status.At}
	c.troubles(&out, &status, v.Operate)
	c.totals(&out, &status)
	bindings := slices.Clone(status.Bindings)
	slices.SortStableFunc(bindings, func(a, b operate.BindingStatus) int { return cmp.Compare(rank(a.State), rank(b.State)) })
	out.Pages = newPager(r, len(bindings))
	for i := range bindings[out.Pages.from:out.Pages.to] {
		out.Rows = append(out.Rows, c.row(&bindings[out.Pages.from+i], status.At))
	}
	return out, nil
}

// troubles sorts the findings: what needs a person, the most pressing first, and
// what can wait.
func (c *console) troubles(out *overview, status *operate.Status, operator bool) {
	out.addWhole("the store", status.Store, operator)
	out.addWhole("this process", status.Process, operator)
	bindings := slices.Clone(status.Bindings)
	slices.SortStableFunc(bindings, func(a, b operate.BindingStatus) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(b.OldestAgeSeconds, a.OldestAgeSeconds))
	})
	for i := range bindings {
		all := troubleOf(&bindings[i], status.At, operator)
		if needs := all.only(func(f finding) bool { return f.Tone != "note" }); len(needs.Findings) > 0 {
			out.Needs = append(out.Needs, needs)
		}
		if notes := all.only(func(f finding) bool { return f.Tone == "note" }); len(notes.Findings) > 0 {
			out.Notes = append(out.Notes, notes)
		}
	}
	out.Needs, out.MoreNeeds = cut(out.Needs)
	out.Notes, out.MoreNotes = cut(out.Notes)
}

// only is the trouble with those of its findings.
func (t trouble) only(these func(finding) bool) trouble {
	all := t.Findings
	t.Findings = nil
	for _, f := range all {
		if these(f) {
			t.Findings = append(t.Findings, f)
		}
	}
	return t
}

// addWhole adds what is said of no single binding.
func (out *overview) addWhole(name string, findings []operate.Finding, operator bool) {
	whole := trouble{Name: name}
	for i := range findings {
		f := &findings[i]
		whole.Findings = append(whole.Findings, findingOf(f, operator))
		if whole.State == "" || !f.Note {
			whole.State, whole.Tone = f.State, tone(f)
		}
	}
	if len(whole.Findings) > 0 && whole.Tone != "note" {
		out.Needs = append(out.Needs, whole)
	} else if len(whole.Findings) > 0 {
		out.Notes = append(out.Notes, whole)
	}
}

// cut leaves as many as are told in full, and says how many more there are.
func cut(all []trouble) ([]trouble, int) {
	if len(all) <= maxCards {
		return all, 0
	}
	return all[:maxCards], len(all) - maxCards
}

// troubleOf is a binding with all of its findings.
func troubleOf(b *operate.BindingStatus, now time.Time, operator bool) trouble {
	name := b.Route + "/" + b.Binding
	t := trouble{Name: name, Href: bindingHref(b.Route, b.Binding), State: b.State, Tone: stateTone(b.State)}
	t.Figures = []figure{{"pending", operate.Thousands(b.Pending)}}
	if b.Pending > 0 {
		t.Figures = append(t.Figures, figure{"oldest", age(b)})
	}
	if b.Dead > 0 {
		t.Figures = append(t.Figures, figure{"dead letters", operate.Thousands(b.Dead)})
	}
	for i := range b.Findings {
		f := &b.Findings[i]
		t.Findings = append(t.Findings, findingOf(f, operator))
		switch {
		case f.State == operate.StateHalted:
			t.More = &link{Label: "All halted keys", Href: "/keys"}
		case f.State == operate.StateDown && !f.Since.IsZero():
			t.Figures = append(t.Figures, figure{"down for", operate.Span(now.Sub(f.Since))})
			if !b.NextProbe.IsZero() {
				t.Figures = append(t.Figures, figure{"next probe", until(b.NextProbe, now)})
			}
		}
	}
	return t
}

func findingOf(f *operate.Finding, operator bool) finding {
	// The state stands before the text already.
	text := strings.TrimPrefix(strings.TrimPrefix(f.Text, f.State+": "), f.State+" ")
	return finding{State: f.State, Tone: tone(f), Text: text, Steps: steps(f.Steps, operator)}
}

func tone(f *operate.Finding) string {
	if f.Note {
		return "note"
	}
	return stateTone(f.State)
}

// stateTone is how loud a state is: on hold is what a person wanted.
func stateTone(state string) string {
	switch state {
	case operate.StateOK:
		return "good"
	case operate.StatePaused:
		return "hold"
	case operate.StateParked, operate.StateDead, operate.StateClock:
		return "note"
	}
	return "bad"
}

// rank orders states, the most pressing first.
func rank(state string) int {
	order := []string{
		operate.StateNoOwner, operate.StateStaleOwner, operate.StateDown, operate.StateDeadFull, operate.StateFull,
		operate.StateHalted, operate.StateFailing, operate.StateRemoved, operate.StatePaused,
	}
	if i := slices.Index(order, state); i >= 0 {
		return i
	}
	return len(order)
}

// headline says how things stand in a few words, and how loud it is to be said.
func headline(status *operate.Status) (text, tone string) {
	n, hold := 0, 0
	for i := range status.Bindings {
		switch stateTone(status.Bindings[i].State) {
		case "bad":
			n++
		case "hold":
			hold++
		}
	}
	for i := range status.Store {
		if f := &status.Store[i]; !f.Note {
			return "The store needs you: " + f.State, "bad"
		}
	}
	for i := range status.Process {
		if f := &status.Process[i]; !f.Note && n == 0 {
			return "This process needs you: " + f.State, "bad"
		}
	}
	switch {
	case n == 0 && hold == 0 && len(status.Bindings) == 0:
		return "All is well, and there is nothing yet", "good"
	case n == 0 && hold == 0:
		return "All is well", "good"
	case n == 0:
		return count(hold, "binding is", "bindings are") + " paused", "hold"
	case hold > 0:
		return fmt.Sprintf("%s you, %s paused", count(n, "binding needs", "bindings need"), count(hold, "is", "are")), "bad"
	}
	return count(n, "binding needs", "bindings need") + " you", "bad"
}

func (c *console) totals(out *overview, status *operate.Status) {
	var sum operate.BindingStatus
	for i := range status.Bindings {
		b := &status.Bindings[i]
		sum.Pending += b.Pending
		sum.Claimed += b.Claimed
		sum.Dead += b.Dead
		sum.OldestAgeSeconds = max(sum.OldestAgeSeconds, b.OldestAgeSeconds)
	}
	out.Bindings = operate.Thousands(len(status.Bindings))
	out.Pending, out.Claimed, out.Dead = operate.Thousands(sum.Pending), operate.Thousands(sum.Claimed), operate.Thousands(sum.Dead)
	out.Oldest = age(&sum)
	out.In, out.Out = c.history.rates("")
	out.Flow, out.Depth = c.history.flow(""), c.history.depth("")
}

func age(b *operate.BindingStatus) string {
	if b.Pending == 0 {
		return "–"
	}
	return operate.Span(time.Duration(b.OldestAgeSeconds * float64(time.Second)))
}

func until(t, now time.Time) string {
	if t.After(now) {
		return "in " + operate.Span(t.Sub(now))
	}
	return "now"
}

func (c *console) row(b *operate.BindingStatus, now time.Time) row {
	name := b.Route + "/" + b.Binding
	out := row{
		Name: name, Href: bindingHref(b.Route, b.Binding), Destination: b.Destination, State: b.State, Tone: stateTone(b.State),
		Pending: b.Pending, Claimed: b.Claimed, Dead: b.Dead, DeadHref: deadHref(name), Oldest: age(b), Chart: c.history.depth(name),
	}
	out.In, out.Out = c.history.rates(name)
	if !b.NextProbe.IsZero() {
		out.Probe = until(b.NextProbe, now)
	}
	return out
}
