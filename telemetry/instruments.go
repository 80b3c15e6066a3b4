package telemetry

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// Buckets of histograms. Seconds reach from a local commit to a day's outage.
var (
	durationBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	ageBuckets      = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}
	sizeBuckets     = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	attemptBuckets  = []float64{1, 2, 3, 5, 10, 20, 50, 100}
)

// instruments are the metrics by their names in the list.
type instruments struct {
	counters   map[string]metric.Float64Counter
	histograms map[string]metric.Float64Histogram
	gauges     map[string]metric.Float64ObservableGauge
	meter      metric.Meter
}

// scope names the instrumentation.
const scope = "gobridge"

func newInstruments(provider metric.MeterProvider) (*instruments, error) {
	in := &instruments{
		counters: map[string]metric.Float64Counter{}, histograms: map[string]metric.Float64Histogram{},
		gauges: map[string]metric.Float64ObservableGauge{}, meter: provider.Meter(scope),
	}
	var errs []error
	for _, m := range Metrics() {
		var err error
		switch m.Kind {
		case Counter:
			in.counters[m.Name], err = in.meter.Float64Counter(m.Instrument(), metric.WithUnit(m.Unit), metric.WithDescription(m.Meaning))
		case Histogram:
			in.histograms[m.Name], err = in.meter.Float64Histogram(m.Instrument(), metric.WithUnit(m.Unit), metric.WithDescription(m.Meaning),
				metric.WithExplicitBucketBoundaries(bucketsOf(m)...))
		case Gauge:
			in.gauges[m.Name], err = in.meter.Float64ObservableGauge(m.Instrument(), metric.WithUnit(m.Unit), metric.WithDescription(m.Meaning))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("telemetry: make instruments: %w", err)
	}
	return in, nil
}

func bucketsOf(m Metric) []float64 {
	switch {
	case m.Name == "DeliveryAge":
		return ageBuckets
	case m.Name == "DeliveryAttempts":
		return attemptBuckets
	case m.Unit == "s":
		return durationBuckets
	}
	return sizeBuckets
}

// count and record are instruments with their labels fixed.
type count struct {
	counter metric.Float64Counter
	options []metric.AddOption
}

func (c count) add(ctx context.Context, n float64) { c.counter.Add(ctx, n, c.options...) }

type record struct {
	histogram metric.Float64Histogram
	options   []metric.RecordOption
}

func (r record) put(ctx context.Context, v float64) { r.histogram.Record(ctx, v, r.options...) }
