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
	"github.com/aws/smithy-go"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// world is a table with a store and a clock.
type world struct {
	*torn
	s *dynamodb.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
	s := db.open(t, nil, nil)
	s.Impatient()
	return &world{&torn{T: t, db: db, writer: s, claimer: s}, s}
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("r-%03d", (i*67)%1000)
	}
	return out
}

// TestCallsOfAnySize: a transaction has 100 items, and a batch of reads too.
func TestCallsOfAnySize(t *testing.T) {
	for _, n := range []int{1, 24, 25, 26, 99, 100, 101, 250} {
		for _, key := range []string{"", "k"} {
			t.Run(fmt.Sprintf("%d of key %q", n, key), func(t *testing.T) {
				w := newWorld(t)
				want := numbered(n)
				w.persist(records(key, want...)...)
				if got := w.claim(w.s, 1000); !slices.Equal(got, want) {
					t.Fatalf("claimed %d records, %q", len(got), got)
				}
				w.settle(want...)
				stats, err := w.s.Stats(t.Context(), part)
				must(t, err)
				if stats[0].Pending != 0 || stats[0].Claimed != 0 {
					t.Errorf("Stats is %+v", stats[0])
				}
			})
		}
	}
}

// TestLargestRecord: every size at its limit at once still fits an item, with
// all that a record gets in its life.
func TestLargestRecord(t *testing.T) {
	w := newWorld(t)
	l := w.s.Limits()
	odd := func(n int) string { return strings.Repeat("\xff", n) }
	var call []gobridge.Record
	for i := range 24 {
		r := record(fmt.Sprintf("%03d", i)+odd(l.MaxID-3), odd(l.MaxKey))
		r.Partition, r.Binding = gobridge.Partition(odd(l.MaxPartition)), odd(l.MaxBinding)
		call = append(call, r)
	}
	last := &call[len(call)-1].Envelope
	last.Subject, last.ContentType = odd(l.MaxSubject), odd(l.MaxContentType)
	last.Headers = map[string]string{"h": odd(8 << 10)}
	last.Payload = make([]byte, l.MaxEnvelope-gobridge.EnvelopeSize(last)+len(last.Payload))
	w.persist(call...)
	token := gobridge.Token{Owner: strings.Repeat("o", 200), Version: 1 << 40}
	got, err := w.s.Claim(t.Context(), gobridge.ClaimRequest{Partition: call[0].Partition, Token: token, Limit: 100, HeldKnown: true})
	must(t, err)
	if len(got) != len(call) {
		t.Fatalf("claimed %d of %d records", len(got), len(call))
	}
	long := odd(1 << 20)
	must(t, w.s.DeadLetter(t.Context(), token, []gobridge.Burial{{Ref: got[len(got)-1].Ref(), Tried: gobridge.Failed, Reason: long, Error: long}}))
	items, err := w.s.Redrive(t.Context(), gobridge.BulkRequest{})
	must(t, err)
	if len(items.Items) != 1 {
		t.Fatalf("redriven: %+v", items)
	}
}

// TestEnvelopeOfManyBindings: the records of one envelope fit one transaction.
func TestEnvelopeOfManyBindings(t *testing.T) {
	w := newWorld(t)
	l := w.s.Limits()
	call := make([]gobridge.Record, l.MaxBindings)
	for i := range call {
		call[i] = record("a", "k")
		call[i].Binding = fmt.Sprintf("b%d", i)
		call[i].Partition = gobridge.NewPartition("orders", call[i].Binding, 0)
		call[i].Envelope.Payload = make([]byte, int(l.MaxCallBytes)/len(call)-100)
		call[i].State = gobridge.StateDead
	}
	w.persist(call...)
	stats, err := w.s.Stats(t.Context())
	must(t, err)
	for _, s := range stats {
		if s.Dead != 1 {
			t.Errorf("partition %s has %d dead letters, want 1", s.Partition, s.Dead)
		}
	}
}

// TestThroughputSmallerThanAChunk: a partition that can never take a whole claim
// at once still gives its records.
func TestThroughputSmallerThanAChunk(t *testing.T) {
	w := newWorld(t)
	call := records("", numbered(40)...)
	for i := range call {
		call[i].Envelope.Payload = make([]byte, 3000)
	}
	w.persist(call...)
	w.db.server.SetThroughput("gobridge", "", fakedynamo.Throughput{PartitionWrite: 60})
	w.s.SleepBy(w.db.server.Advance)
	claimed := 0
	for tries := 0; claimed < len(call) && tries < 100; tries++ {
		got := w.claim(w.s, 100)
		claimed += len(got)
		w.settle(got...)
	}
	if claimed != len(call) {
		t.Fatalf("claimed %d of %d records", claimed, len(call))
	}
}

// TestThrottledForLong: whoever is throttled waits and goes on, within its
// deadline, and then says so.
func TestThrottledForLong(t *testing.T) {
	w := newWorld(t)
	w.persist(record("a", ""))
	n := 0
	w.db.server.SetHooks(fakedynamo.Hooks{Before: func(*fakedynamo.Call) *fakedynamo.Fault {
		if n++; n < 200 {
			return &fakedynamo.Fault{Kind: fakedynamo.Throttle}
		}
		return nil
	}})
	if got := w.claim(w.s, 10); len(got) != 1 {
		t.Fatalf("claimed %q", got)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
		s := db.open(t, nil, nil) // waits between attempts
		db.server.SetHooks(fakedynamo.Hooks{Before: func(*fakedynamo.Call) *fakedynamo.Fault {
			return &fakedynamo.Fault{Kind: fakedynamo.Throttle}
		}})
		err := s.Persist(ctx, records("", "b"))
		var throttled smithy.APIError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &throttled) {
			t.Errorf("Persist until its deadline: %v, want the deadline and DynamoDB's own error", err)
		}
	})
}

// TestPersistItems writes records beside the user's own row.
func TestPersistItems(t *testing.T) {
	w := newWorld(t)
	theirs := types.TransactWriteItem{Put: &types.Put{TableName: ptr("gobridge"), Item: map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: "ORDER"}, "SK": &types.AttributeValueMemberS{Value: "1"},
	}}}
	commit := func(b *dynamodb.Batch) error {
		_, err := client(w.db.server).TransactWriteItems(t.Context(), &ddb.TransactWriteItemsInput{TransactItems: append(b.Items, theirs)})
		return b.Err(err)
	}
	want := numbered(99)
	never, err := w.s.PersistItems(t.Context(), records("k", "never"))
	must(t, err)
	b, err := w.s.PersistItems(t.Context(), records("k", want...))
	must(t, err)
	var told []gobridge.Partition
	defer w.s.Notify(func(p gobridge.Partition) { told = append(told, p) })()
	must(t, commit(b))
	b.Committed(t.Context())
	if !slices.Equal(told, []gobridge.Partition{part}) {
		t.Errorf("watchers were told of %q", told)
	}
	if n, err := w.s.CountPending(t.Context(), part, 1000); err != nil || n != len(want) {
		t.Errorf("CountPending is %d, %v, want %d", n, err, len(want))
	}
	// One that commits late comes late, and holds up nobody before.
	if got := w.claim(w.s, 1000); !slices.Equal(got, want) {
		t.Fatalf("claimed %q", got)
	}
	must(t, commit(never))
	never.Committed(t.Context())
	if got := w.claim(w.s, 10, want...); !slices.Equal(got, []string{"never"}) {
		t.Errorf("the one that committed late: claimed %q", got)
	}
	for what, c := range map[string]struct {
		r    gobridge.Record
		want error
	}{
		"again":              {record("never", "k"), gobridge.ErrDuplicateRecord},
		"with other content": {record("never", "other"), gobridge.ErrIdentityReused},
	} {
		b, err := w.s.PersistItems(t.Context(), []gobridge.Record{c.r})
		must(t, err)
		var e *gobridge.Error
		if err := commit(b); !errors.Is(err, c.want) || !errors.As(err, &e) || e.Ref != c.r.Ref() {
			t.Errorf("%s: %v, want %v naming the record", what, err, c.want)
		}
	}
	if _, err := w.s.PersistItems(t.Context(), records("k", numbered(101)...)); !errors.Is(err, gobridge.ErrTooLarge) {
		t.Errorf("101 records for one transaction: %v, want ErrTooLarge", err)
	}
	dead := record("dead", "")
	dead.State = gobridge.StateDead
	if _, err := w.s.PersistItems(t.Context(), []gobridge.Record{dead}); !errors.Is(err, gobridge.ErrInvalidRecord) {
		t.Errorf("a dead letter in a transaction: %v, want ErrInvalidRecord", err)
	}
}

// TestFiguresArePutRight: a process that died between its writes leaves figures
// off, until a sweep has found them quiet.
func TestFiguresArePutRight(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	db := newDatabase(t, storetest.Options{Now: func() time.Time { return now }}, fakedynamo.Options{})
	s := db.open(t, nil, nil)
	must(t, s.Persist(t.Context(), records("", "a", "b", "c")))
	b, err := s.PersistItems(t.Context(), records("", "d"))
	must(t, err)
	_, err = client(db.server).TransactWriteItems(t.Context(), &ddb.TransactWriteItemsInput{TransactItems: b.Items})
	must(t, err) // and dies before Committed
	pending := func() int64 {
		stats, err := s.Stats(t.Context(), part)
		must(t, err)
		return stats[0].Pending
	}
	if got := pending(); got != 3 {
		t.Fatalf("before, %d are counted", got)
	}
	for range 3 {
		_, err := s.Sweep(t.Context(), gobridge.SweepRequest{Partition: part, Token: gobridge.Token{Owner: "o", Version: 1}, Limit: 10})
		must(t, err)
		now = now.Add(time.Minute)
	}
	if got := pending(); got != 4 {
		t.Errorf("after, %d are counted, want 4", got)
	}
}
