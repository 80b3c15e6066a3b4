package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"gobridge"
	"gobridge/admin"
	"gobridge/bridge"
	"gobridge/config"
	"gobridge/transport/httpsource"
)

// run runs the bridge of a configuration until ctx ends. It comes up from the
// store to the sources and goes down the other way: no more requests are taken
// and those in flight are answered, then what is on its way out is settled,
// then files and store are closed.
func run(ctx context.Context, c *config.Config, stdout io.Writer, log *slog.Logger) (err error) {
	for _, w := range c.Warnings {
		log.Warn("configuration", "warning", w.String())
	}
	defer func() {
		// Told to stop while it was still starting up: it has stopped.
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil
		}
	}()
	m, err := startMeasures(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() { err = closing(err, m) }()
	store, err := openStore(ctx, c.Store, m, log)
	if err != nil {
		return &failure{err}
	}
	defer func() { err = closing(err, store) }()

	brokers, err := openBrokers(c, log)
	if err != nil {
		return err
	}
	defer func() { err = closing(err, brokers) }()

	out, err := openSenders(c, brokers, stdout) //nolint:contextcheck // opening a file takes none
	if err != nil {
		return err
	}
	defer func() { err = closing(err, out) }()

	b, err := bridge.New(store, bridgeOptions(c, out, m, log))
	if err != nil {
		return &failure{err}
	}
	receivers, err := brokers.receivers(c)
	if err != nil {
		return err
	}
	server, err := newServer(c, func(route string) httpsource.Publish { return m.publish(route, b.Route(route).Publish) }, log)
	if err != nil {
		return err
	}
	// The engine looks too, but by then the server would have let messages in.
	if unserved, _, err := b.Unserved(ctx); err != nil {
		return &failure{err}
	} else if len(unserved) > 0 {
		return &bridge.UnservedError{Partitions: unserved}
	}
	if err := m.watch(store, b); err != nil {
		return &failure{err}
	}
	adminServer, err := newAdmin(ctx, c, store, b, m, log)
	if err != nil {
		return err
	}
	if adminServer != nil {
		if err := adminServer.Listen(ctx); err != nil {
			return &failure{err}
		}
		defer func() { _ = adminServer.Close() }()
	}
	in := &intake{bridge: b, receivers: m.receivers(receivers), log: log}
	if c.UsesHTTP() {
		if err := server.Listen(ctx); err != nil {
			return &failure{err}
		}
		defer func() { _ = server.Close() }() // it is closed already after an orderly end
		in.server, in.scheme = server, scheme(c)
	}
	return serve(ctx, b, in, adminServer, log)
}

// intake is everything that takes messages.
type intake struct {
	bridge    *bridge.Bridge
	receivers map[string]gobridge.Receiver // by route
	server    *httpsource.Server           // nil for none
	scheme    string
	log       *slog.Logger
}

// run takes messages until ctx ends and what was under way is done.
func (in *intake) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for route, receiver := range in.receivers {
		group.Go(func() error { return in.bridge.Route(route).Receive(ctx, receiver) })
	}
	if in.server != nil {
		group.Go(func() error {
			in.log.Info("listening", "address", in.scheme+"://"+in.server.Addr().String())
			return in.server.Run(ctx)
		})
	}
	return group.Wait()
}

// serve runs the engine, the intake and the admin listener, nil for none, side by
// side. The listener answers for as long as anything goes on.
func serve(ctx context.Context, b *bridge.Bridge, in *intake, adminServer *admin.Server, log *slog.Logger) error {
	// The engine works on until the last message is in.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	group, taking := errgroup.WithContext(ctx)
	seen, endSeen := context.WithCancel(context.WithoutCancel(ctx))
	defer endSeen()
	group.Go(func() error {
		defer endSeen()
		return b.Run(work)
	})
	group.Go(func() error {
		defer stopWork()
		return in.run(taking)
	})
	if adminServer != nil {
		log.Info("admin listening", "address", adminServer.URL())
		group.Go(func() error { return adminServer.Run(seen) })
	}
	stopped := context.AfterFunc(ctx, func() { log.Info("stopping; a second signal ends the process at once") })
	defer stopped()

	started := time.Now()
	err := group.Wait()
	switch {
	case errors.Is(err, bridge.ErrUnservedPartitions):
		return err
	case err != nil:
		return &failure{err}
	}
	log.Info("stopped", "ran_for", time.Since(started).Round(time.Millisecond))
	return nil
}

// closing closes c and returns err, or what closing came to.
func closing(err error, c io.Closer) error {
	if closeErr := c.Close(); closeErr != nil && err == nil {
		return &failure{closeErr}
	}
	return err
}

// newLogger returns the logger of the process.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // one of slog's own names, or the configuration is refused
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
