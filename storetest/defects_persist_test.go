package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gobridge"
)

// stale is the error of a settle that names one record.
func staleErr(op string, ref gobridge.Ref) error {
	return &gobridge.SettleError{Failed: []*gobridge.Error{{Op: op, Ref: ref, Err: gobridge.ErrStaleFencingToken}}}
}

// eachRecord changes every record that is persisted.
func eachRecord(change func(b *brokenStore, r *gobridge.Record)) func(*brokenStore) {
	return func(b *brokenStore) {
		b.persist = func(ctx context.Context, records []gobridge.Record) error {
			records = slices.Clone(records)
			for i := range records {
				change(b, &records[i])
			}
			return b.Store.Persist(ctx, records)
		}
	}
}

// persistErr changes the error of Persist.
func persistErr(change func(b *brokenStore, records []gobridge.Record, err error) error) func(*brokenStore) {
	return func(b *brokenStore) {
		b.persist = func(ctx context.Context, records []gobridge.Record) error {
			return change(b, records, b.Store.Persist(ctx, records))
		}
	}
}

// eachGot changes every record that Get returns.
func eachGot(change func(b *brokenStore, r *gobridge.Record)) func(*brokenStore) {
	return func(b *brokenStore) {
		b.get = func(ctx context.Context, ref gobridge.Ref) (gobridge.Record, error) {
			r, err := b.Store.Get(ctx, ref)
			if err == nil {
				change(b, &r)
			}
			return r, err
		}
	}
}

func stateOf(b *brokenStore, ref gobridge.Ref) gobridge.State {
	r, _ := b.Store.Get(context.Background(), ref)
	return r.State
}

func persistDefects() []defect {
	return slices.Concat(identityDefects(), ageDefects(), []defect{
		{name: "calls an empty Persist a duplicate", fails: []string{"NothingToPersistIsNoOp"},
			breakIt: persistErr(func(_ *brokenStore, records []gobridge.Record, err error) error {
				if len(records) == 0 {
					return &gobridge.Error{Op: "persist", Err: gobridge.ErrDuplicateRecord}
				}
				return err
			})},
		{name: "stores an envelope record by record", fails: []string{"EnvelopeIsStoredAllOrNone"},
			breakIt: oneByOne},
		{name: "takes the repeat of a failed Persist for a duplicate", fails: []string{"RepeatingAFailedPersistIsSafe"},
			breakIt: func(b *brokenStore) {
				tried := map[gobridge.Ref]bool{}
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					if len(records) > 0 && tried[records[0].Ref()] {
						return &gobridge.Error{Op: "persist", Err: gobridge.ErrDuplicateRecord}
					}
					for i := range records {
						tried[records[i].Ref()] = true
					}
					return b.Store.Persist(ctx, records)
				}
			}},
		{name: "stores what follows a duplicate before what precedes it", fails: []string{"DuplicateInTheMiddleKeepsTheOrder"},
			breakIt: func(b *brokenStore) {
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					for i := range records {
						if _, err := b.Store.Get(ctx, records[i].Ref()); err == nil && i > 0 && i+1 < len(records) {
							return b.Store.Persist(ctx, slices.Concat(records[i+1:], records[:i]))
						}
					}
					return b.Store.Persist(ctx, records)
				}
			}},
		{name: "stores the valid records beside an invalid one", fails: []string{"InvalidRecordRefusesTheWholeCall"},
			breakIt: func(b *brokenStore) {
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					err := b.Store.Persist(ctx, records)
					if errors.Is(err, gobridge.ErrInvalidRecord) {
						_ = b.Store.Persist(ctx, slices.DeleteFunc(slices.Clone(records), func(r gobridge.Record) bool {
							return b.Limits().Check(&r) != nil
						}))
					}
					return err
				}
			}},
		{name: "stores dead letters as pending", fails: []string{"PersistStraightToTheDead"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) { r.State = gobridge.StatePending })},
		{name: "shares payloads with its callers", fails: []string{"StoreKeepsNothingItWasHanded"}, breakIt: sharePayloads},
		{name: "makes payloads valid UTF-8", fails: []string{"BytesComeBackExactly"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) {
				r.Envelope.Payload = []byte(strings.ToValidUTF8(string(r.Envelope.Payload), "?"))
			})},
		{name: "drops empty header values", fails: []string{"BytesComeBackExactly"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) {
				kept := map[string]string{}
				for k, v := range r.Envelope.Headers {
					if v != "" {
						kept[k] = v
					}
				}
				r.Envelope.Headers = kept
			})},
		{name: "keeps times to the microsecond", fails: []string{"EveryFieldComesBack", "StampMovesWithTheClock", "ReleaseWaitsUntilItsTime"},
			breakIt: func(b *brokenStore) {
				b.claim = func(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
					out, err := b.Store.Claim(ctx, request)
					for i := range out {
						out[i].CreatedAt = out[i].CreatedAt.Truncate(time.Microsecond)
					}
					return out, err
				}
				eachGot(func(_ *brokenStore, r *gobridge.Record) {
					r.CreatedAt, r.RetryAt = r.CreatedAt.Truncate(time.Microsecond), r.RetryAt.Truncate(time.Microsecond)
				})(b)
			}},
		{name: "cuts payloads at 64 KiB", fails: []string{"PayloadsOfEverySize"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) {
				if len(r.Envelope.Payload) > 65535 {
					r.Envelope.Payload = r.Envelope.Payload[:65535]
				}
			})},
		{name: "does not say which field is too large", fails: []string{"TooLargeIsRefusedWithTheLimit"},
			breakIt: persistErr(func(_ *brokenStore, _ []gobridge.Record, err error) error {
				if errors.Is(err, gobridge.ErrTooLarge) {
					return &gobridge.Error{Op: "persist", Err: gobridge.ErrTooLarge}
				}
				return err
			})},
	})
}

func oneByOne(b *brokenStore) {
	b.persist = func(ctx context.Context, records []gobridge.Record) error {
		fresh := 0
		for i := range records {
			err := b.Store.Persist(ctx, records[i:i+1])
			if err != nil && !errors.Is(err, gobridge.ErrDuplicateRecord) {
				return err
			}
			if err == nil {
				fresh++
			}
		}
		if fresh == 0 && len(records) > 0 {
			return &gobridge.Error{Op: "persist", Err: gobridge.ErrDuplicateRecord}
		}
		return nil
	}
}

func sharePayloads(b *brokenStore) {
	shared := map[gobridge.Ref][]byte{}
	b.persist = func(ctx context.Context, records []gobridge.Record) error {
		for i := range records {
			shared[records[i].Ref()] = records[i].Envelope.Payload
		}
		return b.Store.Persist(ctx, records)
	}
	eachGot(func(_ *brokenStore, r *gobridge.Record) { r.Envelope.Payload = shared[r.Ref()] })(b)
}

func identityDefects() []defect {
	return []defect{
		{name: "joins the parts of an identity with '#'", fails: []string{"IdentitiesWithOddBytesNeverMeet"},
			breakIt: func(b *brokenStore) {
				seen := map[string]gobridge.Ref{}
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					for i := range records {
						ref := records[i].Ref()
						joined := string(ref.Partition) + "#" + ref.EnvelopeID + "#" + ref.Binding
						if other, ok := seen[joined]; ok && other != ref {
							return &gobridge.Error{Op: "persist", Err: gobridge.ErrDuplicateRecord}
						}
						seen[joined] = ref
					}
					return b.Store.Persist(ctx, records)
				}
			}},
		{name: "ends keys at a NUL", fails: []string{"KeysWithOddBytesNeverMeet"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) {
				r.Envelope.OrderingKey, _, _ = strings.Cut(r.Envelope.OrderingKey, "\x00")
			})},
		{name: "refuses what is new beside a duplicate", fails: []string{"DuplicateIsSkippedAndNewIsStored"},
			breakIt: func(b *brokenStore) {
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					for i := range records {
						if _, err := b.Store.Get(ctx, records[i].Ref()); err == nil {
							return &gobridge.Error{Op: "persist", Err: gobridge.ErrDuplicateRecord}
						}
					}
					return b.Store.Persist(ctx, records)
				}
			}},
		{name: "does not tell of duplicates", fails: []string{"OnlyDuplicatesIsErrDuplicateRecord", "ConcurrentDuplicatesAreStoredOnce"},
			breakIt: persistErr(func(_ *brokenStore, _ []gobridge.Record, err error) error {
				if errors.Is(err, gobridge.ErrDuplicateRecord) {
					return nil
				}
				return err
			})},
		{name: "refuses a call with the same record twice", fails: []string{"DuplicateWithinOneCallIsStoredOnce"},
			breakIt: func(b *brokenStore) {
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					seen := map[gobridge.Ref]bool{}
					for i := range records {
						if seen[records[i].Ref()] {
							return &gobridge.Error{Op: "persist", Err: gobridge.ErrDuplicateRecord}
						}
						seen[records[i].Ref()] = true
					}
					return b.Store.Persist(ctx, records)
				}
			}},
		{name: "forgets identities with the end of the record",
			fails: []string{"EveryStateCountsAsDuplicate", "DiscardedIsRemembered", "SweepAgesDeadLetters"},
			breakIt: persistErr(func(b *brokenStore, records []gobridge.Record, err error) error {
				if errors.Is(err, gobridge.ErrDuplicateRecord) && stateOf(b, records[0].Ref()).Ended() {
					return nil
				}
				return err
			})},
		{name: "never forgets an identity", fails: []string{"IdentityIsFreeAfterRetention", "SweepPurgesAfterTheRetention"},
			settings: func(o *Options) { o.Retention *= 1000 }},
		{name: "takes a reused ID for a duplicate", fails: []string{"ReusedIdentityIsRefusedByName"},
			breakIt: persistErr(func(_ *brokenStore, _ []gobridge.Record, err error) error {
				if errors.Is(err, gobridge.ErrIdentityReused) {
					return &gobridge.Error{Op: "persist", Err: gobridge.ErrDuplicateRecord}
				}
				return err
			})},
		{name: "forgets the content hash with the end of the record", fails: []string{"ReuseIsToldApartAfterTheEnd"},
			breakIt: persistErr(func(b *brokenStore, records []gobridge.Record, err error) error {
				if errors.Is(err, gobridge.ErrIdentityReused) && stateOf(b, records[0].Ref()).Ended() {
					return &gobridge.Error{Op: "persist", Err: gobridge.ErrDuplicateRecord}
				}
				return err
			})},
		{name: "hashes every header", fails: []string{"RedeliveryHeadersAreNoReuse"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) {
				r.ContentHash = sha256.Sum256(fmt.Appendf(nil, "%q %q", r.Envelope.Payload, r.Envelope.Headers))
			})},
		{name: "hashes the transformed envelope", fails: []string{"ContentHashOfTheSourceDecides"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) { r.ContentHash = [32]byte{} })},
	}
}

func ageDefects() []defect {
	return []defect{
		{name: "counts Seq in each process", fails: []string{"SeqGrowsAcrossHandles"},
			breakIt: func(b *brokenStore) {
				seqs := map[gobridge.Ref]int64{}
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					for i := range records {
						seqs[records[i].Ref()] = int64(len(seqs) + 1)
					}
					return b.Store.Persist(ctx, records)
				}
				eachGot(func(_ *brokenStore, r *gobridge.Record) { r.Seq = seqs[r.Ref()] })(b)
			}},
		{name: "gives a Seq twice", fails: []string{"SeqIsNeverGivenTwice"},
			breakIt: eachClaimed(func(_ *brokenStore, r *gobridge.Record) {
				if r.Seq > 100 {
					r.Seq = 100 + (r.Seq-100)/2
				}
			})},
		{name: "stores the records of a call backwards", fails: []string{"SeqFollowsTheCall", "CallKeepsTheOrderOfItsKeys"},
			breakIt: func(b *brokenStore) {
				b.persist = func(ctx context.Context, records []gobridge.Record) error {
					records = slices.Clone(records)
					slices.Reverse(records)
					return b.Store.Persist(ctx, records)
				}
			}},
		{name: "stamps with the clock", fails: []string{"StampNeverGoesBack", "ExplicitCreatedAtRaisesTheStamp", "RedriveMakesTheYoungest"},
			breakIt: func(b *brokenStore) {
				eachRecord(func(b *brokenStore, r *gobridge.Record) {
					if r.CreatedAt.IsZero() {
						r.CreatedAt = b.now()
					}
				})(b)
				eachGot(func(b *brokenStore, r *gobridge.Record) {
					if r.Redrives > 0 {
						r.CreatedAt = r.StoredAt.Add(-time.Hour)
					}
				})(b)
			}},
		{name: "remembers the newest stamp in each process", fails: []string{"StampFollowsTheFastestClock"},
			breakIt: func(b *brokenStore) {
				var newest time.Time
				eachRecord(func(b *brokenStore, r *gobridge.Record) {
					if r.CreatedAt.IsZero() {
						if now := b.now(); now.After(newest) {
							newest = now
						}
						r.CreatedAt = newest
					}
				})(b)
			}},
		{name: "repeats the newest stamp for ever", fails: []string{"StampMovesWithTheClock"},
			breakIt: eachRecord(func(b *brokenStore, r *gobridge.Record) {
				if s, err := b.Store.Stats(context.Background(), r.Partition); err == nil && r.CreatedAt.IsZero() {
					r.CreatedAt = s[0].NewestStamp
				}
			})},
		{name: "keeps CreatedAt to the second", fails: []string{"ExplicitCreatedAtIsKept"},
			breakIt: eachRecord(func(_ *brokenStore, r *gobridge.Record) { r.CreatedAt = r.CreatedAt.Truncate(time.Second) })},
		{name: "takes any CreatedAt", fails: []string{"CreatedAtTooFarAheadIsRefused"},
			settings: func(o *Options) { o.MaxSkew *= 1000 }},
		{name: "tells CreatedAt as StoredAt", fails: []string{"DueTimesIgnoreAge"},
			breakIt: eachGot(func(_ *brokenStore, r *gobridge.Record) { r.StoredAt = r.CreatedAt })},
	}
}
