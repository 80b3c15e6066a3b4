package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"gobridge"
)

// eachClaimed changes every record that Claim returns.
func eachClaimed(change func(b *brokenStore, r *gobridge.Record)) func(*brokenStore) {
	return claimResult(func(b *brokenStore, _ gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
		for i := range out {
			change(b, &out[i])
		}
		return out
	})
}

// claimResult changes what Claim returns.
func claimResult(change func(*brokenStore, gobridge.ClaimRequest, []gobridge.Record) []gobridge.Record) func(*brokenStore) {
	return func(b *brokenStore) {
		b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
			out, err := b.Store.Claim(ctx, request)
			if err != nil {
				return nil, err
			}
			return change(b, request, out), nil
		}
	}
}

// claimWithout leaves out of a claim, and puts back, what drop says.
func claimWithout(drop func(b *brokenStore, r *gobridge.Record) bool) func(*brokenStore) {
	return claimResult(func(b *brokenStore, request gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
		return slices.DeleteFunc(out, func(r gobridge.Record) bool {
			if !drop(b, &r) {
				return false
			}
			putBack(b, request.Token, &r)
			return true
		})
	})
}

func putBack(b *brokenStore, token gobridge.Token, r *gobridge.Record) {
	_ = b.Store.Release(context.Background(), token, []gobridge.Release{{Ref: r.Ref()}})
}

// claimRequest changes what Claim is asked for.
func claimRequest(change func(b *brokenStore, r *gobridge.ClaimRequest)) func(*brokenStore) {
	return func(b *brokenStore) {
		b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
			change(b, &request)
			return b.Store.Claim(ctx, request)
		}
	}
}

func claimDefects() []defect {
	return slices.Concat(tokenDefects(), holdDefects(), []defect{
		{name: "passes the oldest record over", fails: []string{"ClaimLimitReturnsOldestN"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					limit := request.Limit
					request.Limit++
					out, err := b.Store.Claim(ctx, request)
					if len(out) > limit && limit > 0 {
						putBack(b, request.Token, &out[0])
						out = out[1:]
					}
					return out, err
				}
			}},
		{name: "looks at a window of the oldest records only", fails: []string{"BlockedKeyBlocksOnlyItself"},
			breakIt: claimWithout(func(b *brokenStore, r *gobridge.Record) bool {
				pending, _ := b.Store.QueryPending(context.Background(), r.Partition, 1000)
				older := 0
				for i := range pending {
					if pending[i].Older(r) {
						older++
					}
				}
				return older > 40
			})},
		{name: "breaks ties by ID", fails: []string{"ClaimBreaksTiesBySeq"},
			breakIt: claimResult(func(_ *brokenStore, _ gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
				slices.SortStableFunc(out, func(a, b gobridge.Record) int {
					if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
						return c
					}
					return strings.Compare(a.Envelope.ID, b.Envelope.ID)
				})
				return out
			})},
		{name: "goes on after the last stamp of a large batch", fails: []string{"ClaimTenThousandOfOneInstant"},
			breakIt: func(b *brokenStore) {
				var last time.Time
				claimResult(func(_ *brokenStore, _ gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
					out = slices.DeleteFunc(out, func(r gobridge.Record) bool { return r.CreatedAt.Equal(last) })
					if len(out) >= 500 {
						last = out[len(out)-1].CreatedAt
					}
					return out
				})(b)
			}},
		{name: "does not tell ClaimedAt", fails: []string{"ClaimMarksItsRecords"},
			breakIt: eachClaimed(func(_ *brokenStore, r *gobridge.Record) { r.ClaimedAt = time.Time{} })},
		{name: "ignores not-before", fails: []string{"DueTimeDelaysTheClaim", "ClaimBlocksYoungerSiblingOfDelayedHead", "ExplainNotDue"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) { r.Envelope.NotBefore = time.Time{} })},
		{name: "hides expired records from claims", fails: []string{"ExpiredIsClaimedLikeAnyOther"},
			breakIt: claimWithout(func(b *brokenStore, r *gobridge.Record) bool { return r.Expired(b.now()) })},
		{name: "ignores the bound on bytes", fails: []string{"ClaimBytesEndTheBatch"},
			breakIt: claimRequest(func(_ *brokenStore, r *gobridge.ClaimRequest) { r.MaxBytes = 0 })},
		{name: "takes every repeat for a crash", fails: []string{"CountersMeanWhatTheySay"},
			breakIt: eachGot(func(_ *brokenStore, r *gobridge.Record) { r.Unsettled = max(r.ReplayCount-1, 0) })},
		{name: "leaves out what was claimed often", fails: []string{"ClaimNeverFiltersByCounters"},
			breakIt: claimWithout(func(_ *brokenStore, r *gobridge.Record) bool { return r.ReplayCount > 10 })},
		{name: "reads the backlog for every claim", fails: []string{"ClaimCostDoesNotGrowWithTheBacklog"},
			breakIt: claimRequest(func(b *brokenStore, r *gobridge.ClaimRequest) {
				_, _ = b.Store.QueryPending(context.Background(), r.Partition, 1<<30)
			})},
		{name: "claims after the caller has gone", fails: []string{"CancelledClaimStrandsNothing"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					out, err := b.Store.Claim(context.WithoutCancel(ctx), request)
					if ctx.Err() != nil {
						return nil, &gobridge.Error{Op: "claim", Err: ctx.Err()}
					}
					return out, err
				}
			}},
		{name: "ignores cancellation", fails: []string{"CancelledBeforeDoesNothing"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					return b.Store.Claim(context.WithoutCancel(ctx), request)
				}
			}},
		{name: "hands a batch out twice", fails: []string{"ConcurrentClaimersShareNothing"}, breakIt: twice},
		{name: "completes a record that nobody has delivered", fails: []string{"TakeoversUnderLoadKeepTheOrder"},
			breakIt: claimResult(func(b *brokenStore, request gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
				if len(out) < 9 {
					return out
				}
				_ = b.Store.Complete(context.Background(), request.Token, []gobridge.Completion{{Ref: out[len(out)-1].Ref()}})
				return out[:len(out)-1]
			})},
	})
}

// twice hands every other batch out again.
func twice(b *brokenStore) {
	var mu sync.Mutex
	var last []gobridge.Record
	b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
		mu.Lock()
		defer mu.Unlock()
		if again := last; again != nil {
			last = nil
			return again, nil
		}
		var err error
		last, err = b.Store.Claim(ctx, request)
		return last, err
	}
}

func tokenDefects() []defect {
	return []defect{
		{name: "has one fence for all partitions", fails: []string{"ClaimIsPerPartition"},
			breakIt: func(b *brokenStore) {
				highest := int64(0)
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					if request.Token.Version < highest {
						return nil, &gobridge.Error{Op: "claim", Partition: request.Partition, Err: gobridge.ErrStaleFencingToken}
					}
					highest = request.Token.Version
					return b.Store.Claim(ctx, request)
				}
			}},
		{name: "does nothing at all for a claim of none", fails: []string{"ClaimLimitZeroOnlyRaisesTheMark"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					if request.Limit <= 0 && request.Token.Valid() {
						return nil, nil
					}
					return b.Store.Claim(ctx, request)
				}
			}},
		{name: "looks whether there is work before it fences", fails: []string{"EmptyClaimRaisesTheMark"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					if s, err := b.Store.Stats(ctx, request.Partition); err == nil && s[0].Pending+s[0].Claimed == 0 {
						return nil, nil
					}
					return b.Store.Claim(ctx, request)
				}
			}},
		{name: "looks at the context before the token", fails: []string{"InvalidTokenIsRefusedFirst"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					if err := ctx.Err(); err != nil {
						return nil, &gobridge.Error{Op: "claim", Err: err}
					}
					return b.Store.Claim(ctx, request)
				}
			}},
		{name: "lets a stale owner sweep", fails: []string{"StaleTokenGetsNothing", "SweepIsFenced"},
			breakIt: func(b *brokenStore) {
				b.sweep = func(ctx context.Context, request gobridge.SweepRequest) (gobridge.SweepResult, error) {
					if s, err := b.Store.Stats(ctx, request.Partition); err == nil && s[0].Fence.Version > request.Token.Version {
						request.Token = s[0].Fence
					}
					return b.Store.Sweep(ctx, request)
				}
			}},
		{name: "gives a stale owner an empty batch", fails: []string{"StaleTokenGetsNothing", "EmptyClaimRaisesTheMark"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					out, err := b.Store.Claim(ctx, request)
					if errors.Is(err, gobridge.ErrStaleFencingToken) {
						return nil, nil
					}
					return out, err
				}
			}},
		{name: "keeps the fence in each process", fails: []string{"FenceIsDurable"},
			breakIt: func(b *brokenStore) {
				mark := int64(0)
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					out, err := b.Store.Claim(ctx, request)
					if errors.Is(err, gobridge.ErrStaleFencingToken) && request.Token.Version >= mark {
						err = nil
					}
					mark = max(mark, request.Token.Version)
					return out, err
				}
			}},
	}
}

func holdDefects() []defect {
	return []defect{
		{name: "never takes over", fails: []string{"OlderVersionsClaimIsTakenOver"},
			breakIt: claimResult(func(_ *brokenStore, _ gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
				return slices.DeleteFunc(out, func(r gobridge.Record) bool { return r.Unsettled > 0 })
			})},
		{name: "does not listen to what is held", fails: []string{"StrandedClaimIsClaimableAtOnce"},
			breakIt: claimRequest(func(_ *brokenStore, r *gobridge.ClaimRequest) { r.HeldKnown = false })},
		{name: "takes everything for stranded", fails: []string{"HeldClaimStays"},
			breakIt: claimRequest(func(_ *brokenStore, r *gobridge.ClaimRequest) { r.Held = nil })},
		{name: "lets held records block under the same version only", fails: []string{"HeldUnderOlderVersionStays"},
			breakIt: claimRequest(func(b *brokenStore, r *gobridge.ClaimRequest) {
				r.Held = slices.DeleteFunc(slices.Clone(r.Held), func(ref gobridge.Ref) bool {
					got, _ := b.Store.Get(context.Background(), ref)
					return got.ClaimedBy.Version < r.Token.Version
				})
			})},
		{name: "hands out held records that were put back", fails: []string{"HeldRecordIsNotHandedOutAgain"},
			breakIt: claimRequest(func(b *brokenStore, r *gobridge.ClaimRequest) {
				r.Held = slices.DeleteFunc(slices.Clone(r.Held), func(ref gobridge.Ref) bool {
					return stateOf(b, ref) == gobridge.StatePending
				})
			})},
		{name: "takes what it is not told of for stranded", fails: []string{"UntoldClaimWaitsForTheStaleWindow"},
			breakIt: claimRequest(func(_ *brokenStore, r *gobridge.ClaimRequest) { r.HeldKnown = true })},
		{name: "waits for the stale window under a new version too", fails: []string{"UntoldClaimTakesOverOlderVersions"},
			breakIt: claimResult(func(_ *brokenStore, request gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
				return slices.DeleteFunc(out, func(r gobridge.Record) bool { return r.Unsettled > 0 && !request.HeldKnown })
			})},
		{name: "takes over a thousand records and forgets the rest", fails: []string{"TakeoverOfManyStaleRecords"},
			breakIt: func(b *brokenStore) {
				taken := 0
				claimResult(func(_ *brokenStore, _ gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
					return slices.DeleteFunc(out, func(r gobridge.Record) bool {
						if r.Unsettled > 0 {
							taken++
						}
						return r.Unsettled > 0 && taken > 1000
					})
				})(b)
			}},
	}
}
