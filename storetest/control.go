package storetest

import (
	"fmt"
	"time"

	"gobridge"
)

func controlCases() []testCase {
	return []testCase{
		{name: "PauseStopsABinding", run: pauseStopsABinding,
			why: "While a binding is paused nothing of it goes out, and everything of the others does."},
		{name: "PauseStopsARoute", run: pauseStopsARoute,
			why: "A pause of a route holds for all of its bindings and for no other route."},
		{name: "PauseStillFences", run: pauseStillFences,
			why: "A new owner of a paused partition has fenced the old one all the same."},
		{name: "HaltStopsAKey", run: haltStopsAKey,
			why: "A halted key waits in every partition of its binding, and it alone."},
		{name: "HaltStopsARecordWithoutKey", run: haltStopsARecordWithoutKey,
			why: "A record without a key is halted by its ID, and holds up nobody."},
		{name: "ControlsHoldForEveryHandle", run: controlsHoldForEveryHandle,
			why: "A pause that only the process knows in which it was set is none; a new owner sees it before its first claim."},
		{name: "ControlSetAgainKeepsSinceAndBy", run: controlSetAgainKeepsSinceAndBy,
			why: "Who paused first, and when, must not be lost to a policy that sets the control again."},
		{name: "ClearLiftsExactlyOneControl", run: clearLiftsExactlyOneControl,
			why: "Lifting the pause of a binding must not lift that of its route, nor the halts of its keys."},
		{name: "ListControlsOldestFirst", run: listControlsOldestFirst,
			why: "An operator sees what is on hold, since when and by whom."},
		{name: "InvalidControlIsRefused", run: invalidControlIsRefused,
			why: "A control that can never match would give false calm."},
		{name: "SettlesWorkUnderPauseAndHalt", run: settlesWorkUnderPauseAndHalt,
			why: "What was in flight when the pause came is settled, or it would be sent again."},
		{name: "RetryMakesReleasedRecordsDue", run: retryMakesReleasedRecordsDue,
			why: "When the destination has been mended, nobody wants to wait out the backoff."},
		{name: "RetryTakesAThousandAtATime", run: retryTakesAThousandAtATime,
			why: "A retry of everything must come in bounded steps, and its caller must learn when it is done."},
	}
}

func (f *fixture) setControl(control gobridge.Control) {
	f.Helper()
	if err := f.store.SetControl(f.Context(), control); err != nil {
		f.Fatalf("SetControl of %+v: %v", control, err)
	}
}

func (f *fixture) clearControl(control gobridge.Control) {
	f.Helper()
	if err := f.store.ClearControl(f.Context(), control); err != nil {
		f.Fatalf("ClearControl of %+v: %v", control, err)
	}
}

func (f *fixture) controls() []gobridge.Control {
	f.Helper()
	all, err := f.store.ListControls(f.Context())
	if err != nil {
		f.Fatalf("ListControls: %v", err)
	}
	return all
}

// claimIn claims everything of a partition, as a process that holds nothing.
func (f *fixture) claimIn(p gobridge.Partition, version int64) []gobridge.Record {
	f.Helper()
	return f.claimBy(gobridge.ClaimRequest{Partition: p, Token: token(version), Limit: 100, HeldKnown: true})
}

func pauseOf(route, binding string) gobridge.Control {
	return gobridge.Control{Kind: gobridge.Pause, Route: route, Binding: binding, By: "test", Reason: "test"}
}

func haltOf(k string) gobridge.Control {
	return gobridge.Control{Kind: gobridge.Halt, Route: route, Binding: binding, OrderingKey: k, By: "test"}
}

func pauseStopsABinding(f *fixture) {
	f.persist(record("a"), record("b", key("k")), record("crm", in("orders/crm/0")), record("shard", in("orders/mail/1")))
	f.claimExactly(1, 1, "a")
	f.setControl(pauseOf(route, binding))
	f.wantIDs(f.claim(1, 10, "a"))
	f.wantIDs(f.claim(2, 10)) // nor is anything taken over
	f.wantIDs(f.claimIn("orders/mail/1", 1))
	f.wantIDs(f.claimIn("orders/crm/0", 1), "crm")
	f.persist(record("c"))
	f.wantIDs(f.claim(2, 10))
	f.clearControl(pauseOf(route, binding))
	f.claimExactly(2, 10, "a", "b", "c")
	f.wantIDs(f.claimIn("orders/mail/1", 1), "shard")
}

func pauseStopsARoute(f *fixture) {
	others := []gobridge.Partition{"order/mail/0", "orders2/mail/0", "mail/orders/0"}
	f.persist(record("mail"), record("crm", in("orders/crm/0")))
	for _, p := range others {
		f.persist(record(string(p), in(p)))
	}
	f.setControl(pauseOf(route, ""))
	f.wantIDs(f.claim(1, 10))
	f.wantIDs(f.claimIn("orders/crm/0", 1))
	for _, p := range others {
		f.wantIDs(f.claimIn(p, 1), string(p))
	}
	f.clearControl(pauseOf(route, ""))
	f.claimExactly(1, 10, "mail")
	f.wantIDs(f.claimIn("orders/crm/0", 1), "crm")
}

func pauseStillFences(f *fixture) {
	f.persist(record("a"))
	f.setControl(pauseOf(route, binding))
	f.wantIDs(f.claim(5, 10))
	f.wantStaleClaim(4, 10)
	if fence := f.stats(part).Fence; fence != token(5) {
		f.Fatalf("the fence is %s, want %s", fence, token(5))
	}
}

func haltStopsAKey(f *fixture) {
	f.persistEach("k", "k1", "k2")
	f.persistEach("l", "l1")
	f.persistEach("", "keyless")
	f.persist(record("shard", key("k"), in("orders/mail/1")), record("crm", key("k"), in("orders/crm/0")))
	f.persist(record("route", key("k"), in("order/mail/0")))
	f.setControl(haltOf("k"))
	f.claimExactly(1, 10, "l1", "keyless")
	f.persistEach("k", "k3")
	f.wantIDs(f.claim(1, 10, "l1", "keyless"))
	f.wantIDs(f.claimIn("orders/mail/1", 1))
	f.wantIDs(f.claimIn("orders/crm/0", 1), "crm")
	f.wantIDs(f.claimIn("order/mail/0", 1), "route")
	f.clearControl(haltOf("k"))
	f.wantIDs(f.claim(1, 10, "l1", "keyless"), "k1", "k2", "k3")
	f.wantIDs(f.claimIn("orders/mail/1", 1), "shard")
}

func haltStopsARecordWithoutKey(f *fixture) {
	f.persistEach("", "a", "b")
	halt := gobridge.Control{Kind: gobridge.Halt, Route: route, Binding: binding, EnvelopeID: "a", By: "test"}
	f.setControl(halt)
	f.claimExactly(1, 10, "b")
	f.wantIDs(f.claim(2, 10), "b")
	f.clearControl(halt)
	f.wantIDs(f.claim(2, 10, "b"), "a")
	// One that is claimed when the halt comes is not taken over.
	f.setControl(halt)
	f.wantIDs(f.claim(3, 10), "b")
	f.clearControl(halt)
	f.wantIDs(f.claim(3, 10, "b"), "a")
}

func controlsHoldForEveryHandle(f *fixture) {
	f.persistEach("k", "k1")
	f.persist(record("crm", in("orders/crm/0")))
	second, _ := f.another(0)
	g := f.on(second)
	g.wantIDs(g.claim(1, 0))
	f.setControl(haltOf("k"))
	f.setControl(pauseOf(route, "crm"))
	third, _ := f.another(0)
	for i, h := range []*fixture{g, f.on(third)} {
		h.wantIDs(h.claim(int64(2+i), 10))
		h.wantIDs(h.claimIn("orders/crm/0", int64(2+i)))
		if n := len(h.controls()); n != 2 {
			f.Fatalf("handle %d lists %d controls, want 2", i+2, n)
		}
	}
	g.clearControl(haltOf("k"))
	f.clearControl(pauseOf(route, "crm"))
	f.claimExactly(4, 10, "k1")
	h := f.on(third)
	h.wantIDs(h.claimIn("orders/crm/0", 4), "crm")
}

func controlSetAgainKeepsSinceAndBy(f *fixture) {
	first := pauseOf(route, binding)
	first.By = "ann"
	f.setControl(first)
	f.clock.Advance(time.Hour)
	again := first
	again.By = "policy"
	f.setControl(again)
	all := f.controls()
	if len(all) != 1 || all[0].By != "ann" {
		f.Fatalf("a control that was set twice is listed as %+v", all)
	}
	f.wantTime("Since", all[0].Since, start)
	// Once lifted, it starts anew.
	f.clearControl(first)
	f.setControl(again)
	all = f.controls()
	if len(all) != 1 || all[0].By != "policy" {
		f.Fatalf("a control that was lifted and set anew is listed as %+v", all)
	}
	f.wantTime("Since", all[0].Since, start.Add(time.Hour))
}

func clearLiftsExactlyOneControl(f *fixture) {
	f.persistEach("k", "k1")
	f.wantErr("ClearControl of what was never set", f.store.ClearControl(f.Context(), pauseOf(route, "")), gobridge.ErrNotFound)
	f.setControl(pauseOf(route, ""))
	f.setControl(pauseOf(route, binding))
	f.setControl(haltOf("k"))
	f.setControl(haltOf("l"))
	f.clearControl(pauseOf(route, binding))
	f.wantIDs(f.claim(1, 10))
	f.wantErr("ClearControl of what was lifted", f.store.ClearControl(f.Context(), pauseOf(route, binding)), gobridge.ErrNotFound)
	f.clearControl(pauseOf(route, ""))
	f.wantIDs(f.claim(1, 10))
	f.clearControl(haltOf("l"))
	f.wantIDs(f.claim(1, 10))
	f.clearControl(haltOf("k"))
	f.claimExactly(1, 10, "k1")
	if all := f.controls(); len(all) != 0 {
		f.Fatalf("with every control lifted, ListControls returns %+v", all)
	}
}

func listControlsOldestFirst(f *fixture) {
	if all := f.controls(); len(all) != 0 {
		f.Fatalf("ListControls of an empty store returns %+v", all)
	}
	want := []gobridge.Control{
		pauseOf(route, "z"), haltOf("k#\x00\xff"), pauseOf(route, "a"),
		{Kind: gobridge.Halt, Route: route, Binding: binding, EnvelopeID: "id", By: "x", Reason: "y\x00\xff"},
	}
	for i := range want {
		want[i].Since = f.clock.Now()
		given := want[i]
		given.Since = time.Time{}
		f.setControl(given)
		f.clock.Advance(time.Second)
	}
	early := pauseOf("another", "")
	early.Since = start.Add(-time.Hour)
	f.setControl(early)
	want = append([]gobridge.Control{early}, want...)
	all := f.controls()
	if len(all) != len(want) {
		f.Fatalf("ListControls returns %d controls, want %d: %+v", len(all), len(want), all)
	}
	for i := range want {
		f.wantTime(fmt.Sprintf("Since of control %d", i), all[i].Since, want[i].Since)
		got := all[i]
		got.Since = want[i].Since
		if got != want[i] {
			f.Fatalf("control %d is %+v, want %+v", i, got, want[i])
		}
	}
}

func invalidControlIsRefused(f *fixture) {
	for what, bad := range map[string]gobridge.Control{
		"no kind":                   {Route: route, Binding: binding},
		"an unknown kind":           {Kind: "stop", Route: route, Binding: binding},
		"a pause without route":     {Kind: gobridge.Pause, Binding: binding},
		"a halt without route":      {Kind: gobridge.Halt, Binding: binding, OrderingKey: "k"},
		"a halt of nothing":         {Kind: gobridge.Halt, Route: route, Binding: binding},
		"a halt of a key and an ID": {Kind: gobridge.Halt, Route: route, Binding: binding, OrderingKey: "k", EnvelopeID: "a"},
		"a halt in no binding":      {Kind: gobridge.Halt, Route: route, OrderingKey: "k"},
	} {
		if err := f.store.SetControl(f.Context(), bad); err == nil {
			f.Fatalf("SetControl of %s, %+v, returned nil, want an error", what, bad)
		}
	}
	if all := f.controls(); len(all) != 0 {
		f.Fatalf("refused controls are listed: %+v", all)
	}
}

func settlesWorkUnderPauseAndHalt(f *fixture) {
	f.persistEach("k", "done", "dead", "back")
	f.claimExactly(1, 10, "done", "dead", "back")
	f.setControl(pauseOf(route, binding))
	f.setControl(haltOf("k"))
	f.complete(1, "done")
	f.bury(1, "dead")
	f.release(1, "back", gobridge.Failed, time.Time{})
	f.wantState(gobridge.StateDelivered, "done")
	f.wantState(gobridge.StateDead, "dead")
	f.wantState(gobridge.StatePending, "back")
	f.persistEach("k", "new")
	f.redrive(gobridge.Filter{})
	f.wantIDs(f.claim(1, 10))
	f.clearControl(pauseOf(route, binding))
	f.clearControl(haltOf("k"))
	f.claimExactly(1, 10, "back", "new", "dead")
}

func (f *fixture) retry(filter gobridge.Filter) int {
	f.Helper()
	n, err := f.store.Retry(f.Context(), gobridge.RetryRequest{Filter: filter, By: "test", Reason: "mended"})
	if err != nil {
		f.Fatalf("Retry of %+v: %v", filter, err)
	}
	return n
}

func retryMakesReleasedRecordsDue(f *fixture) {
	far := start.Add(24 * time.Hour)
	f.persist(record("own", notBefore(start.Add(time.Minute))))
	f.persistEach("k", "k1", "k2")
	f.persistEach("l", "l1")
	f.clock.Advance(time.Minute)
	f.claimExactly(1, 10, "own", "k1", "k2", "l1")
	for _, id := range []string{"own", "k1", "l1"} {
		f.release(1, id, gobridge.Failed, far)
	}
	f.release(1, "k2", gobridge.Untried, time.Time{})
	f.persist(record("never released", notBefore(far)))
	f.clock.Advance(-time.Second) // the message's own not-before holds
	f.wantIDs(f.claim(1, 10))
	if n := f.retry(gobridge.Filter{OrderingKey: "k", HasKey: true}); n != 1 {
		f.Fatalf("Retry of one key made %d records due, want 1", n)
	}
	f.claimExactly(1, 10, "k1", "k2")
	if n := f.retry(gobridge.Filter{Route: "order"}); n != 0 {
		f.Fatalf("Retry of another route made %d records due", n)
	}
	if n := f.retry(gobridge.Filter{Route: route, Binding: binding}); n != 2 {
		f.Fatalf("Retry of the binding made %d records due, want 2", n)
	}
	f.wantIDs(f.claim(1, 10, "k1", "k2"), "l1")
	f.wantCounters("made due", "l1", counters{2, 1, 0})
	f.clock.Advance(time.Second)
	f.wantIDs(f.claim(1, 10, "k1", "k2", "l1"), "own")
	if n := f.retry(gobridge.Filter{}); n != 0 {
		f.Fatalf("Retry with nothing released made %d records due", n)
	}
}

func retryTakesAThousandAtATime(f *fixture) {
	const total = 1200
	far := start.Add(time.Hour)
	call := make([]gobridge.Record, total)
	releases := make([]gobridge.Release, total)
	for i := range call {
		call[i] = record(fmt.Sprintf("r-%d", i))
		releases[i] = gobridge.Release{Ref: call[i].Ref(), Tried: gobridge.Failed, NotBefore: far}
	}
	f.persist(call...)
	if n := len(f.claim(1, total)); n != total {
		f.Fatalf("claimed %d of %d records", n, total)
	}
	if err := f.store.Release(f.Context(), token(1), releases); err != nil {
		f.Fatalf("Release of %d records: %v", total, err)
	}
	sum := 0
	for {
		n := f.retry(gobridge.Filter{})
		if n > 1000 {
			f.Fatalf("one Retry made %d records due, want 1,000 at most", n)
		}
		if sum += n; n == 0 || sum > total {
			break
		}
	}
	if sum != total {
		f.Fatalf("Retry made %d records due before it returned zero, want %d", sum, total)
	}
	if n := len(f.claim(1, total)); n != total {
		f.Fatalf("claimed %d of %d records that were made due", n, total)
	}
}
