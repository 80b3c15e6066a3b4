package telemetry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"gobridge"
	"gobridge/bridge"
)

// Watched is what gauges are read from.
type Watched struct {
	// Stats and Controls are a store's, Status a bridge's. A reading costs a call
	// of each.
	Stats    func(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error)
	Controls func(ctx context.Context) ([]gobridge.Control, error)
	Status   func() bridge.Status
	// Current says whether the configuration in force is that of the last reload; nil
	// is always.
	Current func() bool
	// Now is the clock for ages; time.Now when nil.
	Now func() time.Time
}

const (
	// watchAge is for how long a reading is good: scrapes in between share it.
	watchAge = time.Second
	// watchTime bounds a reading.
	watchTime = 5 * time.Second
)

// Watch reads the gauges when they are collected, at most once a second however
// many collect them, until the function returned is called. A reading that fails
// leaves out what it could not learn.
func (o *Observer) Watch(w Watched) (stop func() error, err error) {
	if w.Now == nil {
		w.Now = time.Now
	}
	if w.Current == nil {
		w.Current = func() bool { return true }
	}
	r := &reading{watched: w}
	var all []metric.Observable
	for _, g := range o.in.gauges {
		all = append(all, g)
	}
	registration, err := o.in.meter.RegisterCallback(func(ctx context.Context, out metric.Observer) error {
		o.collect(out, r.read(ctx))
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return registration.Unregister, nil
}

// figures are one reading.
type figures struct {
	at       time.Time
	stats    []gobridge.Stats
	controls []gobridge.Control
	status   bridge.Status
	current  bool
	err      error
}

// reading shares readings among those who ask.
type reading struct {
	watched Watched

	mu     sync.Mutex
	last   figures
	readAt time.Time // monotonic
}

func (r *reading) read(ctx context.Context) figures {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.readAt.IsZero() && time.Since(r.readAt) < watchAge {
		return r.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchTime)
	defer cancel()
	f := figures{at: r.watched.Now(), status: r.watched.Status(), current: r.watched.Current()}
	if f.stats, f.err = r.watched.Stats(ctx); f.err == nil {
		f.controls, f.err = r.watched.Controls(ctx)
	}
	if f.err != nil {
		f.stats, f.controls = nil, nil
	}
	r.last, r.readAt = f, time.Now()
	return f
}

// collect tells the gauges. What could not be read is left out, but for the one
// that says so.
func (o *Observer) collect(out metric.Observer, f figures) {
	put := func(name string, v float64, labels ...string) {
		out.ObserveFloat64(o.in.gauges[name], v, metric.WithAttributeSet(labelSet(labels)))
	}
	if f.err != nil {
		put("StoreReadable", 0)
	} else {
		put("StoreReadable", 1)
	}
	put("ConfigurationCurrent", one(f.current))
	for route, m := range o.routes.all() {
		if m.hasReceiver.Load() {
			put("SourceRunning", float64(m.receivers.Load()), labelRoute, route)
		}
	}
	for _, s := range f.stats {
		route, binding, _, ok := s.Partition.Split()
		if !ok {
			continue
		}
		labels := []string{labelRoute, route, labelBinding, binding, labelPartition, string(s.Partition)}
		put("OutboxDepth", float64(s.Pending), labels...)
		put("OutboxClaimedDepth", float64(s.Claimed), labels...)
		put("OutboxDeadDepth", float64(s.Dead), labels...)
		put("OutboxDeadBytes", float64(s.DeadBytes), labels...)
		age := 0.0
		if !s.OldestPending.IsZero() {
			age = max(0, f.at.Sub(s.OldestPending).Seconds())
		}
		put("OutboxOldestAge", age, labels...)
		put("OutboxStampAhead", max(0, s.NewestStamp.Sub(f.at).Seconds()), labels...)
	}
	holds := holdsOf(f.controls)
	for _, b := range f.status.Bindings {
		labels := []string{labelRoute, b.Route, labelBinding, b.Binding}
		if f.err == nil {
			put("OutboxHalted", holds.halted[place{b.Route, b.Binding}], labels...)
			put("OutboxPaused", max(holds.paused[place{b.Route, b.Binding}], holds.paused[place{b.Route, ""}]), labels...)
		}
		put("CircuitOpen", one(b.Down), labels...)
		put("SendsInFlight", float64(b.InFlight), labels...)
		put("PartitionsOwned", float64(len(b.Owned)), labels...)
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// holds are counts of controls by what they are on. A whole route has no binding.
type holds struct{ halted, paused map[place]float64 }

func holdsOf(controls []gobridge.Control) holds {
	out := holds{halted: map[place]float64{}, paused: map[place]float64{}}
	for _, c := range controls {
		on := place{c.Route, c.Binding}
		if c.Kind == gobridge.Halt {
			out.halted[on]++
		} else {
			out.paused[on] = 1
		}
	}
	return out
}
