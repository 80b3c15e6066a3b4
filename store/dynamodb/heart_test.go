package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/leasetest"
	"gobridge/storetest"
)

// leaseWorld is a handle on leases of its own table.
type leaseWorld struct {
	*testing.T
	db     database
	leases gobridge.LeaseStore
}

func newLeaseWorld(t *testing.T) *leaseWorld {
	w := &leaseWorld{T: t, db: newDatabase(t, storetest.Options{}, fakedynamo.Options{})}
	w.leases = w.another()
	return w
}

// newPatientLeaseWorld is one that waits between attempts, for a bubble of synctest.
func newPatientLeaseWorld(t *testing.T) *leaseWorld {
	w := &leaseWorld{T: t, db: newDatabase(t, storetest.Options{}, fakedynamo.Options{})}
	w.leases = w.db.open(t, nil, nil).Leases()
	return w
}

func (w *leaseWorld) another() gobridge.LeaseStore {
	s := w.db.open(w, nil, nil)
	s.Impatient()
	return s.Leases()
}

// acquire takes the leases of partitions with these numbers.
func (w *leaseWorld) acquire(numbers ...int) []gobridge.Lease {
	w.Helper()
	var out []gobridge.Lease
	for _, n := range numbers {
		l, err := w.leases.Acquire(w.Context(), gobridge.AcquireRequest{
			Partition: gobridge.NewPartition("r", "b", n), Owner: "a", Term: time.Second,
		})
		must(w.T, err)
		out = append(out, l)
	}
	return out
}

func (w *leaseWorld) renew(leases ...gobridge.Lease) []gobridge.Lease {
	w.Helper()
	out, err := w.leases.Renew(w.Context(), leases)
	must(w.T, err)
	return out
}

func (w *leaseWorld) current(n int) gobridge.Lease {
	w.Helper()
	all, err := w.another().Leases(w.Context())
	must(w.T, err)
	i := slices.IndexFunc(all, func(l gobridge.Lease) bool { return l.Partition == gobridge.NewPartition("r", "b", n) })
	if i < 0 {
		w.Fatalf("there is no lease %d in %+v", n, all)
	}
	return all[i]
}

// takeOver tries to take a lease by what was seen of it.
func (w *leaseWorld) takeOver(seen gobridge.Lease) error {
	_, err := w.another().Acquire(w.Context(), gobridge.AcquireRequest{
		Partition: seen.Partition, Owner: "b", Term: time.Second, Observed: seen.Revision,
	})
	return err
}

// TestARenewalIsOneWrite counts.
func TestARenewalIsOneWrite(t *testing.T) {
	w := newLeaseWorld(t)
	var numbers []int
	for n := range 64 {
		numbers = append(numbers, n)
	}
	leases := w.acquire(numbers...)
	w.db.server.ResetStats()
	const rounds = 10
	for range rounds {
		if leases = w.renew(leases...); len(leases) != 64 {
			t.Fatalf("%d leases were renewed", len(leases))
		}
	}
	total := w.db.server.Total()
	if total.WriteUnits != rounds || total.ReadUnits != 0 {
		t.Errorf("a renewal of 64 leases costs %.1f write and %.1f read units, want 1 and none",
			total.WriteUnits/rounds, total.ReadUnits/rounds)
	}
	leases[7].LastError = "claim failed"
	w.db.server.ResetStats()
	w.renew(leases...)
	if total := w.db.server.Total(); total.WriteUnits != 2 {
		t.Errorf("a renewal with one new error costs %.1f write units, want 2", total.WriteUnits)
	}
}

// TestWhatIsNotRenewedStandsStill: a lease that its owner renews no longer can be
// taken over, although the owner goes on to renew others.
func TestWhatIsNotRenewedStandsStill(t *testing.T) {
	w := newLeaseWorld(t)
	leases := w.acquire(0, 1)
	leases = w.renew(leases...)
	kept, dropped := leases[0], w.current(1)
	for range 3 {
		w.renew(kept)
		if now := w.current(1); now.Revision != dropped.Revision || !now.RenewedAt.Equal(dropped.RenewedAt) {
			t.Fatalf("what is not renewed went from %+v to %+v", dropped, now)
		}
	}
	must(t, w.takeOver(dropped))
	if got := w.renew(kept); len(got) != 1 {
		t.Errorf("the other lease: %+v", got)
	}
}

// TestTakeoverBesideARenewal lets a renewal and a takeover meet at every step of
// each other.
func TestTakeoverBesideARenewal(t *testing.T) {
	for _, c := range []struct {
		name      string
		first     string // who begins: the other comes before this call of it
		operation string
		taken     bool
	}{
		{"renewal before the heart is stopped", "takeover", "UpdateItem", false},
		{"renewal before the row is written", "takeover", "PutItem r/b/0", false},
		{"takeover before the beat", "renewal", "UpdateItem", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newLeaseWorld(t)
			leases := w.renew(w.acquire(0, 1)...)
			seen := w.current(0)
			var renewed []gobridge.Lease
			var takeErr error
			first, second := func() { renewed = w.renew(leases...) }, func() { takeErr = w.takeOver(seen) }
			if c.first == "takeover" {
				first, second = second, first
			}
			begun := false
			w.db.server.SetHooks(fakedynamo.Hooks{Before: func(call *fakedynamo.Call) *fakedynamo.Fault {
				operation, row, _ := strings.Cut(c.operation, " ")
				if call.Operation == operation && !begun && (row == "" || call.Keys[0].Sort == row) {
					begun = true
					second()
				}
				return nil
			}})
			first()
			if !begun {
				t.Fatalf("there was no %s", c.operation)
			}
			if taken := takeErr == nil; taken != c.taken || !taken && !errors.Is(takeErr, gobridge.ErrLeaseHeld) {
				t.Errorf("the takeover: %v", takeErr)
			}
			want := 2
			if c.taken {
				want = 1
			}
			if len(renewed) != want {
				t.Errorf("%d leases were renewed, want %d: %+v", len(renewed), want, renewed)
			}
			w.db.server.SetHooks(fakedynamo.Hooks{})
			if again := w.renew(leases...); len(again) != want {
				t.Errorf("then %d leases are renewed, want %d: %+v", len(again), want, again)
			}
		})
	}
}

// TestOneRowThatFailsKeepsTheOthers: what was renewed is told beside the error.
func TestOneRowThatFailsKeepsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPatientLeaseWorld(t)
		leases := w.acquire(0, 1, 2)
		for i := range leases {
			leases[i].LastError = fmt.Sprint("error ", i) // so that every row is written
		}
		w.db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
			if c.Operation == "UpdateItem" && c.Keys[0].Sort == "r/b/1" {
				return &fakedynamo.Fault{Kind: fakedynamo.Throttle}
			}
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it would try for as long as it may
		defer cancel()
		renewed, err := w.leases.Renew(ctx, leases)
		if err == nil || len(renewed) != 2 {
			t.Fatalf("renewed %+v, %v; want the two others and an error", renewed, err)
		}
		w.db.server.SetHooks(fakedynamo.Hooks{})
		if renewed = w.renew(leases...); len(renewed) != 3 {
			t.Errorf("afterwards %d are renewed", len(renewed))
		}
	})
}

// TestALateRequestBringsNothingBack: a row that was to come under a heart that has
// been left meanwhile.
func TestALateRequestBringsNothingBack(t *testing.T) {
	w := newLeaseWorld(t)
	leases := w.renew(w.acquire(0, 1)...)
	asked := slices.Clone(leases)
	asked[0].LastError = "claim failed" // so that its row is written
	late := false
	w.db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
		if c.Operation == "UpdateItem" && c.Keys[0].Sort == "r/b/0" && !late {
			late = true
			w.renew(leases[0]) // without the other: a new heart
			must(t, w.takeOver(w.current(1)))
		}
		return nil
	}})
	w.renew(asked...)
	w.db.server.SetHooks(fakedynamo.Hooks{})
	if !late {
		t.Fatal("the row was not written")
	}
	for range 2 {
		before := w.current(0)
		if renewed := w.renew(asked...); len(renewed) != 1 || renewed[0].Partition != before.Partition {
			t.Fatalf("renewed %+v", renewed)
		}
		if now := w.current(0); now.Revision == before.Revision {
			t.Errorf("a renewal left the revision at %d", now.Revision)
		}
	}
}

// TestALostAnswerIsNoRenewalForEver: a row came under the heart and its owner never
// learned it. When he gives it up, the heart must not go on renewing it.
func TestALostAnswerIsNoRenewalForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPatientLeaseWorld(t)
		leases := w.renew(w.acquire(0, 1)...)
		asked := slices.Clone(leases)
		asked[0].LastError = "claim failed"
		w.renew(leases[1]) // so that the other comes under the heart anew, by its row
		done := false
		w.db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
			switch {
			case done:
				return &fakedynamo.Fault{Kind: fakedynamo.CutBefore}
			case c.Operation == "UpdateItem" && c.Keys[0].Sort == "r/b/0":
				done = true
				return &fakedynamo.Fault{Kind: fakedynamo.CutAfter}
			}
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if renewed, err := w.leases.Renew(ctx, asked); err == nil || len(renewed) != 1 || !done {
			t.Fatalf("the answer was not lost: %+v, %v", renewed, err)
		}
		w.db.server.SetHooks(fakedynamo.Hooks{})
		w.renew(leases[1])
		dropped := w.current(0)
		if dropped.LastError == "" {
			t.Fatal("the row was not written")
		}
		w.renew(leases[1])
		if now := w.current(0); now.Revision != dropped.Revision {
			t.Errorf("a lease that was given up went from revision %d to %d", dropped.Revision, now.Revision)
		}
	})
}

// TestARenewalEndsWithItsCaller: while all answers are lost, a renewal is not
// repeated beyond its caller's deadline, for each that arrives keeps the others from
// taking over from a process that does not hear.
func TestARenewalEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPatientLeaseWorld(t)
		leases := w.renew(w.acquire(0)...)
		changed := slices.Clone(leases)
		changed[0].LastError = "claim failed" // renewed by its row
		for _, asked := range [][]gobridge.Lease{leases, changed} {
			const deadline = 300 * time.Millisecond
			began, late := time.Now(), 0
			w.db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
				if time.Since(began) > deadline {
					late++
				}
				return &fakedynamo.Fault{Kind: fakedynamo.CutAfter}
			}})
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			if renewed, err := w.leases.Renew(ctx, asked); err == nil {
				t.Errorf("without an answer %+v was renewed", renewed)
			}
			cancel()
			if late > 0 || time.Since(began) > deadline+time.Millisecond {
				t.Errorf("%d requests were made after the deadline, and the call ended %s after its beginning", late, time.Since(began))
			}
			w.db.server.SetHooks(fakedynamo.Hooks{})
		}
	})
}

// hearts returns the keys of all hearts.
func (w *leaseWorld) hearts() (out []map[string]types.AttributeValue) {
	w.Helper()
	got, err := client(w.db.server).Query(w.Context(), &ddb.QueryInput{
		TableName: ptr("gobridge"), KeyConditionExpression: ptr("PK = :pk AND begins_with(SK, :heart)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":pk": &types.AttributeValueMemberS{Value: "LEASES"}, ":heart": &types.AttributeValueMemberS{Value: "#HEART#"},
		},
	})
	must(w.T, err)
	for _, it := range got.Items {
		out = append(out, map[string]types.AttributeValue{"PK": it["PK"], "SK": it["SK"]})
	}
	return out
}

// TestAHeartThatIsGone: whoever has a clock that is wrong may remove one too soon.
func TestAHeartThatIsGone(t *testing.T) {
	w := newLeaseWorld(t)
	leases := w.renew(w.acquire(0, 1)...)
	before := w.current(0)
	hearts := w.hearts()
	if len(hearts) != 1 {
		t.Fatalf("%d hearts, want 1", len(hearts))
	}
	_, err := client(w.db.server).DeleteItem(t.Context(), &ddb.DeleteItemInput{TableName: ptr("gobridge"), Key: hearts[0]})
	must(t, err)
	if renewed := w.renew(leases...); len(renewed) != 2 {
		t.Errorf("renewed %+v", renewed)
	}
	if now := w.current(0); now.Revision <= before.Revision {
		t.Errorf("the revision went from %d to %d", before.Revision, now.Revision)
	}
	if err := w.takeOver(before); !errors.Is(err, gobridge.ErrLeaseHeld) {
		t.Errorf("a takeover by what was seen before: %v", err)
	}
}

// TestHeartsOfThoseWhoHaveGoneAreRemoved: they would be read with every look.
func TestHeartsOfThoseWhoHaveGoneAreRemoved(t *testing.T) {
	w := newLeaseWorld(t)
	held := w.renew(w.acquire(0)...)
	for range 5 {
		w.leases = w.another()
		must(t, w.leases.Release(t.Context(), w.acquire(1)[0]))
	}
	if n := len(w.hearts()); n != 6 {
		t.Fatalf("%d hearts, want 6", n)
	}
	later := w.db.open(t, func() time.Time { return time.Now().Add(2 * time.Hour) }, nil)
	all, err := later.Leases().Leases(t.Context())
	must(t, err)
	if n := len(w.hearts()); n != 1 || len(all) != 2 {
		t.Errorf("%d hearts are left, want that of the lease that is held; leases %+v", n, all)
	}
	if now := w.current(0); now.Revision != held[0].Revision {
		t.Errorf("the lease that is held went from revision %d to %d", held[0].Revision, now.Revision)
	}
}

// TestLeasesOnABadDay: with lost answers, conflicts and throttles the contract
// holds all the same.
func TestLeasesOnABadDay(t *testing.T) {
	leasetest.Run(t, leasetest.Backend{Open: func(tb testing.TB) leasetest.Database {
		db := newDatabase(tb, storetest.Options{}, fakedynamo.Options{Overlap: true})
		db.server.SetHooks(fakedynamo.Hooks{Before: fakedynamo.Schedule(1, fakedynamo.Rates{
			CutBefore: .03, CutAfter: .1, Conflict: .05, Throttle: .05, InternalError: .03, Unavailable: .03,
		})})
		return impatientLeases{leaseTable{db}}
	}})
}

// impatientLeases try again at once.
type impatientLeases struct{ leaseTable }

func (l impatientLeases) Leases(tb testing.TB, now func() time.Time) gobridge.LeaseStore {
	tb.Helper()
	s := l.open(tb, now, nil)
	s.Impatient()
	return s.Leases()
}

func (l impatientLeases) Reopen(testing.TB) leasetest.Database { return l }
