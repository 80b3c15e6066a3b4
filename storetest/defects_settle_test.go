package storetest

import (
	"context"
	"errors"
	"time"

	"gobridge"
)

// modelDefects are those that the model is there to catch as well.
func modelDefects() []string {
	return []string{
		"knows no keys",
		"takes everything for stranded",
		"passes the oldest record over",
		"stores the records of a call backwards",
		"stamps with the clock",
		"never forgets an identity",
		"takes a reused ID for a duplicate",
		"ignores not-before",
		"leaves out what does not fit and goes on",
		"makes older records the youngest",
		"waits for the stale window under a new version too",
		"lets a stale owner sweep",
		"counts outages as failures",
		"refuses a repeated settle",
		"is silent about settles that don't apply",
		"does not release",
		"has no bound on dead letters",
		"redrives the youngest first",
		"does not count redrives",
		"never purges old dead letters",
		"discards whatever matches, in any state",
		"ignores halts of keys",
		"ignores pauses of routes",
		"does not make anything due",
		"counts claimed records as pending",
		"completes a record that nobody has delivered",
	}
}

func settleDefects() []defect {
	return []defect{
		{name: "completes everything as delivered", fails: []string{"CompleteEndsTheRecord"},
			breakIt: func(b *brokenStore) {
				b.complete = func(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
					for i := range s {
						s[i].As = gobridge.StateDelivered
					}
					return b.Store.Complete(ctx, t, s)
				}
			}},
		{name: "keeps payloads of ended records", fails: []string{"EndedRecordKeepsIdentityNotPayload"},
			breakIt: eachGot(func(_ *brokenStore, r *gobridge.Record) { r.Envelope.Payload = []byte("payload of " + r.Envelope.ID) })},
		{name: "stops a settling call at its first mismatch", fails: []string{"SettleMismatchNamesTheRecordAndSettlesTheRest"},
			breakIt: func(b *brokenStore) {
				b.complete = func(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
					for i := range s {
						if err := b.Store.Complete(ctx, t, s[i:i+1]); err != nil {
							return err
						}
					}
					return nil
				}
			}},
		{name: "is silent about settles that don't apply",
			fails: []string{"SettleMismatchNamesTheRecordAndSettlesTheRest", "SettleInAnotherWayIsStale", "SettleNeedsTheVeryToken"},
			breakIt: func(b *brokenStore) {
				b.complete = func(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
					err := b.Store.Complete(ctx, t, s)
					if errors.Is(err, gobridge.ErrStaleFencingToken) {
						return nil
					}
					return err
				}
			}},
		{name: "settles for any owner of the version", fails: []string{"SettleNeedsTheVeryToken"},
			breakIt: func(b *brokenStore) {
				b.complete = func(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
					if r, _ := b.Store.Get(ctx, s[0].Ref); r.ClaimedBy.Version == t.Version {
						t = r.ClaimedBy
					}
					return b.Store.Complete(ctx, t, s)
				}
			}},
		{name: "refuses a repeated settle", fails: []string{"RepeatedSettleIsSuccess", "CancelledSettleCanBeRepeated"},
			breakIt: refuseRepeats},
		{name: "shifts the end with every repeat", fails: []string{"RepeatedSettleChangesNothing"},
			breakIt: func(b *brokenStore) {
				ended := map[gobridge.Ref]time.Time{}
				b.complete = func(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
					for i := range s {
						ended[s[i].Ref] = b.now()
					}
					return b.Store.Complete(ctx, t, s)
				}
				eachGot(func(_ *brokenStore, r *gobridge.Record) {
					if at, ok := ended[r.Ref()]; ok && r.State.Ended() {
						r.EndedAt = at
					}
				})(b)
			}},
		{name: "refuses to settle nothing", fails: []string{"NothingToSettleIsNoOp"},
			breakIt: func(b *brokenStore) {
				b.deadLetter = func(ctx context.Context, t gobridge.Token, s []gobridge.Burial) error {
					if len(s) == 0 {
						return &gobridge.Error{Op: "dead letter", Err: gobridge.ErrNotFound}
					}
					return b.Store.DeadLetter(ctx, t, s)
				}
			}},
		{name: "does not release", fails: []string{"ReleasePutsTheRecordBack"},
			breakIt: func(b *brokenStore) {
				b.release = func(context.Context, gobridge.Token, []gobridge.Release) error { return nil }
			}},
		{name: "releases to the second", fails: []string{"ReleaseWaitsUntilItsTime"},
			breakIt: eachRelease(func(r *gobridge.Release) { r.NotBefore = r.NotBefore.Truncate(time.Second) })},
		{name: "counts outages as failures", fails: []string{"ReleaseCountsOnlyFailures"},
			breakIt: eachRelease(func(r *gobridge.Release) {
				if r.Tried == gobridge.Blameless {
					r.Tried = gobridge.Failed
				}
			})},
		{name: "forgets why a record was released", fails: []string{"ReleaseKeepsReasonAndError"},
			breakIt: eachRelease(func(r *gobridge.Release) { r.Reason, r.Error = "", "" })},
		{name: "cannot settle while anything is on hold", fails: []string{"SettlesWorkUnderPauseAndHalt"},
			breakIt: func(b *brokenStore) {
				b.complete = func(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
					if all, _ := b.Store.ListControls(ctx); len(all) > 0 {
						return staleErr("complete", s[0].Ref)
					}
					return b.Store.Complete(ctx, t, s)
				}
			}},
		{name: "ends what expired during its send as expired", fails: []string{"CompletesAsDeliveredAfterItsExpiry"},
			breakIt: func(b *brokenStore) {
				b.complete = func(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
					for i := range s {
						if r, _ := b.Store.Get(ctx, s[i].Ref); r.Expired(b.now()) {
							s[i].As = gobridge.StateExpired
						}
					}
					return b.Store.Complete(ctx, t, s)
				}
			}},
	}
}

// refuseRepeats settles, perhaps after its caller has gone, and knows nothing
// of it when it is asked again.
func refuseRepeats(b *brokenStore) {
	b.complete = func(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
		for i := range s {
			if stateOf(b, s[i].Ref) != gobridge.StateClaimed {
				return staleErr("complete", s[i].Ref)
			}
		}
		err := b.Store.Complete(context.WithoutCancel(ctx), t, s)
		if ctx.Err() != nil {
			return &gobridge.Error{Op: "complete", Err: ctx.Err()}
		}
		return err
	}
}

func eachRelease(change func(*gobridge.Release)) func(*brokenStore) {
	return func(b *brokenStore) {
		b.release = func(ctx context.Context, t gobridge.Token, s []gobridge.Release) error {
			for i := range s {
				change(&s[i])
			}
			return b.Store.Release(ctx, t, s)
		}
	}
}

func sweepDefects() []defect {
	sweep := func(change func(b *brokenStore, r *gobridge.SweepRequest)) func(*brokenStore) {
		return func(b *brokenStore) {
			b.sweep = func(ctx context.Context, request gobridge.SweepRequest) (gobridge.SweepResult, error) {
				change(b, &request)
				return b.Store.Sweep(ctx, request)
			}
		}
	}
	return []defect{
		{name: "does not sweep", fails: []string{"SweepEndsExpiredRecords", "ExplainExpired"},
			breakIt: sweep(func(_ *brokenStore, r *gobridge.SweepRequest) { r.Limit = 0 })},
		{name: "does not sweep while anything is on hold", fails: []string{"SweepWorksUnderPauseAndHalt"},
			breakIt: sweep(func(b *brokenStore, r *gobridge.SweepRequest) {
				if all, _ := b.Store.ListControls(context.Background()); len(all) > 0 {
					r.Limit = 0
				}
			})},
		{name: "sweeps claimed records away", fails: []string{"SweepLeavesClaimedRecordsAlone", "CompletesAsDeliveredAfterItsExpiry"},
			breakIt: sweepClaimed},
		{name: "never moves expired records to the dead", fails: []string{"SweepMovesExpiredToTheDead"},
			breakIt: sweep(func(_ *brokenStore, r *gobridge.SweepRequest) { r.ExpireTo = gobridge.StateExpired })},
		{name: "sweeps everything at once", fails: []string{"SweepIsBounded"},
			breakIt: sweep(func(_ *brokenStore, r *gobridge.SweepRequest) { r.Limit *= 1000 })},
		{name: "leaves retry times as they are", fails: []string{"SweepClampsRetryTimes"},
			breakIt: sweep(func(_ *brokenStore, r *gobridge.SweepRequest) { r.MaxBackoff = 0 })},
		{name: "purges too early", fails: []string{"SweepPurgesAfterTheRetention", "EveryStateCountsAsDuplicate"},
			settings: func(o *Options) { o.Retention /= 2 }},
		{name: "sweeps old pending records away", fails: []string{"SweepKeepsWhatHasNotEnded", "RedrivenRecordIsNotPurged"},
			breakIt: func(b *brokenStore) {
				b.sweep = func(ctx context.Context, request gobridge.SweepRequest) (gobridge.SweepResult, error) {
					pending, _ := b.Store.QueryPending(ctx, request.Partition, 1000)
					for _, r := range pending {
						if b.now().Sub(r.StoredAt) > 30*24*time.Hour {
							_, _ = b.Store.Discard(ctx, gobridge.BulkRequest{Filter: gobridge.Filter{
								EnvelopeID: r.Envelope.ID, States: states(gobridge.StatePending)}})
						}
					}
					return b.Store.Sweep(ctx, request)
				}
			}},
		{name: "never purges old dead letters", fails: []string{"SweepAgesDeadLetters"},
			settings: func(o *Options) { o.DeadRetention *= 1000 }},
	}
}

// sweepClaimed ends expired records also while they are being sent.
func sweepClaimed(b *brokenStore) {
	claimed := map[gobridge.Ref]gobridge.Record{}
	eachClaimed(func(_ *brokenStore, r *gobridge.Record) { claimed[r.Ref()] = *r })(b)
	b.sweep = func(ctx context.Context, request gobridge.SweepRequest) (gobridge.SweepResult, error) {
		result, err := b.Store.Sweep(ctx, request)
		for ref, r := range claimed {
			if r.Expired(b.now()) && b.Store.Complete(ctx, r.ClaimedBy, []gobridge.Completion{{Ref: ref, As: gobridge.StateExpired}}) == nil {
				result.Expired++
			}
		}
		return result, err
	}
}
