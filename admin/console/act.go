package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gobridge"
	"gobridge/admin"
	"gobridge/operate"
)

// The acts, as they stand in addresses.
const (
	doRetry       = "retry"
	doRedrive     = "redrive"
	doDiscard     = "discard"      // what waits, or all of a removed binding
	doDiscardDead = "discard-dead" // dead letters
	doPause       = "pause"
	doHalt        = "halt"
	doResume      = "resume"
	doMove        = "move"
	doReload      = "reload"
)

const (
	// actTime bounds an act, and a look at what it would do. What is done is done; the
	// rest is left for another one.
	actTime = 20 * time.Second
	// maxDry is how far what an act would do is counted.
	maxDry = 1000
	// maxReason bounds a reason, in bytes.
	maxReason = 1000
)

// act is one that is asked for. Who and why are not part of it: its query is the
// address of its page.
type act struct {
	do     string
	of     selection
	pinned selection // of, with times that stand still
	to     string
	target operate.Target
	filter gobridge.Filter
	// removed says that the configuration has the target no more, and all of it ends.
	// changed says that this is not as it was when the page was made.
	removed, changed bool
}

// readAct reads an act from an address.
func (c *console) readAct(ctx context.Context, q url.Values) (*act, error) {
	a := &act{do: q.Get("do"), of: selectionOf(q), to: q.Get("to")}
	if label(a.do) == "" {
		return nil, wrong("There is no such act.")
	}
	if a.do == doReload {
		return a, nil
	}
	var err error
	if a.target, err = targetOf(q); err != nil {
		return nil, err
	}
	if err = c.surface.Desk.Known(ctx, a.target); err != nil {
		return nil, err
	}
	if a.filter, err = a.of.filter(time.Now()); err != nil {
		return nil, err
	}
	a.pinned = a.of
	switch a.do {
	case doRedrive, doDiscardDead:
		// What dies after the preview is left.
		if a.filter.EndedBefore.IsZero() {
			a.filter.EndedBefore = time.Now()
		}
		a.pinned.Before = a.filter.EndedBefore.UTC().Format(time.RFC3339Nano)
		if !a.filter.EndedFrom.IsZero() {
			a.pinned.After = a.filter.EndedFrom.UTC().Format(time.RFC3339Nano)
		}
	case doHalt, doResume:
		if a.of.Key != "" && a.of.ID != "" {
			return nil, wrong("A key, and the ID of a message without one: give one of them.")
		}
		if a.do == doHalt && a.target.Binding == "" {
			return nil, wrong("A halt is of a key of a binding. To stop a whole route, pause it.")
		}
	case doDiscard:
		a.removed = !a.of.narrow() && c.surface.Desk.Removed(a.target.Route, a.target.Binding)
		a.changed = a.removed != q.Has("removed")
	case doMove:
		to, err := operate.ParseTarget(a.to)
		if err == nil && (to.Binding == "" || a.target.Binding == "") {
			err = errors.New("messages move from one binding to another")
		}
		if err != nil {
			return nil, wrong(operate.Visible(err.Error()))
		}
		return a, c.surface.Desk.Known(ctx, to)
	}
	return a, nil
}

// query is the act as readAct reads it.
func (a *act) query() url.Values {
	q := a.pinned.query()
	q.Set("do", a.do)
	if a.to != "" {
		q.Set("to", a.to)
	}
	if a.removed {
		q.Set("removed", "1")
	}
	return q
}

// job is the bulk change that the act is; a dry one counts up to a bound.
func (a *act) job(dry bool) operate.Job {
	job := operate.Job{Kind: operate.Discard, Filter: a.filter, DryRun: dry}
	switch a.do {
	case doRedrive:
		job.Kind = operate.Redrive
	case doDiscardDead:
		job.Filter.States = []gobridge.State{gobridge.StateDead}
	default:
		job.Filter.States = []gobridge.State{gobridge.StatePending}
	}
	if dry {
		job.Max = maxDry
	}
	return job
}

// do does it, and says what came of it. With an error, done says what was done
// until then.
func (c *console) do(ctx context.Context, a *act, who operate.Who) (done string, err error) {
	desk, t := c.surface.Desk, a.target
	switch a.do {
	case doRetry:
		n, err := desk.Retry(ctx, a.filter, who)
		text := "They are tried at once: " + count(n, "message", "") + " waited for a time."
		if n == 0 {
			text = "Nothing waited for a time; a destination that is down is tried at once."
		}
		return text, err
	case doPause:
		return t.String() + " is paused. Messages are accepted, and wait.", desk.Pause(ctx, t, who)
	case doHalt:
		return "Halted: " + a.subject() + " waits.", desk.Halt(ctx, t, a.of.Key, a.of.ID, who)
	case doResume:
		return "Resumed: " + a.subject() + " goes on.", desk.Resume(ctx, t, a.of.Key, a.of.ID, who)
	case doMove:
		return c.move(ctx, a, who)
	case doReload:
		changed, err := c.surface.Reload(ctx)
		return "Loaded anew. " + changed, err
	}
	if a.removed {
		n, err := desk.EndRemoved(ctx, t, who)
		return "Ended " + count(n, "message", "") + " of " + t.String() + ".", err
	}
	report, err := desk.Do(ctx, a.job(false), who, nil)
	verb := "Discarded "
	if a.do == doRedrive {
		verb = "Redrove "
	}
	return verb + count(report.Count, "message", "") + ".", err
}

func (c *console) move(ctx context.Context, a *act, who operate.Who) (string, error) {
	to, err := operate.ParseTarget(a.to)
	if err != nil {
		return "", err
	}
	result, err := c.surface.Desk.Move(ctx, a.target, to, who)
	text := "Moved " + count(result.Moved, "message", "") + " to " + to.String() + "."
	if result.Expired > 0 {
		text += " " + operate.Thousands(result.Expired) + " had expired."
	}
	if left := result.Left.Pending + result.Left.Claimed; left > 0 {
		text += " " + operate.Thousands(left) + " stay, on hold or not due yet."
	}
	return text, err
}

// actPage asks for the reason, and shows what will be done.
type actPage struct {
	Label, Would string
	Notes        []string
	Danger       bool
	Post         string // where the form goes
	Command      string
	// NeedsKey says that the form asks for a key; Key is what was typed.
	NeedsKey bool
	Key      string
	// NeedsReason is false for what is kept nowhere.
	NeedsReason bool
	Reason      string
	Bad         string // what is wrong with the form
	Report      *operate.BulkReport
	Reasons     []figure
	// Nothing says that there is nothing to do.
	Nothing bool
	Back    string
	// Done is what was done already of an act in parts.
	Done      string
	MaxReason int
}

// askAct shows what an act would do.
func (c *console) askAct(w http.ResponseWriter, r *http.Request) {
	if admin.CallerOf(r.Context()).Role < admin.RoleRead {
		c.askLogin(w, r)
		return
	}
	if !c.mayAct(w, r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.actTime)
	defer cancel()
	a, err := c.readAct(ctx, r.URL.Query())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.showAct(w, r.WithContext(ctx), http.StatusOK, a, actPage{Reason: r.URL.Query().Get("reason"), Key: r.URL.Query().Get("typed")})
}

func (c *console) mayAct(w http.ResponseWriter, r *http.Request) bool {
	if admin.CallerOf(r.Context()).Role >= admin.RoleOperate {
		return true
	}
	c.fail(w, r, &problem{http.StatusForbidden, "Not allowed", "You are logged in with a token of role read, which sees everything and changes nothing. Log out, and in again with a token of role operate."})
	return false
}

func (c *console) showAct(w http.ResponseWriter, r *http.Request, status int, a *act, out actPage) {
	if err := c.describe(r.Context(), a, &out); err != nil {
		c.fail(w, r, err)
		return
	}
	v := newView(r, out.Label)
	v.Data = out
	c.write(w, r, status, "act.html", v)
}

// doAct does what its page has shown.
func (c *console) doAct(w http.ResponseWriter, r *http.Request) {
	caller := admin.CallerOf(r.Context())
	if caller.Role < admin.RoleRead {
		c.keepTyped(w, r)
		return
	}
	if !c.mayAct(w, r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.actTime)
	defer cancel()
	a, err := c.readAct(ctx, r.URL.Query())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	form := actPage{Reason: strings.TrimSpace(r.PostFormValue("reason")), Key: r.PostFormValue("key")}
	if a.needsKey() {
		a.of.Key = form.Key
	}
	if form.Bad = a.check(&form); form.Bad != "" {
		a.of.Key = r.URL.Query().Get("key")
		c.showAct(w, r, http.StatusUnprocessableEntity, a, form)
		return
	}
	who := operate.Who{By: caller.Named(caller.Session.By), Reason: form.Reason}
	done, err := c.do(ctx, a, who)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil && a.partial() {
		// The time is up: the rest is another act, with the same words.
		form.Done = done
		c.showAct(w, r, http.StatusOK, a, form)
		return
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.forget()
	v := newView(r, "Done: "+label(a.do))
	v.Data = struct{ Done, Back, BackTo string }{operate.Visible(done), a.back(), a.target.String()}
	c.write(w, r, http.StatusOK, "done.html", v)
}

// check says what is wrong with what was typed.
func (a *act) check(form *actPage) string {
	switch {
	case a.changed:
		return "The configuration has changed meanwhile, and so has what would be done. Look once more."
	case a.do == doHalt && a.of.Key == "" && a.of.ID == "":
		return "Say which key: a halt stops one of them. To stop all, pause the binding."
	case a.do == doReload:
		return ""
	case form.Reason == "":
		return "Say why: it is kept for those who ask later."
	case len(form.Reason) > maxReason:
		return fmt.Sprintf("The reason has %s bytes; the limit is %s.", operate.Thousands(len(form.Reason)), operate.Thousands(maxReason))
	}
	return ""
}

// partial reports whether an act that ran out of time has done a part.
func (a *act) partial() bool {
	return a.do == doRedrive || a.do == doDiscardDead || a.do == doDiscard && !a.removed || a.do == doRetry
}

func (a *act) needsKey() bool { return a.do == doHalt && a.of.Key == "" && a.of.ID == "" }

// back is the page that shows the act's result.
func (a *act) back() string {
	switch {
	case a.do == doReload:
		return "/config"
	case a.target.Binding == "":
		return "/"
	}
	return bindingHref(a.target.Route, a.target.Binding)
}

// subject says for people what the act is about.
func (a *act) subject() string {
	switch {
	case a.of.Key != "":
		return "key " + short(a.of.Key) + " of " + a.target.String()
	case a.of.ID != "":
		return "message " + short(a.of.ID) + " of " + a.target.String()
	}
	return a.target.String()
}
