package sqlite_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gobridge"
)

// BenchmarkClaimWhileHolding claims and puts back 64 records while others are
// held, as many as a drainer with slow sends holds.
func BenchmarkClaimWhileHolding(b *testing.B) {
	for _, n := range []int{0, 512, 4096, 8192} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := benchStore(b)
			fill(b, s, n+1000, func(int, int) string { return "" })
			var held []gobridge.Ref
			for len(held) < n {
				for _, r := range benchClaim(b, s, 512, held) {
					held = append(held, r.Ref())
				}
			}
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				begun := time.Now()
				got := benchClaim(b, s, 64, held)
				took = append(took, time.Since(begun))
				if len(got) != 64 {
					b.Fatalf("claimed %d records, want 64", len(got))
				}
				putBack(b, s, got)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "claim-p50-µs")
		})
	}
}
