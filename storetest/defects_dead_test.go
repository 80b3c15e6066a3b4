package storetest

import (
	"context"
	"slices"
	"sync"

	"gobridge"
)

func deadDefects() []defect {
	return slices.Concat(redriveDefects(), discardDefects(), sweepDefects(), []defect{
		{name: "drops the payloads of dead letters", fails: []string{"DeadLetterKeepsTheMessage"},
			breakIt: func(b *brokenStore) {
				b.queryDead = func(ctx context.Context, q gobridge.DeadQuery) (gobridge.DeadPage, error) {
					page, err := b.Store.QueryDead(ctx, q)
					for i := range page.Records {
						page.Records[i].Envelope.Payload = nil
					}
					return page, err
				}
			}},
		{name: "takes the record out before it puts the dead letter in", fails: []string{"DeadLetterIsOneStep"},
			breakIt: func(b *brokenStore) {
				b.deadLetter = func(ctx context.Context, t gobridge.Token, s []gobridge.Burial) error {
					err := b.Store.DeadLetter(ctx, t, s)
					if ctx.Err() != nil {
						_ = b.Store.Complete(context.WithoutCancel(ctx), t, []gobridge.Completion{{Ref: s[0].Ref, As: gobridge.StateDiscarded}})
					}
					return err
				}
			}},
		{name: "has no bound on dead letters", fails: []string{"DeadLettersFullByCount", "SweepMovesExpiredToTheDead"},
			settings: func(o *Options) { o.MaxDead = 1 << 40 }},
		{name: "has no bound on the bytes of dead letters", fails: []string{"DeadLettersFullByBytes"},
			settings: func(o *Options) { o.MaxDeadBytes = 1 << 40 }},
		{name: "lists dead letters in the wrong order", fails: []string{"QueryDeadPagesByAge"},
			breakIt: func(b *brokenStore) {
				b.queryDead = func(ctx context.Context, q gobridge.DeadQuery) (gobridge.DeadPage, error) {
					page, err := b.Store.QueryDead(ctx, q)
					slices.Reverse(page.Records)
					return page, err
				}
			}},
		{name: "takes a cursor that it does not know for none", fails: []string{"CursorThatNobodyGave"},
			breakIt: func(b *brokenStore) {
				b.discard = changed(b.Store.Discard, func(r *gobridge.BulkRequest) {
					if r.Cursor == "nonsense" {
						r.Cursor = ""
					}
				})
			}},
		{name: "ignores the key of a filter", fails: []string{"FilterMatchesEveryFieldThatIsSet"},
			breakIt: func(b *brokenStore) {
				b.queryDead = func(ctx context.Context, q gobridge.DeadQuery) (gobridge.DeadPage, error) {
					q.Filter.HasKey = false
					q.Filter.OrderingKey = ""
					return b.Store.QueryDead(ctx, q)
				}
			}},
	})
}

// changed changes what Redrive or Discard is asked for.
func changed(call bulkChange, change func(*gobridge.BulkRequest)) bulkChange {
	return func(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
		change(&request)
		return call(ctx, request)
	}
}

func redriveDefects() []defect {
	return []defect{
		{name: "redrives to the old place", fails: []string{"RedriveMakesTheYoungest"},
			breakIt: func(b *brokenStore) {
				old := map[gobridge.Ref]int64{}
				b.redrive = func(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
					dead, _ := b.Store.QueryDead(ctx, gobridge.DeadQuery{Filter: request.Filter})
					for _, r := range dead.Records {
						old[r.Ref()] = r.Seq
					}
					return b.Store.Redrive(ctx, request)
				}
				eachGot(func(_ *brokenStore, r *gobridge.Record) {
					if seq, ok := old[r.Ref()]; ok {
						r.Seq = seq
					}
				})(b)
			}},
		{name: "redrives the youngest first", fails: []string{"RedriveKeepsTheOrderAmongItsRecords"},
			breakIt: func(b *brokenStore) {
				b.redrive = func(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
					all, err := b.Store.Redrive(ctx, gobridge.BulkRequest{Filter: request.Filter, DryRun: true, Limit: 1000})
					if err != nil || request.DryRun {
						return all, err
					}
					for _, item := range slices.Backward(all.Items) {
						_, err = b.Store.Redrive(ctx, gobridge.BulkRequest{Filter: gobridge.Filter{
							Partition: item.Ref.Partition, EnvelopeID: item.Ref.EnvelopeID, Binding: item.Ref.Binding}})
					}
					return all, err
				}
			}},
		{name: "does not count redrives", fails: []string{"RedriveStartsAfresh"},
			breakIt: eachGot(func(_ *brokenStore, r *gobridge.Record) { r.Redrives = 0 })},
		{name: "redrives what it read a while ago", fails: []string{"RedriveHappensOnce"},
			breakIt: func(b *brokenStore) {
				var mu sync.Mutex
				var seen *gobridge.BulkResult
				b.redrive = func(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
					mu.Lock()
					defer mu.Unlock()
					result, err := b.Store.Redrive(ctx, request)
					if seen == nil {
						seen = &result
					}
					return *seen, err
				}
			}},
		{name: "redrives what has expired", fails: []string{"RedriveLeavesExpiredDead"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) { r.Envelope.ExpiresAt = r.Envelope.NotBefore })},
		{name: "loses the page of a redrive that is cut off", fails: []string{"CancelledRedriveCanBeRepeated"},
			breakIt: func(b *brokenStore) {
				b.redrive = func(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
					result, err := b.Store.Redrive(ctx, request)
					if ctx.Err() != nil {
						request.Filter.States = states(gobridge.StateDead)
						_, _ = b.Store.Discard(context.WithoutCancel(ctx), request)
					}
					return result, err
				}
			}},
		{name: "redrives without a limit", fails: []string{"RedrivePages"},
			breakIt: func(b *brokenStore) {
				b.redrive = changed(b.Store.Redrive, func(r *gobridge.BulkRequest) { r.Limit = 1000 })
			}},
		{name: "takes a dry run of redrive seriously", fails: []string{"RedriveDryRunChangesNothing"},
			breakIt: func(b *brokenStore) {
				b.redrive = changed(b.Store.Redrive, func(r *gobridge.BulkRequest) { r.DryRun = false })
			}},
		{name: "does not say what has gone meanwhile", fails: []string{"RedriveDryRunChangesNothing"},
			breakIt: func(b *brokenStore) {
				b.redrive = func(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
					result, err := b.Store.Redrive(ctx, request)
					for i := range result.Items {
						result.Items[i].NewerGone = 0
					}
					return result, err
				}
			}},
		{name: "buries a redriven record again", fails: []string{"SettleDoesNotReachPastARedrive"},
			breakIt: func(b *brokenStore) {
				b.deadLetter = func(ctx context.Context, t gobridge.Token, s []gobridge.Burial) error {
					if len(s) > 0 && stateOf(b, s[0].Ref) == gobridge.StatePending {
						_, _ = b.Store.Claim(ctx, gobridge.ClaimRequest{Partition: s[0].Ref.Partition, Token: t, Limit: 100})
					}
					return b.Store.DeadLetter(ctx, t, s)
				}
			}},
	}
}

func discardDefects() []defect {
	discard := func(change func(*gobridge.BulkRequest)) func(*brokenStore) {
		return func(b *brokenStore) { b.discard = changed(b.Store.Discard, change) }
	}
	return []defect{
		{name: "discards without the reason", fails: []string{"DiscardEndsWithTheReason"},
			breakIt: discard(func(r *gobridge.BulkRequest) { r.Reason = "" })},
		{name: "discards whatever matches, in any state", fails: []string{"DiscardTakesOnlyTheStatesNamed"},
			breakIt: discard(func(r *gobridge.BulkRequest) { r.Filter.States = states(gobridge.StateDead, gobridge.StatePending) })},
		{name: "leaves stranded records when it discards", fails: []string{"DiscardTakesWhatIsStrandedBelowTheFence"},
			breakIt: func(b *brokenStore) {
				b.discard = func(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
					var out gobridge.BulkResult
					pending, err := b.Store.QueryPending(ctx, part, 1000)
					for _, r := range pending {
						request.Filter.EnvelopeID = r.Envelope.ID
						one, _ := b.Store.Discard(ctx, request)
						out.Items = append(out.Items, one.Items...)
					}
					return out, err
				}
			}},
		{name: "discards without a limit", fails: []string{"DiscardPages"},
			breakIt: discard(func(r *gobridge.BulkRequest) { r.Limit = 1000 })},
		{name: "takes a dry run of discard seriously", fails: []string{"DiscardDryRunChangesNothing"},
			breakIt: discard(func(r *gobridge.BulkRequest) { r.DryRun = false })},
	}
}
