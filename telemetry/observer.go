package telemetry

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"gobridge"
	"gobridge/bridge"
)

// Observer counts what a bridge tells. It is safe for concurrent use and allocates
// nothing once it has seen a binding.
type Observer struct {
	in *instruments

	bindings sync.Map // [2]string → *bindingMeters
	routes   sync.Map // string → *routeMeters
	stores   sync.Map // storeKey → count
}

var _ bridge.Observer = (*Observer)(nil)

// NewObserver makes the instruments of all metrics but the gauges, which [Watch]
// reads.
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
	refused             map[string]count
}

type bindingMeters struct {
	simple                   map[bridge.EventKind]count
	failed                   map[gobridge.Outcome]count
	send                     map[gobridge.Outcome]record
	claim, claimFailed       record
	claimSize, settleSize    record
	settle, settleFailed     record
	age                      record
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
	if m, ok := o.routes.Load(name); ok {
		return m.(*routeMeters) //nolint:forcetypeassert // only those are stored
	}
	m := &routeMeters{
		accepted:  o.count("MessagesAccepted", labelRoute, name),
		duplicate: o.count("MessagesDuplicate", labelRoute, name),
		persist:   o.record("PersistDuration", labelRoute, name),
		refused:   map[string]count{otherRefusal: o.count("MessagesRefused", labelRoute, name, labelReason, otherRefusal)},
	}
	for _, r := range refusals {
		m.refused[r.reason] = o.count("MessagesRefused", labelRoute, name, labelReason, r.reason)
	}
	actual, _ := o.routes.LoadOrStore(name, m)
	return actual.(*routeMeters) //nolint:forcetypeassert // as above
}

func (o *Observer) binding(route, binding string) *bindingMeters {
	key := [2]string{route, binding}
	if m, ok := o.bindings.Load(key); ok {
		return m.(*bindingMeters) //nolint:forcetypeassert // only those are stored
	}
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
	actual, _ := o.bindings.LoadOrStore(key, m)
	return actual.(*bindingMeters) //nolint:forcetypeassert // as above
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

type storeKey struct{ metric, route, binding, operation, resource string }

// ObserveStore counts what a store tells of itself: a metric of the list by its
// name. Others are ignored.
func (o *Observer) ObserveStore(name string, partition gobridge.Partition, operation, resource string, value float64) {
	route, binding := placeOf(partition)
	key := storeKey{name, route, binding, operation, resource}
	c, ok := o.stores.Load(key)
	if !ok {
		if o.in.counters[name] == nil {
			return
		}
		c, _ = o.stores.LoadOrStore(key, o.count(name, storeLabels(key)...))
	}
	c.(count).add(context.Background(), value) //nolint:forcetypeassert // only those are stored
}

// storeLabels returns those labels that the metric has.
func storeLabels(key storeKey) []string {
	values := map[string]string{
		labelRoute: key.route, labelBinding: key.binding, labelOperation: key.operation, labelResource: key.resource,
	}
	var out []string
	for _, m := range Metrics() {
		if m.Name != key.metric {
			continue
		}
		for _, l := range m.Labels {
			out = append(out, l, values[l])
		}
	}
	return out
}
