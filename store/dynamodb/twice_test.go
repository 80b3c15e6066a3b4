package dynamodb_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"gobridge"
	"gobridge/store/dynamodb"
)

// The tests here make the same call twice at once: one is paused when it has
// its ages; the other, with younger ones, stores a part and dies.

// writes is a client that does something before each of its writes of records,
// which are counted from one.
type writes struct {
	*ddb.Client
	n      int
	before func(n int) error
}

func (w *writes) PutItem(ctx context.Context, in *ddb.PutItemInput, o ...func(*ddb.Options)) (*ddb.PutItemOutput, error) {
	if w.n++; w.before != nil {
		if err := w.before(w.n); err != nil {
			return nil, err
		}
	}
	return w.Client.PutItem(ctx, in, o...)
}

func (w *writes) TransactWriteItems(ctx context.Context, in *ddb.TransactWriteItemsInput, o ...func(*ddb.Options)) (*ddb.TransactWriteItemsOutput, error) {
	if w.n++; w.before != nil {
		if err := w.before(w.n); err != nil {
			return nil, err
		}
	}
	return w.Client.TransactWriteItems(ctx, in, o...)
}

// openWrites opens a store on such a client, which has written nothing yet.
func (w *torn) openWrites(before func(n int) error) *dynamodb.Store {
	w.Helper()
	c := &writes{Client: client(w.db.server), before: before}
	s, err := dynamodb.Open(w.Context(), c, dynamodb.Options{Now: func() time.Time { return w.clock }})
	w.must(err)
	s.Impatient()
	return s
}

var errDied = &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "the process is gone"}

// dies makes a call in a process that dies before its n-th write.
func (w *torn) dies(n int, do func(*dynamodb.Store) error) {
	w.Helper()
	s := w.openWrites(func(now int) error {
		if now >= n {
			return errDied
		}
		return nil
	})
	if err := do(s); !errors.Is(err, errDied) {
		w.Errorf("a process that dies: %v", err)
	}
}

// paused is the store of a process that is paused for a second before its first
// write.
func (w *torn) paused(meanwhile func()) *dynamodb.Store {
	w.Helper()
	return w.openWrites(func(now int) error {
		if now == 1 {
			w.clock = w.clock.Add(time.Second)
			meanwhile()
		}
		return nil
	})
}

// drain claims and settles one record after the other, until none is left.
func (w *torn) drain() (order []string) {
	w.Helper()
	for {
		got, err := w.claimer.Claim(w.Context(), gobridge.ClaimRequest{
			Partition: part, Token: gobridge.Token{Owner: "o", Version: 1}, Limit: 1, HeldKnown: true,
		})
		w.must(err)
		if len(got) == 0 {
			return order
		}
		ref := got[0].Ref()
		order = append(order, strings.TrimSuffix(ref.EnvelopeID+"/"+ref.Binding, "/mail"))
		w.must(w.writer.Complete(w.Context(), gobridge.Token{Owner: "o", Version: 1}, []gobridge.Completion{{Ref: ref}}))
	}
}

func (w *torn) figures(pending, claimed, dead int64) {
	w.Helper()
	stats, err := w.writer.Stats(w.Context(), part)
	w.must(err)
	if s := stats[0]; s.Pending != pending || s.Claimed != claimed || s.Dead != dead {
		w.Errorf("%d pending, %d claimed, %d dead; want %d, %d, %d", s.Pending, s.Claimed, s.Dead, pending, claimed, dead)
	}
}

func (w *torn) seq(r gobridge.Record) int64 {
	w.Helper()
	got, err := w.writer.Get(w.Context(), r.Ref())
	w.must(err)
	return got.Seq
}

func second(r gobridge.Record) gobridge.Record {
	r.Binding = "second"
	return r
}

func TestCallMadeTwiceAtOnceKeepsTheOrder(t *testing.T) {
	a, b, c := record("a", "k"), record("b", "k"), record("c", "k")
	for name, calls := range map[string]struct {
		call  []gobridge.Record
		other []gobridge.Record // the same call, as far as the other process gets
		want  []string
	}{
		"two":                     {[]gobridge.Record{a, b}, []gobridge.Record{a}, []string{"a", "b"}},
		"three":                   {[]gobridge.Record{a, b, c}, []gobridge.Record{a}, []string{"a", "b", "c"}},
		"two stored of three":     {[]gobridge.Record{a, b, c}, []gobridge.Record{a, b}, []string{"a", "b", "c"}},
		"one in the middle":       {[]gobridge.Record{a, b, c}, []gobridge.Record{b}, []string{"a", "b", "c"}},
		"one envelope":            {[]gobridge.Record{a, second(a), b}, []gobridge.Record{a}, []string{"a", "a/second", "b"}},
		"then an envelope of two": {[]gobridge.Record{a, b, second(b)}, []gobridge.Record{a}, []string{"a", "b", "b/second"}},
		"stamps of their own":     {stamped(a, b), stamped(a), []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTorn(t, nil)
			w.persist(record("m", "other")) // the partition is there
			w.claim(w.writer, 1)
			w.settle("m")
			x := w.paused(func() { w.persist(calls.other...) })
			w.must(x.Persist(t.Context(), calls.call))
			w.figures(int64(len(calls.call)), 0, 0)
			if got := w.drain(); !slices.Equal(got, calls.want) {
				t.Errorf("they come as %q, want %q", got, calls.want)
			}
			w.figures(0, 0, 0)
		})
	}
}

// stamped gives records the same stamp.
func stamped(records ...gobridge.Record) []gobridge.Record {
	for i := range records {
		records[i].CreatedAt = time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	}
	return records
}

// The other process dies in the midst of the call itself.
func TestCallOfTheDeadKeepsTheOrder(t *testing.T) {
	w := newTorn(t, nil)
	w.persist(record("m", "other"))
	w.claim(w.writer, 1)
	w.settle("m")
	call := records("k", "a", "b", "c")
	x := w.paused(func() {
		w.dies(2, func(s *dynamodb.Store) error { return s.Persist(t.Context(), call) })
	})
	w.must(x.Persist(t.Context(), call))
	if got, want := w.drain(), []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("they come as %q, want %q", got, want)
	}
}

// The younger duplicate has been claimed, or has died, and may come back; and
// one that has been delivered holds up nobody.
func TestWhatFollowsAYoungerDuplicate(t *testing.T) {
	token := gobridge.Token{Owner: "o", Version: 1}
	a, b := record("a", "k"), record("b", "k")
	for name, c := range map[string]struct {
		then    func(w *torn)
		younger bool
	}{
		"claimed": {func(w *torn) {}, true},
		"dead": {func(w *torn) {
			w.must(w.writer.DeadLetter(w.Context(), token, []gobridge.Burial{{Ref: a.Ref()}}))
		}, true},
		"redriven": {func(w *torn) {
			w.must(w.writer.DeadLetter(w.Context(), token, []gobridge.Burial{{Ref: a.Ref()}}))
			_, err := w.writer.Redrive(w.Context(), gobridge.BulkRequest{})
			w.must(err)
		}, true},
		"delivered": {func(w *torn) { w.settle("a") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTorn(t, nil)
			w.persist(record("m", "other"))
			w.claim(w.writer, 1)
			w.settle("m")
			var before int64
			x := w.paused(func() {
				w.persist(a)
				w.claim(w.writer, 1)
				c.then(w)
				before = w.seq(a)
			})
			w.must(x.Persist(t.Context(), []gobridge.Record{a, b}))
			if got := w.seq(b); got > before != c.younger {
				t.Errorf("b has Seq %d, a has %d; younger is to be %v", got, before, c.younger)
			}
		})
	}
}

// What is given new ages is a wave of its own: its records name the earlier ones
// of their key, and a scan that sees the younger one only does not take it.
func TestNewAgesKeepTheOrderInATornScan(t *testing.T) {
	withAndWithout(t, noLinks, func(w *torn, broken bool) {
		w.persist(record("m", "other"))
		first, last := make(chan struct{}), make(chan struct{})
		n := 0
		x := w.openWrites(func(int) error {
			switch n++; n {
			case 1:
				w.persist(record("0", "k")) // a younger duplicate
			case 2: // it has its new ages
				close(first)
				<-last
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- x.Persist(context.WithoutCancel(w.Context()), records("k", "0", "a", "z")) }()
		<-first
		w.claim(w.claimer, 2)
		w.settle("0")
		w.claimer.AfterPage(2, func() { // the one that has ended, and "m"
			close(last)
			w.must(<-done)
		})
		w.check(broken, w.claim(w.claimer, 10))
	})
}

// A user's transaction with a duplicate in it stores nothing, so that what is
// left gets its ages with another call. To write a part of the items would break
// the order.
func TestUsersTransactionMadeTwiceAtOnce(t *testing.T) {
	for name, broken := range map[string]bool{"as it is": false, "items of a batch by themselves": true} {
		t.Run(name, func(t *testing.T) {
			w := newTorn(t, nil)
			write := func(b *dynamodb.Batch) error {
				_, err := client(w.db.server).TransactWriteItems(t.Context(), &ddb.TransactWriteItemsInput{TransactItems: b.Items})
				if err == nil {
					b.Committed(t.Context())
				}
				return b.Err(err)
			}
			x, err := w.writer.PersistItems(t.Context(), records("k", "a", "b"))
			w.must(err)
			w.persist(record("a", "k"))
			var e *gobridge.Error
			if err := write(x); !errors.Is(err, gobridge.ErrDuplicateRecord) || !errors.As(err, &e) || e.Ref != ref("a") {
				t.Fatalf("a transaction with a duplicate: %v", err)
			}
			if _, err := w.writer.Get(t.Context(), ref("b")); !errors.Is(err, gobridge.ErrNotFound) {
				t.Fatalf("it stored a part: %v", err)
			}
			if broken {
				x.Items = x.Items[1:]
			} else {
				x, err = w.writer.PersistItems(t.Context(), records("k", "b"))
				w.must(err)
			}
			w.must(write(x))
			if got := w.drain(); slices.Equal(got, []string{"a", "b"}) == broken {
				t.Errorf("they come as %q", got)
			}
		})
	}
}

// Persist meets a user's transaction that took its ages later and was quicker.
func TestUsersTransactionOvertakesPersist(t *testing.T) {
	w := newTorn(t, nil)
	w.persist(record("m", "other"))
	w.claim(w.writer, 1)
	w.settle("m")
	x := w.paused(func() {
		b, err := w.writer.PersistItems(t.Context(), records("k", "a"))
		w.must(err)
		_, err = client(w.db.server).TransactWriteItems(t.Context(), &ddb.TransactWriteItemsInput{TransactItems: b.Items})
		w.must(err)
		b.Committed(t.Context())
	})
	w.must(x.Persist(t.Context(), records("k", "a", "b")))
	if got, want := w.drain(), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("they come as %q, want %q", got, want)
	}
}

// Two redrive the same dead letters. A transaction has room for one of the large
// ones and for all of the small ones.
func TestRedriveMadeTwiceAtOnceKeepsTheOrder(t *testing.T) {
	const large, small = 150 << 10, 10
	first := gobridge.BulkRequest{Filter: gobridge.Filter{EnvelopeID: "a"}}
	for name, c := range map[string]struct {
		size  int
		other func(w *torn)
	}{
		"the other dies after one": {large, func(w *torn) { w.dies(2, redrive(w, gobridge.BulkRequest{})) }},
		"the other dies after two": {large, func(w *torn) { w.dies(3, redrive(w, gobridge.BulkRequest{})) }},
		"the other is quicker":     {large, func(w *torn) { w.must(redrive(w, gobridge.BulkRequest{})(w.writer)) }},
		"the other takes one":      {small, func(w *torn) { w.must(redrive(w, first)(w.writer)) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTorn(t, nil)
			var want []string
			for _, id := range []string{"a", "b", "c", "d"} {
				r := record(id, "k")
				r.State, r.Reason = gobridge.StateDead, "test"
				r.Envelope.Payload = make([]byte, c.size)
				w.persist(r)
				want = append(want, id)
			}
			x := w.paused(func() { c.other(w) })
			w.must(redrive(w, gobridge.BulkRequest{})(x))
			w.figures(4, 0, 0)
			if got := w.drain(); !slices.Equal(got, want) {
				t.Errorf("they come as %q, want %q", got, want)
			}
		})
	}
}

func redrive(w *torn, request gobridge.BulkRequest) func(*dynamodb.Store) error {
	return func(s *dynamodb.Store) error {
		_, err := s.Redrive(w.Context(), request)
		return err
	}
}
