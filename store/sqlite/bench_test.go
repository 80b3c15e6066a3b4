package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

const benchPartition = gobridge.Partition("r/b/0")

var benchToken = gobridge.Token{Owner: "bench", Version: 1}

func benchRecord(key string) gobridge.Record {
	return gobridge.Record{Partition: benchPartition, Binding: "b", Envelope: messaging.Envelope{
		ID: messaging.NewID(), Subject: "s", OrderingKey: key, Payload: make([]byte, 256)}}
}

func benchStore(b *testing.B) *sqlite.Store {
	s, err := sqlite.OpenFile(context.Background(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkPersist persists one record per call from 64 producers, with the
// shared commit and with a transaction for each call.
func BenchmarkPersist(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		s := benchStore(b)
		var turn sync.Mutex // SQLite's own way of waiting is no fairer
		benchPersist(b, func(ctx context.Context, records []gobridge.Record) error {
			turn.Lock()
			defer turn.Unlock()
			return s.Persist(ctx, records)
		})
	})
	for _, key := range []string{"", "k"} {
		b.Run("shared"+key, func(b *testing.B) {
			s := benchStore(b)
			benchPersist(b, func(ctx context.Context, records []gobridge.Record) error {
				if key != "" {
					records[0].Envelope.OrderingKey = records[0].Envelope.ID[30:]
				}
				return s.Persist(ctx, records)
			})
			stats := s.WriterStats()
			b.ReportMetric(float64(stats.Requests)/float64(stats.Commits), "calls/commit")
		})
	}
}

func benchPersist(b *testing.B, persist func(context.Context, []gobridge.Record) error) {
	const producers = 64
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range producers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := persist(b.Context(), []gobridge.Record{benchRecord("")}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// backlogs are the forms of a backlog. All but the 100 youngest records of the
// hot one are of one key, behind a held head.
var backlogs = []struct {
	name string
	key  func(i, n int) string
	hold bool
	want int
}{
	{"keyless", func(int, int) string { return "" }, false, 100},
	{"distinct", func(i, _ int) string { return fmt.Sprint("k", i) }, false, 100},
	{"hot", func(i, n int) string {
		if i < n-100 {
			return "hot"
		}
		return fmt.Sprint("k", i)
	}, true, 100},
	{"blocked", func(int, int) string { return "hot" }, true, 0},
}

// BenchmarkClaim claims 100 records of backlogs of different sizes and forms and
// puts them back. The median of the claims alone is the figure.
func BenchmarkClaim(b *testing.B) {
	for _, form := range backlogs {
		for _, n := range []int{1_000, 1_000_000} {
			s := benchStore(b)
			fill(b, s, n, form.key)
			var held []gobridge.Ref
			if form.hold {
				held = append(held, benchClaim(b, s, 1, nil)[0].Ref())
			}
			b.Run(fmt.Sprintf("%s/%d", form.name, n), func(b *testing.B) {
				took := make([]time.Duration, 0, b.N)
				for range b.N {
					begun := time.Now()
					got := benchClaim(b, s, 100, held)
					took = append(took, time.Since(begun))
					if len(got) != form.want {
						b.Fatalf("claimed %d records, want %d", len(got), form.want)
					}
					putBack(b, s, got)
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "claim-p50-µs")
			})
		}
	}
}

func fill(b *testing.B, s *sqlite.Store, n int, key func(i, n int) string) {
	call := make([]gobridge.Record, 0, 1000)
	for i := range n {
		call = append(call, benchRecord(key(i, n)))
		if len(call) == cap(call) || i == n-1 {
			if err := s.Persist(b.Context(), call); err != nil {
				b.Fatal(err)
			}
			call = call[:0]
		}
	}
}

func benchClaim(b *testing.B, s *sqlite.Store, limit int, held []gobridge.Ref) []gobridge.Record {
	got, err := s.Claim(b.Context(), gobridge.ClaimRequest{Partition: benchPartition, Token: benchToken,
		Limit: limit, HeldKnown: true, Held: held})
	if err != nil {
		b.Fatal(err)
	}
	return got
}

func putBack(b *testing.B, s *sqlite.Store, records []gobridge.Record) {
	if len(records) == 0 {
		return
	}
	releases := make([]gobridge.Release, len(records))
	for i := range records {
		releases[i].Ref = records[i].Ref()
	}
	if err := s.Release(b.Context(), benchToken, releases); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDrain claims and completes a backlog, 100 records at a time.
func BenchmarkDrain(b *testing.B) {
	for _, key := range []string{"keyless", "keyed"} {
		b.Run(key, func(b *testing.B) {
			s := benchStore(b)
			fill(b, s, b.N, func(i, _ int) string {
				if key == "keyless" {
					return ""
				}
				return fmt.Sprint("k", i%1000)
			})
			b.ReportAllocs()
			b.ResetTimer()
			drain(b, s, func() bool { return false })
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// drain claims and completes until nothing is left, or stop says so, and
// returns how many.
func drain(b *testing.B, s *sqlite.Store, stop func() bool) (n int) {
	for !stop() {
		got := benchClaim(b, s, 100, nil)
		if len(got) == 0 {
			return n
		}
		done := make([]gobridge.Completion, len(got))
		for i := range got {
			done[i].Ref = got[i].Ref()
		}
		if err := s.Complete(b.Context(), benchToken, done); err != nil {
			b.Fatal(err)
		}
		n += len(got)
	}
	return n
}

// BenchmarkBoth runs 64 producers in a closed loop against one that drains. The
// depth at the end must not be more than at half-time, and no claim may have
// waited for more than two commits.
func BenchmarkBoth(b *testing.B) {
	s := benchStore(b)
	var stop atomic.Bool
	var produced atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		wg.Go(func() {
			for produced.Add(1) <= int64(b.N) {
				if err := s.Persist(b.Context(), []gobridge.Record{benchRecord("")}); err != nil {
					b.Error(err)
					return
				}
			}
			stop.Store(true)
		})
	}
	half, consumed := -1, 0
	for !stop.Load() {
		consumed += drain(b, s, stop.Load)
		if half < 0 && produced.Load() > int64(b.N)/2 {
			half = int(produced.Load()) - consumed
		}
	}
	b.ReportMetric(float64(half), "depth-half")
	b.ReportMetric(float64(int(produced.Load())-consumed), "depth-end")
	b.ReportMetric(float64(s.WriterStats().MaxClaimWait), "max-claim-wait")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	wg.Wait()
}
