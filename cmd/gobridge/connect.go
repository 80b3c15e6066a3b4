package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"gobridge"
	"gobridge/config"
)

// connectTimeout bounds the look at one endpoint.
const connectTimeout = 15 * time.Second

// endpoint is a source or a destination that can be looked at.
type endpoint struct {
	what string // "orders" or "orders/crm"
	part gobridge.Connector

	finding string
	err     error
}

// connectAll looks at every source and destination that has something to connect
// to, side by side, and writes what it finds. It consumes, publishes and makes
// nothing.
func connectAll(ctx context.Context, c *config.Config, stdout io.Writer) error {
	brokers, err := openBrokers(c, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { _ = brokers.Close() }() // nothing was connected that matters
	all, err := endpoints(c, brokers)
	if err != nil {
		return err
	}
	var looks sync.WaitGroup
	for _, e := range all {
		looks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			e.finding, e.err = e.part.Connect(ctx)
		})
	}
	looks.Wait()
	failed := 0
	for _, e := range all {
		finding := "ok      " + e.finding
		if e.err != nil {
			failed++
			finding = "MISSING " + e.err.Error()
		}
		if _, err := fmt.Fprintf(stdout, "connect %s: %s\n", e.what, finding); err != nil {
			return &failure{err}
		}
	}
	if failed > 0 {
		return &failure{fmt.Errorf("%d of %d endpoints are not as the configuration needs them", failed, len(all))}
	}
	return nil
}

// endpoints returns what can be looked at, sources before destinations.
func endpoints(c *config.Config, brokers brokers) ([]*endpoint, error) {
	receivers, err := brokers.receivers(c, nil)
	if err != nil {
		return nil, err
	}
	var out []*endpoint
	add := func(what string, part any) {
		if connector, ok := part.(gobridge.Connector); ok {
			out = append(out, &endpoint{what: what, part: connector})
		}
	}
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		add(route, receivers[route])
		for _, binding := range slices.Sorted(maps.Keys(c.Routes[route].Bindings)) {
			sender, err := brokers.sender(c, route, binding)
			if err != nil {
				return nil, err
			}
			add(route+"/"+binding, sender)
		}
	}
	return out, nil
}
