package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
)

// collector says once that a collector takes nothing, and once that it does again.
// The SDK would write each failure to standard error.
type collector struct {
	what    string
	log     *slog.Logger
	sending context.Context //nolint:containedctx // ends when nothing is to be sent any more
	down    atomic.Bool
}

// send calls export, and breaks it off when nothing is to be sent any more.
func (c *collector) send(ctx context.Context, export func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.sending, cancel)() //nolint:contextcheck // both contexts count
	err := export(ctx)
	switch {
	case c.sending.Err() != nil:
	case err != nil && c.down.CompareAndSwap(false, true):
		c.log.Warn("the collector takes nothing; what does not fit the queue is lost, and nothing waits for it", "signal", c.what, "error", err)
	case err == nil && c.down.CompareAndSwap(true, false):
		c.log.Info("the collector takes what it is sent again", "signal", c.what)
	}
}

type saidMetrics struct {
	metric.Exporter
	collector
}

// Export implements [metric.Exporter]. It has no error for the SDK to report.
func (s *saidMetrics) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	s.send(ctx, func(ctx context.Context) error { return s.Exporter.Export(ctx, m) })
	return nil
}

type saidTraces struct {
	trace.SpanExporter
	collector
}

// ExportSpans implements [trace.SpanExporter]. It has no error for the SDK to report.
func (s *saidTraces) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	s.send(ctx, func(ctx context.Context) error { return s.SpanExporter.ExportSpans(ctx, spans) })
	return nil
}
