package dynamodb_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
)

// beforeClaim runs do once, when a claim has selected and is about to claim.
func (w *world) beforeClaim(do func()) {
	var once sync.Once
	w.db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
		if c.Operation == "TransactWriteItems" {
			once.Do(do)
		}
		return nil
	}})
}

func (w *world) claimAs(version int64) ([]gobridge.Record, error) {
	return w.s.Claim(w.Context(), gobridge.ClaimRequest{
		Partition: part, Token: gobridge.Token{Owner: "o", Version: version}, Limit: 10, HeldKnown: true,
	})
}

func ref(id string) gobridge.Ref {
	return gobridge.Ref{Partition: part, EnvelopeID: id, Binding: "mail"}
}

// TestClaimIsFencedWhenItClaims: the partition is lost between the look at the
// fence and the claim.
func TestClaimIsFencedWhenItClaims(t *testing.T) {
	for _, key := range []string{"", "k"} {
		w := newWorld(t)
		w.persist(records(key, "a", "b")...)
		w.beforeClaim(func() {
			if _, err := w.s.Claim(t.Context(), gobridge.ClaimRequest{Partition: part, Token: gobridge.Token{Owner: "next", Version: 2}}); err != nil {
				t.Error(err)
			}
		})
		got, err := w.claimAs(1)
		if !errors.Is(err, gobridge.ErrStaleFencingToken) || len(got) > 0 {
			t.Fatalf("key %q: claimed %q, %v, want ErrStaleFencingToken", key, ids(got), err)
		}
	}
}

// TestLostRecordTakesItsKeyWithIt: a record changes between the look at it and
// the claim, and the younger ones of its key must not go without it.
func TestLostRecordTakesItsKeyWithIt(t *testing.T) {
	w := newWorld(t)
	w.persist(records("k", "a", "b")...)
	w.persist(record("c", "l"))
	w.claim(w.s, 10)
	w.beforeClaim(func() { // its former owner puts it back, to be tried in an hour
		must(t, w.s.Release(t.Context(), gobridge.Token{Owner: "o", Version: 1},
			[]gobridge.Release{{Ref: ref("a"), NotBefore: time.Now().Add(time.Hour)}}))
	})
	got, err := w.claimAs(2)
	must(t, err)
	if !slices.Equal(ids(got), []string{"c"}) {
		t.Fatalf("claimed %q, want c alone", ids(got))
	}
}

// TestSweepIsFencedWhenItEnds: the partition is lost between the look and the end.
func TestSweepIsFencedWhenItEnds(t *testing.T) {
	w := newWorld(t)
	expired := record("a", "")
	expired.Envelope.ExpiresAt = time.Now().Add(-time.Hour)
	w.persist(expired)
	w.beforeClaim(func() {
		_, err := w.s.Claim(t.Context(), gobridge.ClaimRequest{Partition: part, Token: gobridge.Token{Owner: "next", Version: 2}})
		must(t, err)
	})
	_, err := w.s.Sweep(t.Context(), gobridge.SweepRequest{Partition: part, Token: gobridge.Token{Owner: "o", Version: 1}, Limit: 10})
	if !errors.Is(err, gobridge.ErrStaleFencingToken) {
		t.Fatalf("Sweep: %v, want ErrStaleFencingToken", err)
	}
	if r, err := w.s.Get(t.Context(), ref("a")); err != nil || r.State != gobridge.StatePending {
		t.Errorf("the record is %s, %v", r.State, err)
	}
}

// TestLostAnswersOfEachCall: the answer of every single call is lost, one after
// the other, and everything still happens once.
func TestLostAnswersOfEachCall(t *testing.T) {
	life := func(w *world) {
		w.persist(records("k", "a", "b")...)
		w.persist(record("c", ""))
		got, err := w.claimAs(1)
		must(t, err)
		if !slices.Equal(ids(got), []string{"a", "b", "c"}) {
			t.Fatalf("claimed %q", ids(got))
		}
		w.settle("a")
		must(t, w.s.DeadLetter(t.Context(), gobridge.Token{Owner: "o", Version: 1}, []gobridge.Burial{{Ref: ref("b"), Tried: gobridge.Failed}}))
		must(t, w.s.Release(t.Context(), gobridge.Token{Owner: "o", Version: 1}, []gobridge.Release{{Ref: ref("c"), Tried: gobridge.Failed}}))
		result, err := w.s.Redrive(t.Context(), gobridge.BulkRequest{})
		must(t, err)
		if len(result.Items) != 1 {
			t.Fatalf("redriven: %+v", result)
		}
		stats, err := w.s.Stats(t.Context(), part)
		must(t, err)
		if s := stats[0]; s.Pending != 2 || s.Claimed != 0 || s.Dead != 0 || s.DeadBytes != 0 {
			t.Fatalf("Stats is %+v", s)
		}
		if r, err := w.s.Get(t.Context(), ref("c")); err != nil || r.Attempts != 1 || r.ReplayCount != 1 {
			t.Fatalf("c has %d attempts after %d claims, %v", r.Attempts, r.ReplayCount, err)
		}
	}
	count := newWorld(t)
	calls := 0
	count.db.server.SetHooks(fakedynamo.Hooks{After: func(*fakedynamo.Call) { calls++ }})
	life(count)
	for lost := range calls {
		for _, kind := range []fakedynamo.FaultKind{fakedynamo.CutAfter, fakedynamo.CutBefore} {
			w := newWorld(t)
			var mu sync.Mutex
			n := 0
			w.db.server.SetHooks(fakedynamo.Hooks{Before: func(*fakedynamo.Call) *fakedynamo.Fault {
				mu.Lock()
				defer mu.Unlock()
				if n++; n == lost+1 {
					return &fakedynamo.Fault{Kind: kind}
				}
				return nil
			}})
			life(w)
		}
	}
}

// TestRecordThatChangesAfterTheScan is TestLostRecordTakesItsKeyWithIt, a step
// earlier: between the scan and the reading of what it selected.
func TestRecordThatChangesAfterTheScan(t *testing.T) {
	w := newWorld(t)
	w.persist(records("k", "a", "b")...)
	w.claim(w.s, 10)
	var once sync.Once
	w.db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
		if c.Operation == "BatchGetItem" && len(c.Keys) == 2 && c.Keys[0].Sort != "FENCE" && c.Keys[1].Sort != "REVISION" {
			once.Do(func() {
				must(t, w.s.Release(t.Context(), gobridge.Token{Owner: "o", Version: 1},
					[]gobridge.Release{{Ref: ref("a"), NotBefore: time.Now().Add(time.Hour)}}))
			})
		}
		return nil
	}})
	got, err := w.claimAs(2)
	must(t, err)
	if len(got) != 0 {
		t.Fatalf("claimed %q, want nothing", ids(got))
	}
}

// unsteady is a client that loses the answer of the first transaction, and
// reports the second, which repeats it, as in conflict with it.
type unsteady struct {
	*ddb.Client
	n int
}

func (u *unsteady) TransactWriteItems(ctx context.Context, in *ddb.TransactWriteItemsInput, o ...func(*ddb.Options)) (*ddb.TransactWriteItemsOutput, error) {
	switch u.n++; u.n {
	case 1:
		if _, err := u.Client.TransactWriteItems(ctx, in, o...); err != nil {
			return nil, err
		}
		return nil, io.ErrUnexpectedEOF
	case 2:
		reasons := make([]types.CancellationReason, len(in.TransactItems))
		for i := range reasons {
			reasons[i].Code = ptr("TransactionConflict")
		}
		return nil, &types.TransactionCanceledException{CancellationReasons: reasons}
	}
	return u.Client.TransactWriteItems(ctx, in, o...)
}

// TestClaimDoesNotLoseToItself: a claim's answer is lost, and its repetition
// meets the first attempt, which is still under way. It was one claim all the same.
func TestClaimDoesNotLoseToItself(t *testing.T) {
	w := newWorld(t)
	w.persist(records("k", "a", "b")...)
	s, err := dynamodb.Open(t.Context(), &unsteady{Client: client(w.db.server)}, dynamodb.Options{})
	must(t, err)
	s.Impatient()
	w.s = s
	got, err := w.claimAs(1)
	must(t, err)
	if len(got) != 2 || got[0].ReplayCount != 1 || got[1].ReplayCount != 1 {
		t.Fatalf("claimed %q, want a and b after one claim each: %+v", ids(got), got)
	}
}
