package dynamodb_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// ledger adds up events.
type ledger struct {
	mu  sync.Mutex
	sum map[dynamodb.Event]float64 // without their values
}

func (l *ledger) Observe(e dynamodb.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := e.Value
	e.Value = 0
	l.sum[e] += v
}

func (l *ledger) of(m dynamodb.Metric, op, resource string) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum[dynamodb.Event{Metric: m, Partition: part, Operation: op, Resource: resource}]
}

// TestObserverSeesWhatIsCharged: what the store tells is what the server charged,
// by partition, operation and resource.
func TestObserverSeesWhatIsCharged(t *testing.T) {
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{PageItems: 1})
	seen := &ledger{sum: map[dynamodb.Event]float64{}}
	var log bytes.Buffer
	s := db.open(t, nil, func(o *dynamodb.Options) {
		o.Observer = seen
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	s.Impatient()
	db.server.ResetStats()
	must(t, s.Persist(t.Context(), records("k", numbered(25)...)))
	_, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: part, Token: gobridge.Token{Owner: "o", Version: 1}, Limit: 5, HeldKnown: true})
	must(t, err)
	total := db.server.Total()
	write := 0.0
	for _, op := range []string{"persist", "ring", "claim"} {
		for _, resource := range []string{"table", "ClaimIndex"} {
			write += seen.of(dynamodb.DynamoDBWriteUnits, op, resource)
		}
	}
	if write != total.WriteUnits {
		t.Errorf("the observer was told of %.1f write units, and %.1f were charged", write, total.WriteUnits)
	}
	if n := seen.of(dynamodb.DynamoDBWriteUnits, "claim", "ClaimIndex"); n != 0 {
		t.Errorf("a claim wrote %.1f units of the index", n)
	}
	if n := seen.of(dynamodb.DynamoDBOutboxClaimScanPages, "claim", ""); n < 25 {
		t.Errorf("25 rows on a page each took %.0f pages", n)
	}
	for _, line := range []string{"deep backlog", "records have ordering keys"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("the log says %q %d times, want once:\n%s", line, n, log.String())
		}
	}

	once := false
	db.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
		if c.Operation == "Query" && !once {
			once = true
			return &fakedynamo.Fault{Kind: fakedynamo.Throttle}
		}
		if c.Operation == "TransactWriteItems" && c.Token != "" && seen.of(dynamodb.OutboxClaimConflicts, "claim", "TransactWriteItems") == 0 {
			return &fakedynamo.Fault{Kind: fakedynamo.Conflict}
		}
		return nil
	}})
	_, err = s.Claim(t.Context(), gobridge.ClaimRequest{Partition: part, Token: gobridge.Token{Owner: "o", Version: 2}, Limit: 5, HeldKnown: true})
	must(t, err)
	if n := seen.of(dynamodb.DynamoDBRetries, "claim", "Query"); n != 1 {
		t.Errorf("a throttled query was repeated %.0f times", n)
	}
	if n := seen.of(dynamodb.OutboxClaimConflicts, "claim", "TransactWriteItems"); n != 1 {
		t.Errorf("%.0f conflicts are counted, want 1", n)
	}
	throttles := 0.0
	for e, v := range seen.sum {
		if e.Metric == dynamodb.DynamoDBThrottles && e.Resource != "" {
			throttles += v
		}
	}
	if throttles == 0 {
		t.Error("no throttle is counted with what was short")
	}
}
