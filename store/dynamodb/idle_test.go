package dynamodb_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// idle is what is counted: processes with nothing to do.
type idle struct {
	processes  int
	partitions int
	term, poll time.Duration // the defaults when zero
}

// spent are units by operation.
type spent struct{ read, write map[string]float64 }

func (s *spent) sum() (read, write float64) {
	for _, n := range s.read {
		read += n
	}
	for _, n := range s.write {
		write += n
	}
	return read, write
}

// meter counts units by operation.
type meter struct {
	mu sync.Mutex
	spent
}

func (m *meter) Observe(e dynamodb.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Metric {
	case dynamodb.DynamoDBReadUnits:
		m.read[e.Operation] += e.Value
	case dynamodb.DynamoDBWriteUnits:
		m.write[e.Operation] += e.Value
	}
}

func (m *meter) reset() (was spent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was = m.spent
	m.spent = spent{map[string]float64{}, map[string]float64{}}
	return was
}

// anHour returns what an idle hour costs: ten minutes of fake time are counted,
// after ten to settle down.
func (i idle) anHour(t *testing.T) (out spent) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase(t, storetest.Options{}, fakedynamo.Options{Now: time.Now})
		m := &meter{}
		m.reset()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for n := range i.processes {
			s := db.open(t, time.Now, func(o *dynamodb.Options) { o.Observer, o.OldestPendingAge = m, 0 })
			b, err := bridge.New(s, bridge.Options{
				Owner: fmt.Sprintf("gateway-%d-4711-K7QX2MNP", n), LeaseTerm: i.term, PollInterval: i.poll,
				Routes: []bridge.Route{{Name: "orders", Partitions: i.partitions, Bindings: []bridge.Binding{{
					Name: "billing", Sender: gobridge.HandlerFunc(func(context.Context, gobridge.Delivery) error { return nil }),
				}}}},
			})
			must(t, err)
			running.Go(func() {
				if err := b.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		const counted = 10 * time.Minute
		time.Sleep(counted)
		synctest.Wait()
		m.reset()
		time.Sleep(counted)
		synctest.Wait()
		out = m.reset()
		stop()
		running.Wait()
	})
	for _, units := range []map[string]float64{out.read, out.write} {
		for op := range units {
			units[op] *= 6
		}
	}
	return out
}

// Prices of on-demand capacity, in dollars a million units, and the hours of a
// month as AWS counts them.
const (
	readPrice, writePrice = 0.125, 0.625
	hours                 = 730
)

func (s *spent) month() float64 {
	read, write := s.sum()
	return hours * (read*readPrice + write*writePrice) / 1e6
}

// TestIdleTable prints what idle bridges cost: make bench-dynamodb.
func TestIdleTable(t *testing.T) {
	if os.Getenv("GOBRIDGE_DYNAMODB_UNITS") == "" {
		t.Skip("prints a table, for minutes: make bench-dynamodb")
	}
	for _, processes := range []int{1, 4} {
		units := idle{processes: processes, partitions: 64}.anHour(t)
		var b strings.Builder
		out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(out, "operation\tread\twrite\t")
		ops := map[string]bool{}
		for _, by := range []map[string]float64{units.read, units.write} {
			for op := range by {
				ops[op] = true
			}
		}
		for _, op := range slices.Sorted(maps.Keys(ops)) {
			fmt.Fprintf(out, "%s\t%.0f\t%.0f\t\n", op, units.read[op], units.write[op])
		}
		read, write := units.sum()
		fmt.Fprintf(out, "all\t%.0f\t%.0f\t\n", read, write)
		must(t, out.Flush())
		fmt.Printf("Units an hour of %d idle processes with 64 partitions, $%.2f a month:\n%s", processes, units.month(), b.String())
	}
}
