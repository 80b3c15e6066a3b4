package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
)

// Options configure an [Exporters]. The zero value serves Prometheus only.
type Options struct {
	// Version and Instance say of which process the figures are.
	Version, Instance string

	// Endpoint, unless empty, is a collector's base URL, to which /v1/metrics and
	// /v1/traces are added (OTLP/HTTP).
	Endpoint string
	Headers  map[string]string
	// Interval is how often metrics are sent; 30 s when zero.
	Interval time.Duration
	// Traces is which share of the messages without a trace context is traced; with
	// zero nothing is.
	Traces float64
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
}

// Start makes the exporters. A collector that can't be reached is no error: it is
// tried again for as long as the process lives, what does not fit the queue
// meanwhile is dropped, and nothing waits for it.
func Start(ctx context.Context, o Options) (*Exporters, error) {
	of := resource.NewSchemaless(
		semconv.ServiceName("gobridge"), semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(o.Instance),
	)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	scrape, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	options := []metric.Option{metric.WithResource(of), metric.WithReader(scrape)}
	out := &Exporters{Scrape: promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: exportTimeout})}
	if o.Endpoint != "" {
		base := strings.TrimSuffix(o.Endpoint, "/")
		exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"),
			otlpmetrichttp.WithHeaders(o.Headers), otlpmetrichttp.WithTimeout(exportTimeout))
		if err != nil {
			return nil, fmt.Errorf("telemetry: collector for metrics: %w", err)
		}
		interval := o.Interval
		if interval == 0 {
			interval = 30 * time.Second
		}
		options = append(options, metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithInterval(interval), metric.WithTimeout(exportTimeout))))
		if o.Traces > 0 {
			if out.Traces, err = startTraces(ctx, base, o, of); err != nil {
				return nil, err
			}
		}
	}
	out.Meters = metric.NewMeterProvider(options...)
	return out, nil
}

func startTraces(ctx context.Context, base string, o Options, of *resource.Resource) (*trace.TracerProvider, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(base+"/v1/traces"),
		otlptracehttp.WithHeaders(o.Headers), otlptracehttp.WithTimeout(exportTimeout))
	if err != nil {
		return nil, fmt.Errorf("telemetry: collector for traces: %w", err)
	}
	return trace.NewTracerProvider(
		trace.WithResource(of),
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(o.Traces))),
		trace.WithBatcher(exporter, trace.WithMaxQueueSize(traceQueue), trace.WithMaxExportBatchSize(traceBatch), trace.WithExportTimeout(exportTimeout)),
	), nil
}

// Shutdown sends what is left, as long as ctx lasts.
func (e *Exporters) Shutdown(ctx context.Context) error {
	err := e.Meters.Shutdown(ctx)
	if e.Traces != nil {
		err = errors.Join(err, e.Traces.Shutdown(ctx))
	}
	return err
}
