package storetest

import (
	"context"

	"gobridge"
)

// eachAudit changes the list of audit entries.
func eachAudit(change func([]gobridge.AuditEntry) []gobridge.AuditEntry) func(*brokenStore) {
	return func(b *brokenStore) {
		b.listAudit = func(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
			all, err := b.Store.ListAudit(ctx, limit)
			return change(all), err
		}
	}
}

func auditDefects() []defect {
	return []defect{
		{name: "keeps no reasons", fails: []string{"AuditTellsWhoDidWhatAndWhy"},
			breakIt: eachAudit(func(all []gobridge.AuditEntry) []gobridge.AuditEntry {
				for i := range all {
					all[i].Reason = ""
				}
				return all
			})},
		{name: "has an entry for every page", fails: []string{"AuditCountsPagesTogether"},
			breakIt: func(b *brokenStore) {
				pages := 0
				b.redrive = func(ctx context.Context, r gobridge.BulkRequest) (gobridge.BulkResult, error) {
					pages++
					r.Reason += string(rune('0' + pages))
					return b.Store.Redrive(ctx, r)
				}
			}},
		{name: "notes dry runs", fails: []string{"AuditSparesWhatDidNothing"},
			breakIt: func(b *brokenStore) {
				b.redrive = func(ctx context.Context, r gobridge.BulkRequest) (gobridge.BulkResult, error) {
					r.DryRun = false
					return b.Store.Redrive(ctx, r)
				}
			}},
		{name: "lists the oldest acts", fails: []string{"AuditNewestFirstUpToTheLimit"},
			breakIt: func(b *brokenStore) {
				b.listAudit = func(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
					all, err := b.Store.ListAudit(ctx, 1000)
					return all[max(0, len(all)-limit):], err
				}
			}},
	}
}

func reportDefects() []defect {
	return []defect{
		{name: "keeps reports to itself", fails: []string{"ReportIsSeenByEveryHandle"},
			breakIt: func(b *brokenStore) {
				var own gobridge.Condition
				b.report = func(_ context.Context, _ gobridge.Partition, t gobridge.Token, c gobridge.Condition) error {
					own, own.Token, own.At = c, t, b.now()
					return nil
				}
				eachStats(func(s *gobridge.Stats) { s.Condition = own })(b)
			}},
		{name: "takes reports of former owners", fails: []string{"ReportOfAFormerOwnerIsRefused"},
			breakIt: func(b *brokenStore) {
				b.report = func(ctx context.Context, p gobridge.Partition, t gobridge.Token, c gobridge.Condition) error {
					if stats, err := b.Store.Stats(ctx, p); err == nil && t.Valid() {
						t.Version = max(t.Version, stats[0].Fence.Version)
					}
					return b.Store.Report(ctx, p, t, c)
				}
			}},
		{name: "does not count retries", fails: []string{"RetryCountsForTheOwnerToSee"},
			breakIt: eachStats(func(s *gobridge.Stats) { s.Retries = 0 })},
		{name: "forgets the redrives of what is imported", fails: []string{"ImportedDeadLetterKeepsItsRedrives"},
			breakIt: func(b *brokenStore) {
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					for i := range records {
						records[i].Redrives = 0
					}
					return b.Store.Persist(ctx, records)
				}
			}},
	}
}
