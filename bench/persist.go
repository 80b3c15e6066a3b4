package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// measurePersist compares the store's group commit with a transaction for each
// record, which is what a service gets that shares nothing.
func measurePersist(ctx context.Context, s settings, t *table) error {
	for i := range s.runs {
		shared, commits, err := persistRate(ctx, s.length/2, persistShared)
		if err != nil {
			return fmt.Errorf("persist: %w", err)
		}
		single, _, err := persistRate(ctx, s.length/2, persistAlone)
		if err != nil {
			return fmt.Errorf("persist, a transaction each: %w", err)
		}
		t.add("group commit", "records/s", shared)
		t.add("a transaction each", "records/s", single)
		t.atLeast("group commit by a transaction each", "ratio", 10, shared/single)
		t.add("records to a commit", "count", commits)
		progress("persist, run %d of %d", i+1, s.runs)
	}
	return nil
}

func persistShared(ctx context.Context, store *sqlite.Store, records []gobridge.Record) error {
	return store.Persist(ctx, records)
}

func persistAlone(ctx context.Context, store *sqlite.Store, records []gobridge.Record) error {
	return store.InTx(ctx, func(tx *sql.Tx) error { return store.PersistTx(ctx, tx, records) })
}

// persistRate is how many records a second the producers get stored, and how
// many of the store's own commits each took.
func persistRate(ctx context.Context, length time.Duration,
	persist func(context.Context, *sqlite.Store, []gobridge.Record) error) (rate, perCommit float64, err error) {
	err = inFolder(func(folder string) error {
		store, err := sqlite.OpenFile(ctx, filepath.Join(folder, "persist.db"), sqlite.Options{})
		if err != nil {
			return err
		}
		var stored atomic.Int64
		begun := time.Now()
		loading, unload := context.WithTimeout(ctx, length)
		defer unload()
		err = closedLoop(loading, func() error {
			defer stored.Add(1)
			return persist(ctx, store, []gobridge.Record{newRecord(messaging.NewID(), "")})
		})
		rate = float64(stored.Load()) / time.Since(begun).Seconds()
		if stats := store.WriterStats(); stats.Commits > 0 {
			perCommit = float64(stats.Requests) / float64(stats.Commits)
		}
		return errors.Join(err, store.Close())
	})
	return rate, perCommit, err
}
