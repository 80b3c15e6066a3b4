package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// producersCount is how many producers call the store at once.
const producersCount = 64

// newBridge is a bridge with one binding that takes everything at once.
func newBridge(store gobridge.Store, delivered *atomic.Int64) (*bridge.Bridge, error) {
	take := func(context.Context, gobridge.Delivery) error {
		delivered.Add(1)
		return nil
	}
	return bridge.New(store, bridge.Options{Routes: []bridge.Route{{Name: "bench",
		Bindings: []bridge.Binding{{Name: "hook", Sender: gobridge.HandlerFunc(take), Concurrency: connections}}}}})
}

// measureBothSides runs producers and the drainer against each other.
func measureBothSides(ctx context.Context, s settings, t *table) error {
	for i := range s.runs {
		err := inFolder(func(folder string) error { return bothSides(ctx, filepath.Join(folder, "both.db"), s.length, t) })
		if err != nil {
			return fmt.Errorf("both sides: %w", err)
		}
		progress("both, run %d of %d", i+1, s.runs)
	}
	return nil
}

func bothSides(ctx context.Context, path string, length time.Duration, t *table) (err error) {
	store, err := sqlite.OpenFile(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var accepted, delivered atomic.Int64
	b, err := newBridge(store, &delivered)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- b.Run(running) }()

	begun := time.Now()
	loading, unload := context.WithTimeout(ctx, length)
	defer unload()
	var half atomic.Int64
	watch := time.AfterFunc(length/2, func() { half.Store(accepted.Load() - delivered.Load()) })
	defer watch.Stop()
	err = closedLoop(loading, func() error {
		_, err := b.Route("bench").Accept(ctx, newRecord(messaging.NewID(), "").Envelope)
		accepted.Add(1)
		return err
	})
	took := time.Since(begun).Seconds()
	in, out := accepted.Load(), delivered.Load()
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	t.add("accepted", "records/s", float64(in)/took)
	t.add("delivered", "records/s", float64(out)/took)
	t.add("depth at half", "records", float64(half.Load()))
	t.add("depth at the end", "records", float64(in-out))
	t.atMost("growth of the depth in the second half, by what was accepted", "share", 0.01,
		float64(in-out-half.Load())/float64(in))
	t.atMost("commits that any claim or settle waited for", "count", 2, float64(store.WriterStats().MaxClaimWait))
	return nil
}

// closedLoop has the producers call f over and over until the context ends.
func closedLoop(ctx context.Context, f func() error) error {
	var group sync.WaitGroup
	failures := make(chan error, producersCount)
	for range producersCount {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := f(); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

// drainFile drains a database and prints the seconds it took.
func drainFile(ctx context.Context, path string) (err error) {
	store, err := sqlite.OpenFile(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var delivered atomic.Int64
	b, err := newBridge(store, &delivered)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := b.Drain(ctx); err != nil {
		return err
	}
	fmt.Println(time.Since(begun).Seconds())
	return nil
}
