package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"gobridge"
	"gobridge/admin"
	"gobridge/operate"
)

// page is something to look at.
type page struct {
	path, template string
	title          string
	// look asks for what the template shows. A page that is live is looked at again
	// every second: it must cost no more than the look that all share.
	look func(c *console, r *http.Request, v *view) (any, error)
	live bool
}

func pages() []page {
	return []page{
		{"/{$}", "overview.html", "Overview", lookOverview, true},
		{"/binding", "binding.html", "Binding", lookBinding, true},
		{"/partitions", "partitions.html", "Partitions", lookPartitions, true},
		{"/keys", "keys.html", "Keys in trouble", lookKeys, true},
		{"/holds", "holds.html", "On hold", lookHolds, true},
		{"/explain", "explain.html", "Explain", lookExplain, false},
		{"/record", "record.html", "Message", lookRecord, false},
		{"/dead", "dead.html", "Dead letters", lookDead, false},
		{"/audit", "audit.html", "Audit", lookAudit, false},
		{"/config", "config.html", "Configuration", lookConfig, false},
		{"/help", "help.html", "Words", func(*console, *http.Request, *view) (any, error) { return nil, nil }, false},
	}
}

// page serves a page to whoever may read: once, or as a stream.
func (c *console) page(p page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream := r.Header.Get("Accept") == "text/event-stream"
		switch {
		case admin.CallerOf(r.Context()).Role < admin.RoleRead && stream:
			w.WriteHeader(http.StatusForbidden)
		case admin.CallerOf(r.Context()).Role < admin.RoleRead:
			c.askLogin(w, r)
		case stream:
			c.stream(w, r, p)
		default:
			v, err := c.draw(r, p)
			if err != nil {
				c.fail(w, r, err)
				return
			}
			c.write(w, r, http.StatusOK, p.template, v)
		}
	})
}

// draw asks for what a page shows now.
func (c *console) draw(r *http.Request, p page) (*view, error) {
	v := newView(r, p.title)
	v.Nav, v.Live = r.URL.Path, true
	data, err := p.look(c, r, v)
	v.Data = data
	return v, err
}

// pager is a page of a list that is at hand as a whole.
type pager struct {
	from, to   int
	First, Of  int // for people: from which row, and of how many
	Last       int
	Prev, Next string
}

func newPager(r *http.Request, rows int) pager {
	q := r.URL.Query()
	number, err := strconv.Atoi(q.Get("page"))
	if err != nil || number < 1 {
		number = 1
	}
	pages := max(1, (rows+pageRows-1)/pageRows)
	number = min(number, pages)
	p := pager{from: (number - 1) * pageRows, Of: rows}
	p.to = min(rows, p.from+pageRows)
	p.First, p.Last = p.from+1, p.to
	link := func(n int) string {
		q.Set("page", strconv.Itoa(n))
		return r.URL.Path + "?" + q.Encode()
	}
	if number > 1 {
		p.Prev = link(number - 1)
	}
	if number < pages {
		p.Next = link(number + 1)
	}
	return p
}

// targetOf reads the parameter target.
func targetOf(q url.Values) (operate.Target, error) {
	if q.Get("target") == "" {
		return operate.Target{}, wrong("The address names no binding, as in target=orders/crm.")
	}
	t, err := operate.ParseTarget(q.Get("target"))
	if err != nil {
		return t, wrong(operate.Visible(err.Error()))
	}
	return t, nil
}

// bindingPage is one binding.
type bindingPage struct {
	trouble
	Now                time.Time
	Destination        string
	Row                row
	Flow, Depth        chart
	Retry, Pause, Halt *link
	Partitions         []partition
	DeadLetters        string
	Pages              pager
}

func lookBinding(c *console, r *http.Request, v *view) (any, error) {
	t, err := targetOf(r.URL.Query())
	if err != nil {
		return nil, err
	}
	status, err := c.look(r.Context(), v)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(status.Bindings, func(b operate.BindingStatus) bool { return b.Route == t.Route && b.Binding == t.Binding })
	if i < 0 {
		return nil, &problem{http.StatusNotFound, "No such binding", "There is no binding " + t.String() + ": the overview lists those there are."}
	}
	b := &status.Bindings[i]
	name := b.Route + "/" + b.Binding
	v.Title = name
	out := bindingPage{trouble: troubleOf(b, status.At, v.Operate), Now: status.At, Destination: b.Destination, Row: c.row(b, status.At)}
	out.Flow, out.Depth, out.DeadLetters = c.history.flow(name), c.history.depth(name), deadHref(name)
	all := partitionsOf(b)
	out.Pages = newPager(r, len(all))
	out.Partitions = all[out.Pages.from:out.Pages.to]
	if v.Operate {
		q := url.Values{"target": {name}}
		out.Retry, out.Halt = quiet(actLink(doRetry, q)), quiet(actLink(doHalt, q))
		if !slices.ContainsFunc(b.Findings, func(f operate.Finding) bool { return f.State == operate.StatePaused }) {
			out.Pause = quiet(actLink(doPause, q))
		}
	}
	return out, nil
}

// partition is who drains a part of a binding.
type partition struct {
	operate.Ownership
	Binding, Href string
}

func partitionsOf(b *operate.BindingStatus) []partition {
	out := make([]partition, len(b.Owners))
	for i, o := range b.Owners {
		out[i] = partition{o, b.Route + "/" + b.Binding, bindingHref(b.Route, b.Binding)}
	}
	return out
}

type partitionsPage struct {
	Now  time.Time
	Rows []partition
	// Orphans counts those without an owner.
	Orphans int
	Pages   pager
}

func lookPartitions(c *console, r *http.Request, v *view) (any, error) {
	status, err := c.look(r.Context(), v)
	if err != nil {
		return nil, err
	}
	out := partitionsPage{Now: status.At}
	var all []partition
	for i := range status.Bindings {
		all = append(all, partitionsOf(&status.Bindings[i])...)
	}
	// What nobody drains comes first.
	slices.SortStableFunc(all, func(a, b partition) int { return orphan(a) - orphan(b) })
	for _, p := range all {
		if p.Owner == "" {
			out.Orphans++
		}
	}
	out.Pages = newPager(r, len(all))
	out.Rows = all[out.Pages.from:out.Pages.to]
	return out, nil
}

func orphan(p partition) int {
	if p.Owner == "" {
		return 0
	}
	return 1
}

// control is a pause or a halt.
type control struct {
	gobridge.Control
	Target, Href, Explain string
	Resume                *link
}

func controlOf(one gobridge.Control, operator bool) control {
	t := operate.Target{Route: one.Route, Binding: one.Binding}.String()
	out := control{Control: one, Target: t}
	if one.Binding != "" {
		out.Href = bindingHref(one.Route, one.Binding)
	}
	q := url.Values{"target": {t}}
	if one.OrderingKey != "" {
		q.Set("key", one.OrderingKey)
		out.Explain = "/explain?" + url.Values{"q": {one.OrderingKey}, "kind": {"key"}}.Encode()
	}
	if one.EnvelopeID != "" {
		q.Set("id", one.EnvelopeID)
		out.Explain = "/explain?" + url.Values{"q": {one.EnvelopeID}, "kind": {"id"}}.Encode()
	}
	if operator {
		out.Resume = actLink(doResume, q)
	}
	return out
}

// controls are the pauses and halts in force, of a second ago at most for all who
// look.
func (c *console) controls(ctx context.Context) ([]gobridge.Control, error) {
	if c.holds == nil {
		return nil, &problem{http.StatusNotImplemented, "Not possible", "This desk can't list what is on hold."}
	}
	return c.held.get(ctx, c.holds)
}

// heldLook is a look at the controls that is shared.
type heldLook struct {
	mu  sync.Mutex
	all []gobridge.Control
	at  time.Time
}

func (h *heldLook) get(ctx context.Context, from lister) ([]gobridge.Control, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.at.IsZero() && time.Since(h.at) < time.Second {
		return h.all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	all, err := from.Controls(ctx)
	if err != nil {
		return nil, err
	}
	h.all, h.at = all, time.Now()
	return all, nil
}

// forget makes the next look a new one, for whoever has just changed something.
func (c *console) forget() {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	c.held.at = time.Time{}
}

func ofKind(all []gobridge.Control, kind gobridge.ControlKind) []gobridge.Control {
	var out []gobridge.Control
	for _, one := range all {
		if one.Kind == kind {
			out = append(out, one)
		}
	}
	return out
}

type keysPage struct {
	Now     time.Time
	Failing []trouble
	Halted  []control
	Pages   pager
}

// lookKeys shows the keys that are halted, and what fails at the head of bindings.
func lookKeys(c *console, r *http.Request, v *view) (any, error) {
	status, err := c.look(r.Context(), v)
	if err != nil {
		return nil, err
	}
	all, err := c.controls(r.Context())
	if err != nil {
		return nil, err
	}
	out := keysPage{Now: status.At}
	for i := range status.Bindings {
		t := troubleOf(&status.Bindings[i], status.At, v.Operate)
		t.More = nil // they are below
		t = t.only(func(f finding) bool { return f.State == operate.StateFailing || f.State == operate.StateDown })
		if len(t.Findings) > 0 && len(out.Failing) < maxCards {
			out.Failing = append(out.Failing, t)
		}
	}
	halts := ofKind(all, gobridge.Halt)
	out.Pages = newPager(r, len(halts))
	for _, one := range halts[out.Pages.from:out.Pages.to] {
		out.Halted = append(out.Halted, controlOf(one, v.Operate))
	}
	return out, nil
}

type holdsPage struct {
	Now           time.Time
	Pauses, Halts []control
	MorePauses    int
	Pages         pager
}

func lookHolds(c *console, r *http.Request, v *view) (any, error) {
	if _, err := c.look(r.Context(), v); err != nil {
		return nil, err
	}
	all, err := c.controls(r.Context())
	if err != nil {
		return nil, err
	}
	out := holdsPage{Now: v.Now}
	pauses, halts := ofKind(all, gobridge.Pause), ofKind(all, gobridge.Halt)
	out.MorePauses = max(0, len(pauses)-pageRows)
	for _, one := range pauses[:len(pauses)-out.MorePauses] {
		out.Pauses = append(out.Pauses, controlOf(one, v.Operate))
	}
	out.Pages = newPager(r, len(halts))
	for _, one := range halts[out.Pages.from:out.Pages.to] {
		out.Halts = append(out.Halts, controlOf(one, v.Operate))
	}
	return out, nil
}

type auditPage struct {
	Now     time.Time
	Entries []gobridge.AuditEntry
	Limit   int
	More    string
}

func lookAudit(c *console, r *http.Request, v *view) (any, error) {
	limit := pageRows
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > gobridge.AuditLimit {
			return nil, wrong(fmt.Sprintf("limit is a number from 1 to %d.", gobridge.AuditLimit))
		}
	}
	entries, err := c.surface.Desk.Audit(r.Context(), limit)
	if err != nil {
		return nil, err
	}
	out := auditPage{Now: v.Now, Entries: entries, Limit: limit}
	if len(entries) == limit && limit < gobridge.AuditLimit {
		out.More = "/audit?limit=" + strconv.Itoa(min(10*limit, gobridge.AuditLimit))
	}
	return out, nil
}

type configPage struct {
	Text   string
	Reload *link
}

func lookConfig(c *console, _ *http.Request, v *view) (any, error) {
	var out configPage
	if c.surface.Config != nil {
		out.Text = c.surface.Config()
	}
	if c.surface.Reload != nil && v.Operate {
		out.Reload = actLink(doReload, url.Values{})
	}
	return out, nil
}
