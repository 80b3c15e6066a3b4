package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge"
	"gobridge/bridge"
	"gobridge/internal/fakedynamo"
	"gobridge/messaging"
	"gobridge/store/dynamodb"
)

// Of the counted route.
const (
	countedPartitions = 16
	countedInFlight   = 4 // sends of a partition
	// settle is time enough for the processes to share, by their clock.
	settle = 10 * time.Second
)

// tally counts the requests of a store, by the store's operation.
type tally struct {
	mu       sync.Mutex
	requests map[string]int
}

// Observe implements [dynamodb.Observer].
func (c *tally) Observe(e dynamodb.Event) {
	if e.Metric != dynamodb.DynamoDBCalls {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[e.Operation] += int(e.Value)
}

func (c *tally) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = map[string]int{}
}

// sum adds up the requests for messages, or those for leases.
func (c *tally) sum(leases bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for operation, requests := range c.requests {
		if strings.Contains(operation, "lease") == leases {
			n += requests
		}
	}
	return n
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, operation := range slices.Sorted(maps.Keys(c.requests)) {
		parts = append(parts, fmt.Sprintf("%s %d", operation, c.requests[operation]))
	}
	return strings.Join(parts, ", ")
}

// counted is what some processes on a table come to, by a clock of their own.
type counted struct {
	perMessage, idle float64 // requests for messages; idle a minute
	leases           float64 // requests for leases, idle, a minute
	inFlight         int64   // sends at a time, at most
	moved            []int   // partitions acquired with each process that joins, then leaves
}

// countOnTable runs so many bridges on one table. It has to be called in a
// bubble of synctest.
func countOnTable(t *testing.T, processes int) counted {
	server := fakedynamo.New(fakedynamo.Options{})
	client := ddb.New(ddb.Options{
		Region: region, BaseEndpoint: aws.String(fakedynamo.Endpoint), HTTPClient: server.HTTPClient(),
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
	calls := &tally{requests: map[string]int{}}
	options := dynamodb.Options{Table: "counted", Observer: calls}
	if err := dynamodb.EnsureTable(t.Context(), client, options); err != nil {
		t.Fatal(err)
	}
	var inFlight, most, acquired atomic.Int64
	var takes atomic.Int64 // a send, in nanoseconds
	takes.Store(int64(5 * time.Millisecond))
	send := func(ctx context.Context, _ gobridge.Delivery) error {
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(takes.Load())):
		}
		return ctx.Err()
	}
	open := func(owner string) *bridge.Bridge {
		store, err := dynamodb.Open(t.Context(), client, options)
		if err != nil {
			t.Fatal(err)
		}
		b, err := bridge.New(store, bridge.Options{
			Owner: owner, Observer: observed(func(e bridge.Event) {
				if e.Kind == bridge.EventAcquired {
					acquired.Add(1)
				}
			}),
			Routes: []bridge.Route{{Name: "r", Partitions: countedPartitions, Bindings: []bridge.Binding{
				{Name: "b", Sender: gobridge.HandlerFunc(send), Concurrency: countedInFlight},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var out counted
	var stops []func()
	for i := range processes {
		b := open(fmt.Sprint("process-", i))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		stops = append(stops, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		acquired.Store(0)
		time.Sleep(settle)
		out.moved = append(out.moved, int(acquired.Load()))
	}
	calls.reset()
	const idle = 30 * time.Second
	time.Sleep(idle)
	out.idle, out.leases = float64(calls.sum(false))/idle.Minutes(), float64(calls.sum(true))/idle.Minutes()

	// One after the other, so that what is counted depends little on which of them
	// happen to be claimed together.
	front := open("front").Route("r")
	publish := func(id, key string) {
		t.Helper()
		if _, err := front.Publish(t.Context(), messaging.Envelope{ID: id, OrderingKey: key}); err != nil {
			t.Fatal(err)
		}
	}
	const messages, keys = 800, 64
	calls.reset()
	for i := range messages {
		publish(fmt.Sprint("paced-", i), fmt.Sprint("k", i%keys))
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second)
	out.perMessage = float64(calls.sum(false)) / messages
	t.Logf("%d processes, %d messages, one every 10 ms: %s", processes, messages, calls)

	takes.Store(int64(10 * time.Second))
	for i := range 8 * countedPartitions {
		publish(fmt.Sprint("burst-", i), fmt.Sprint("b", i))
	}
	time.Sleep(5 * time.Second)
	out.inFlight = most.Load()
	takes.Store(0)
	time.Sleep(2 * settle)
	for _, stop := range stops {
		acquired.Store(0)
		stop()
		time.Sleep(settle)
		out.moved = append(out.moved, int(acquired.Load()))
	}
	return out
}

// observed is a function as an observer.
type observed func(bridge.Event)

// Observe implements [bridge.Observer].
func (f observed) Observe(_ context.Context, e bridge.Event) { f(e) }

// TestCountsOnATable counts what one, two and four processes on a table need for
// the same messages, and what moves when they join and leave.
func TestCountsOnATable(t *testing.T) {
	got := map[int]counted{}
	for _, n := range []int{1, 2, 4} {
		synctest.Test(t, func(t *testing.T) { got[n] = countOnTable(t, n) })
		c := got[n]
		t.Logf("%d processes: %.3f requests a message; idle, a minute: %.0f for messages, %.0f for leases; %d sends in flight; moved %v",
			n, c.perMessage, c.idle, c.leases, c.inFlight, c.moved)
		if more := c.perMessage / got[1].perMessage; more > 1.1 {
			t.Errorf("%d processes make %.2f times the requests for a message that one makes", n, more)
		}
		if want := int64(countedPartitions * countedInFlight); c.inFlight != want {
			t.Errorf("%d processes have %d sends in flight, want those of all partitions, %d", n, c.inFlight, want)
		}
		for i, moved := range c.moved {
			// Who joins takes its share. Who leaves leaves as much, of which one may move
			// twice where the others saw it leave at different times.
			least, most := countedPartitions/(i+1), countedPartitions/(i+1)
			switch living := 2*n - i; {
			case living == 1: // to nobody
				least, most = 0, 0
			case i >= n:
				least, most = countedPartitions/living, (countedPartitions+living-1)/living+1
			}
			if moved < least || moved > most {
				t.Errorf("%d processes: with change %d of hands %d partitions moved, want %d to %d", n, i, moved, least, most)
			}
		}
	}
}
