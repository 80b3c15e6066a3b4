package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/config"
	"gobridge/messaging"
	"gobridge/store/dynamodb"
	"gobridge/telemetry"
	"gobridge/transport/httpsource"
)

// measures is what a process tells of itself; nil tells nobody.
type measures struct {
	exporters *telemetry.Exporters
	observer  *telemetry.Observer
	tracer    *telemetry.Tracer // nil for no traces
}

// startMeasures makes what the configuration asks for, nil if nobody would see it.
func startMeasures(ctx context.Context, c *config.Config, log *slog.Logger) (*measures, error) {
	if c.Admin == nil && c.Telemetry == nil {
		return nil, nil //nolint:nilnil // there may be none
	}
	options := telemetry.Options{Version: version(), Instance: messaging.NewID(), Logger: log}
	options.Host, _ = os.Hostname() // without one it is not said
	if c.Telemetry != nil && c.Telemetry.OTLP != nil {
		o := c.Telemetry.OTLP
		options.Endpoint, options.Interval, options.Traces = o.Endpoint.Reveal(), time.Duration(o.Interval), float64(o.Traces)
		options.Headers = map[string]string{}
		for name, value := range o.Headers {
			options.Headers[name] = value.Reveal()
		}
	}
	exporters, err := telemetry.Start(ctx, options)
	if err != nil {
		return nil, &failure{err}
	}
	observer, err := telemetry.NewObserver(exporters.Meters)
	if err != nil {
		return nil, &failure{err}
	}
	return &measures{exporters, observer, exporters.Tracer()}, nil
}

// Observer returns what a bridge tells, nil for nobody.
func (m *measures) Observer() bridge.Observer {
	if m == nil {
		return nil
	}
	return m.observer
}

// tableObserver hands on what a DynamoDB store tells.
type tableObserver struct{ observer *telemetry.Observer }

func (o tableObserver) Observe(e dynamodb.Event) {
	o.observer.ObserveStore(string(e.Metric), e.Partition, e.Operation, e.Resource, e.Value)
}

// Table returns what a DynamoDB store tells, nil for nobody.
func (m *measures) Table() dynamodb.Observer {
	if m == nil {
		return nil
	}
	return tableObserver{m.observer}
}

// publish returns what makes a route's messages durable, told of.
func (m *measures) publish(route string, inside httpsource.Publish) httpsource.Publish {
	if m == nil {
		return inside
	}
	return httpsource.Publish(m.tracer.Publish(route, telemetry.Publish(inside)))
}

// receivers returns receivers, by route, that are told of.
func (m *measures) receivers(all map[string]gobridge.Receiver) map[string]gobridge.Receiver {
	if m == nil {
		return all
	}
	out := map[string]gobridge.Receiver{}
	for route, r := range all {
		out[route] = m.tracer.Receiver(route, m.observer.Receiver(route, r))
	}
	return out
}

// sender returns a binding's sender, told of.
func (m *measures) sender(route, binding string, inside gobridge.Sender) gobridge.Sender {
	if m == nil {
		return inside
	}
	return m.tracer.Sender(m.observer.Sender(route, binding, inside))
}

// watch reads the gauges of a store and a bridge from now on; current says whether the
// configuration in force is that of the last reload.
func (m *measures) watch(store gobridge.Store, b *bridge.Bridge, current func() bool) error {
	if m == nil {
		return nil
	}
	_, err := m.observer.Watch(telemetry.Watched{Stats: store.Stats, Controls: store.ListControls, Status: b.Status, Current: current})
	return err
}

// measuresTime bounds the last export.
const measuresTime = 3 * time.Second

// Close sends what is left.
func (m *measures) Close() error {
	if m == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), measuresTime)
	defer cancel()
	_ = m.exporters.Shutdown(ctx) // a collector that is away loses figures, no message
	return nil
}
