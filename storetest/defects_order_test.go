package storetest

import (
	"context"
	"slices"

	"gobridge"
)

func orderDefects() []defect {
	return []defect{
		{name: "knows no keys", fails: []string{
			"ClaimBlocksYoungerSiblingOfStrandedHead", "ClaimBlocksYoungerSiblingOfHeldHead",
			"ClaimBlocksYoungerSiblingOfReleasedHead", "ClaimBlocksYoungerSiblingOfDelayedHead",
			"ClaimBlocksYoungerSiblingOfHaltedHead", "ClaimBlocksYoungerSiblingOfHeadBeyondLimit",
			"DelayedSiblingEndsItsKey", "ReleasedHeadComesBeforeItsTail", "DelayedOlderCreatedAtBlocksItsKey",
		}, breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) { r.Envelope.OrderingKey = "" })},
		{name: "fills a batch up with the youngest sibling", fails: []string{"ClaimBlocksYoungerSiblingOfHeadBeyondLimit", "ClaimIsCompletePerKey"},
			breakIt: claimResult(func(b *brokenStore, request gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
				if n := len(out); n > 1 && n == request.Limit && out[n-1].Envelope.OrderingKey == out[n-2].Envelope.OrderingKey {
					putBack(b, request.Token, &out[n-2])
					return slices.Delete(out, n-2, n-1)
				}
				return out
			})},
		{name: "leaves out what does not fit and goes on", fails: []string{"ClaimBlocksYoungerSiblingOfHeadBeyondBytes"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					most, size := request.MaxBytes, int64(0)
					request.MaxBytes = 0
					out, err := b.Store.Claim(ctx, request)
					return slices.DeleteFunc(out, func(r gobridge.Record) bool {
						if n := contentSize(&r); most == 0 || size == 0 || size+n <= most {
							size += n
							return false
						}
						putBack(b, request.Token, &r)
						return true
					}), err
				}
			}},
		{name: "ends expired heads while it claims", fails: []string{"ClaimBlocksYoungerSiblingOfExpiredHead"},
			breakIt: claimRequest(func(b *brokenStore, r *gobridge.ClaimRequest) {
				_, _ = b.Store.Sweep(context.Background(), gobridge.SweepRequest{Partition: r.Partition, Token: r.Token, Limit: 100})
			})},
		{name: "takes no key for a key", fails: []string{"KeylessRecordsAreNeverBlocked"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) {
				if r.Envelope.OrderingKey == "" {
					r.Envelope.OrderingKey = "none"
				}
			})},
		{name: "gives one record of a key at a time", fails: []string{"SiblingsComeAlongUpToTheLimit"},
			breakIt: claimResult(func(b *brokenStore, request gobridge.ClaimRequest, out []gobridge.Record) []gobridge.Record {
				seen := map[string]bool{"": false}
				return slices.DeleteFunc(out, func(r gobridge.Record) bool {
					k := r.Envelope.OrderingKey
					if seen[k] {
						putBack(b, request.Token, &r)
						return true
					}
					seen[k] = k != ""
					return false
				})
			})},
		{name: "leaves discarded records in their key", fails: []string{"HeadThatEndsFreesItsKey"},
			breakIt: func(b *brokenStore) {
				b.discard = func(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
					request.DryRun = true
					return b.Store.Discard(ctx, request)
				}
			}},
		{name: "makes older records the youngest", fails: []string{
			"OlderCreatedAtBecomesTheHead", "OlderCreatedAtBeforeClaimedHead", "OlderCreatedAtBeforeDelayedHead",
			"DelayedOlderCreatedAtBlocksItsKey", "OlderCreatedAtBetweenSiblings",
		}, breakIt: eachRecord(func(b *brokenStore, r *gobridge.Record) {
			if s, err := b.Store.Stats(context.Background(), r.Partition); err == nil && r.CreatedAt.Before(s[0].NewestStamp) {
				r.CreatedAt = s[0].NewestStamp
			}
		})},
	}
}
