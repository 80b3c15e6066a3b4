package telemetry

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"gobridge"
	"gobridge/bridge"
)

// Observer counts what a bridge tells. It is safe for concurrent use, and an event
// of a binding that it knows allocates nothing.
type Observer struct {
	in *instruments

	bindings known[place, *bindingMeters]
	routes   known[string, *routeMeters]

	stores      sync.Map // storeKey → count
	storeSeries atomic.Int64
}

// place is a binding.
type place struct{ route, binding string }

var _ bridge.Observer = (*Observer)(nil)

// NewObserver makes the instruments of all metrics. [Observer.Watch] reads the gauges.
func NewObserver(provider metric.MeterProvider) (*Observer, error) {
	in, err := newInstruments(provider)
	if err != nil {
		return nil, err
	}
	return &Observer{in: in}, nil
}

// Values of labels.
var (
	outcomes = map[gobridge.Outcome]string{
		gobridge.OutcomeDelivered: "delivered", gobridge.OutcomeTransient: "transient", gobridge.OutcomePermanent: "permanent",
		gobridge.OutcomeUnavailable: "unavailable", gobridge.OutcomeNotSent: "transient",
	}
	refusals = []struct {
		err    error
		reason string
	}{
		{gobridge.ErrTooLarge, "too_large"}, {gobridge.ErrRejected, "rejected"}, {gobridge.ErrInvalidRecord, "invalid"},
		{gobridge.ErrIdentityReused, "identity_reused"}, {gobridge.ErrOutboxFull, "full"},
	}
)

// otherRefusal is the reason of what has no other: the store could not be used.
const otherRefusal = "store"

func refusalOf(err error) string {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	return otherRefusal
}

type routeMeters struct {
	accepted, duplicate count
	persist             record
	batch               record
	take, takeEnded     record
	hasReceiver         atomic.Bool
	receivers           atomic.Int64 // that run
	refused             map[string]count
}

type bindingMeters struct {
	simple                   map[bridge.EventKind]count
	failed                   map[gobridge.Outcome]count
	send                     map[gobridge.Outcome]record
	claim, claimFailed       record
	claimSize, settleSize    record
	settle, settleFailed     record
	age, attempts            record
	acquired, lost, released count
	opened, closed           count
}

// simpleKinds are events that are counted by their Count and nothing else.
var simpleKinds = map[bridge.EventKind]string{
	bridge.EventFull: "OutboxFull", bridge.EventReleased: "RecordsReleased", bridge.EventExpired: "RecordsExpired",
	bridge.EventDiscarded: "RecordsDiscarded", bridge.EventDeadLettered: "RecordsDeadLettered", bridge.EventHalted: "KeysHalted",
	bridge.EventStale: "RecordsStale", bridge.EventStray: "SendsStray", bridge.EventSwept: "RecordsSwept", bridge.EventDelivered: "RecordsDelivered",
}

func (o *Observer) count(name string, labels ...string) count {
	return count{o.in.counters[name], []metric.AddOption{metric.WithAttributeSet(labelSet(labels))}}
}

func (o *Observer) record(name string, labels ...string) record {
	return record{o.in.histograms[name], []metric.RecordOption{metric.WithAttributeSet(labelSet(labels))}}
}

// labelSet makes a set of names and values in turn.
func labelSet(labels []string) attribute.Set {
	var out []attribute.KeyValue
	for i := 0; i+1 < len(labels); i += 2 {
		out = append(out, attribute.String(labels[i], labels[i+1]))
	}
	return attribute.NewSet(out...)
}

func (o *Observer) route(name string) *routeMeters {
	return o.routes.get(name, func() *routeMeters { return o.newRoute(name) })
}

func (o *Observer) newRoute(name string) *routeMeters {
	m := &routeMeters{
		batch:     o.record("SourceBatchSize", labelRoute, name),
		take:      o.record("SourceTakeDuration", labelRoute, name, labelResult, "ok"),
		takeEnded: o.record("SourceTakeDuration", labelRoute, name, labelResult, "error"),
		accepted:  o.count("MessagesAccepted", labelRoute, name),
		duplicate: o.count("MessagesDuplicate", labelRoute, name),
		persist:   o.record("PersistDuration", labelRoute, name),
		refused:   map[string]count{otherRefusal: o.count("MessagesRefused", labelRoute, name, labelReason, otherRefusal)},
	}
	for _, r := range refusals {
		m.refused[r.reason] = o.count("MessagesRefused", labelRoute, name, labelReason, r.reason)
	}
	return m
}

func (o *Observer) binding(route, binding string) *bindingMeters {
	return o.bindings.get(place{route, binding}, func() *bindingMeters { return o.newBinding(route, binding) })
}

func (o *Observer) newBinding(route, binding string) *bindingMeters {
	of := func(more ...string) []string {
		return append([]string{labelRoute, route, labelBinding, binding}, more...)
	}
	m := &bindingMeters{
		simple: map[bridge.EventKind]count{}, failed: map[gobridge.Outcome]count{}, send: map[gobridge.Outcome]record{},
		claim:        o.record("ClaimDuration", of(labelResult, "ok")...),
		claimFailed:  o.record("ClaimDuration", of(labelResult, "error")...),
		claimSize:    o.record("ClaimBatchSize", of()...),
		settle:       o.record("SettleDuration", of(labelResult, "ok")...),
		settleFailed: o.record("SettleDuration", of(labelResult, "error")...),
		settleSize:   o.record("SettleBatchSize", of()...),
		age:          o.record("DeliveryAge", of()...),
		attempts:     o.record("DeliveryAttempts", of()...),
		acquired:     o.count("LeaseChanges", of(labelChange, "acquired")...),
		lost:         o.count("LeaseChanges", of(labelChange, "lost")...),
		released:     o.count("LeaseChanges", of(labelChange, "released")...),
		opened:       o.count("CircuitChanges", of(labelChange, "opened")...),
		closed:       o.count("CircuitChanges", of(labelChange, "closed")...),
	}
	for kind, name := range simpleKinds {
		m.simple[kind] = o.count(name, of()...)
	}
	for outcome, name := range outcomes {
		m.failed[outcome] = o.count("SendsFailed", of(labelOutcome, name)...)
		m.send[outcome] = o.record("SendDuration", of(labelOutcome, name)...)
	}
	return m
}

// Observe implements [bridge.Observer].
func (o *Observer) Observe(ctx context.Context, e bridge.Event) {
	switch e.Kind {
	case bridge.EventAccepted:
		m := o.route(e.Route)
		m.accepted.add(ctx, float64(e.Count))
		m.persist.put(ctx, e.Took.Seconds())
	case bridge.EventDuplicate:
		o.route(e.Route).duplicate.add(ctx, float64(e.Count))
	case bridge.EventRefused:
		o.route(e.Route).refused[refusalOf(e.Err)].add(ctx, float64(e.Count))
	default:
		o.observeBinding(ctx, &e)
	}
}

func (o *Observer) observeBinding(ctx context.Context, e *bridge.Event) {
	route, binding := e.Route, e.Binding
	if route == "" {
		route, binding = placeOf(e.Partition)
	}
	m := o.binding(route, binding)
	if c, ok := m.simple[e.Kind]; ok {
		c.add(ctx, float64(e.Count))
	}
	switch e.Kind {
	case bridge.EventClaimed:
		m.claim.put(ctx, e.Took.Seconds())
		m.claimSize.put(ctx, float64(e.Count))
	case bridge.EventClaimFailed:
		m.claimFailed.put(ctx, e.Took.Seconds())
	case bridge.EventDelivered:
		m.send[gobridge.OutcomeDelivered].put(ctx, e.Took.Seconds())
		m.age.put(ctx, e.Age.Seconds())
	case bridge.EventFailed:
		outcome, _ := gobridge.Classify(e.Err)
		m.failed[outcome].add(ctx, float64(e.Count))
		m.send[outcome].put(ctx, e.Took.Seconds())
	case bridge.EventSettled:
		m.settle.put(ctx, e.Took.Seconds())
		m.settleSize.put(ctx, float64(e.Count))
	case bridge.EventSettleFailed:
		m.settleFailed.put(ctx, e.Took.Seconds())
	case bridge.EventOpened:
		m.opened.add(ctx, 1)
	case bridge.EventClosed:
		m.closed.add(ctx, 1)
	case bridge.EventAcquired:
		m.acquired.add(ctx, 1)
	case bridge.EventLost:
		m.lost.add(ctx, 1)
	case bridge.EventHandedOver:
		m.released.add(ctx, 1)
	}
}

// placeOf returns the route and the binding of a partition, and for the lease of a
// source the route alone.
func placeOf(p gobridge.Partition) (route, binding string) {
	if route, binding, _, ok := p.Split(); ok {
		return route, binding
	}
	route, _ = strings.CutPrefix(string(p), "~source/")
	if route == string(p) {
		return "", "" // a member's registration
	}
	return route, ""
}
