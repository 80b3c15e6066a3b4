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
	// Changes are the numbers that were changed, each route in the order found.
	Changes []PartitionsChange
	// Held are partitions of another number that hold records.
	Held []gobridge.Stats
	// Living says which processes serve another number.
	Living []string
	// Remembering are partitions of another number in which IDs of delivered
	// messages may be remembered, Until at the latest.
	Remembering []gobridge.Partition
	Until       time.Time
}

// PartitionsChange is a route's number of partitions as it was and as it is.
type PartitionsChange struct {
	Route   string
	Was, Is int
}

// note adds a change, once.
func (e *PartitionsError) note(c PartitionsChange) {
	if !slices.Contains(e.Changes, c) {
		e.Changes = append(e.Changes, c)
	}
}

// back says what to set back.
func (e *PartitionsError) back() string {
	if len(e.Changes) == 1 {
		return fmt.Sprintf("it back to %d", e.Changes[0].Was)
	}
	return "it back to the old number"
}

func (e *PartitionsError) Error() string {
	var b strings.Builder
	b.WriteString(ErrPartitionsChanged.Error())
	for i, c := range e.Changes {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(&b, "%spartitions of route %s was %d and is %d now", separator, c.Route, c.Was, c.Is)
	}
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
		fmt.Fprintf(&b, ". Set %s, stop what produces, let everything be delivered, redrive or discard the dead letters, stop every process, "+
			"then change it; or stop every process and move what waits from each of these partitions to its own binding", e.back())
	case len(e.Living) > 0:
		fmt.Fprintf(&b, ". Stop every process with the old number first, once everything is delivered; or set %s", e.back())
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
		if !found.holds(l, s) && l.changes(s.Partition) {
			b.remembering(found, l, &s, owned[s.Partition])
		}
	}
	living, dead, err := b.otherwiseLiving(ctx, l, leases)
	if err != nil {
		return nil, err
	}
	if living != nil {
		found.Living = append(found.Living, living.says)
		found.note(living.change)
	}
	if len(found.Held)+len(found.Living)+len(found.Remembering) > 0 {
		return nil, found
	}
	return dead, nil
}

// holds notes a partition of another number if it holds records.
func (e *PartitionsError) holds(l *lineup, s gobridge.Stats) bool {
	if !l.changes(s.Partition) || s.Pending+s.Claimed+s.Dead == 0 {
		return false
	}
	e.Held = append(e.Held, s)
	e.note(l.change(s.Partition))
	return true
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

// changes reports whether p is a partition of another number that does not just wait.
func (l *lineup) changes(p gobridge.Partition) bool {
	return l.otherNumber(p) && !slices.Contains(l.parked, string(p))
}

// change says how the number of partitions was changed by which p is another's.
func (l *lineup) change(p gobridge.Partition) PartitionsChange {
	c := PartitionsChange{Was: p.Of()}
	for _, o := range l.outlets {
		if route, _, _, _ := p.Split(); o.route.Name == route {
			c.Route, c.Is = route, o.route.Partitions
		}
	}
	return c
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
	found.note(l.change(s.Partition))
	if until.After(found.Until) {
		found.Until = until
	}
}

// rival is a process that serves another number of partitions.
type rival struct {
	says   string
	change PartitionsChange
}

// otherwiseLiving returns a process that serves another number of partitions of a
// binding, nil for none. Those that may be dead are watched for as long as it takes; dead
// are those that are.
func (b *Bridge) otherwiseLiving(ctx context.Context, routes *lineup, first []gobridge.Lease) (living *rival, dead map[gobridge.Partition]sighting, err error) {
	began := time.Now()
	dead = map[gobridge.Partition]sighting{}
	suspects := map[gobridge.Partition]gobridge.Lease{}
	for _, l := range first {
		if !l.Released && routes.otherwise(l) != nil {
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
			case l.Released || routes.otherwise(l) == nil:
				delete(suspects, l.Partition)
			case l.Revision != old.Revision:
				return routes.otherwise(l), nil, nil
			case time.Since(began) >= l.Term:
				dead[l.Partition] = sighting{revision: l.Revision, since: began}
				delete(suspects, l.Partition)
			}
		}
	}
	return nil, dead, nil
}

// otherwise says who holds a lease that is about another number of partitions,
// nil if it is not.
func (l *lineup) otherwise(lease gobridge.Lease) *rival {
	if strings.HasPrefix(string(lease.Partition), memberPrefix) {
		m := parseMember(lease.Token.Owner)
		for _, s := range m.serves {
			if p := gobridge.NewShard(s.route, s.binding, 0, s.of); l.otherNumber(p) {
				return &rival{fmt.Sprintf("%s serves %s/%s in %d", m.owner, s.route, s.binding, s.of), l.change(p)}
			}
		}
		return nil
	}
	if l.otherNumber(lease.Partition) {
		return &rival{fmt.Sprintf("%s serves %s", lease.Token.Owner, lease.Partition), l.change(lease.Partition)}
	}
	return nil
}
