package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"gobridge/admin"
	"gobridge/bridge"
	"gobridge/config"
)

// run runs the bridge of a configuration, which was read from path, until ctx ends.
// It comes up from the store to the sources and goes down the other way: no more
// requests are taken and those in flight are answered, then what is on its way out
// is settled, then files and store are closed.
func run(ctx context.Context, path string, c *config.Config, reloads <-chan os.Signal, stdout io.Writer, log *slog.Logger) (err error) {
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

	l := &live{path: path, stdout: stdout, log: log, measures: m, listens: c.UsesHTTP()}
	l.config.Store(c)
	if l.parts, err = openParts(c, nil, stdout, log); err != nil { //nolint:contextcheck // opening a file takes none
		return err
	}
	defer func() { err = closing(err, l) }()

	b, err := bridge.New(store, bridgeOptions(c, l.parts.senders, m, log))
	if err != nil {
		return &failure{err}
	}
	l.bridge, l.sources = b, &sources{bridge: b, all: map[string]*source{}}
	for route := range l.parts.receivers {
		l.receive(l.parts, route)
	}
	if l.server, err = l.newServer(c); err != nil {
		return err
	}
	// The engine looks too, but by then the server would have let messages in.
	if err := b.CheckStored(ctx); errors.Is(err, bridge.ErrPartitionsChanged) || errors.Is(err, bridge.ErrUnservedPartitions) {
		return err
	} else if err != nil {
		return &failure{err}
	}
	if err := m.watch(store, b, func() bool { return !l.refused.Load() }); err != nil {
		return &failure{err}
	}
	adminServer, err := newAdmin(ctx, l, store)
	if err != nil {
		return err
	}
	if adminServer != nil {
		if err := adminServer.Listen(ctx); err != nil {
			return &failure{err}
		}
		defer func() { _ = adminServer.Close() }()
	}
	if l.listens {
		if err := l.server.Listen(ctx); err != nil {
			return &failure{err}
		}
		defer func() { _ = l.server.Close() }() // it is closed already after an orderly end
	}
	return serve(ctx, l, adminServer, reloads)
}

// take takes messages until ctx ends and what was under way is done.
func (l *live) take(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		l.sources.run(ctx)
		return nil
	})
	if l.listens {
		group.Go(func() error {
			l.log.Info("listening", "address", scheme(l.config.Load().HTTP.TLS)+"://"+l.server.Addr().String())
			return l.server.Run(ctx)
		})
	}
	return group.Wait()
}

// serve runs the engine, what takes messages and the admin listener, nil for none,
// side by side, and reloads when it is told to. The listener answers for as long as
// anything goes on.
func serve(ctx context.Context, l *live, adminServer *admin.Server, reloads <-chan os.Signal) error {
	log := l.log
	// The engine works on until the last message is in.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	group, taking := errgroup.WithContext(ctx)
	seen, endSeen := context.WithCancel(context.WithoutCancel(ctx))
	defer endSeen()
	group.Go(func() error {
		defer endSeen()
		return l.bridge.Run(work)
	})
	group.Go(func() error {
		defer stopWork()
		return l.take(taking)
	})
	if adminServer != nil {
		log.Info("admin listening", "address", adminServer.URL())
		group.Go(func() error { return adminServer.Run(seen) })
	}
	group.Go(func() error {
		l.onSignal(taking, reloads)
		return nil
	})
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
