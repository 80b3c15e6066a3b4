package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gobridge"
)

func costCases() []testCase {
	return []testCase{
		{name: "ClaimCostDoesNotGrowWithTheBacklog", run: claimCostDoesNotGrowWithTheBacklog,
			why: "A backlog behind one stuck key must not slow the others down, or a dead destination takes the bridge with it.",
			skip: func(b Backend, _ Database) string {
				if b.ClaimScans {
					return "the backend declares that its claims read the backlog"
				}
				return ""
			}},
		{name: "CountsCostDoesNotGrowWithTheBacklog", run: countsCostDoesNotGrowWithTheBacklog,
			why: "Figures are read every second and before every message; what reads the backlog for them is slowest when it matters most."},
	}
}

// backlog makes a head of one key that is held, and so many records behind it.
func (f *fixture) backlog(p gobridge.Partition, size int) (head gobridge.Ref) {
	f.Helper()
	f.persist(record("head", key("hot"), in(p)))
	claimed := f.claimBy(gobridge.ClaimRequest{Partition: p, Token: token(1), Limit: 1, HeldKnown: true})
	for from := 0; from < size; from += 1000 {
		call := make([]gobridge.Record, min(1000, size-from))
		for i := range call {
			call[i] = record(fmt.Sprintf("b-%d", from+i), key("hot"), in(p))
		}
		f.persist(call...)
	}
	return claimed[0].Ref()
}

// fastest is the shortest of several times that an operation took.
func fastest(operation func(try int) time.Duration) time.Duration {
	took := make([]time.Duration, 25)
	for i := range took {
		took[i] = operation(i)
	}
	return slices.Min(took)
}

// wantNoGrowth requires that the cost of something with a large backlog has
// little to do with that of a small one: what reads the backlog takes as many
// times as long as the backlog is larger.
func (f *fixture) wantNoGrowth(what string, cost func(p gobridge.Partition, head gobridge.Ref) time.Duration) {
	f.Helper()
	small, large := 100, 20_000
	if testing.Short() {
		large = 5_000
	}
	few := cost("orders/few/0", f.backlog("orders/few/0", small))
	many := cost("orders/many/0", f.backlog("orders/many/0", large))
	if bound := time.Duration(large/small/8) * max(few, 20*time.Microsecond); many > bound {
		f.Fatalf("the fastest %s takes %v with %d records behind a held head, and %v with %d", what, many, large, few, small)
	}
}

func claimCostDoesNotGrowWithTheBacklog(f *fixture) {
	f.wantNoGrowth("claim", func(p gobridge.Partition, head gobridge.Ref) time.Duration {
		request := gobridge.ClaimRequest{Partition: p, Token: token(1), Limit: 10, HeldKnown: true, Held: []gobridge.Ref{head}}
		return fastest(func(try int) time.Duration {
			call := make([]gobridge.Record, request.Limit)
			done := make([]gobridge.Completion, len(call))
			for i := range call {
				call[i] = record(fmt.Sprintf("free-%d-%d", try, i), key(fmt.Sprintf("k-%d", i)), in(p))
				done[i].Ref = call[i].Ref()
			}
			f.persist(call...)
			begin := time.Now()
			got := f.claimBy(request)
			took := time.Since(begin)
			if len(got) != len(call) {
				f.Fatalf("claimed %d of %d free records", len(got), len(call))
			}
			if err := f.store.Complete(f.Context(), token(1), done); err != nil {
				f.Fatalf("Complete: %v", err)
			}
			return took
		})
	})
}

func countsCostDoesNotGrowWithTheBacklog(f *fixture) {
	f.wantNoGrowth("look at the figures", func(p gobridge.Partition, _ gobridge.Ref) time.Duration {
		return fastest(func(int) time.Duration {
			begin := time.Now()
			n, err := f.store.CountPending(f.Context(), p, 10)
			stats := f.stats(p)
			took := time.Since(begin)
			if err != nil || n != 10 || stats.Pending < 100 {
				f.Fatalf("CountPending up to 10 is %d (error %v), Stats counts %d", n, err, stats.Pending)
			}
			return took
		})
	})
}
