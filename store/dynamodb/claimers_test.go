package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// crowd is writers, each of keys of its own, and claimers that take over from
// each other, on one partition, where DynamoDB fails in every way it can.
type crowd struct {
	t       *testing.T
	version atomic.Int64
	ended   atomic.Int64

	mu       sync.Mutex
	acked    map[string][]string // per key, in the order of the calls
	returned map[string]bool     // by some claim
	errs     []error
}

const (
	crowdClaimers = 8
	crowdWriters  = 4
	crowdCalls    = 8
	crowdRecords  = crowdWriters * crowdCalls * 3
)

func (c *crowd) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// write persists calls of three records, two of a key, until each has an answer
// that is not an error.
func (c *crowd) write(ctx context.Context, s *dynamodb.Store, w int) {
	for n := range crowdCalls {
		key := fmt.Sprintf("w%d", w)
		first, second, free := fmt.Sprintf("%s-%02d-b", key, n), fmt.Sprintf("%s-%02d-a", key, n), fmt.Sprintf("free%d-%d", w, n)
		c.mu.Lock()
		c.acked[key] = append(c.acked[key], first, second)
		c.mu.Unlock()
		call := append(records(key, first, second), record(free, ""))
		for {
			err := s.Persist(ctx, call)
			if err == nil || errors.Is(err, gobridge.ErrDuplicateRecord) {
				break
			}
			if ctx.Err() != nil {
				c.fail("Persist: %w", err)
				return
			}
		}
	}
}

// claim claims under ever newer versions; some batches it forgets.
func (c *crowd) claim(ctx context.Context, s *dynamodb.Store, seed int) {
	version := c.version.Add(1)
	for round := seed; c.ended.Load() < crowdRecords && ctx.Err() == nil; round++ {
		if round%5 == 0 {
			version = c.version.Add(1)
		}
		token := gobridge.Token{Owner: fmt.Sprint("o", version), Version: version}
		got, err := s.Claim(ctx, gobridge.ClaimRequest{Partition: part, Token: token, Limit: 7, HeldKnown: true})
		if errors.Is(err, gobridge.ErrStaleFencingToken) {
			version = c.version.Add(1)
			continue
		}
		if err != nil || round%7 == 3 {
			continue // an answer lost, or a process that died
		}
		c.note(got)
		c.complete(ctx, s, token, got)
	}
}

// note requires that whatever is older of a key was returned by some claim
// before, or is in this one before it.
func (c *crowd) note(got []gobridge.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range got {
		key := r.Envelope.OrderingKey
		for _, older := range c.acked[key] {
			if older == r.Envelope.ID {
				break
			}
			if key != "" && !c.returned[older] {
				c.errs = append(c.errs, fmt.Errorf("%s was claimed before %s", r.Envelope.ID, older))
			}
		}
		c.returned[r.Envelope.ID] = true
	}
}

func (c *crowd) complete(ctx context.Context, s *dynamodb.Store, token gobridge.Token, got []gobridge.Record) {
	for _, r := range got { // one by one, in order: a later one must not end before
		done := []gobridge.Completion{{Ref: r.Ref()}}
		for {
			err := s.Complete(ctx, token, done)
			var settle *gobridge.SettleError
			if errors.As(err, &settle) || ctx.Err() != nil {
				return // taken over
			}
			if err == nil {
				c.ended.Add(1)
				break
			}
		}
	}
}

func TestManyClaimersUnderFaults(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runCrowd(t, seed) })
	}
}

func runCrowd(t *testing.T, seed uint64) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	db := newDatabase(t, storetest.Options{Now: func() time.Time { return now }}, fakedynamo.Options{Overlap: true, PageItems: 10})
	db.server.LagIndex("gobridge", "ClaimIndex", seed, 20)
	db.server.SetHooks(fakedynamo.Hooks{Before: fakedynamo.Schedule(seed, fakedynamo.Rates{
		CutBefore: .03, CutAfter: .03, Conflict: .03, Throttle: .03, ThrottleIndex: .02, Index: "ClaimIndex",
		Partial: .03, InternalError: .02, Unavailable: .02,
	})})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	open := func(n int) *dynamodb.Store {
		skewed := func() time.Time { return now.Add(time.Duration(n%5-2) * time.Minute) }
		s := db.open(t, skewed, nil)
		s.Impatient()
		return s
	}
	c := &crowd{t: t, acked: map[string][]string{}, returned: map[string]bool{}}
	var wg sync.WaitGroup
	for w := range crowdWriters {
		s := open(w)
		wg.Go(func() { c.write(ctx, s, w) })
	}
	for n := range crowdClaimers {
		s := open(n)
		wg.Go(func() { c.claim(ctx, s, n) })
	}
	wg.Wait()
	if err := errors.Join(c.errs...); err != nil {
		t.Fatal(err)
	}
	if n := c.ended.Load(); n != crowdRecords {
		t.Fatalf("%d records were completed, want %d", n, crowdRecords)
	}
	db.server.SetHooks(fakedynamo.Hooks{})
	s := open(2)
	for _, all := range c.acked {
		for _, id := range all {
			r, err := s.Get(t.Context(), gobridge.Ref{Partition: part, EnvelopeID: id, Binding: "mail"})
			if err != nil || r.State != gobridge.StateDelivered {
				t.Fatalf("record %s is %s: %v", id, r.State, err)
			}
		}
	}
	// Figures that a lost answer left off are put right once it is quiet.
	token := gobridge.Token{Owner: "last", Version: c.version.Add(1)}
	for range 6 {
		if _, err := s.Sweep(t.Context(), gobridge.SweepRequest{Partition: part, Token: token, Limit: 1000}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
	}
	stats, err := s.Stats(t.Context(), part)
	if err != nil || stats[0].Pending != 0 || stats[0].Claimed != 0 {
		t.Fatalf("with all delivered, Stats is %+v, %v", stats, err)
	}
	if left := ids(mustClaim(t, s, token)); len(left) > 0 {
		t.Fatalf("with all delivered, %q can be claimed", left)
	}
}

func mustClaim(t *testing.T, s *dynamodb.Store, token gobridge.Token) []gobridge.Record {
	t.Helper()
	got, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: part, Token: token, Limit: 1000, HeldKnown: true})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
