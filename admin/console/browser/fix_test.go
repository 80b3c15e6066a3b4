package browser

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/memory"
)

// press presses keys, one after the other.
func (t *tab) press(keys ...string) {
	t.Helper()
	for _, key := range keys {
		t.do(chromedp.KeyEvent(key))
	}
}

// focused is what has the focus, as a person would call it.
func (t *tab) focused() string {
	t.Helper()
	return eval[string](t, `((e) => e.id || e.innerText || e.tagName)(document.activeElement)`)
}

// tabTo moves the focus with the tabulator alone until something has it, and checks
// on the way that the focus is seen.
func (t *tab) tabTo(what string) {
	t.Helper()
	for range 60 {
		t.press(kb.Tab)
		got := t.focused()
		if outline := eval[string](t, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" && got != "BODY" {
			t.Errorf("nobody sees that %q has the focus", got)
		}
		if strings.TrimSpace(got) == what {
			return
		}
	}
	t.Fatalf("the tabulator never comes to %q", what)
}

// click clicks on a link or button with this text within something.
func (t *tab) click(within, label string) {
	t.Helper()
	script := `[...document.querySelectorAll(` + quoted(within+" a, "+within+" button") + `)].find((e) => e.innerText.trim() === ` + quoted(label) + `)`
	t.until("has the button "+label, script+` !== undefined`)
	t.do(chromedp.Click(chromedp.JSPath(script)))
}

// confirm gives a reason on the page of an act, and does it.
func (t *tab) confirm(label string) {
	t.Helper()
	t.do(chromedp.SendKeys(chromedp.CSS("#reason"), "the night was long"))
	t.click("form.act", label)
	t.sees("Done", "The audit has it")
}

// TestOneWholeFixByKeyboard halts nothing with a mouse: from the login over the first
// page to a key that goes on.
func TestOneWholeFixByKeyboard(t *testing.T) {
	w := newWorld(t, nil)
	w.persist("orders/crm/0", 3, "ord", func(_ int, r *gobridge.Record) { r.Envelope.OrderingKey = "cust-7" })
	w.must(w.store.SetControl(t.Context(), gobridge.Control{Kind: gobridge.Halt, Route: "orders", Binding: "crm", OrderingKey: "cust-7", Reason: "422 unknown sku"}))
	b := newTab(w)
	b.open("/")
	b.tabTo("by")
	b.press("a", "n", "n")
	b.tabTo("token")
	b.do(chromedp.KeyEvent(operateToken), chromedp.KeyEvent(kb.Enter))
	b.sees("1 binding needs you", "key cust-7 is halted", "422 unknown sku")
	b.tabTo("Skip to the content")
	b.press(kb.Enter)
	b.tabTo("Explain")
	b.press(kb.Enter)
	b.sees("Why cust-7 is where it is", "message ord-00000, the next of key cust-7")
	b.tabTo("Resume…")
	b.press(kb.Enter)
	b.sees("Let key cust-7 of orders/crm go on.", "saying: 422 unknown sku")
	b.tabTo("reason")
	b.do(chromedp.KeyEvent("looked into it"))
	b.tabTo("Resume")
	b.press(kb.Enter)
	b.sees("Done", "key cust-7 of orders/crm goes on")
	b.tabTo("To the overview")
	b.press(kb.Enter)
	b.sees("All is well")
	audit, err := w.store.ListAudit(t.Context(), 1)
	w.must(err)
	if audit[0].Action != gobridge.AuditLift || audit[0].By != "ann (operate token)" || audit[0].Reason != "looked into it" {
		t.Errorf("%+v", audit)
	}
}

// TestEveryAct does every act with the mouse, and sees its result.
func TestEveryAct(t *testing.T) {
	w := newWorld(t, nil)
	w.trouble()
	w.persist("old/crm/0", 2, "old", nil)
	b := newTab(w)
	b.login(operateToken, "/")
	for _, step := range []struct{ path, within, button, confirm, sees string }{
		{"/binding?target=orders%2Fcrm", "main", "Retry now…", "Retry now", "is tried at once"},
		{"/binding?target=telemetry%2Flake", "main", "Pause…", "Pause", "telemetry/lake is paused."},
		{"/holds", `tr[data-key^="pause telemetry/lake"]`, "Resume…", "Resume", "telemetry/lake goes on."},
		{"/record?target=orders%2Fcrm&id=ord-00009", "main", "Halt…", "Halt", "key cust-9 of orders/crm waits."},
		{"/keys", `tr[data-key^="halt orders/crm cust-9"]`, "Resume…", "Resume", "key cust-9 of orders/crm goes on."},
		{"/record?target=orders%2Fcrm&id=ord-00009", "main", "Discard…", "Discard", "Discarded 1 message."},
		{"/dead?target=telemetry%2Flake&cause=permanent", "main", "Discard…", "Discard", "Discarded 12 messages."},
		{"/dead?target=telemetry%2Flake", "main", "Redrive…", "Redrive", "Redrove 40 messages."},
		{"/binding?target=old%2Fcrm", "main", "Move…", "Move", "Moved 2 messages"},
	} {
		b.open(step.path)
		b.click(step.within, step.button)
		b.until("asks why", `document.getElementById("reason") !== null`)
		b.confirm(step.confirm)
		b.sees(step.sees)
	}
	b.open("/audit")
	b.sees("redrive", "telemetry/lake", "ann (operate token)", "the night was long")
	// A form without a reason goes nowhere.
	b.open("/act?do=pause&target=orders%2Fcrm")
	b.click("form.act", "Pause")
	if here := eval[string](b, "location.pathname + document.activeElement.id"); here != "/actreason" {
		t.Errorf("without a reason: %s", here)
	}
	// A dead letter as text, JSON and bytes.
	w.persist("telemetry/lake/0", 1, "look", died(gobridge.ReasonPermanent, "too large"))
	b.open("/dead?target=telemetry%2Flake")
	b.click("main", "look-00000")
	b.sees(`"sku": "A-17"`)
	b.click(".tabs", "hex")
	b.sees("00000000 7b 22 6f 72 64 65 72 22")
	b.click(".tabs", "text")
	b.sees(`{"order":0,"customer":"cust-0"`)
	// And out.
	b.click("footer", "Log out")
	b.sees("Log in", "Token")
}

// TestPageLives watches one page through an outage and its end, and never loads it
// again.
func TestPageLives(t *testing.T) {
	w := &world{T: t, store: memory.New(memory.Options{})}
	var down atomic.Bool
	var arrived atomic.Int64
	engine, err := bridge.New(w.store, bridge.Options{
		PollInterval: 20 * time.Millisecond,
		Routes: []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{Name: "crm", Sender: gobridge.HandlerFunc(func(context.Context, gobridge.Delivery) error {
			if down.Load() {
				return gobridge.Unavailable(errors.New("POST https://crm.example.com/h: 401 Unauthorized"))
			}
			arrived.Add(1)
			return nil
		})}}}},
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the bridge ended with %v", err)
		}
	})
	w.serve(operate.New(w.store, operate.Options{Plan: &operate.Plan{Bindings: []operate.PlannedBinding{{Route: "orders", Binding: "crm", Destination: "webhook"}}}}))
	b := newTab(w)
	b.login(operateToken, "/")
	b.sees("All is well")
	b.until("is live", `document.documentElement.dataset.stream === "on"`)
	b.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	down.Store(true)
	for i := range 20 {
		w.must(publish(t.Context(), engine, i))
	}
	b.sees("1 binding needs you", "401 Unauthorized", "20 pending")
	// The focus and a link that somebody is about to click stay.
	b.do(chromedp.Evaluate[chromedp.Void](`window.button = document.querySelector(".card .button"); window.button.focus()`))
	clock := eval[string](b, `document.querySelector(".clock time").innerText`)
	b.until("goes on", `document.querySelector(".clock time").innerText !== `+quoted(clock)+` && document.querySelector(".clock time").innerText !== ""`)
	if !eval[bool](b, `window.same && document.activeElement === window.button && window.button.isConnected`) {
		t.Error("an update took the focus, or the page was loaded anew")
	}
	down.Store(false)
	w.must(func() error {
		_, err := operate.New(w.store, operate.Options{}).Retry(t.Context(), gobridge.Filter{Route: "orders"}, operate.Who{By: "bo", Reason: "mended"})
		return err
	}())
	b.sees("All is well", "Nothing is stuck.")
	if !eval[bool](b, "window.same") {
		t.Error("the page was loaded anew")
	}
	if said := eval[string](b, `document.getElementById("said").innerText`); said != "All is well" {
		t.Errorf("who can't see it is told %q", said)
	}
	if arrived.Load() != 20 {
		t.Errorf("%d arrived", arrived.Load())
	}
}

func publish(ctx context.Context, engine *bridge.Bridge, i int) error {
	_, err := engine.Route("orders").Accept(ctx, messaging.Envelope{ID: string(rune('a' + i)), OrderingKey: "cust-7", Payload: []byte("{}")})
	return err
}

// TestSelectionIsLeftAlone: what somebody is about to copy stays selected.
func TestSelectionIsLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.trouble()
	b := newTab(w)
	b.login(operateToken, "/")
	b.sees("gobridge retry orders/crm")
	b.do(chromedp.Evaluate[chromedp.Void](`getSelection().selectAllChildren(document.querySelector("code.command"))`))
	w.must(w.store.SetControl(t.Context(), gobridge.Control{Kind: gobridge.Pause, Route: "orders", Binding: "crm", Reason: "x"}))
	b.sees("1 binding needs you, 2 are paused") // the head goes on
	if got := eval[string](b, "getSelection().toString()"); got != "gobridge retry orders/crm" {
		t.Errorf("selected is %q", got)
	}
	b.do(chromedp.Evaluate[chromedp.Void](`getSelection().removeAllRanges()`))
	b.sees("gobridge resume orders/crm")
}

// TestSessionEndsInTheMiddle: what was typed is kept over the login.
func TestSessionEndsInTheMiddle(t *testing.T) {
	w := newWorld(t, nil)
	b := newTab(w)
	b.login(operateToken, "/act?do=halt&target=orders%2Fcrm")
	b.do(chromedp.SendKeys(chromedp.CSS("#key"), "cust-9"), chromedp.SendKeys(chromedp.CSS("#reason"), "wrong prices"))
	b.do(chromedp.Evaluate[chromedp.Void](`fetch("/logout", {method: "POST", body: new URLSearchParams({csrf: document.querySelector("[name=csrf]").value})})`, chromedp.EvalAwaitPromise))
	b.excuse("status of 403") // the answer to a form without a session
	b.click("form.act", "Halt")
	b.sees("nothing was done", "What you typed is kept")
	b.do(chromedp.SendKeys(chromedp.CSS("#by"), "ann"), chromedp.SendKeys(chromedp.CSS("#token"), operateToken+"\r"))
	b.sees("Stop one key of orders/crm")
	if got := eval[string](b, `document.getElementById("key").value + ", " + document.getElementById("reason").value`); got != "cust-9, wrong prices" {
		t.Errorf("kept is %q", got)
	}
	b.click("form.act", "Halt")
	b.sees("key cust-9 of orders/crm waits")
}

// TestWithoutScript: everything but live updates works.
func TestWithoutScript(t *testing.T) {
	w := newWorld(t, nil)
	w.trouble()
	b := newTab(w)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.login(operateToken, "/")
	b.sees("What is stuck, why, and what to do")
	b.click(".card", "Retry now…")
	b.do(chromedp.WaitReady(chromedp.CSS("#reason")))
	b.confirm("Retry now")
}

// TestLossOfTheServerIsSeen: a page that is not up to date says so.
func TestLossOfTheServerIsSeen(t *testing.T) {
	w := newWorld(t, nil)
	b := newTab(w)
	b.login(readToken, "/")
	b.until("is live", `document.documentElement.dataset.stream === "on"`)
	b.excuse("net::ERR")
	w.stop()
	b.until("says that it is not", `getComputedStyle(document.querySelector(".live"), "::after").content.includes("not live")`)
}
