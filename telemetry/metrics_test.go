package telemetry_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
	"gobridge/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// began starts exporters and an observer that end with the test.
func began(tb testing.TB, o telemetry.Options) (*telemetry.Exporters, *telemetry.Observer) {
	tb.Helper()
	exporters, err := telemetry.Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = exporters.Shutdown(ctx) // a collector may be away by design
	})
	observer, err := telemetry.NewObserver(exporters.Meters)
	if err != nil {
		tb.Fatal(err)
	}
	return exporters, observer
}

// sample is a line of a scrape.
type sample struct {
	labels map[string]string
	value  string
}

// scraped is what a scrape has: samples by name, and the types of metrics.
type scraped struct {
	types   map[string]string
	samples map[string][]sample
}

var sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$`)
var labelPart = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)

func scrape(tb testing.TB, h http.Handler) scraped {
	tb.Helper()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusOK {
		tb.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	out := scraped{types: map[string]string{}, samples: map[string][]sample{}}
	lines := bufio.NewScanner(recorder.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			out.types[name] = kind
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		found := sampleLine.FindStringSubmatch(line)
		if found == nil {
			tb.Fatalf("not a sample: %q", line)
		}
		s := sample{labels: map[string]string{}, value: found[3]}
		for _, l := range labelPart.FindAllStringSubmatch(found[2], -1) {
			s.labels[l[1]] = l[2]
		}
		out.samples[found[1]] = append(out.samples[found[1]], s)
	}
	return out
}

// value returns the value of the one sample with these labels.
func (s scraped) value(name string, labels ...string) string {
	var found []string
	for _, sample := range s.samples[name] {
		match := true
		for i := 0; i+1 < len(labels); i += 2 {
			match = match && sample.labels[labels[i]] == labels[i+1]
		}
		if match {
			found = append(found, sample.value)
		}
	}
	return strings.Join(found, " and ")
}

var kinds = []bridge.EventKind{
	bridge.EventAccepted, bridge.EventDuplicate, bridge.EventRefused, bridge.EventFull, bridge.EventClaimed,
	bridge.EventClaimFailed, bridge.EventDelivered, bridge.EventFailed, bridge.EventReleased, bridge.EventExpired,
	bridge.EventDiscarded, bridge.EventDeadLettered, bridge.EventHalted, bridge.EventSettled, bridge.EventSettleFailed,
	bridge.EventStale, bridge.EventStray, bridge.EventSwept, bridge.EventOpened, bridge.EventClosed,
	bridge.EventAcquired, bridge.EventLost, bridge.EventHandedOver,
}

// everything tells an observer all that can happen, with texts that no label may have.
func everything(tb testing.TB, o *telemetry.Observer) {
	tb.Helper()
	errs := []error{
		errors.New("SECRET"), gobridge.Permanent(errors.New("SECRET")), gobridge.Unavailable(errors.New("SECRET")), gobridge.ErrNotSent,
		gobridge.ErrTooLarge, gobridge.ErrRejected, gobridge.ErrInvalidRecord, gobridge.ErrIdentityReused, gobridge.ErrOutboxFull,
		&gobridge.SendError{Outcome: 99, Err: errors.New("SECRET")}, nil,
	}
	for _, kind := range kinds {
		for _, err := range errs {
			o.Observe(tb.Context(), bridge.Event{
				Kind: kind, Route: "orders", Binding: "crm", Partition: "orders/crm/0", Count: 2, Bytes: 10,
				Took: 3 * time.Millisecond, Age: time.Second, Err: err,
			})
		}
	}
	o.Observe(tb.Context(), bridge.Event{Kind: bridge.EventAcquired, Partition: "~source/orders"})
	for _, m := range telemetry.Metrics() {
		o.ObserveStore(m.Name, "orders/crm/0", "claim", "table", 2)
	}
	o.ObserveStore("no such metric", "orders/crm/0", "claim", "table", 2)
	receiver := o.Receiver("orders", receiverFunc(func(ctx context.Context, take gobridge.Take) error {
		return take(ctx, make([]gobridge.Incoming, 2))
	}))
	for _, err := range []error{nil, errors.New("SECRET")} {
		_ = receiver.Receive(tb.Context(), func(context.Context, []gobridge.Incoming) error { return err })
	}
	sender := o.Sender("orders", "crm", senderFunc(func(_ context.Context, batch []gobridge.Delivery) []error { return make([]error, len(batch)) }))
	sender.Send(tb.Context(), []gobridge.Delivery{{Attempt: 3}})
}

type receiverFunc func(ctx context.Context, take gobridge.Take) error

func (f receiverFunc) Receive(ctx context.Context, take gobridge.Take) error { return f(ctx, take) }

type senderFunc func(ctx context.Context, batch []gobridge.Delivery) []error

func (f senderFunc) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	return f(ctx, batch)
}

// watched is a store and a bridge of one binding.
func watched(reads *atomic.Int64, err *error) telemetry.Watched {
	now := time.Unix(1_000_000, 0)
	return telemetry.Watched{
		Stats: func(context.Context, ...gobridge.Partition) ([]gobridge.Stats, error) {
			reads.Add(1)
			return []gobridge.Stats{
				{Partition: "orders/crm/0", Pending: 7, Claimed: 3, Dead: 2, DeadBytes: 512, OldestPending: now.Add(-90 * time.Second), NewestStamp: now.Add(time.Hour)},
				{Partition: "~source/orders"},
			}, *err
		},
		Controls: func(context.Context) ([]gobridge.Control, error) {
			return []gobridge.Control{
				{Kind: gobridge.Pause, Route: "orders"},
				{Kind: gobridge.Halt, Route: "orders", Binding: "crm", OrderingKey: "a"},
				{Kind: gobridge.Halt, Route: "orders", Binding: "crm", OrderingKey: "b"},
				{Kind: gobridge.Halt, Route: "orders", Binding: "other", OrderingKey: "b"},
			}, nil
		},
		Status: func() bridge.Status {
			return bridge.Status{Bindings: []bridge.BindingStatus{
				{Route: "orders", Binding: "crm", Down: true, InFlight: 4, Owned: []gobridge.Partition{"orders/crm/0"}},
			}}
		},
		Now: func() time.Time { return now },
	}
}

// TestTheListIsWhatIsEmitted holds the list and the scrape against each other, both
// ways: names, kinds and labels.
func TestTheListIsWhatIsEmitted(t *testing.T) {
	exporters, o := began(t, telemetry.Options{})
	everything(t, o)
	var reads atomic.Int64
	var none error
	stop, err := o.Watch(watched(&reads, &none))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stop() }()
	got := scrape(t, exporters.Scrape)

	listed := map[string]bool{}
	for _, m := range telemetry.Metrics() {
		name := m.Prometheus()
		listed[name] = true
		if got.types[name] != string(m.Kind) {
			t.Errorf("%s (%s) is %q in the scrape, want %q", m.Name, name, got.types[name], m.Kind)
			continue
		}
		series := name
		if m.Kind == telemetry.Histogram {
			series += "_count"
		}
		for _, s := range got.samples[series] {
			have := slices.Sorted(maps.Keys(s.labels))
			if want := slices.Sorted(slices.Values(m.Labels)); !slices.Equal(have, want) {
				t.Errorf("%s has the labels %v, want %v", name, have, want)
			}
		}
	}
	for name := range got.types {
		if strings.HasPrefix(name, "gobridge_") && !listed[name] {
			t.Errorf("%s is emitted and not in the list", name)
		}
	}
}

// TestLabelsAreBounded: whatever an event says, its texts are in no label.
func TestLabelsAreBounded(t *testing.T) {
	exporters, o := began(t, telemetry.Options{})
	everything(t, o)
	got := scrape(t, exporters.Scrape)
	allowed := map[string][]string{
		"outcome": {"delivered", "transient", "permanent", "unavailable"},
		"reason":  {"too_large", "rejected", "invalid", "identity_reused", "full", "store"},
		"result":  {"ok", "error"},
		"change":  {"acquired", "lost", "released", "opened", "closed"},
	}
	for name, samples := range got.samples {
		for _, s := range samples {
			for label, value := range s.labels {
				if values, ok := allowed[label]; ok && !slices.Contains(values, value) {
					t.Errorf("%s has %s=%q", name, label, value)
				}
				if strings.Contains(value, "SECRET") {
					t.Errorf("%s has the label %s=%q", name, label, value)
				}
			}
		}
	}
}

func TestStoreSeriesAreBounded(t *testing.T) {
	exporters, o := began(t, telemetry.Options{})
	const beyond = 12_000
	for i := range beyond {
		o.ObserveStore("DynamoDBCalls", "orders/crm/0", "claim", fmt.Sprint("r", i), 1)
	}
	samples := scrape(t, exporters.Scrape).samples["gobridge_dynamodb_calls_total"]
	if len(samples) > 10_001 {
		t.Errorf("%d series", len(samples))
	}
	var other string
	for _, s := range samples {
		if s.labels["resource"] == "other" {
			other = s.value
		}
	}
	if other != "2000" {
		t.Errorf("%q counted as other, want 2000", other)
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range telemetry.Metrics() {
		name := m.Prometheus()
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if !regexp.MustCompile(`^gobridge_[a-z]+(_[a-z]+)*$`).MatchString(name) {
			t.Errorf("%s is no name", name)
		}
		if (m.Kind == telemetry.Counter) != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, m.Kind)
		}
		if m.Unit == "s" && !strings.Contains(name, "_seconds") || m.Unit == "By" && !strings.Contains(name, "_bytes") {
			t.Errorf("%s does not say its unit %s", name, m.Unit)
		}
		if !strings.HasSuffix(m.Meaning, ".") || !strings.HasSuffix(strings.TrimSuffix(m.Act, "`"), ".") && !strings.HasSuffix(m.Act, "`.") {
			t.Errorf("%s: meaning and act are no sentences: %q, %q", m.Name, m.Meaning, m.Act)
		}
	}
	for _, name := range []string{"OutboxDepth", "OutboxClaimedDepth", "OutboxClaimConflicts", "DynamoDBOutboxClaimScanPages", "DynamoDBOutboxClaimTruncated"} {
		if !slices.ContainsFunc(telemetry.Metrics(), func(m telemetry.Metric) bool { return m.Name == name }) {
			t.Errorf("%s is not in the list", name)
		}
	}
}

func TestEventsAreCounted(t *testing.T) {
	exporters, o := began(t, telemetry.Options{})
	ctx := t.Context()
	for _, e := range []bridge.Event{
		{Kind: bridge.EventAccepted, Count: 3, Took: 2 * time.Millisecond},
		{Kind: bridge.EventDuplicate, Count: 2},
		{Kind: bridge.EventRefused, Count: 1, Err: fmt.Errorf("route: %w", gobridge.ErrOutboxFull)},
		{Kind: bridge.EventRefused, Count: 4, Err: errors.New("disk on fire")},
		{Kind: bridge.EventDelivered, Binding: "crm", Count: 1, Took: time.Second, Age: 10 * time.Second},
		{Kind: bridge.EventFailed, Binding: "crm", Count: 1, Took: time.Second, Err: gobridge.Permanent(errors.New("no"))},
		{Kind: bridge.EventDeadLettered, Binding: "crm", Count: 5},
		{Kind: bridge.EventClaimed, Binding: "crm", Count: 64, Took: time.Millisecond},
		{Kind: bridge.EventOpened, Binding: "crm"},
		{Kind: bridge.EventLost, Binding: "crm", Partition: "orders/crm/0"},
	} {
		e.Route = "orders"
		o.Observe(ctx, e)
	}
	got := scrape(t, exporters.Scrape)
	for _, c := range []struct {
		want, name string
		labels     []string
	}{
		{"3", "gobridge_messages_accepted_total", nil},
		{"2", "gobridge_messages_duplicate_total", nil},
		{"1", "gobridge_messages_refused_total", []string{"reason", "full"}},
		{"4", "gobridge_messages_refused_total", []string{"reason", "store"}},
		{"1", "gobridge_records_delivered_total", []string{"binding", "crm"}},
		{"10", "gobridge_delivery_age_seconds_sum", nil},
		{"1", "gobridge_sends_failed_total", []string{"outcome", "permanent"}},
		{"1", "gobridge_send_duration_seconds_sum", []string{"outcome", "delivered"}},
		{"1", "gobridge_send_duration_seconds_sum", []string{"outcome", "permanent"}},
		{"5", "gobridge_records_dead_lettered_total", nil},
		{"64", "gobridge_claim_batch_size_sum", nil},
		{"1", "gobridge_circuit_changes_total", []string{"change", "opened"}},
		{"1", "gobridge_lease_changes_total", []string{"change", "lost"}},
	} {
		if v := got.value(c.name, append(c.labels, "route", "orders")...); v != c.want {
			t.Errorf("%s%v is %q, want %s", c.name, c.labels, v, c.want)
		}
	}
}

func TestGaugesAreReadOnceForAllWhoAsk(t *testing.T) {
	exporters, o := began(t, telemetry.Options{})
	var reads atomic.Int64
	var none error
	stop, err := o.Watch(watched(&reads, &none))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var got scraped
	for range 20 {
		got = scrape(t, exporters.Scrape)
	}
	if most := int64(time.Since(began)/time.Second) + 1; reads.Load() > most {
		t.Errorf("the store was read %d times for 20 scrapes, want %d at most", reads.Load(), most)
	}
	for name, want := range map[string]string{
		"gobridge_outbox_depth": "7", "gobridge_outbox_claimed_depth": "3", "gobridge_outbox_dead_depth": "2",
		"gobridge_outbox_dead_bytes": "512", "gobridge_outbox_oldest_age_seconds": "90", "gobridge_outbox_halted": "2",
		"gobridge_outbox_paused": "1", "gobridge_circuit_open": "1", "gobridge_sends_in_flight": "4",
		"gobridge_partitions_owned": "1", "gobridge_store_readable": "1",
	} {
		if v := got.value(name); v != want {
			t.Errorf("%s is %q, want %s", name, v, want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if v := scrape(t, exporters.Scrape).value("gobridge_outbox_depth"); v != "" {
		t.Errorf("a gauge that nobody reads any more is %q", v)
	}
}

func TestAStoreThatDoesNotAnswerLeavesGapsAndSaysSo(t *testing.T) {
	exporters, o := began(t, telemetry.Options{})
	var reads atomic.Int64
	broken := io.ErrUnexpectedEOF
	if _, err := o.Watch(watched(&reads, &broken)); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, exporters.Scrape)
	for name, want := range map[string]string{
		"gobridge_store_readable": "0", "gobridge_outbox_depth": "", "gobridge_outbox_halted": "", "gobridge_circuit_open": "1",
	} {
		if v := got.value(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	_, o := began(b, telemetry.Options{})
	for _, e := range []bridge.Event{
		{Kind: bridge.EventAccepted, Count: 1, Took: time.Millisecond},
		{Kind: bridge.EventDelivered, Count: 1, Took: time.Millisecond, Age: time.Second},
		{Kind: bridge.EventClaimed, Count: 64, Took: time.Millisecond},
	} {
		e.Route, e.Binding, e.Partition = "orders", "crm", "orders/crm/0"
		b.Run(string(e.Kind), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o.Observe(context.Background(), e)
			}
		})
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	_, o := began(t, telemetry.Options{})
	for _, kind := range kinds {
		e := bridge.Event{
			Kind: kind, Route: "orders", Binding: "crm", Partition: "orders/crm/0", Count: 1,
			Took: time.Millisecond, Age: time.Second, Err: gobridge.ErrOutboxFull,
		}
		most := 0.0
		if kind == bridge.EventFailed {
			most = 1 // to find out what the error means
		}
		if n := testing.AllocsPerRun(100, func() { o.Observe(context.Background(), e) }); n > most {
			t.Errorf("%s: %v allocations, want %v at most", kind, n, most)
		}
	}
}

// BenchmarkDelivery delivers b.N records from a memory store to a destination that
// takes no time, told of and not: two halves of one run, in turns.
func BenchmarkDelivery(b *testing.B) {
	_, o := began(b, telemetry.Options{})
	for _, observer := range []bridge.Observer{nil, o} {
		name := "untold"
		var sender gobridge.Sender = senderFunc(func(_ context.Context, batch []gobridge.Delivery) []error { return make([]error, len(batch)) })
		if observer != nil {
			name, sender = "told", o.Sender("orders", "crm", sender)
		}
		b.Run(name, func(b *testing.B) {
			br, err := bridge.New(memory.New(memory.Options{}), bridge.Options{
				Observer: observer,
				Routes:   []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{Name: "crm", Sender: sender}}}},
			})
			if err != nil {
				b.Fatal(err)
			}
			var all []messaging.Envelope
			for i := range b.N {
				if all = append(all, messaging.Envelope{ID: strconv.Itoa(i), Payload: make([]byte, 256)}); len(all) == 1000 || i == b.N-1 {
					if _, err := br.Route("orders").Publish(b.Context(), all...); err != nil {
						b.Fatal(err)
					}
					all = all[:0]
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := br.Drain(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
