package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/admin"
	"gobridge/operate"
)

// TestActs does each act as a person does: the page says what it would do, changes
// nothing, and its form does it, with the name and reason in the audit.
func TestActs(t *testing.T) {
	for name, c := range map[string]struct {
		query   string
		prepare func(*world)
		would   string
		form    url.Values
		done    string
		is      func(*world) bool
		action  gobridge.AuditAction
	}{
		"retry a binding": {
			query: "do=retry&target=orders/crm", would: "Try what waits of orders/crm at once", done: "a destination that is down is tried at once",
			is: func(w *world) bool {
				s, err := w.store.Stats(w.Context(), crm)
				return err == nil && s[0].Retries == 1
			}, action: gobridge.AuditRetry,
		},
		"redrive one": {
			query: "do=redrive&target=orders/billing&id=d-1", would: "Send message d-1 of orders/billing again.", done: "Redrove 1 message.",
			is: func(w *world) bool {
				return w.state(billing, "d-1") == gobridge.StatePending && w.state(billing, "d-2") == gobridge.StateDead
			}, action: gobridge.AuditRedrive,
		},
		"redrive by error": {
			query: "do=redrive&target=orders/billing&error=500*", would: "Send 5 dead letters of orders/billing again.", done: "Redrove 5 messages.",
			is: func(w *world) bool { return w.state(billing, "d-4") == gobridge.StatePending }, action: gobridge.AuditRedrive,
		},
		"discard one that waits": {
			query: "do=discard&target=orders/crm&id=m-3", would: "End message m-3 of orders/crm.", done: "Discarded 1 message.",
			is: func(w *world) bool {
				return w.state(crm, "m-3") == gobridge.StateDiscarded && w.state(crm, "m-4") == gobridge.StatePending
			}, action: gobridge.AuditDiscard,
		},
		"discard dead letters": {
			query: "do=discard-dead&target=orders/billing&cause=exhausted", would: "End 5 dead letters of orders/billing.", done: "Discarded 5 messages.",
			is: func(w *world) bool {
				return w.state(billing, "d-0") == gobridge.StateDiscarded && w.state(billing, "m-0") == gobridge.StatePending
			}, action: gobridge.AuditDiscard,
		},
		"pause": {
			query: "do=pause&target=orders/crm", would: "Stop the deliveries of orders/crm", done: "orders/crm is paused.",
			is: func(w *world) bool { return w.held(gobridge.Pause, "") }, action: gobridge.AuditPause,
		},
		"pause a route": {
			query: "do=pause&target=orders", would: "Stop the deliveries of orders until", done: "orders is paused.",
			is: func(w *world) bool { return w.held(gobridge.Pause, "") }, action: gobridge.AuditPause,
		},
		"halt a key that is typed": {
			query: "do=halt&target=orders/crm", would: "Stop one key of orders/crm", form: url.Values{"key": {"cust-9"}}, done: "key cust-9 of orders/crm waits",
			is: func(w *world) bool { return w.held(gobridge.Halt, "cust-9") }, action: gobridge.AuditHalt,
		},
		"halt a key": {
			query: "do=halt&target=orders/crm&key=cust-7", would: "Stop key cust-7 of orders/crm", done: "key cust-7 of orders/crm waits",
			is: func(w *world) bool { return w.held(gobridge.Halt, "cust-7") }, action: gobridge.AuditHalt,
		},
		"resume a key": {
			query: "do=resume&target=orders/billing&key=cust-7", would: "Let key cust-7 of orders/billing go on", done: "key cust-7 of orders/billing goes on",
			is: func(w *world) bool { return !w.held(gobridge.Halt, "cust-7") }, action: gobridge.AuditLift,
		},
		"move a removed binding": {
			prepare: func(w *world) { w.persist(message("old/crm/0", "o-1", "")) },
			query:   "do=move&target=old/crm&to=orders/crm", would: "Move what waits in old/crm to orders/crm: 1 message.", done: "Moved 1 message to orders/crm.",
			is: func(w *world) bool {
				_, err := w.store.Get(w.Context(), gobridge.Ref{Partition: crm, EnvelopeID: "o-1", Binding: "crm"})
				return err == nil
			},
		},
		"end a removed binding": {
			prepare: func(w *world) {
				w.persist(message("old/crm/0", "o-1", ""), dead(message("old/crm/0", "o-2", ""), "500"))
			},
			query: "do=discard&target=old/crm", would: "End everything that old/crm holds, dead letters too.", done: "Ended 2 messages of old/crm.",
			is: func(w *world) bool { return w.state("old/crm/0", "o-2") == gobridge.StateDiscarded }, action: gobridge.AuditDiscard,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			if strings.HasPrefix(c.query, "do=halt") {
				w.persist(message(crm, "m-1", "cust-7"))
			} else {
				w.bad()
			}
			if c.prepare != nil {
				c.prepare(w)
			}
			before, err := w.store.ListAudit(t.Context(), 100)
			w.must(err)
			b := w.login(operateToken)
			body := b.page("/act?" + c.query)
			sound(t, name, body)
			has(t, body, c.would)
			audit, err := w.store.ListAudit(t.Context(), 100)
			w.must(err)
			if c.is(w) || len(audit) != len(before) {
				t.Fatal("it is done before anybody has confirmed")
			}
			action := formOf(t, body)
			form := url.Values{"reason": {" the night was long "}}
			maps.Copy(form, c.form)
			status, done := b.post(action, form)
			sound(t, name, done)
			has(t, done, c.done)
			if status != http.StatusOK || !c.is(w) {
				t.Fatalf("%d: it is not done: %s", status, textOf(done))
			}
			if audit, err = w.store.ListAudit(t.Context(), 1); c.action != "" &&
				(err != nil || audit[0].Action != c.action || audit[0].By != "ann (operate token)" || audit[0].Reason != "the night was long") {
				t.Errorf("audit: %+v, %v", audit, err)
			}
		})
	}
}

func (w *world) held(kind gobridge.ControlKind, key string) bool {
	all, err := w.store.ListControls(w.Context())
	w.must(err)
	for _, one := range all {
		if one.Kind == kind && one.OrderingKey == key {
			return true
		}
	}
	return false
}

// TestNoCommandSelectsMore: the command line can't select what has no key, and a command
// without that would be about the others, too.
func TestNoCommandSelectsMore(t *testing.T) {
	w := newWorld(t, nil)
	w.persist(dead(message(billing, "d-1", ""), "500"), dead(message(billing, "d-2", "k"), "500"))
	b := w.login(operateToken)
	has(t, b.page("/act?do=redrive&target=orders/billing"), "Send 2 dead letters", "gobridge dead redrive orders/billing")
	body := b.page("/act?do=redrive&target=orders/billing&nokey=1")
	has(t, body, "Send message d-1 of orders/billing again.")
	hasNot(t, body, "gobridge dead redrive")
}

func TestFormSaysWhatIsMissingAndKeepsTheRest(t *testing.T) {
	w := newWorld(t, nil)
	w.bad()
	b := w.login(operateToken)
	status, body := b.post("/act?do=halt&target=orders/crm", url.Values{"key": {"cust-<9>"}, "reason": {"  "}})
	sound(t, "form", body)
	if status != http.StatusUnprocessableEntity {
		t.Errorf("%d", status)
	}
	has(t, body, "Say why", `value="cust-&lt;9&gt;"`)
	status, body = b.post("/act?do=halt&target=orders/crm", url.Values{"key": {""}, "reason": {"because & so"}})
	has(t, body, "Say which key", "because &amp; so</textarea>")
	if status != http.StatusUnprocessableEntity {
		t.Errorf("%d", status)
	}
	status, body = b.post("/act?do=pause&target=orders/crm", url.Values{"reason": {strings.Repeat("x", maxReason+1)}})
	has(t, body, "The reason has 1,001 bytes; the limit is 1,000.")
	if status != http.StatusUnprocessableEntity || w.held(gobridge.Pause, "") {
		t.Errorf("%d", status)
	}
	has(t, b.page("/act?do=resume&target=orders/crm&key=nobody"), "Nothing holds it")
	has(t, b.page("/act?do=redrive&target=orders/crm"), "There is no such dead letter.")
}

// TestWhatChangesIsConfirmedAnew: a page that was made while the configuration still
// had the binding ends nothing but what it said.
func TestWhatChangesIsConfirmedAnew(t *testing.T) {
	w := newWorld(t, nil)
	w.persist(message("old/crm/0", "o-1", ""), dead(message("old/crm/0", "o-2", ""), "500"))
	b := w.login(operateToken)
	status, body := b.post("/act?do=discard&target=old/crm", url.Values{"reason": {"of no use"}})
	has(t, body, "The configuration has changed meanwhile", "End everything that old/crm holds", "of no use</textarea>")
	if status != http.StatusUnprocessableEntity || w.state("old/crm/0", "o-2") != gobridge.StateDead {
		t.Errorf("%d, %s", status, w.state("old/crm/0", "o-2"))
	}
	if status, body = b.post(formOf(t, body), url.Values{"reason": {"of no use"}}); status != http.StatusOK {
		t.Errorf("%d %s", status, textOf(body))
	}
}

func TestForgedFormsDoNothing(t *testing.T) {
	w := newWorld(t, nil)
	b := w.login(operateToken)
	other := w.login(operateToken)
	const act = "/act?do=pause&target=orders/crm"
	for name, csrf := range map[string]string{"none": "", "another session's": other.csrf, "wrong": strings.Repeat("0", 64)} {
		if status, body := b.post(act, url.Values{"reason": {"x"}, "csrf": {csrf}}); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, status, textOf(body))
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+act, strings.NewReader(url.Values{"reason": {"x"}, "csrf": {b.csrf}}.Encode()))
	w.must(err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", "https://elsewhere.example.com")
	if status, body := b.do(request); status != http.StatusForbidden {
		t.Errorf("from elsewhere: %d %s", status, body)
	}
	if w.held(gobridge.Pause, "") {
		t.Error("it is paused")
	}
}

func TestExpiredSessionKeepsWhatWasTyped(t *testing.T) {
	w := newWorld(t, nil)
	w.bad()
	b := w.login(operateToken)
	action := formOf(t, b.page("/act?do=halt&target=orders/crm"))
	w.later(13 * time.Hour)
	status, body := b.post(action, url.Values{"key": {"cust-9"}, "reason": {"wrong prices & <more>"}})
	sound(t, "login", body)
	if status != http.StatusForbidden || w.held(gobridge.Halt, "cust-9") {
		t.Fatalf("%d %s", status, textOf(body))
	}
	has(t, body, "Your session is over, and nothing was done. What you typed is kept")
	var next string
	for n := range document(t, body).Descendants() {
		if name, _ := attribute(n, "name"); name == "next" {
			next, _ = attribute(n, "value")
		}
	}
	status, body = b.post("/login", url.Values{"token": {operateToken}, "by": {"ann"}, "next": {next}, "csrf": {""}})
	if status != http.StatusOK || w.held(gobridge.Halt, "cust-9") {
		t.Fatalf("after the login: %d %s", status, textOf(body))
	}
	has(t, body, "Stop one key of orders/crm", `value="cust-9"`, "wrong prices &amp; &lt;more&gt;</textarea>")
}

// TestAFormFromBeforeTheLogin: a tab that was open during a login elsewhere in the same
// browser says what to do, and a login or logout there works.
func TestAFormFromBeforeTheLogin(t *testing.T) {
	w := newWorld(t, nil)
	w.bad()
	b := w.login(operateToken)
	action, before := formOf(t, b.page("/act?do=halt&target=orders/crm")), b.csrf
	login := url.Values{"token": {operateToken}, "by": {"ann"}, "next": {"/help"}, "csrf": {""}}
	if status, body := b.post("/login", login); status != http.StatusOK {
		t.Fatalf("a second login: %d %s", status, textOf(body))
	}
	status, body := b.post(action, url.Values{"key": {"cust-9"}, "reason": {"wrong prices"}, "csrf": {before}})
	sound(t, "stale", body)
	if status != http.StatusForbidden || w.held(gobridge.Halt, "cust-9") {
		t.Fatalf("%d %s", status, textOf(body))
	}
	has(t, body, "This page is from before your last login. What you typed is kept", "Look once more</a>")
	for n := range document(t, body).Descendants() {
		if href, _ := attribute(n, "href"); strings.HasPrefix(href, "/act?") {
			has(t, b.page(href), "Stop one key of orders/crm", `value="cust-9"`, "wrong prices</textarea>")
		}
	}
	if status, body := b.post("/logout", url.Values{"csrf": {before}}); status != http.StatusOK || !strings.Contains(body, "<h1>Log in</h1>") {
		t.Errorf("logout: %d %s", status, textOf(body))
	}
}

func TestLogin(t *testing.T) {
	w := newWorld(t, nil)
	b := w.browser()
	for _, c := range []struct {
		token, by, want string
		status          int
	}{
		{"a-token-that-is-wrong", "ann", "No role has this token.", 403}, {operateToken, "", "Give your name", 422},
		{operateToken, strings.Repeat("x", 101), "too long", 422}, {operateToken, "a\x00b", "can't be seen", 422},
	} {
		status, body := b.post("/login", url.Values{"token": {c.token}, "by": {c.by}, "next": {"/dead"}})
		sound(t, c.want, body)
		has(t, body, c.want, `value="/dead"`)
		if status != c.status {
			t.Errorf("%s: %d", c.want, status)
		}
	}
	if status, body := b.post("/login", url.Values{"token": {readToken}, "by": {"<i>bo"}, "next": {"/dead?target=orders/crm"}}); status != http.StatusOK || !strings.Contains(body, "<h1>Dead letters</h1>") {
		t.Errorf("%d %s", status, textOf(body))
	} else {
		has(t, body, "<i>bo, role read")
	}
	if status, body := b.get("/login?next=/audit"); status != http.StatusOK || !strings.Contains(body, "<h1>Audit</h1>") {
		t.Errorf("logged in already: %d %s", status, textOf(body))
	}
	known := w.login(operateToken)
	if status, body := known.post("/logout", nil); status != http.StatusOK || !strings.Contains(body, "<h1>Log in</h1>") {
		t.Errorf("logout: %d %s", status, textOf(body))
	}
	has(t, known.page("/dead"), "Log in", `value="/dead"`)
}

func TestNobodyIsLedElsewhere(t *testing.T) {
	for _, address := range []string{"https://evil.example.com/", "//evil.example.com", `/\evil.example.com`, "javascript:alert(1)", "evil", "", "\x00", "/" + strings.Repeat("a", maxLocal)} {
		if got := local(address); got != "/" {
			t.Errorf("%q leads to %q", address, got)
		}
	}
	for _, address := range []string{"/", "/dead?target=orders%2Fcrm&id=%FF", "/act?do=halt"} {
		if got := local(address); got != address {
			t.Errorf("%q leads to %q", address, got)
		}
	}
}

// slow is a desk whose bulk changes do three and then take for ever.
type slow struct{ *operate.Desk }

func (s slow) Do(ctx context.Context, job operate.Job, who operate.Who, progress func(int)) (operate.BulkReport, error) {
	if job.DryRun {
		return s.Desk.Do(ctx, job, who, progress)
	}
	job.Max = 3
	report, err := s.Desk.Do(ctx, job, who, progress)
	if err == nil && report.More {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	return report, err
}

func TestLongActIsDoneInParts(t *testing.T) {
	w := newWorld(t, func(w *world, o *admin.Options) {
		o.Desk = slow{w.desk}
		o.Console = func(s *admin.Surface) http.Handler { return newConsole(s, 300*time.Millisecond) }
	})
	w.bad()
	b := w.login(operateToken)
	action := formOf(t, b.page("/act?do=redrive&target=orders/billing"))
	// What dies after the preview is not part of it.
	w.persist(dead(message(billing, "d-later", ""), "500 was down"))
	status, body := b.post(action, url.Values{"reason": {"mended"}})
	sound(t, "part", body)
	has(t, body, "Redrove 3 messages.", "the rest is left", "Send 2 dead letters of orders/billing again.", "mended</textarea>")
	if status != http.StatusOK {
		t.Errorf("%d", status)
	}
	_, body = b.post(formOf(t, body), url.Values{"reason": {"mended"}})
	has(t, body, "Redrove 2 messages.")
	for i := range 5 {
		if got := w.state(billing, fmt.Sprintf("d-%d", i)); got != gobridge.StatePending {
			t.Errorf("d-%d is %s", i, got)
		}
	}
	if got := w.state(billing, "d-later"); got != gobridge.StateDead {
		t.Errorf("what died later is %s", got)
	}
}

// broken is a desk that fails.
type broken struct{ *operate.Desk }

func (broken) Status(context.Context) (operate.Status, error) {
	return operate.Status{}, errors.New("open data/outbox.db: <no such file>")
}

func TestAStoreThatCannotBeLookedAt(t *testing.T) {
	w := newWorld(t, func(w *world, o *admin.Options) { o.Desk = broken{w.desk} })
	b := w.login(operateToken)
	for _, path := range []string{"/", "/keys", "/dead", "/partitions"} {
		status, body := b.get(path)
		sound(t, path, body)
		has(t, body, "The outbox can't be looked at", "open data/outbox.db: <no such file>")
		if status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func TestReload(t *testing.T) {
	var fails error
	w := newWorld(t, func(_ *world, o *admin.Options) {
		o.Reload = func(context.Context) (string, error) { return "orders/crm: a new rate", fails }
	})
	b := w.login(operateToken)
	body := b.page("/config")
	has(t, body, "Reload…")
	_, body = b.post(formOf(t, b.page("/act?do=reload")), nil)
	has(t, body, "Loaded anew. orders/crm: a new rate")
	fails = errors.New("b.yaml:7: no such binding")
	status, body := b.post("/act?do=reload", nil)
	has(t, body, "b.yaml:7: no such binding")
	if status < 400 {
		t.Errorf("%d", status)
	}
}
