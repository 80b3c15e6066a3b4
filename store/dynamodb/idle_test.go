package dynamodb_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/internal/fakedynamo"
	"gobridge/messaging"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// idle is what is counted: processes with nothing to do.
type idle struct {
	processes  int
	partitions int
	term, poll time.Duration // the defaults when zero
}

// counted is how much of an hour is: as long as nothing takes that comes less often.
const counted = 6 * time.Minute

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

// anHour returns what an idle hour costs: some minutes of fake time are counted,
// after some to settle down.
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
		time.Sleep(counted / 2)
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
			units[op] *= float64(time.Hour / counted)
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

// terms are those of the table in docs/dynamodb.md.
var terms = []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}

// failover is how long the partitions of a process that dies are without an owner
// at most: docs/adr/0007.
func failover(term time.Duration) time.Duration {
	return term + 2*min(term/10, time.Second)
}

// documented returns the cells of a row of the table in docs/dynamodb.md.
func documented(t *testing.T, term time.Duration) (bound time.Duration, dollars [2]float64) {
	t.Helper()
	text, err := os.ReadFile("../../docs/dynamodb.md")
	must(t, err)
	row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %.0f s \| ([0-9.]+) s \| \$([0-9.]+) \| \$([0-9.]+) \|$`, term.Seconds())).FindSubmatch(text)
	if row == nil {
		t.Errorf("docs/dynamodb.md has no row for a term of %s", term)
		return 0, dollars
	}
	var n [3]float64
	for i := range n {
		n[i], err = strconv.ParseFloat(string(row[i+1]), 64)
		must(t, err)
	}
	return time.Duration(n[0] * float64(time.Second)), [2]float64{n[1], n[2]}
}

// sizes are the numbers of processes in the table.
var sizes = [2]int{1, 4}

// wantDocumented compares what idle processes cost with what is documented.
func wantDocumented(t *testing.T, i idle, units spent) {
	t.Helper()
	bound, dollars := documented(t, i.term)
	if bound != failover(i.term) {
		t.Errorf("with a term of %s docs/dynamodb.md promises a failover within %s, it is %s", i.term, bound, failover(i.term))
	}
	if got, want := units.month(), dollars[slices.Index(sizes[:], i.processes)]; math.Abs(got-want) > .1*want {
		t.Errorf("with a term of %s %d idle processes cost $%.2f a month, docs/dynamodb.md says $%.2f", i.term, i.processes, got, want)
	}
}

// TestIdleCostsNextToNothing: with nothing to do 64 partitions cost little.
func TestIdleCostsNextToNothing(t *testing.T) {
	const term = 5 * time.Second
	for _, c := range []struct {
		idle
		read, write float64 // an hour, at most
	}{
		{idle{processes: 1, partitions: 8, term: term}, 9_000, 2_200},
		{idle{processes: 1, partitions: 64, term: term}, 22_000, 2_200},
		{idle{processes: 4, partitions: 64, term: term}, 120_000, 9_000},
	} {
		units := c.anHour(t)
		if read, write := units.sum(); read > c.read || write > c.write {
			t.Errorf("%d processes with %d partitions: %.0f read and %.0f write units an hour, want %.0f and %.0f at most\n%s",
				c.processes, c.partitions, read, write, c.read, c.write, units.table(t))
		}
		if c.partitions == 64 {
			wantDocumented(t, c.idle, units)
		}
	}
}

// TestIdleTable prints what idle bridges cost: make bench-dynamodb.
func TestIdleTable(t *testing.T) {
	if os.Getenv("GOBRIDGE_DYNAMODB_UNITS") == "" {
		t.Skip("prints tables, for minutes: make bench-dynamodb")
	}
	for _, processes := range sizes {
		units := idle{processes: processes, partitions: 64}.anHour(t)
		fmt.Printf("Units an hour of %d idle processes with 64 partitions, $%.2f a month:\n%s", processes, units.month(), units.table(t))
	}
	for _, term := range terms {
		fmt.Printf("| %.0f s | %.1f s |", term.Seconds(), failover(term).Seconds())
		var all [len(sizes)]spent
		for i, n := range sizes {
			all[i] = idle{processes: n, partitions: 64, term: term}.anHour(t)
			fmt.Printf(" $%.2f |", all[i].month())
		}
		fmt.Println()
		for i, n := range sizes {
			wantDocumented(t, idle{processes: n, partitions: 64, term: term}, all[i])
		}
	}
	for _, i := range []idle{{processes: 1, partitions: 1}, {processes: 1, partitions: 256}, {processes: 4, partitions: 256}, {processes: 1, partitions: 64, poll: 5 * time.Second}} {
		units := i.anHour(t)
		fmt.Printf("%+v: $%.2f a month\n", i, units.month())
	}
}

func (s *spent) table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "operation\tread\twrite\t")
	ops := map[string]bool{}
	for _, by := range []map[string]float64{s.read, s.write} {
		for op := range by {
			ops[op] = true
		}
	}
	for _, op := range slices.Sorted(maps.Keys(ops)) {
		fmt.Fprintf(out, "%s\t%.0f\t%.0f\t\n", op, s.read[op], s.write[op])
	}
	read, write := s.sum()
	fmt.Fprintf(out, "all\t%.0f\t%.0f\t\n", read, write)
	must(t, out.Flush())
	return b.String()
}

// TestNobodyIsForgottenWhoIsIdle: what another process stores arrives within a
// poll or two, however long nothing happened before, whether or not it rang, and
// also if reads are behind.
func TestNobodyIsForgottenWhoIsIdle(t *testing.T) {
	for _, c := range []struct {
		name   string
		rings  bool
		within time.Duration
	}{{"rung", true, 3 * time.Second}, {"rings fail", false, 33 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newDatabase(t, storetest.Options{}, fakedynamo.Options{Now: time.Now})
				got := make(chan string, 1)
				opts := bridge.Options{Routes: []bridge.Route{{Name: "r", Partitions: 8, Bindings: []bridge.Binding{{
					Name: "b", Sender: gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
						got <- d.Envelope.ID
						return nil
					}),
				}}}}}
				b, err := bridge.New(db.open(t, time.Now, nil), opts)
				must(t, err)
				other, err := bridge.New(db.open(t, time.Now, nil), opts)
				must(t, err)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- b.Run(ctx) }()
				if !c.rings {
					db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
						if c.Operation == "UpdateItem" && c.Keys[0].Partition == "BELL" {
							return &fakedynamo.Fault{Kind: fakedynamo.Throttle}
						}
						return nil
					}})
				}
				for i := range 60 {
					// Longer and shorter than a poll, a ring, a time of listening, a look anyway.
					time.Sleep(time.Duration(rand.ExpFloat64() * float64(12*time.Second)))
					call, cancel := context.WithTimeout(t.Context(), 8*time.Second)
					began := time.Now()
					e := messaging.Envelope{ID: fmt.Sprint(i), OrderingKey: fmt.Sprint("k", i)}
					_, err := other.Route("r").Publish(call, e)
					cancel()
					must(t, err)
					if id := <-got; id != e.ID || time.Since(began) > c.within {
						t.Errorf("%s arrived %s after %s was stored", id, time.Since(began), e.ID)
					}
				}
				stop()
				must(t, <-done)
			})
		})
	}
}
