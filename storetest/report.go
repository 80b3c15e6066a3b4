package storetest

import (
	"time"

	"gobridge"
)

func reportCases() []testCase {
	return []testCase{
		{name: "ReportIsSeenByEveryHandle", run: reportIsSeenByEveryHandle,
			why: "Whoever looks from outside must see that a destination is down, since when and why."},
		{name: "ReportOfAFormerOwnerIsRefused", run: reportOfAFormerOwnerIsRefused,
			why: "An owner that lost the partition must not paint over what the new one has found."},
		{name: "RetryCountsForTheOwnerToSee", run: retryCountsForTheOwnerToSee,
			why: "An owner that waits for its next probe must learn that somebody wants it tried now."},
		{name: "ImportedDeadLetterKeepsItsRedrives", run: importedDeadLetterKeepsItsRedrives,
			why: "A dead letter that comes back from an export must not be swallowed as its own duplicate when it is redriven."},
	}
}

func reportIsSeenByEveryHandle(f *fixture) {
	if got := f.stats(part).Condition; got != (gobridge.Condition{}) {
		f.Fatalf("nobody has reported, and the condition is %+v", got)
	}
	down := gobridge.Condition{
		Down: true, Since: start.Add(-time.Minute), Error: "401 \x00\xff", NextProbe: start.Add(time.Second),
	}
	f.clock.Advance(time.Minute)
	if err := f.store.Report(f.Context(), part, token(2), down); err != nil {
		f.Fatalf("Report: %v", err)
	}
	other, _ := f.another(0)
	for _, g := range []*fixture{f, f.on(other)} {
		got := g.stats(part).Condition
		if !got.Down || got.Error != down.Error || got.Token != token(2) {
			f.Fatalf("the condition is %+v, want %+v by %s", got, down, token(2))
		}
		f.wantTime("Since", got.Since, down.Since)
		f.wantTime("NextProbe", got.NextProbe, down.NextProbe)
		f.wantTime("At", got.At, start.Add(time.Minute))
	}
	if err := f.store.Report(f.Context(), part, token(2), gobridge.Condition{Since: start.Add(time.Hour)}); err != nil {
		f.Fatalf("Report: %v", err)
	}
	if got := f.stats(part).Condition; got.Down || got.Error != "" || !got.NextProbe.IsZero() {
		f.Fatalf("the destination is up again, and the condition is %+v", got)
	}
}

func reportOfAFormerOwnerIsRefused(f *fixture) {
	down := gobridge.Condition{Down: true}
	f.wantErr("Report without a token", f.store.Report(f.Context(), part, gobridge.Token{}, down), gobridge.ErrInvalidToken)
	f.wantIDs(f.claim(5, 0))
	f.wantErr("Report by a former owner", f.store.Report(f.Context(), part, token(4), down), gobridge.ErrStaleFencingToken)
	if got := f.stats(part).Condition; got.Down {
		f.Fatalf("a refused report is kept: %+v", got)
	}
	if err := f.store.Report(f.Context(), part, token(6), gobridge.Condition{}); err != nil {
		f.Fatalf("Report: %v", err)
	}
	f.wantStaleClaim(5, 10)
}

func retryCountsForTheOwnerToSee(f *fixture) {
	f.persist(record("a"), record("crm", in("orders/crm/0")))
	f.retry(gobridge.Filter{Route: route, Binding: "crm"})
	before := f.stats(part).Retries
	f.retry(gobridge.Filter{Route: route, Binding: binding, EnvelopeID: "a"})
	other, _ := f.another(0)
	if got := f.on(other).stats(part).Retries; before != 0 || got <= before {
		f.Fatalf("%d retries are counted before, and %d after one of this binding; want 0 before, and more after", before, got)
	}
}

func importedDeadLetterKeepsItsRedrives(f *fixture) {
	letter := record("a", key("k"))
	letter.State, letter.Reason, letter.Error, letter.Redrives = gobridge.StateDead, "exhausted", "500", 3
	f.persist(letter, record("b"))
	f.redrive(gobridge.Filter{})
	if got := f.get("a"); got.State != gobridge.StatePending || got.Redrives != 4 {
		f.Fatalf("redriven, it is %s and has %d redrives, want 4", got.State, got.Redrives)
	}
	live := record("c")
	live.Redrives = 3
	f.persist(live)
	if got := f.get("c"); got.Redrives != 0 {
		f.Fatalf("a new message has %d redrives", got.Redrives)
	}
}
