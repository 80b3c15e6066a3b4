package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Kind is how a metric's values are to be read.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"   // only grows
	Gauge     Kind = "gauge"     // goes up and down
	Histogram Kind = "histogram" // how often values were how large
)

// Metric is one thing that is measured.
type Metric struct {
	// Name is unique, and the one that gobridge's documents use.
	Name string
	Kind Kind
	// Unit is as UCUM has it: "s", "By", or a thing in braces.
	Unit   string
	Labels []string
	// Meaning says what it is, Act what to do when it moves.
	Meaning string
	Act     string
}

// The labels.
const (
	labelRoute     = "route"
	labelBinding   = "binding"
	labelPartition = "partition"
	labelOutcome   = "outcome"
	labelReason    = "reason"
	labelResult    = "result"
	labelChange    = "change"
	labelOperation = "operation"
	labelResource  = "resource"
)

var (
	byRoute     = []string{labelRoute}
	byBinding   = []string{labelRoute, labelBinding}
	byPartition = []string{labelRoute, labelBinding, labelPartition}
)

// Metrics returns the list.
func Metrics() []Metric { return slices.Concat(ofBridge(), ofStores()) }

// ofBridge returns what is read from a bridge and its store, or told by a bridge.
func ofBridge() []Metric {
	return []Metric{
		{"OutboxDepth", Gauge, "{record}", byPartition, "Records that wait: pending, whether due or not.", "Growing: the destination is down, slow or rate-limited, or a key is stuck. `gobridge status` says which."},
		{"OutboxClaimedDepth", Gauge, "{record}", byPartition, "Records that a process has claimed and not settled.", "Standing above zero while OutboxDepth is zero: a head is stranded or a send hangs. `gobridge explain ROUTE/BINDING`."},
		{"OutboxDeadDepth", Gauge, "{record}", byPartition, "Dead letters.", "Above zero: look at them (`gobridge dead list`), mend the cause, redrive or discard."},
		{"OutboxDeadBytes", Gauge, "By", byPartition, "Payloads and headers of dead letters.", "Near the store's bound: redrive, discard or export; when it is full, keys halt."},
		{"OutboxOldestAge", Gauge, "s", byPartition, "How long ago the oldest pending record was stored; zero when none waits.", "Growing: that record's key does not move. `gobridge explain ROUTE/BINDING`."},
		{"OutboxStampAhead", Gauge, "s", byPartition, "How far the newest stamp is ahead of this process's clock; zero when it is not.", "Jumps up: the clock of some process is wrong, this one's or that of the one that had the partition before. Order does not depend on it."},
		{"OutboxHalted", Gauge, "{hold}", byBinding, "Halted keys, and halted records without a key.", "Above zero: each waits for a person. `gobridge status` lists them; mend, then `gobridge resume`."},
		{"OutboxPaused", Gauge, "{hold}", byBinding, "1 while the binding, or its whole route, is paused.", "Somebody paused it: `gobridge audit` says who and why."},
		{"CircuitOpen", Gauge, "{circuit}", byBinding, "1 while the destination takes nothing and is only probed.", "The destination or its credentials: `gobridge status` has its last answer."},
		{"SendsInFlight", Gauge, "{send}", byBinding, "Sends under way in this process.", "At its bound (concurrency times partitions) with a growing depth: the destination is slow."},
		{"PartitionsOwned", Gauge, "{partition}", byBinding, "Partitions that this process drains.", "Zero everywhere: no process has them, see LeaseChanges."},
		{"SourceRunning", Gauge, "{source}", byRoute, "1 while this process takes from the route's broker.", "Zero in every process: the receiver gave up and waits for its next try; the log has its error."},
		{"ConfigurationCurrent", Gauge, "{configuration}", nil, "1 while the configuration in force is that of the last reload.", "Zero: a reload was refused and the one before goes on. `gobridge status --admin` says what is wrong with the file."},
		{"StoreReadable", Gauge, "{store}", nil, "1 while the outbox answers.", "Zero: the store is locked, unreachable or broken; the log has its error."},

		{"MessagesAccepted", Counter, "{record}", byRoute, "Records made durable: messages times the bindings that take them.", "Falls to zero: the source is quiet, or refuses (MessagesRefused)."},
		{"MessagesDuplicate", Counter, "{message}", byRoute, "Messages that every binding had already, and that were suppressed.", "Rising: a producer repeats itself, or a broker redelivers."},
		{"MessagesRefused", Counter, "{message}", []string{labelRoute, labelReason}, "Messages not accepted, by reason: invalid, too_large, rejected, identity_reused, full, store.", "full: a binding is at its depth; store: the outbox can't be written; the others: the producer."},
		{"OutboxFull", Counter, "{record}", byBinding, "Records for which the binding had no room.", "Make the destination faster, or raise max_outbox_depth."},

		{"RecordsDelivered", Counter, "{record}", byBinding, "Records that the destination took.", "Zero with a depth above zero: see CircuitOpen and OutboxOldestAge."},
		{"SendsFailed", Counter, "{record}", []string{labelRoute, labelBinding, labelOutcome}, "Sends that failed, by what the answer means: transient, permanent, unavailable.", "permanent: messages the destination will never take; unavailable: the destination as a whole."},
		{"RecordsReleased", Counter, "{record}", byBinding, "Records that went back to pending.", "Many a second: sends fail, or leases move."},
		{"RecordsDeadLettered", Counter, "{record}", byBinding, "Records that became dead letters.", "Rising: `gobridge dead list` groups them by reason."},
		{"RecordsDiscarded", Counter, "{record}", byBinding, "Records ended by on_failure: discard.", "That many messages were given up."},
		{"RecordsExpired", Counter, "{record}", byBinding, "Records that ended as expired.", "The destination is slower than expire_after allows."},
		{"KeysHalted", Counter, "{key}", byBinding, "Keys halted by policy.", "See OutboxHalted."},
		{"RecordsSwept", Counter, "{record}", byBinding, "Records that housekeeping ended, purged or set right.", "Nothing: it is work done."},
		{"RecordsStale", Counter, "{record}", byBinding, "Records that turned out to belong to another owner when they were settled.", "Rising: processes lose leases while they work; look at their pauses and their way to the store."},
		{"SendsStray", Counter, "{send}", byBinding, "Sends under way when their lease ended: each may be a repeat out of turn.", "Rising: as RecordsStale."},
		{"LeaseChanges", Counter, "{change}", []string{labelRoute, labelBinding, labelChange}, "Leases acquired, lost and released by this process.", "lost: a process was too slow to renew, was paused, or was cut off from the store."},
		{"CircuitChanges", Counter, "{change}", []string{labelRoute, labelBinding, labelChange}, "Circuits opened and closed.", "Many: the destination flaps."},

		{"SourceBatchSize", Histogram, "{message}", byRoute, "Messages that a broker's receiver handed over at once.", "Nothing by itself: ones mean a slow source, or one without batches."},
		{"SourceTakeDuration", Histogram, "s", []string{labelRoute, labelResult}, "Time to make what a receiver handed over durable, waits for room included; error: broken off, and delivered again.", "Rising above PersistDuration: the outbox is full, and the source is held back."},
		{"PersistDuration", Histogram, "s", byRoute, "Time to make a message or a batch durable.", "Rising: the disk or the table is slow."},
		{"ClaimDuration", Histogram, "s", []string{labelRoute, labelBinding, labelResult}, "Time of a claim, by result: ok, error.", "Rising: the store is slow, or a deep keyed backlog on DynamoDB."},
		{"ClaimBatchSize", Histogram, "{record}", byBinding, "Records that a claim brought.", "Ones beside a depth: everything waits behind few keys."},
		{"SettleDuration", Histogram, "s", []string{labelRoute, labelBinding, labelResult}, "Time of a settling call, by result: ok, error.", "As ClaimDuration."},
		{"SettleBatchSize", Histogram, "{record}", byBinding, "Records that a settling call had.", "Nothing by itself."},
		{"SendDuration", Histogram, "s", []string{labelRoute, labelBinding, labelOutcome}, "Time of a send, by outcome: delivered, transient, permanent, unavailable.", "Rising: the destination is slow."},
		{"DeliveryAttempts", Histogram, "{attempt}", byBinding, "Which attempt it was that delivered a record.", "Rising: the destination takes things only when asked again."},
		{"DeliveryAge", Histogram, "s", byBinding, "Time from acceptance to delivery, end to end.", "Rising: messages wait; see OutboxDepth and SendDuration."},
	}
}

// ofStores returns what stores tell themselves, each a counter.
func ofStores() []Metric {
	return []Metric{
		{"OutboxClaimConflicts", Counter, "{conflict}", []string{labelRoute, labelBinding, labelPartition, labelOperation}, "DynamoDB: writes refused because of another one on the same row at that moment.", "Standing high: the fence row is hot; more partitions (partitions: N) spread it."},
		{"DynamoDBOutboxClaimScanPages", Counter, "{page}", byPartition, "DynamoDB: pages read by claims of partitions with ordering keys.", "Rising with the depth: each claim reads the backlog. Drain it, or spread the route over partitions."},
		{"DynamoDBOutboxClaimTruncated", Counter, "{claim}", byPartition, "DynamoDB: claims that returned less than selected because a later step failed.", "Rising: throttling or conflicts, see those."},
		{"DynamoDBReadUnits", Counter, "{unit}", []string{labelOperation, labelResource}, "DynamoDB: read units consumed, by the store's operation and the table or index.", "Cost. docs/dynamodb.md says what is normal."},
		{"DynamoDBWriteUnits", Counter, "{unit}", []string{labelOperation, labelResource}, "DynamoDB: write units consumed.", "As DynamoDBReadUnits."},
		{"DynamoDBCalls", Counter, "{call}", []string{labelOperation, labelResource}, "DynamoDB: requests, by the store's operation and the API call.", "As DynamoDBReadUnits."},
		{"DynamoDBThrottles", Counter, "{call}", []string{labelOperation, labelResource}, "DynamoDB: throttled requests.", "Raise the table's capacity or its account limit; nothing is lost meanwhile."},
		{"DynamoDBRetries", Counter, "{call}", []string{labelOperation}, "DynamoDB: repeated requests.", "As DynamoDBThrottles."},
	}
}

// prefix begins every name.
const prefix = "gobridge"

// Instrument is the OpenTelemetry name: "gobridge.outbox_depth" for OutboxDepth.
func (m Metric) Instrument() string { return prefix + "." + snake(m.Name) }

// Prometheus is the name that a scrape has: with the unit and, for a counter,
// _total behind it, as the conventions of OpenMetrics want it.
func (m Metric) Prometheus() string {
	name := prefix + "_" + snake(m.Name)
	switch m.Unit {
	case "s":
		name += "_seconds"
	case "By":
		if !strings.HasSuffix(name, "_bytes") {
			name += "_bytes"
		}
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// snake turns OutboxDepth into outbox_depth, and DynamoDBCalls into dynamodb_calls.
func snake(name string) string {
	name = strings.ReplaceAll(name, "DynamoDB", "Dynamodb")
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Markdown returns the table for the documentation.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| metric | Prometheus | kind, unit | labels | what it is | what to do when it moves |\n| --- | --- | --- | --- | --- | --- |\n")
	all := Metrics()
	slices.SortStableFunc(all, func(a, b Metric) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	for _, m := range all {
		labels := strings.Join(m.Labels, ", ")
		if labels == "" {
			labels = "none"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s, %s | %s | %s | %s |\n", m.Name, m.Prometheus(), m.Kind, strings.Trim(m.Unit, "{}"), labels, m.Meaning, m.Act)
	}
	return b.String()
}
