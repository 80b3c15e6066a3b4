package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"gobridge"
)

// ErrUnservedPartitions says that the outbox holds records of routes or
// bindings that are not configured. See [*UnservedError].
var ErrUnservedPartitions = errors.New("the outbox holds records that no route serves")

// UnservedError names the partitions that no route serves.
type UnservedError struct {
	Partitions []gobridge.Stats
}

func (e *UnservedError) Error() string {
	var b strings.Builder
	b.WriteString(ErrUnservedPartitions.Error())
	for i, s := range e.Partitions {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(&b, "%s%s (%d pending, %d claimed, %d dead)", separator, s.Partition, s.Pending, s.Claimed, s.Dead)
	}
	b.WriteString(". Restore the route or binding, move or discard the records, or park it to let them wait")
	return b.String()
}

// Is makes the error match ErrUnservedPartitions.
func (e *UnservedError) Is(target error) bool { return target == ErrUnservedPartitions }

// Unserved returns the figures of the partitions that hold records (pending,
// claimed or dead) and that no route serves, parked ones in a list of their own.
func (b *Bridge) Unserved(ctx context.Context) (unserved, parked []gobridge.Stats, err error) {
	return b.unserved(ctx, b.lineup.Load())
}

func (b *Bridge) unserved(ctx context.Context, l *lineup) (unserved, parked []gobridge.Stats, err error) {
	all, err := b.store.Stats(ctx)
	if err != nil {
		return nil, nil, err
	}
	unserved, parked = l.unserved(all)
	return unserved, parked, nil
}

// unserved picks, out of all figures, those of what l does not serve.
func (l *lineup) unserved(all []gobridge.Stats) (unserved, parked []gobridge.Stats) {
	for _, s := range all {
		switch {
		case l.byPartition[s.Partition] != nil || s.Pending+s.Claimed+s.Dead == 0:
		case l.isParked(s.Partition):
			parked = append(parked, s)
		default:
			unserved = append(unserved, s)
		}
	}
	return unserved, parked
}

// isParked reports whether Options.Parked names the partition, its binding or its
// route.
func (l *lineup) isParked(p gobridge.Partition) bool {
	names := []string{string(p)}
	if route, binding, _, ok := p.Split(); ok {
		names = append(names, route, route+"/"+binding)
	}
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(l.parked, n) })
}

// CheckStored returns what [Bridge.Run] would refuse to start with as far as the
// store's records tell, so without waiting: a [*PartitionsError] or an [*UnservedError].
func (b *Bridge) CheckStored(ctx context.Context) error {
	l := b.lineup.Load()
	all, err := b.store.Stats(ctx)
	if err != nil {
		return fmt.Errorf("look for records that no route serves: %w", err)
	}
	found := &PartitionsError{}
	for _, s := range all {
		found.holds(l, s)
	}
	if len(found.Held) > 0 {
		return found
	}
	if unserved, _ := l.unserved(all); len(unserved) > 0 && b.opts.Removed == RemovedRefuse {
		return &UnservedError{unserved}
	}
	return nil
}

// checkRemoved applies Options.Removed to the routes of l.
func (b *Bridge) checkRemoved(ctx context.Context, l *lineup) error {
	unserved, parked, err := b.unserved(ctx, l)
	if err != nil {
		if b.opts.Removed == RemovedRefuse {
			return fmt.Errorf("look for records that no route serves: %w", err)
		}
		b.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "records without a route cannot be looked for", slog.String("error", err.Error()))
		return nil
	}
	if len(unserved) > 0 && b.opts.Removed == RemovedRefuse {
		return &UnservedError{unserved}
	}
	b.report(ctx, slog.LevelWarn, "no route serves these records", unserved)
	b.report(ctx, slog.LevelInfo, "these records are parked", parked)
	return nil
}

func (b *Bridge) report(ctx context.Context, level slog.Level, message string, stats []gobridge.Stats) {
	for _, s := range stats {
		b.opts.Logger.LogAttrs(ctx, level, message, slog.String("partition", string(s.Partition)),
			slog.Int64("pending", s.Pending), slog.Int64("claimed", s.Claimed), slog.Int64("dead", s.Dead))
	}
}
