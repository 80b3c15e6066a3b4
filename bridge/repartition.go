package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"gobridge"
)

// ErrPartitionsChanged says that a route was spread over another number of
// partitions, and that this still matters. See [*PartitionsError].
var ErrPartitionsChanged = errors.New("a route's number of partitions was changed")

// PartitionsError says what stands against a new number of partitions.
type PartitionsError struct {
	// Held are partitions of another number that hold records.
	Held []gobridge.Stats
	// Living says which processes serve another number.
	Living []string
	// Remembering are partitions of another number in which IDs of delivered
	// messages may be remembered, Until at the latest.
	Remembering []gobridge.Partition
	Until       time.Time
}

func (e *PartitionsError) Error() string {
	var b strings.Builder
	b.WriteString(ErrPartitionsChanged.Error())
	for _, s := range e.Held {
		fmt.Fprintf(&b, "; %s holds records (%d pending, %d claimed, %d dead)", s.Partition, s.Pending, s.Claimed, s.Dead)
	}
	for _, l := range e.Living {
		fmt.Fprintf(&b, "; %s", l)
	}
	if len(e.Remembering) > 0 {
		names := string(e.Remembering[0])
		if more := len(e.Remembering) - 1; more > 0 {
			names += fmt.Sprintf(" (and %d more)", more)
		}
		fmt.Fprintf(&b, "; %s may remember delivered messages until %s", names, e.Until.UTC().Format(time.RFC3339))
	}
	switch {
	case len(e.Held) > 0:
		b.WriteString(". Go back to the old number, stop what produces, let everything be delivered, redrive or discard the dead letters, then change it")
	case len(e.Living) > 0:
		b.WriteString(". Stop every process with the old number first")
	default:
		b.WriteString(". Wait that long, or name the route as repartitioned if it will do that those are delivered again when they are published again")
	}
	return b.String()
}

// Is makes the error match ErrPartitionsChanged.
func (e *PartitionsError) Is(target error) bool { return target == ErrPartitionsChanged }

// checkPartitions refuses a number of partitions that would tear a key's order or
// forget what was delivered. It returns the leases that it has watched and found
// dead.
func (b *Bridge) checkPartitions(ctx context.Context, l *lineup) (dead map[gobridge.Partition]sighting, err error) {
	all, err := b.store.Stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for another number of partitions: %w", err)
	}
	leases, err := b.opts.Leases.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for processes with another number of partitions: %w", err)
	}
	owned := map[gobridge.Partition]gobridge.Lease{}
	for _, lease := range leases {
		owned[lease.Partition] = lease
	}
	found := &PartitionsError{}
	for _, s := range all {
		if !l.otherNumber(s.Partition) || slices.Contains(l.parked, string(s.Partition)) {
			continue
		}
		if s.Pending+s.Claimed+s.Dead > 0 {
			found.Held = append(found.Held, s)
			continue
		}
		b.remembering(found, l, &s, owned[s.Partition])
	}
	if found.Living, dead, err = b.otherwiseLiving(ctx, l, leases); err != nil {
		return nil, err
	}
	if len(found.Held)+len(found.Living)+len(found.Remembering) > 0 {
		return nil, found
	}
	return dead, nil
}

// awaitPartitions is checkPartitions, tried again while the store can't be read,
// unless a start is to be refused when in doubt.
func (b *Bridge) awaitPartitions(ctx context.Context) (map[gobridge.Partition]sighting, error) {
	for failures := 0; ; failures++ {
		dead, err := b.checkPartitions(ctx, b.lineup.Load())
		if err == nil || errors.Is(err, ErrPartitionsChanged) || b.opts.Removed == RemovedRefuse {
			return dead, err
		}
		if failures == 0 && ctx.Err() == nil {
			b.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "the start waits for the store", slog.String("error", err.Error()))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(backoff(minPoll, time.Second, failures)):
		}
	}
}

// otherNumber reports whether p is a partition of a binding that has another
// number of them now.
func (l *lineup) otherNumber(p gobridge.Partition) bool {
	route, binding, _, ok := p.Split()
	return ok && slices.ContainsFunc(l.outlets, func(o *outlet) bool {
		return o.route.Name == route && o.binding.Name == binding && o.route.Partitions != p.Of()
	})
}

// remembering notes a partition in which identities may be remembered. The last
// record ended while the partition was owned.
func (b *Bridge) remembering(found *PartitionsError, l *lineup, s *gobridge.Stats, lease gobridge.Lease) {
	route, binding, _, _ := s.Partition.Split()
	if s.LastSeq == 0 || slices.Contains(l.repartitioned, route) || slices.Contains(l.repartitioned, route+"/"+binding) {
		return
	}
	last := s.NewestStamp
	if !lease.RenewedAt.IsZero() && lease.RenewedAt.Add(lease.Term).After(last) {
		last = lease.RenewedAt.Add(lease.Term)
	}
	until := last.Add(b.store.Limits().Retention)
	if !b.opts.Now().Before(until) {
		return
	}
	found.Remembering = append(found.Remembering, s.Partition)
	if until.After(found.Until) {
		found.Until = until
	}
}

// otherwiseLiving returns the processes that serve another number of partitions
// of a binding. Those that may be dead are watched for as long as it takes; dead
// are those that are.
func (b *Bridge) otherwiseLiving(ctx context.Context, routes *lineup, first []gobridge.Lease) (living []string, dead map[gobridge.Partition]sighting, err error) {
	began := time.Now()
	dead = map[gobridge.Partition]sighting{}
	suspects := map[gobridge.Partition]gobridge.Lease{}
	for _, l := range first {
		if !l.Released && routes.otherwise(l) != "" {
			suspects[l.Partition] = l
		}
	}
	for len(suspects) > 0 {
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(b.opts.LeaseTerm / 10):
		}
		leases, err := b.opts.Leases.Leases(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("look for processes with another number of partitions: %w", err)
		}
		for _, l := range leases {
			old, suspect := suspects[l.Partition]
			switch {
			case !suspect:
			case l.Released || routes.otherwise(l) == "":
				delete(suspects, l.Partition)
			case l.Revision != old.Revision:
				return []string{routes.otherwise(l)}, nil, nil
			case time.Since(began) >= l.Term:
				dead[l.Partition] = sighting{revision: l.Revision, since: began}
				delete(suspects, l.Partition)
			}
		}
	}
	return nil, dead, nil
}

// otherwise says who holds a lease that is about another number of partitions,
// empty if it is not.
func (l *lineup) otherwise(lease gobridge.Lease) string {
	if strings.HasPrefix(string(lease.Partition), memberPrefix) {
		m := parseMember(lease.Token.Owner)
		for _, s := range m.serves {
			if l.otherNumber(gobridge.NewShard(s.route, s.binding, 0, s.of)) {
				return fmt.Sprintf("%s serves %s/%s in %d", m.owner, s.route, s.binding, s.of)
			}
		}
		return ""
	}
	if l.otherNumber(lease.Partition) {
		return fmt.Sprintf("%s serves %s", lease.Token.Owner, lease.Partition)
	}
	return ""
}
