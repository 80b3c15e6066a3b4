package storetest

import (
	"fmt"
	"strings"
	"time"

	"gobridge"
)

func auditCases() []testCase {
	return []testCase{
		{name: "AuditTellsWhoDidWhatAndWhy", run: auditTellsWhoDidWhatAndWhy,
			why: "After a bad night nobody remembers who lifted the halt, and why."},
		{name: "AuditCountsPagesTogether", run: auditCountsPagesTogether,
			why: "A redrive of thousands comes in pages; one line in the log is what people can read."},
		{name: "AuditSparesWhatDidNothing", run: auditSparesWhatDidNothing,
			why: "A dry run, or a filter that matched nothing, is no act; among real ones it misleads."},
		{name: "AuditNewestFirstUpToTheLimit", run: auditNewestFirstUpToTheLimit,
			why: "What happened last is what is asked for."},
	}
}

func (f *fixture) audit(limit int) []gobridge.AuditEntry {
	f.Helper()
	entries, err := f.store.ListAudit(f.Context(), limit)
	if err != nil {
		f.Fatalf("ListAudit: %v", err)
	}
	return entries
}

// wantAudit compares the log, newest first, with lines of action, scope, count,
// who and why.
func (f *fixture) wantAudit(want ...string) {
	f.Helper()
	var got []string
	for _, e := range f.audit(100) {
		got = append(got, fmt.Sprintf("%s|%s|%d|%s|%s", e.Action, e.Scope, e.Count, e.By, e.Reason))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		f.Fatalf("the audit log, newest first, is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// buried makes dead letters of new records.
func (f *fixture) buried(version int64, ids ...string) {
	f.Helper()
	for _, id := range ids {
		f.persist(record(id))
	}
	f.claimExactly(version, len(ids), ids...)
	f.bury(version, ids...)
}

// redrivePages redrives everything in part, two at a time, a second each.
func (f *fixture) redrivePages(by, reason string) {
	f.Helper()
	request := gobridge.BulkRequest{Filter: gobridge.Filter{Partition: part}, Limit: 2, By: by, Reason: reason}
	for {
		page, err := f.store.Redrive(f.Context(), request)
		if err != nil {
			f.Fatalf("Redrive: %v", err)
		}
		f.clock.Advance(time.Second)
		if request.Cursor = page.Cursor; page.Cursor == "" {
			return
		}
	}
}

func auditTellsWhoDidWhatAndWhy(f *fixture) {
	f.wantAudit()
	control := pauseOf(route, binding)
	control.By, control.Reason = "ann@host", "mending\x00\xff"
	f.setControl(control)
	control.By, control.Reason = "bob@host", "mended"
	f.setControl(control)
	f.clearControl(control)
	halt := haltOf("k\x00")
	f.setControl(halt)
	halt.By, halt.Reason = "bob", "looked into it"
	f.clearControl(halt)
	f.buried(1, "a", "b", "c")
	retry := gobridge.RetryRequest{Filter: gobridge.Filter{Route: route, Binding: binding}, By: "ann", Reason: "up again"}
	if _, err := f.store.Retry(f.Context(), retry); err != nil {
		f.Fatalf("Retry: %v", err)
	}
	request := gobridge.BulkRequest{Filter: gobridge.Filter{Partition: part, EnvelopeID: "a"}, By: "ann", Reason: "was a bug"}
	if _, err := f.store.Redrive(f.Context(), request); err != nil {
		f.Fatalf("Redrive: %v", err)
	}
	request.Filter = gobridge.Filter{Route: route, States: []gobridge.State{gobridge.StateDead}}
	request.Reason = "not worth it"
	f.clock.Advance(time.Hour)
	if _, err := f.store.Discard(f.Context(), request); err != nil {
		f.Fatalf("Discard: %v", err)
	}
	want := []string{
		"discard|orders dead|2|ann|not worth it",
		`redrive|orders/mail/0 id "a"|1|ann|was a bug`,
		"retry|orders/mail|0|ann|up again",
		`lift|orders/mail key "k\x00"|0|bob|looked into it`,
		`halt|orders/mail key "k\x00"|0|test|`,
		"resume|orders/mail|0|bob@host|mended",
		"pause|orders/mail|0|bob@host|mended",
		"pause|orders/mail|0|ann@host|mending\x00\xff",
	}
	f.wantAudit(want...)
	entries := f.audit(100)
	f.wantTime("At of the newest entry", entries[0].At, start.Add(time.Hour))
	f.wantTime("At of the oldest entry", entries[len(entries)-1].At, start)
	other, _ := f.another(0)
	f.on(other).wantAudit(want...)
}

func auditCountsPagesTogether(f *fixture) {
	ids := []string{"a", "b", "c", "d", "e"}
	f.buried(1, ids...)
	f.redrivePages("ann", "again")
	f.wantAudit("redrive|orders/mail/0|5|ann|again")
	f.wantTime("At of an act in three pages", f.audit(1)[0].At, start.Add(2*time.Second))
	// For another reason, by another, or much later it is another act.
	again := func(by, reason string) {
		f.claimExactly(1, 10, ids...)
		f.bury(1, ids...)
		f.redrivePages(by, reason)
	}
	again("ann", "once more")
	again("bob", "once more")
	f.clock.Advance(time.Hour)
	again("bob", "once more")
	f.wantAudit("redrive|orders/mail/0|5|bob|once more", "redrive|orders/mail/0|5|bob|once more",
		"redrive|orders/mail/0|5|ann|once more", "redrive|orders/mail/0|5|ann|again")
}

func auditSparesWhatDidNothing(f *fixture) {
	f.buried(1, "a")
	request := gobridge.BulkRequest{Filter: gobridge.Filter{Partition: part}, DryRun: true, By: "ann", Reason: "look"}
	if _, err := f.store.Redrive(f.Context(), request); err != nil {
		f.Fatalf("Redrive, dry: %v", err)
	}
	request.Filter.States = []gobridge.State{gobridge.StateDead}
	if _, err := f.store.Discard(f.Context(), request); err != nil {
		f.Fatalf("Discard, dry: %v", err)
	}
	request.DryRun = false
	request.Filter.EnvelopeID = "z"
	if _, err := f.store.Discard(f.Context(), request); err != nil {
		f.Fatalf("Discard of nothing: %v", err)
	}
	f.wantErr("ClearControl of nothing", f.store.ClearControl(f.Context(), haltOf("k")), gobridge.ErrNotFound)
	if err := f.store.SetControl(f.Context(), gobridge.Control{Kind: gobridge.Pause}); err == nil {
		f.Fatalf("SetControl without a route returned nil")
	}
	f.wantAudit()
}

func auditNewestFirstUpToTheLimit(f *fixture) {
	for i := range 5 {
		f.setControl(haltOf(fmt.Sprintf("k%d", i)))
	}
	if got := f.audit(2); len(got) != 2 || got[0].Scope != `orders/mail key "k4"` || got[1].Scope != `orders/mail key "k3"` {
		f.Fatalf("the newest two entries are %+v", got)
	}
	if got := f.audit(0); len(got) != 0 {
		f.Fatalf("with a limit of 0 there are %d entries", len(got))
	}
}
