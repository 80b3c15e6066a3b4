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

// BenchmarkClaim claims 100 records from backlogs of different sizes and forms,
// and puts them back. The figure that should hardly grow with the backlog is
// the median of the claims alone, claim-p50-ns.
func BenchmarkClaim(b *testing.B) {
	forms := []struct {
		name string
		key  func(i, backlog int) string
		// hold is how many records another claim holds meanwhile.
		hold int
	}{
		{name: "keyless", key: func(int, int) string { return "" }},
		{name: "distinct", key: func(i, _ int) string { return fmt.Sprint("k", i) }},
		// All of one key behind a claimed head, but for the 100 youngest.
		{name: "hot", hold: 1, key: func(i, backlog int) string {
			if i < backlog-100 {
				return "hot"
			}
			return fmt.Sprint("k", i)
		}},
		{name: "blocked", hold: 1, key: func(int, int) string { return "hot" }},
	}
	for _, form := range forms {
		for _, backlog := range []int{1_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", form.name, backlog), func(b *testing.B) {
				benchmarkClaim(b, backlog, form.hold, form.key)
			})
		}
	}
}

func benchmarkClaim(b *testing.B, backlog, hold int, key func(i, backlog int) string) {
	ctx := context.Background()
	store := memory.New(memory.Options{})
	const p = gobridge.Partition("r/b/0")
	token := gobridge.Token{Owner: "a", Version: 1}
	records := make([]gobridge.Record, 0, 1000)
	for i := range backlog {
		records = append(records, record(p, fmt.Sprint("id", i), key(i, backlog)))
		if len(records) == cap(records) {
			if err := store.Persist(ctx, records); err != nil {
				b.Fatal(err)
			}
			records = records[:0]
		}
	}
	request := gobridge.ClaimRequest{Partition: p, Token: token, Limit: hold, HeldKnown: true}
	held, err := store.Claim(ctx, request)
	if err != nil || len(held) != hold {
		b.Fatalf("held %d: %v", len(held), err)
	}
	for i := range held {
		request.Held = append(request.Held, held[i].Ref())
	}
	request.Limit = 100
	runtime.GC() // what building it left is not the claim's to pay
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		claimed, err := store.Claim(ctx, request)
		took = append(took, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
		releases := make([]gobridge.Release, len(claimed))
		for i := range claimed {
			releases[i].Ref = claimed[i].Ref()
		}
		if err := store.Release(ctx, token, releases); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "claim-p50-ns")
}
