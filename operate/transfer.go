package operate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"gobridge"
	"gobridge/bridge"
)

// maxLine bounds a line of an export: the largest message, in base64, and what
// is around it.
const maxLine = 64 << 20

// Export writes the dead letters that match as lines of JSON, oldest first, but
// for those that skip reports true for, and returns how many it wrote. It
// changes nothing.
func (d *Desk) Export(ctx context.Context, filter gobridge.Filter, w io.Writer, skip func(gobridge.Ref) bool, progress func(int)) (int, error) {
	n := 0
	query := gobridge.DeadQuery{Filter: filter, Limit: bulkPage}
	for {
		page, err := d.store.QueryDead(ctx, query)
		if err != nil {
			return n, err
		}
		for i := range page.Records {
			r := &page.Records[i]
			if skip != nil && skip(r.Ref()) {
				continue
			}
			line, err := EncodeLetter(r)
			if err != nil {
				return n, fmt.Errorf("message %q: %w", r.Envelope.ID, err)
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return n, err
			}
			n++
		}
		if progress != nil {
			progress(n)
		}
		if page.Cursor == "" {
			return n, nil
		}
		query.Cursor = page.Cursor
	}
}

// Exported reads what is in an export so far: which records, and the length of
// its whole lines. What comes after that was cut off in the middle.
func Exported(r io.Reader) (map[gobridge.Ref]bool, int64, error) {
	refs := map[gobridge.Ref]bool{}
	in := bufio.NewReaderSize(r, 1<<16)
	var whole int64
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return refs, whole, nil
		}
		if err != nil {
			return nil, 0, err
		}
		record, err := DecodeLetter(line)
		if err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", number, err)
		}
		refs[record.Ref()] = true
		whole += int64(len(line))
	}
}

// ImportReport is what an import did.
type ImportReport struct {
	// Read counts lines, Imported those that are dead letters here now, Held
	// those whose IDs were known here already, in whatever state.
	Read     int `json:"read"`
	Imported int `json:"imported"`
	Held     int `json:"held"`
	// Those of Held that have ended here: only their IDs are remembered.
	Discarded int `json:"discarded"`
	Delivered int `json:"delivered"`
	Expired   int `json:"expired"`
}

// Import stores the dead letters of an export, those that are not here yet, as
// dead letters; to is where, unless empty: a binding that is another than
// theirs. It can be run again after it was interrupted. Who is for desks that keep
// a log of their own: the store's audit has no entry for it.
func (d *Desk) Import(ctx context.Context, r io.Reader, to Target, _ Who, dryRun bool, progress func(int)) (ImportReport, error) {
	var report ImportReport
	of, err := d.partitionsOf(ctx, to)
	if err != nil {
		return report, err
	}
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		report.Read++
		record, err := DecodeLetter(line)
		if err != nil {
			return report, fmt.Errorf("line %d: %w", report.Read, &letterError{err})
		}
		if to.Binding != "" {
			shard := gobridge.Shard(of, record.Envelope.OrderingKey, record.Envelope.ID)
			record.Partition, record.Binding = gobridge.NewShard(to.Route, to.Binding, shard, of), to.Binding
		}
		if err := d.importOne(ctx, &record, dryRun, &report); err != nil {
			return report, fmt.Errorf("line %d: %w", report.Read, err)
		}
		if progress != nil {
			progress(report.Read)
		}
	}
	return report, in.Err()
}

// letterError is what is wrong with a line of an export. It is a [gobridge.ErrInvalidRecord].
type letterError struct{ error }

func (e *letterError) Unwrap() error { return e.error }

// Is makes it match.
func (e *letterError) Is(target error) bool { return target == gobridge.ErrInvalidRecord }

func (d *Desk) importOne(ctx context.Context, r *gobridge.Record, dryRun bool, report *ImportReport) error {
	known, err := d.store.Get(ctx, r.Ref())
	switch {
	case errors.Is(err, gobridge.ErrNotFound):
	case err != nil:
		return err
	default:
		report.Held++
		switch known.State {
		case gobridge.StateDiscarded:
			report.Discarded++
		case gobridge.StateDelivered:
			report.Delivered++
		case gobridge.StateExpired:
			report.Expired++
		}
		return nil
	}
	if !dryRun {
		err := d.store.Persist(ctx, []gobridge.Record{*r})
		if errors.Is(err, gobridge.ErrDuplicateRecord) {
			report.Held++
			return nil
		}
		if err != nil {
			return err
		}
	}
	report.Imported++
	return nil
}

// partitionsOf returns over how many partitions a binding is spread.
func (d *Desk) partitionsOf(ctx context.Context, t Target) (int, error) {
	if t.Binding == "" {
		return 1, nil
	}
	stats, err := d.store.Stats(ctx)
	if err != nil {
		return 0, err
	}
	for _, b := range d.bindings(stats) {
		if b.Route == t.Route && b.Binding == t.Binding {
			return b.of(), nil
		}
	}
	return 1, nil
}

// Move moves what waits in a removed binding to another one: see [bridge.Move].
func (d *Desk) Move(ctx context.Context, from, to Target, who Who) (bridge.MoveResult, error) {
	var out bridge.MoveResult
	stats, err := d.store.Stats(ctx)
	if err != nil {
		return out, err
	}
	of, err := d.partitionsOf(ctx, to)
	if err != nil {
		return out, err
	}
	for _, s := range stats {
		route, binding, _, _ := s.Partition.Split()
		if route != from.Route || from.Binding != "" && binding != from.Binding || s.Pending+s.Claimed == 0 {
			continue
		}
		one, err := bridge.Move(ctx, d.store, s.Partition, to.Route, to.Binding,
			bridge.ParkedOptions{Leases: d.leases, Partitions: of, Now: d.now, By: who.By, Reason: who.Reason})
		out.Moved += one.Moved
		out.Expired += one.Expired
		out.Left.Pending += one.Left.Pending
		out.Left.Claimed += one.Left.Claimed
		out.Left.Dead += one.Left.Dead
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// EndRemoved ends everything that a removed binding, or a removed route, holds,
// dead letters too: see [bridge.Discard].
func (d *Desk) EndRemoved(ctx context.Context, t Target, who Who) (int, error) {
	stats, err := d.store.Stats(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, b := range d.bindings(stats) {
		if !d.Removed(b.Route, b.Binding) || b.Route != t.Route || t.Binding != "" && b.Binding != t.Binding {
			continue
		}
		for _, s := range b.partitions {
			n, err := bridge.Discard(ctx, d.store, s.Partition, who.By, who.Reason, bridge.ParkedOptions{Leases: d.leases, Now: d.now})
			total += n
			if err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// Removed reports whether there is a configuration, and it has no such binding.
func (d *Desk) Removed(route, binding string) bool {
	plan := d.plan.Load()
	if plan == nil {
		return false
	}
	for _, p := range plan.Bindings {
		if p.Route == route && (binding == "" || p.Binding == binding) {
			return false
		}
	}
	return true
}
