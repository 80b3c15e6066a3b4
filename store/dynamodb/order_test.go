package dynamodb_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/messaging"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// The tests here steer what happens while a claim reads a partition page by
// page. Each is run a second time through a client that hides from the store
// what one of its mends goes by, and must then find the order broken: or it
// would prove nothing.

const part = gobridge.Partition("orders/mail/0")

func record(id, key string) gobridge.Record {
	return gobridge.Record{Partition: part, Binding: "mail", Envelope: messaging.Envelope{
		ID: id, Subject: "order.placed", OrderingKey: key, Payload: []byte("payload of " + id),
	}}
}

func records(key string, ids ...string) []gobridge.Record {
	out := make([]gobridge.Record, len(ids))
	for i, id := range ids {
		out[i] = record(id, key)
	}
	return out
}

func ids(records []gobridge.Record) []string {
	out := make([]string, len(records))
	for i := range records {
		out[i] = records[i].Envelope.ID
	}
	return out
}

// blinkers is a client that changes what the store reads.
type blinkers struct {
	*ddb.Client
	item func(map[string]types.AttributeValue)
}

func (b blinkers) Query(ctx context.Context, in *ddb.QueryInput, o ...func(*ddb.Options)) (*ddb.QueryOutput, error) {
	out, err := b.Client.Query(ctx, in, o...)
	if err == nil && b.item != nil {
		for _, it := range out.Items {
			b.item(it)
		}
	}
	return out, err
}

func (b blinkers) BatchGetItem(ctx context.Context, in *ddb.BatchGetItemInput, o ...func(*ddb.Options)) (*ddb.BatchGetItemOutput, error) {
	out, err := b.Client.BatchGetItem(ctx, in, o...)
	if err == nil && b.item != nil {
		for _, items := range out.Responses {
			for _, it := range items {
				b.item(it)
			}
		}
	}
	return out, err
}

// The mends, taken out.
func noBound(it map[string]types.AttributeValue) {
	if _, ok := it["seq_counter"]; ok {
		it["seq_counter"] = &types.AttributeValueMemberN{Value: "1000000"}
	}
}

func noLinks(it map[string]types.AttributeValue) { delete(it, "after") }

func lastLinkOnly(it map[string]types.AttributeValue) {
	if after, ok := it["after"].(*types.AttributeValueMemberS); ok {
		links := strings.Split(after.Value, "\n")
		it["after"] = &types.AttributeValueMemberS{Value: links[len(links)-1]}
	}
}

// torn is a table whose claims read one row a page.
type torn struct {
	*testing.T
	db      database
	writer  *dynamodb.Store
	claimer *dynamodb.Store
	clock   time.Time
}

func newTorn(t *testing.T, mendOut func(map[string]types.AttributeValue)) *torn {
	t.Helper()
	w := &torn{T: t, clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.db = newDatabase(t, storetest.Options{Now: func() time.Time { return w.clock }}, fakedynamo.Options{PageItems: 1})
	w.writer = w.db.open(t, nil, nil)
	var err error
	w.claimer, err = dynamodb.Open(t.Context(), blinkers{client(w.db.server), mendOut}, dynamodb.Options{
		Now: func() time.Time { return w.clock },
	})
	w.must(err)
	w.writer.Impatient()
	w.claimer.Impatient()
	return w
}

func (w *torn) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *torn) persist(records ...gobridge.Record) {
	w.Helper()
	w.must(w.writer.Persist(w.Context(), records))
}

func (w *torn) claim(s *dynamodb.Store, limit int, held ...string) []string {
	w.Helper()
	request := gobridge.ClaimRequest{Partition: part, Token: gobridge.Token{Owner: "o", Version: 1}, Limit: limit, HeldKnown: true}
	for _, id := range held {
		request.Held = append(request.Held, gobridge.Ref{Partition: part, EnvelopeID: id, Binding: "mail"})
	}
	got, err := s.Claim(w.Context(), request)
	w.must(err)
	return ids(got)
}

func (w *torn) settle(ids ...string) {
	w.Helper()
	var done []gobridge.Completion
	for _, id := range ids {
		done = append(done, gobridge.Completion{Ref: gobridge.Ref{Partition: part, EnvelopeID: id, Binding: "mail"}})
	}
	w.must(w.writer.Complete(w.Context(), gobridge.Token{Owner: "o", Version: 1}, done))
}

// check requires that what the claim took of the key "k" has no gap: "z" never
// without "a". With a mend taken out it must find the gap.
func (w *torn) check(broken bool, got []string) {
	w.Helper()
	overtaken := slices.Contains(got, "z") && !slices.Contains(got, "a")
	if overtaken != broken {
		w.Fatalf("the claim took %q; overtaken: %v, want %v", got, overtaken, broken)
	}
	if broken {
		return
	}
	w.db.server.SetHooks(fakedynamo.Hooks{})
	for range 5 {
		w.settle(got...)
		got = w.claim(w.claimer, 10)
	}
	stats, err := w.writer.Stats(w.Context(), part)
	w.must(err)
	if stats[0].Pending != 0 || stats[0].Claimed != 0 {
		w.Fatalf("something is stuck: %+v", stats[0])
	}
}

func withAndWithout(t *testing.T, mendOut func(map[string]types.AttributeValue), run func(w *torn, broken bool)) {
	t.Run("as it is", func(t *testing.T) { run(newTorn(t, nil), false) })
	t.Run("mend taken out", func(t *testing.T) { run(newTorn(t, mendOut), true) })
}

// A is persisted behind the place that has been read, and then B ahead of it.
func TestTornScanKeepsTheOrder(t *testing.T) {
	withAndWithout(t, noBound, func(w *torn, broken bool) {
		w.persist(record("m", "other"))
		w.claimer.AfterPage(1, func() {
			w.persist(record("a", "k"))
			w.persist(record("z", "k"))
		})
		w.claim(w.claimer, 0)
		w.check(broken, w.claim(w.claimer, 10))
	})
}

// holdPut stops the write of a record until it is let go.
func (w *torn) holdPut(id string) (letGo func()) {
	gate := make(chan struct{})
	reached := make(chan struct{})
	var once sync.Once
	w.db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
		if c.Operation == "PutItem" && len(c.Keys) == 1 && strings.HasPrefix(c.Keys[0].Sort, "OUTBOX#"+id+"#") {
			once.Do(func() { close(reached) })
			<-gate
		}
		return nil
	}})
	return func() {
		<-reached
		w.db.server.SetHooks(fakedynamo.Hooks{})
		close(gate)
	}
}

// Both are of one call, and get their Seq before the claim begins.
func TestSiblingsOfOneCallKeepTheOrder(t *testing.T) {
	for name, c := range map[string]struct {
		call []gobridge.Record
		out  func(map[string]types.AttributeValue)
	}{
		"two":                            {records("k", "a", "z"), noLinks},
		"with a duplicate in the middle": {records("k", "a", "m", "z"), lastLinkOnly},
	} {
		t.Run(name, func(t *testing.T) {
			withAndWithout(t, c.out, func(w *torn, broken bool) {
				w.persist(record("m", "k"))
				w.claim(w.writer, 1)
				w.settle("m")
				w.persist(record("m2", "other"))
				letGo := w.holdPut("a")
				done := make(chan error, 1)
				go func() { done <- w.writer.Persist(context.WithoutCancel(w.Context()), c.call) }()
				w.waitForSeq(int64(2 + len(c.call)))
				w.claimer.AfterPage(1, func() {
					letGo()
					w.must(<-done)
				})
				w.check(broken, w.claim(w.claimer, 10))
			})
		})
	}
}

// waitForSeq waits until ages up to a Seq have been given out.
func (w *torn) waitForSeq(seq int64) {
	for {
		stats, err := w.writer.Stats(w.Context(), part)
		w.must(err)
		if stats[0].LastSeq >= seq {
			return
		}
	}
}

// The two are redriven together.
func TestRedrivenSiblingsKeepTheOrder(t *testing.T) {
	withAndWithout(t, noLinks, func(w *torn, broken bool) {
		w.persist(records("k", "a", "z")...)
		w.persist(record("m", "other"))
		w.claim(w.writer, 3)
		for _, id := range []string{"a", "z"} {
			w.must(w.writer.DeadLetter(w.Context(), gobridge.Token{Owner: "o", Version: 1},
				[]gobridge.Burial{{Ref: gobridge.Ref{Partition: part, EnvelopeID: id, Binding: "mail"}}}))
		}
		w.must(w.writer.Release(w.Context(), gobridge.Token{Owner: "o", Version: 1},
			[]gobridge.Release{{Ref: gobridge.Ref{Partition: part, EnvelopeID: "m", Binding: "mail"}}}))
		// The redrive has given the ages, and its transaction waits.
		gate, reached := make(chan struct{}), make(chan struct{})
		w.db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
			if c.Operation == "TransactWriteItems" && len(c.Keys) >= 3 {
				close(reached)
				<-gate
			}
			return nil
		}})
		done := make(chan error, 1)
		go func() {
			_, err := w.writer.Redrive(context.WithoutCancel(w.Context()), gobridge.BulkRequest{})
			done <- err
		}()
		<-reached
		w.db.server.SetHooks(fakedynamo.Hooks{})
		w.claimer.AfterPage(1, func() { // which had "a" as a dead letter
			close(gate)
			w.must(<-done)
		})
		w.check(broken, w.claim(w.claimer, 10))
	})
}

// A transaction of the user's is half visible, the younger record first, when
// the claim reads that; the rest appears before it claims.
func TestHalfVisibleTransactionKeepsTheOrder(t *testing.T) {
	withAndWithout(t, noLinks, func(w *torn, broken bool) {
		w.persist(record("m", "other"))
		batch, err := w.writer.PersistItems(w.Context(), records("k", "a", "z"))
		w.must(err)
		scanned, committed, claimed := make(chan struct{}), make(chan struct{}), make(chan []string, 1)
		w.claimer.AfterPage(2, func() { // "m" and "z"
			close(scanned)
			<-committed
		})
		w.db.server.SetHooks(fakedynamo.Hooks{
			Order: func(c *fakedynamo.Call, n int) []int {
				order := make([]int, n)
				for i := range order {
					order[i] = i
				}
				if c.Token == "theirs" {
					slices.Reverse(order)
				}
				return order
			},
			Applied: func(c *fakedynamo.Call, _ int) {
				if c.Token == "theirs" {
					go func() { claimed <- w.claim(w.claimer, 10) }()
					<-scanned
				}
			},
		})
		theirs := "theirs"
		_, err = client(w.db.server).TransactWriteItems(w.Context(), &ddb.TransactWriteItemsInput{
			TransactItems: batch.Items, ClientRequestToken: &theirs,
		})
		w.must(err)
		close(committed)
		got := <-claimed
		batch.Committed(w.Context())
		w.check(broken, got)
	})
}

// The index shows records one by one and in any order: none with a key
// overtakes, and none without is lost.
func TestLaggingIndexKeepsTheOrder(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
			db.server.LagIndex("gobridge", "ClaimIndex", seed, 60)
			s := db.open(t, nil, nil)
			w := &torn{T: t, db: db, writer: s, claimer: s}
			persisted, delivered := map[string][]string{}, map[string][]string{}
			total := 0
			deliver := func() {
				for _, id := range w.claim(s, 3) {
					key, _, _ := strings.Cut(id, "-")
					delivered[key] = append(delivered[key], id)
					w.settle(id)
					total--
				}
			}
			for i := range 60 {
				key := ""
				if i > 20 && i%3 > 0 { // it starts without keys
					key = fmt.Sprintf("k%d", i%3)
				}
				id := fmt.Sprintf("%s-%d", key, (i*37)%101)
				w.persist(record(id, key))
				persisted[key] = append(persisted[key], id)
				total++
				if i%2 == 0 {
					deliver()
				}
			}
			for tries := 0; total > 0 && tries < 500; tries++ {
				deliver()
			}
			for key, want := range persisted {
				got := delivered[key]
				if key == "" { // no order is promised, only that they come
					got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
				}
				if !slices.Equal(got, want) {
					t.Errorf("key %q was delivered as %q, persisted as %q", key, got, want)
				}
			}
		})
	}
}
