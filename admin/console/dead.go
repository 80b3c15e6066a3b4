package console

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"

	"gobridge"
	"gobridge/admin"
	"gobridge/operate"
)

// deadRows is how many dead letters a page has: each comes with its payload.
const deadRows = 25

func deadHref(target string) string { return "/dead?" + url.Values{"target": {target}}.Encode() }

// selection is a filter as people give it: its names are those of the command's flags.
type selection struct {
	Target, Key, ID, Cause, Error, After, Before string
	NoKey                                        bool
}

func selectionOf(q url.Values) selection {
	return selection{
		Target: q.Get("target"), Key: q.Get("key"), ID: q.Get("id"), Cause: q.Get("cause"), Error: q.Get("error"),
		After: q.Get("after"), Before: q.Get("before"), NoKey: q.Get("nokey") != "",
	}
}

// query writes the selection as it is read.
func (s *selection) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"target": s.Target, "key": s.Key, "id": s.ID, "cause": s.Cause, "error": s.Error, "after": s.After, "before": s.Before,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if s.NoKey {
		q.Set("nokey", "1")
	}
	return q
}

// narrow reports whether it selects less than its target.
func (s *selection) narrow() bool {
	whole := selection{Target: s.Target}
	return *s != whole
}

// filter is the selection for a desk. A length of time is counted back from now.
func (s *selection) filter(now time.Time) (gobridge.Filter, error) {
	var f gobridge.Filter
	if s.Target != "" {
		t, err := operate.ParseTarget(s.Target)
		if err != nil {
			return f, wrong(operate.Visible(err.Error()))
		}
		f = t.Filter()
	}
	if s.NoKey && s.Key != "" {
		return f, wrong("A key, and those without a key: choose one of them.")
	}
	f.OrderingKey, f.HasKey, f.EnvelopeID, f.Reason, f.Error = s.Key, s.NoKey || s.Key != "", s.ID, s.Cause, s.Error
	var err1, err2 error
	f.EndedFrom, err1 = moment(s.After, now)
	f.EndedBefore, err2 = moment(s.Before, now)
	return f, errors.Join(err1, err2)
}

// moment reads a time, or how long ago it was; empty is none.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, wrong(short(text) + " is no time: write 2026-03-01T02:13:00Z, or 2h for two hours ago.")
	}
	return now.Add(-d), nil
}

// causes are the reasons of death that gobridge itself gives.
func causes() []string {
	return []string{
		gobridge.ReasonExhausted, gobridge.ReasonPermanent, gobridge.ReasonExpired, gobridge.ReasonFull,
		gobridge.ReasonRejected, gobridge.ReasonCrashed,
	}
}

type deadPage struct {
	Now  time.Time
	Of   selection
	Bad  string // what of the selection makes no sense
	Rows []deadRow
	Next string
	// First is the first page, unless this is it.
	First            string
	Targets          []string
	Causes           []string
	Redrive, Discard *link
	Narrow           bool
	Finer            bool // one of the filters is set that are folded away
}

type deadRow struct {
	operate.RecordView
	Target, Href string
	Size         string
}

func lookDead(c *console, r *http.Request, v *view) (any, error) {
	q := r.URL.Query()
	out := deadPage{Now: v.Now, Of: selectionOf(q), Causes: causes()}
	status, err := c.look(r.Context(), v)
	if err != nil {
		return nil, err
	}
	for i := range status.Bindings {
		if b := &status.Bindings[i]; b.Dead > 0 || out.Of.Target == b.Route+"/"+b.Binding {
			out.Targets = append(out.Targets, b.Route+"/"+b.Binding)
		}
	}
	out.Narrow = out.Of.narrow()
	out.Finer = out.Of.Key != "" || out.Of.ID != "" || out.Of.After != "" || out.Of.Before != ""
	filter, err := out.Of.filter(time.Now())
	if err != nil {
		out.Bad = err.Error()
		return out, nil //nolint:nilerr // the page says it
	}
	found, err := c.surface.Desk.Dead(r.Context(), gobridge.DeadQuery{Filter: filter, Limit: deadRows, Cursor: q.Get("cursor")})
	if err != nil {
		return nil, err
	}
	for _, one := range found.Records {
		route, binding, _, _ := gobridge.Partition(one.Partition).Split()
		target := route + "/" + binding
		out.Rows = append(out.Rows, deadRow{one, target, recordHref(target, one.ID), bytesText(one.PayloadBytes)})
	}
	more := out.Of.query()
	if q.Get("cursor") != "" {
		out.First = "/dead?" + more.Encode()
	}
	if found.Cursor != "" {
		next := maps.Clone(more)
		next.Set("cursor", found.Cursor)
		out.Next = "/dead?" + next.Encode()
	}
	if v.Operate && out.Of.Target != "" && len(out.Rows) > 0 {
		out.Redrive, out.Discard = actLink(doRedrive, more), actLink(doDiscardDead, more)
	}
	return out, nil
}

// explainPage answers a question.
type explainPage struct {
	Now     time.Time
	Q, Kind string
	Answers []answer
	More    int
}

type answer struct {
	operate.Answer
	Href, RecordHref string
	State, Tone      string
	Steps            []step
	Acts             []link
}

func lookExplain(c *console, r *http.Request, v *view) (any, error) {
	q := r.URL.Query()
	out := explainPage{Now: v.Now, Q: q.Get("q"), Kind: q.Get("kind")}
	if out.Q == "" {
		return out, nil
	}
	if _, err := c.look(r.Context(), v); err != nil {
		return nil, err
	}
	all, err := c.surface.Desk.Explain(r.Context(), operate.Question{Text: out.Q, OnlyKey: out.Kind == "key", OnlyID: out.Kind == "id"})
	if err != nil {
		return nil, err
	}
	v.Title = "Explain " + short(out.Q)
	if len(all) > pageRows {
		all, out.More = all[:pageRows], len(all)-pageRows
	}
	for _, a := range all {
		out.Answers = append(out.Answers, answerOf(a, v.Operate))
	}
	return out, nil
}

func answerOf(a operate.Answer, operator bool) answer {
	out := answer{Answer: a, State: a.Cause, Tone: causeTone(a.Cause), Steps: steps(a.Steps, operator)}
	if a.Cause == string(gobridge.CauseClaimable) && len(out.Steps) > 0 {
		out.State, out.Tone = "waiting", "bad" // nothing of its own holds it: its destination or owner does
	}
	if a.Binding != "" {
		out.Href = bindingHref(a.Route, a.Binding)
	}
	if a.Record != nil {
		out.RecordHref = recordHref(a.Route+"/"+a.Binding, a.Record.ID)
		for _, act := range recordActs(a.Record, held(a.Cause), operator) {
			if !offered(out.Steps, act.Href) {
				out.Acts = append(out.Acts, act)
			}
		}
	}
	return out
}

func held(cause string) bool {
	return cause == string(gobridge.CauseHalted) || cause == string(gobridge.CausePaused)
}

// offered reports whether one of the steps leads to the page already.
func offered(all []step, href string) bool {
	for _, s := range all {
		if s.Go != nil && s.Go.Href == href {
			return true
		}
	}
	return false
}

func causeTone(cause string) string {
	switch gobridge.Cause(cause) {
	case gobridge.CauseEnded, gobridge.CauseClaimed, gobridge.CauseClaimable, "filtered", gobridge.CauseNotFound:
		return "note"
	case gobridge.CausePaused:
		return "hold"
	}
	return stateTone(cause)
}

// recordPage is one message for one binding.
type recordPage struct {
	Now     time.Time
	Target  string
	Href    string
	Record  operate.RecordView
	Answer  *answer
	Headers []figure
	Type    string
	Created time.Time
	Payload payload
	Acts    []link
}

func lookRecord(c *console, r *http.Request, v *view) (any, error) {
	q := r.URL.Query()
	t, err := targetOf(q)
	if err != nil {
		return nil, err
	}
	if _, err := c.look(r.Context(), v); err != nil {
		return nil, err
	}
	record, err := c.surface.Desk.Get(r.Context(), t, q.Get("id"))
	if err != nil {
		return nil, err
	}
	all, err := c.surface.Desk.Explain(r.Context(), operate.Question{Text: record.Envelope.ID, OnlyID: true})
	if err != nil {
		return nil, err
	}
	out := recordPage{
		Now: v.Now, Target: t.String(), Href: bindingHref(t.Route, t.Binding), Record: operate.ViewOf(&record),
		Headers: headersOf(&record), Type: record.Envelope.ContentType, Created: record.Envelope.CreatedAt,
	}
	v.Title = "Message " + short(record.Envelope.ID)
	for _, a := range all {
		if a.Route == t.Route && a.Binding == t.Binding {
			one := answerOf(a, v.Operate)
			out.Answer = &one
			out.Acts = one.Acts
		}
	}
	if out.Answer == nil {
		out.Acts = recordActs(&out.Record, false, v.Operate)
	}
	here := recordHref(t.String(), record.Envelope.ID)
	out.Payload = payloadOf(&record, q.Get("as"), here, admin.CallerOf(r.Context()).Role >= c.surface.Payloads, c.surface.Payloads)
	return out, nil
}
