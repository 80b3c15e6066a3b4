package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

// Options configure an [Exporters]. The zero value serves Prometheus only.
type Options struct {
	// Version, Instance and Host say of which process the figures are.
	Version, Instance, Host string

	// Endpoint, unless empty, is a collector's base URL, to which /v1/metrics and
	// /v1/traces are added (OTLP/HTTP).
	Endpoint string
	Headers  map[string]string
	// Interval is how often metrics are sent; 30 s when zero.
	Interval time.Duration
	// Traces is which share of the messages without a trace context is traced; with
	// zero nothing is.
	Traces float64

	// Logger is told when the collector takes nothing, and when it does again;
	// nobody when nil.
	Logger *slog.Logger
}

// Bounds of what a collector can cost.
const (
	exportTimeout = 10 * time.Second
	traceQueue    = 2048 // spans; more are dropped
	traceBatch    = 512
)

// Exporters are the ends at which metrics and traces leave the process.
type Exporters struct {
	// Meters makes instruments.
	Meters *metric.MeterProvider
	// Traces makes spans; nil if nothing is traced.
	Traces *trace.TracerProvider
	// Scrape serves the metrics to Prometheus.
	Scrape http.Handler

	giveUp func() // breaks off what is being sent, and sends no more
}

// Start makes the exporters. A collector that can't be reached is no error: it is
// tried again for as long as the process lives, what does not fit the queue
// meanwhile is dropped, and nothing waits for it.
func Start(ctx context.Context, o Options) (*Exporters, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	of := resource.NewSchemaless(semconv.ServiceName("gobridge"), semconv.ServiceVersion(o.Version),
		semconv.ServiceInstanceID(o.Instance), semconv.HostName(o.Host))
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	scrape, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	options := []metric.Option{
		metric.WithResource(of), metric.WithReader(scrape),
		metric.WithCardinalityLimit(0), // every label is bounded; the default would lose partitions
		metric.WithExemplarFilter(exemplar.AlwaysOffFilter),
	}
	out := &Exporters{Scrape: promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: exportTimeout})}
	sending, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	out.giveUp = giveUp
	if o.Endpoint != "" {
		base := strings.TrimSuffix(o.Endpoint, "/")
		exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"),
			otlpmetrichttp.WithHeaders(o.Headers), otlpmetrichttp.WithTimeout(exportTimeout),
			otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})) // the next interval has it all
		if err != nil {
			return nil, fmt.Errorf("telemetry: collector for metrics: %w", err)
		}
		interval := o.Interval
		if interval == 0 {
			interval = 30 * time.Second
		}
		options = append(options, metric.WithReader(metric.NewPeriodicReader(
			&saidMetrics{exporter, collector{what: "metrics", log: o.Logger, sending: sending}}, metric.WithInterval(interval), metric.WithTimeout(exportTimeout))))
		if o.Traces > 0 {
			if out.Traces, err = startTraces(sending, base, o, of); err != nil {
				return nil, err
			}
		}
	}
	out.Meters = metric.NewMeterProvider(options...)
	return out, nil
}

func startTraces(sending context.Context, base string, o Options, of *resource.Resource) (*trace.TracerProvider, error) {
	exporter, err := otlptracehttp.New(sending, otlptracehttp.WithEndpointURL(base+"/v1/traces"),
		otlptracehttp.WithHeaders(o.Headers), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: exportTimeout,
		}))
	if err != nil {
		return nil, fmt.Errorf("telemetry: collector for traces: %w", err)
	}
	said := &saidTraces{exporter, collector{what: "traces", log: o.Logger, sending: sending}}
	return trace.NewTracerProvider(
		trace.WithResource(of),
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(o.Traces))),
		trace.WithBatcher(said, trace.WithMaxQueueSize(traceQueue), trace.WithMaxExportBatchSize(traceBatch), trace.WithExportTimeout(exportTimeout)),
	), nil
}

// Tracer returns what makes spans, nil if nothing is traced.
func (e *Exporters) Tracer() *Tracer {
	if e.Traces == nil {
		return nil // not a TracerProvider that is nil inside
	}
	return NewTracer(e.Traces)
}

// Shutdown sends what is left, as long as ctx lasts.
func (e *Exporters) Shutdown(ctx context.Context) error {
	defer e.giveUp()
	defer context.AfterFunc(ctx, e.giveUp)()
	var ending sync.WaitGroup
	var metrics, traces error
	ending.Go(func() { metrics = e.Meters.Shutdown(ctx) })
	if e.Traces != nil {
		ending.Go(func() { traces = e.Traces.Shutdown(ctx) })
	}
	ending.Wait()
	return errors.Join(metrics, traces)
}
