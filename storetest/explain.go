package storetest

import (
	"time"

	"gobridge"
)

func explainCases() []testCase {
	return []testCase{
		{name: "ExplainNotFound", run: explainNotFound,
			why: "An operator who mistypes an ID is told so, not that all is well."},
		{name: "ExplainEnded", run: explainEnded,
			why: "For a delivered message the answer is when it went."},
		{name: "ExplainPaused", run: explainPaused,
			why: "Who paused the binding, and why, is the answer."},
		{name: "ExplainHalted", run: explainHalted,
			why: "Who halted the key, and why, is the answer."},
		{name: "ExplainClaimed", run: explainClaimed,
			why: "A message in flight is with somebody since some time."},
		{name: "ExplainStranded", run: explainStranded,
			why: "A message that a dead owner had goes with the next claim."},
		{name: "ExplainBlocked", run: explainBlocked,
			why: "The head that holds up a key, and why it is not being delivered itself, is what must be dealt with."},
		{name: "ExplainNotDue", run: explainNotDue,
			why: "When it can be claimed is the answer."},
		{name: "ExplainExpired", run: explainExpired,
			why: "A message that has expired is still there until it is ended."},
		{name: "ExplainClaimable", run: explainClaimable,
			why: "If nothing holds a message, the trouble is elsewhere."},
	}
}

// explain asks about one record of part.
func (f *fixture) explain(id string) gobridge.Explanation {
	f.Helper()
	return f.explainBy(gobridge.ExplainQuery{Partition: part, Binding: binding, EnvelopeID: id})
}

func (f *fixture) explainKey(k string) gobridge.Explanation {
	f.Helper()
	return f.explainBy(gobridge.ExplainQuery{Partition: part, OrderingKey: k, HasKey: true})
}

func (f *fixture) explainBy(query gobridge.ExplainQuery) gobridge.Explanation {
	f.Helper()
	e, err := f.store.Explain(f.Context(), query)
	if err != nil {
		f.Fatalf("Explain of %+v: %v", query, err)
	}
	for _, r := range []*gobridge.Record{e.Record, e.Head} {
		if r != nil && len(r.Envelope.Payload) != 0 {
			f.Fatalf("Explain of %+v returned a payload", query)
		}
	}
	return e
}

// wantCause requires the cause, and the record that it is about.
func (f *fixture) wantCause(e gobridge.Explanation, cause gobridge.Cause, id string) {
	f.Helper()
	if e.Cause != cause {
		f.Fatalf("the cause is %q, want %q: %+v", e.Cause, cause, e)
	}
	switch {
	case id == "" && e.Record != nil:
		f.Fatalf("the explanation is about %s, want no record", e.Record.Ref())
	case id != "" && (e.Record == nil || e.Record.Envelope.ID != id):
		f.Fatalf("the explanation is about %+v, want %q", e.Record, id)
	}
}

func (f *fixture) wantHead(e gobridge.Explanation, id string, cause gobridge.Cause) {
	f.Helper()
	if e.Head == nil || e.Head.Envelope.ID != id || e.HeadCause != cause {
		f.Fatalf("the head is %+v (%q), want %q (%q)", e.Head, e.HeadCause, id, cause)
	}
}

func explainNotFound(f *fixture) {
	f.wantCause(f.explain("unknown"), gobridge.CauseNotFound, "")
	f.wantCause(f.explainKey("k"), gobridge.CauseNotFound, "")
	f.wantCause(f.explainBy(gobridge.ExplainQuery{Partition: "never/seen/0"}), gobridge.CauseNotFound, "")
	f.persistEach("k", "done")
	f.claimExactly(1, 1, "done")
	f.complete(1, "done")
	f.wantCause(f.explainKey("k"), gobridge.CauseNotFound, "")
	f.wantCause(f.explainBy(gobridge.ExplainQuery{Partition: part}), gobridge.CauseNotFound, "")
}

func explainEnded(f *fixture) {
	f.persistEach("k", "done", "dead")
	f.claimExactly(1, 2, "done", "dead")
	f.clock.Advance(time.Second)
	f.complete(1, "done")
	f.bury(1, "dead")
	e := f.explain("done")
	f.wantCause(e, gobridge.CauseEnded, "done")
	if e.Record.State != gobridge.StateDelivered {
		f.Fatalf("the record is %s, want delivered", e.Record.State)
	}
	f.wantTime("EndedAt", e.Record.EndedAt, start.Add(time.Second))
	e = f.explain("dead")
	f.wantCause(e, gobridge.CauseEnded, "dead")
	if e.Record.Error != "no such customer" {
		f.Fatalf("the dead letter's error is %q", e.Record.Error)
	}
}

func explainPaused(f *fixture) {
	f.persistEach("k", "a", "b")
	f.claimExactly(1, 1, "a")
	pause := gobridge.Control{Kind: gobridge.Pause, Route: route, Binding: binding, By: "ann", Reason: "maintenance"}
	f.setControl(pause)
	for _, id := range []string{"a", "b"} {
		e := f.explain(id)
		f.wantCause(e, gobridge.CausePaused, id)
		f.wantControl(e, pause)
	}
	f.clearControl(pause)
	f.setControl(gobridge.Control{Kind: gobridge.Pause, Route: route, By: "bob"})
	f.wantControl(f.explain("b"), gobridge.Control{Kind: gobridge.Pause, Route: route, By: "bob"})
}

func (f *fixture) wantControl(e gobridge.Explanation, want gobridge.Control) {
	f.Helper()
	if e.Control == nil {
		f.Fatalf("the explanation has no control, want %+v", want)
	}
	got := *e.Control
	f.wantTime("Since", got.Since, f.clock.Now())
	got.Since = want.Since
	if got != want {
		f.Fatalf("the control is %+v, want %+v", got, want)
	}
}

func explainHalted(f *fixture) {
	halt := gobridge.Control{Kind: gobridge.Halt, Route: route, Binding: binding, OrderingKey: "k", By: "ann", Reason: "wrong price"}
	f.persistEach("k", "a", "b")
	f.setControl(halt)
	f.persistEach("l", "other")
	f.persistEach("", "keyless")
	for _, id := range []string{"a", "b"} {
		e := f.explain(id)
		f.wantCause(e, gobridge.CauseHalted, id)
		f.wantControl(e, halt)
	}
	f.wantCause(f.explain("other"), gobridge.CauseClaimable, "other")
	halt = gobridge.Control{Kind: gobridge.Halt, Route: route, Binding: binding, EnvelopeID: "keyless", By: "bob"}
	f.setControl(halt)
	e := f.explain("keyless")
	f.wantCause(e, gobridge.CauseHalted, "keyless")
	f.wantControl(e, halt)
}

func explainClaimed(f *fixture) {
	f.persistEach("k", "a")
	f.clock.Advance(time.Second)
	f.claimExactly(3, 1, "a")
	e := f.explain("a")
	f.wantCause(e, gobridge.CauseClaimed, "a")
	if e.Record.ClaimedBy != token(3) || e.Fence != token(3) {
		f.Fatalf("claimed by %s with the fence at %s, want %s", e.Record.ClaimedBy, e.Fence, token(3))
	}
	f.wantTime("ClaimedAt", e.Record.ClaimedAt, start.Add(time.Second))
}

func explainStranded(f *fixture) {
	f.persistEach("k", "a")
	f.claimExactly(3, 1, "a")
	f.wantIDs(f.claim(4, 0))
	e := f.explain("a")
	f.wantCause(e, gobridge.CauseStranded, "a")
	if e.Record.ClaimedBy != token(3) || e.Fence != token(4) {
		f.Fatalf("claimed by %s with the fence at %s, want %s and %s", e.Record.ClaimedBy, e.Fence, token(3), token(4))
	}
}

func explainBlocked(f *fixture) {
	f.persistEach("k", "head", "second", "third")
	f.claimExactly(3, 1, "head")
	for _, id := range []string{"second", "third"} {
		e := f.explain(id)
		f.wantCause(e, gobridge.CauseBlocked, id)
		f.wantHead(e, "head", gobridge.CauseClaimed)
		if e.Head.ClaimedBy != token(3) {
			f.Fatalf("the head is claimed by %s, want %s", e.Head.ClaimedBy, token(3))
		}
	}
	due := start.Add(time.Minute)
	f.release(3, "head", gobridge.Failed, due)
	e := f.explain("third")
	f.wantCause(e, gobridge.CauseBlocked, "third")
	f.wantHead(e, "head", gobridge.CauseNotDue)
	f.wantTime("ClaimableAt", e.ClaimableAt, due)
	// The key's own answer is about its head.
	e = f.explainKey("k")
	f.wantCause(e, gobridge.CauseNotDue, "head")
}

func explainNotDue(f *fixture) {
	f.persist(record("own", notBefore(start.Add(time.Hour))), record("released", key("k")))
	f.claimExactly(1, 1, "released")
	f.release(1, "released", gobridge.Failed, start.Add(time.Minute))
	e := f.explain("own")
	f.wantCause(e, gobridge.CauseNotDue, "own")
	f.wantTime("ClaimableAt", e.ClaimableAt, start.Add(time.Hour))
	e = f.explain("released")
	f.wantCause(e, gobridge.CauseNotDue, "released")
	f.wantTime("ClaimableAt", e.ClaimableAt, start.Add(time.Minute))
	f.clock.Advance(time.Minute)
	f.wantCause(f.explain("released"), gobridge.CauseClaimable, "released")
}

func explainExpired(f *fixture) {
	f.persist(record("a", key("k"), expiresAt(start.Add(time.Second))))
	f.wantCause(f.explain("a"), gobridge.CauseClaimable, "a")
	f.clock.Advance(time.Second)
	f.wantCause(f.explain("a"), gobridge.CauseExpired, "a")
	f.sweep(1, 10)
	f.wantCause(f.explain("a"), gobridge.CauseEnded, "a")
}

func explainClaimable(f *fixture) {
	f.persistEach("k", "a")
	f.persistEach("", "keyless")
	for id, e := range map[string]gobridge.Explanation{
		"a":       f.explainKey("k"),
		"keyless": f.explain("keyless"),
	} {
		f.wantCause(e, gobridge.CauseClaimable, id)
		if e.Head != nil || e.Control != nil || !e.ClaimableAt.IsZero() {
			f.Fatalf("record %q is claimable, and yet has %+v", id, e)
		}
	}
	f.wantCause(f.explainBy(gobridge.ExplainQuery{Partition: part}), gobridge.CauseClaimable, "a")
	f.wantCause(f.explainKey(""), gobridge.CauseClaimable, "keyless")
}
