package storetest

import (
	"context"
	"slices"

	"gobridge"
)

func lookDefects() []defect {
	return slices.Concat(explainDefects(), controlDefects(), auditDefects(), reportDefects(), []defect{
		{name: "shows one record more than asked for", fails: []string{"QueryPendingShowsPendingRecords"},
			breakIt: func(b *brokenStore) {
				b.queryPend = func(ctx context.Context, p gobridge.Partition, limit int) ([]gobridge.Record, error) {
					return b.Store.QueryPending(ctx, p, limit+1)
				}
			}},
		{name: "counts beyond the limit", fails: []string{"CountPendingStopsAtTheLimit"},
			breakIt: func(b *brokenStore) {
				b.countPend = func(ctx context.Context, p gobridge.Partition, _ int) (int, error) {
					return b.Store.CountPending(ctx, p, 1<<30)
				}
			}},
		{name: "counts claimed records as pending", fails: []string{"StatsAreRight"},
			breakIt: eachStats(func(s *gobridge.Stats) { s.Pending += s.Claimed })},
		{name: "reads the backlog to count it", fails: []string{"CountsCostDoesNotGrowWithTheBacklog"},
			breakIt: func(b *brokenStore) {
				b.stats = func(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error) {
					for _, p := range partitions {
						_, _ = b.Store.QueryPending(ctx, p, 1<<30)
					}
					return b.Store.Stats(ctx, partitions...)
				}
			}},
		{name: "never counts dead letters down", fails: []string{"StatsFollowEveryChange"},
			breakIt: func(b *brokenStore) {
				most := map[gobridge.Partition]int64{}
				eachStats(func(s *gobridge.Stats) {
					most[s.Partition] = max(most[s.Partition], s.Dead)
					s.Dead = most[s.Partition]
				})(b)
			}},
		{name: "does not list empty partitions", fails: []string{"StatsListEveryPartition"},
			breakIt: func(b *brokenStore) {
				b.stats = func(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error) {
					all, err := b.Store.Stats(ctx, partitions...)
					if len(partitions) > 0 {
						return all, err
					}
					return slices.DeleteFunc(all, func(s gobridge.Stats) bool { return s.Pending+s.Claimed+s.Dead == 0 }), err
				}
			}},
		{name: "finds no expired records", fails: []string{"GetFindsEveryState"},
			breakIt: func(b *brokenStore) {
				b.get = func(ctx context.Context, ref gobridge.Ref) (gobridge.Record, error) {
					r, err := b.Store.Get(ctx, ref)
					if r.State == gobridge.StateExpired {
						return gobridge.Record{}, &gobridge.Error{Op: "get", Ref: ref, Err: gobridge.ErrNotFound}
					}
					return r, err
				}
			}},
		{name: "restores a backup without its fence", fails: []string{"RestoredBackupWorks"},
			breakRestored: eachStats(func(s *gobridge.Stats) { s.Fence = gobridge.Token{} })},
	})
}

func eachStats(change func(*gobridge.Stats)) func(*brokenStore) {
	return func(b *brokenStore) {
		b.stats = func(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error) {
			all, err := b.Store.Stats(ctx, partitions...)
			for i := range all {
				change(&all[i])
			}
			return all, err
		}
	}
}

func explainDefects() []defect {
	mistaken := map[gobridge.Cause]string{
		gobridge.CauseNotFound: "ExplainNotFound", gobridge.CauseEnded: "ExplainEnded", gobridge.CausePaused: "ExplainPaused",
		gobridge.CauseHalted: "ExplainHalted", gobridge.CauseClaimed: "ExplainClaimed", gobridge.CauseStranded: "ExplainStranded",
		gobridge.CauseBlocked: "ExplainBlocked", gobridge.CauseNotDue: "ExplainNotDue", gobridge.CauseExpired: "ExplainExpired",
	}
	out := []defect{
		{name: "finds a head where there is none", fails: []string{"ExplainClaimable"},
			breakIt: eachExplained(func(e *gobridge.Explanation) {
				if e.Cause == gobridge.CauseClaimable {
					e.Cause = gobridge.CauseBlocked
				}
			})},
		{name: "does not name the head", fails: []string{"ExplainBlocked"},
			breakIt: eachExplained(func(e *gobridge.Explanation) { e.Head = nil })},
		{name: "does not name who paused", fails: []string{"ExplainPaused", "ExplainHalted"},
			breakIt: eachExplained(func(e *gobridge.Explanation) { e.Control = nil })},
	}
	for cause, name := range mistaken {
		out = append(out, defect{name: "finds nothing wrong where it is " + string(cause), fails: []string{name},
			breakIt: eachExplained(func(e *gobridge.Explanation) {
				if e.Cause == cause {
					e.Cause = gobridge.CauseClaimable
				}
			})})
	}
	return out
}

func eachExplained(change func(*gobridge.Explanation)) func(*brokenStore) {
	return func(b *brokenStore) {
		b.explain = func(ctx context.Context, query gobridge.ExplainQuery) (gobridge.Explanation, error) {
			e, err := b.Store.Explain(ctx, query)
			change(&e)
			return e, err
		}
	}
}

// ignores makes a store that takes a control and does not apply it.
func ignores(which func(gobridge.Control) bool) func(*brokenStore) {
	return func(b *brokenStore) {
		b.setControl = func(ctx context.Context, c gobridge.Control) error {
			if which(c) {
				return nil
			}
			return b.Store.SetControl(ctx, c)
		}
		b.clear = func(ctx context.Context, c gobridge.Control) error {
			if which(c) {
				return nil
			}
			return b.Store.ClearControl(ctx, c)
		}
	}
}

func controlDefects() []defect {
	return []defect{
		{name: "ignores pauses of bindings", fails: []string{"PauseStopsABinding"},
			breakIt: ignores(func(c gobridge.Control) bool { return c.Kind == gobridge.Pause && c.Binding != "" })},
		{name: "ignores pauses of routes", fails: []string{"PauseStopsARoute"},
			breakIt: ignores(func(c gobridge.Control) bool { return c.Kind == gobridge.Pause && c.Binding == "" })},
		{name: "does not fence under a pause", fails: []string{"PauseStillFences"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					if all, _ := b.Store.ListControls(ctx); len(all) > 0 {
						return nil, nil
					}
					return b.Store.Claim(ctx, request)
				}
			}},
		{name: "ignores halts of keys", fails: []string{"HaltStopsAKey", "ClaimBlocksYoungerSiblingOfHaltedHead"},
			breakIt: ignores(func(c gobridge.Control) bool { return c.OrderingKey != "" })},
		{name: "ignores halts of records", fails: []string{"HaltStopsARecordWithoutKey"},
			breakIt: ignores(func(c gobridge.Control) bool { return c.EnvelopeID != "" })},
		{name: "keeps controls in the process", fails: []string{"ControlsHoldForEveryHandle"}, breakIt: localControls},
		{name: "sets a control anew each time", fails: []string{"ControlSetAgainKeepsSinceAndBy"},
			breakIt: func(b *brokenStore) {
				b.setControl = func(ctx context.Context, c gobridge.Control) error {
					_ = b.Store.ClearControl(ctx, c)
					return b.Store.SetControl(ctx, c)
				}
			}},
		{name: "lifts everything of a route at once", fails: []string{"ClearLiftsExactlyOneControl"},
			breakIt: func(b *brokenStore) {
				b.clear = func(ctx context.Context, c gobridge.Control) error {
					err := b.Store.ClearControl(ctx, c)
					all, _ := b.Store.ListControls(ctx)
					for _, other := range all {
						if other.Route == c.Route && err == nil {
							_ = b.Store.ClearControl(ctx, other)
						}
					}
					return err
				}
			}},
		{name: "lists controls newest first", fails: []string{"ListControlsOldestFirst"},
			breakIt: func(b *brokenStore) {
				b.list = func(ctx context.Context) ([]gobridge.Control, error) {
					all, err := b.Store.ListControls(ctx)
					slices.Reverse(all)
					return all, err
				}
			}},
		{name: "swallows invalid controls", fails: []string{"InvalidControlIsRefused"},
			breakIt: func(b *brokenStore) {
				b.setControl = func(ctx context.Context, c gobridge.Control) error {
					_ = b.Store.SetControl(ctx, c)
					return nil
				}
			}},
		{name: "does not make anything due", fails: []string{"RetryMakesReleasedRecordsDue"},
			breakIt: func(b *brokenStore) {
				b.retry = func(context.Context, gobridge.RetryRequest) (int, error) { return 0, nil }
			}},
		{name: "makes everything due at once", fails: []string{"RetryTakesAThousandAtATime"},
			breakIt: func(b *brokenStore) {
				b.retry = func(ctx context.Context, request gobridge.RetryRequest) (int, error) {
					sum := 0
					for {
						n, err := b.Store.Retry(ctx, request)
						if n == 0 || err != nil {
							return sum, err
						}
						sum += n
					}
				}
			}},
	}
}

// localControls makes controls known to the handle only on which they are set.
func localControls(b *brokenStore) {
	var all []gobridge.Control
	b.setControl = func(_ context.Context, c gobridge.Control) error {
		all = append(all, c)
		return nil
	}
	b.list = func(context.Context) ([]gobridge.Control, error) { return all, nil }
	b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
		if len(all) > 0 {
			request.Limit = 0
		}
		return b.Store.Claim(ctx, request)
	}
}
