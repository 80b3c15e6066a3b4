package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"gobridge"
	"gobridge/store/memory"
)

// form is what a backlog looks like.
type form struct {
	name string
	// record makes the i-th of n records.
	record func(i, n int) gobridge.Record
	// hold is how many of the oldest another claim holds meanwhile.
	hold int
	// takeover says that every claim is a new owner's, who finds all that the
	// one before has claimed.
	takeover bool
}

// forms are the backlogs that must cost no more than their size's logarithm.
func forms() []form {
	const p = gobridge.Partition("r/b/0")
	keyed := func(key func(i, n int) string) func(i, n int) gobridge.Record {
		return func(i, n int) gobridge.Record { return record(p, fmt.Sprint("id", i), key(i, n)) }
	}
	distinct := func(i, _ int) string { return fmt.Sprint("k", i) }
	// All but the 100 youngest are of one key, behind a claimed head.
	hot := func(i, n int) string {
		if i < n-100 {
			return "hot"
		}
		return fmt.Sprint("k", i)
	}
	delayed := func(i, n int) gobridge.Record {
		r := record(p, fmt.Sprint("id", i), "")
		if i < n-100 {
			r.Envelope.NotBefore = time.Now().Add(time.Hour)
		}
		return r
	}
	return []form{
		{name: "keyless", record: keyed(func(int, int) string { return "" })},
		{name: "distinct", record: keyed(distinct)},
		{name: "hot", record: keyed(hot), hold: 1},
		{name: "blocked", record: keyed(func(int, int) string { return "hot" }), hold: 1},
		{name: "delayed", record: delayed},
		{name: "stranded", record: keyed(distinct), takeover: true},
	}
}

// BenchmarkClaim claims 100 records from backlogs of different sizes and forms,
// and puts them back. The figure that should hardly grow with the backlog is
// the median of the claims alone, claim-p50-ns.
func BenchmarkClaim(b *testing.B) {
	for _, form := range forms() {
		for _, backlog := range []int{1_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", form.name, backlog), func(b *testing.B) { benchmarkClaim(b, form, backlog) })
		}
	}
}

func benchmarkClaim(b *testing.B, form form, backlog int) {
	ctx := context.Background()
	store := fill(b, form, backlog)
	request := gobridge.ClaimRequest{
		Partition: "r/b/0", Token: gobridge.Token{Owner: "a", Version: 1}, Limit: form.hold, HeldKnown: true,
	}
	if form.takeover {
		request.Limit = backlog
	}
	held, err := store.Claim(ctx, request)
	if err != nil || len(held) != request.Limit {
		b.Fatalf("held %d: %v", len(held), err)
	}
	for i := range form.hold {
		request.Held = append(request.Held, held[i].Ref())
	}
	request.Limit = 100

	runtime.GC() // what building the backlog left is not the claim's to pay
	var took []time.Duration
	for b.Loop() {
		if form.takeover {
			request.Token.Version++
		}
		start := time.Now()
		claimed, err := store.Claim(ctx, request)
		took = append(took, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
		if form.takeover {
			continue
		}
		releases := make([]gobridge.Release, len(claimed))
		for i := range claimed {
			releases[i].Ref = claimed[i].Ref()
		}
		if err := store.Release(ctx, request.Token, releases); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "claim-p50-ns")
}

// fill returns a store with a backlog.
func fill(b *testing.B, form form, backlog int) *memory.Store {
	store := memory.New(memory.Options{})
	for from := 0; from < backlog; from += 1000 {
		records := make([]gobridge.Record, min(1000, backlog-from))
		for i := range records {
			records[i] = form.record(from+i, backlog)
		}
		if err := store.Persist(context.Background(), records); err != nil {
			b.Fatal(err)
		}
	}
	return store
}
