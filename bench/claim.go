package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

const (
	claimSize  = 100
	smallSize  = 1000
	claimsEach = 30 // claims of each backlog in a run
)

// partition is where all records of the store's measures are.
var partition = gobridge.NewPartition("bench", "hook", 0)

// shape is a kind of backlog.
type shape struct {
	name string
	// key is the ordering key of record i.
	key func(i int) string
	// held claims the first record beforehand, and it stays claimed.
	held bool
	// free is how many younger records with keys of their own follow.
	free int
	// aim bounds the time at the large backlog by that at the small one.
	aim float64
}

func shapes() []shape {
	hot := func(int) string { return "hot" }
	return []shape{
		{name: "keyless", key: func(int) string { return "" }, aim: 2.5},
		{name: "all distinct keys", key: func(i int) string { return "k" + strconv.Itoa(i) }, aim: 2.5},
		{name: "one hot key blocked in front", key: hot, held: true, free: 2 * claimSize, aim: 2.5},
		{name: "all blocked", key: hot, held: true, aim: 1.1}, // no more than at the small one, and a tenth for noise
	}
}

// backlog is a store with records of a shape.
type backlog struct {
	store *sqlite.Store
	path  string
	token gobridge.Token
	held  []gobridge.Ref
}

// measureClaims compares the claim at a small and at a large backlog, shape by
// shape, and drains the large keyless one in a process of its own.
func measureClaims(ctx context.Context, s settings, t *table) error {
	for _, shape := range shapes() {
		err := inFolder(func(folder string) error {
			small, err := fill(ctx, filepath.Join(folder, "small.db"), shape, smallSize)
			if err != nil {
				return err
			}
			begun := time.Now()
			large, err := fill(ctx, filepath.Join(folder, "large.db"), shape, s.backlog)
			if err != nil {
				return err
			}
			progress("claim, %s: %d records in %s", shape.name, s.backlog, time.Since(begun).Round(time.Second))
			for range s.runs {
				if err := compareClaims(ctx, shape, small, large, t); err != nil {
					return err
				}
			}
			if err := errors.Join(small.store.Close(), large.store.Close()); err != nil {
				return err
			}
			if shape.name != "keyless" {
				return nil
			}
			return measureDrain(ctx, large.path, s.backlog, t)
		})
		if err != nil {
			return fmt.Errorf("claim, %s: %w", shape.name, err)
		}
	}
	return nil
}

func fill(ctx context.Context, path string, shape shape, size int) (*backlog, error) {
	store, err := sqlite.OpenFile(ctx, path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	b := &backlog{store: store, path: path, token: gobridge.Token{Owner: "bench", Version: 1}}
	if shape.held {
		if err := store.Persist(ctx, []gobridge.Record{newRecord("head", shape.key(0))}); err != nil {
			return nil, err
		}
		claimed, err := b.claim(ctx)
		if err != nil {
			return nil, err
		}
		b.held = refs(claimed)
	}
	batch := make([]gobridge.Record, 0, 1000)
	for i := range size + shape.free {
		key := "free" + strconv.Itoa(i)
		if i < size {
			key = shape.key(i)
		}
		batch = append(batch, newRecord(messaging.NewID(), key))
		if len(batch) == cap(batch) || i == size+shape.free-1 {
			if err := store.Persist(ctx, batch); err != nil {
				return nil, err
			}
			batch = batch[:0]
		}
	}
	return b, nil
}

func newRecord(id, key string) gobridge.Record {
	return gobridge.Record{Partition: partition, Binding: "hook",
		Envelope: messaging.Envelope{ID: id, OrderingKey: key, Payload: make([]byte, payloadSize)}}
}

func refs(records []gobridge.Record) []gobridge.Ref {
	out := make([]gobridge.Ref, len(records))
	for i := range records {
		out[i] = records[i].Ref()
	}
	return out
}

func (b *backlog) claim(ctx context.Context) ([]gobridge.Record, error) {
	return b.store.Claim(ctx, gobridge.ClaimRequest{Partition: partition, Token: b.token,
		Limit: claimSize, HeldKnown: true, Held: b.held})
}

// timeClaim claims a batch and puts it back.
func (b *backlog) timeClaim(ctx context.Context) (took float64, records int, err error) {
	begun := time.Now()
	claimed, err := b.claim(ctx)
	took = time.Since(begun).Seconds() * 1000
	if err != nil || len(claimed) == 0 {
		return took, 0, err
	}
	releases := make([]gobridge.Release, len(claimed))
	for i, ref := range refs(claimed) {
		releases[i] = gobridge.Release{Ref: ref}
	}
	return took, len(claimed), b.store.Release(ctx, b.token, releases)
}

// compareClaims is one run of a shape: claims of both backlogs take turns.
func compareClaims(ctx context.Context, shape shape, small, large *backlog, t *table) error {
	var times [2][]float64
	for range claimsEach {
		for i, b := range []*backlog{small, large} {
			took, records, err := b.timeClaim(ctx)
			if err != nil {
				return err
			}
			if want := claimSize; shape.name != "all blocked" && records != want {
				return fmt.Errorf("a claim returned %d records, want %d", records, want)
			}
			times[i] = append(times[i], took)
		}
	}
	atSmall, atLarge := quantile(times[0], 0.5), quantile(times[1], 0.5)
	t.add(shape.name+", 1k backlog, p50", "ms", atSmall)
	t.add(shape.name+", large backlog, p50", "ms", atLarge)
	t.atMost(shape.name+", large by small", "ratio", shape.aim, atLarge/atSmall)
	return nil
}

// measureDrain drains a file in a process of its own, for its memory.
func measureDrain(ctx context.Context, path string, size int, t *table) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, self, "-drain", path)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	t.add("drain of the large backlog", "records/s", float64(size)/seconds)
	t.atMost("drain of the large backlog, resident memory, peak", "MB", 64, maxResidentMB(command.ProcessState))
	return nil
}
