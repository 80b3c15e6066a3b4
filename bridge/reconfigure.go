package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// Change is what [Bridge.Reconfigure] is to do. Routes that it does not name go on
// undisturbed.
type Change struct {
	// Set are routes to add, or to put in the place of the one of their name.
	Set []Route
	// Remove names routes to take away.
	Remove []string
	// Parked and Repartitioned are put in the place of those of [Options].
	Parked, Repartitioned []string
	// Switched, unless nil, is called as soon as the new routes are in force, while
	// the drainers of the old ones settle what is on its way.
	Switched func()
}

// Reconfigure changes the routes of a bridge, whether or not it runs: all as the
// change says, or, with an error, none. It refuses what a start with the new routes
// would refuse ([ErrUnservedPartitions], [ErrPartitionsChanged]), and another number
// of partitions for a route that is served. Calls are made one after the other; ctx
// bounds the wait for each other and what comes before the switch.
//
// Publishing to a route that is changed waits while it is switched, which takes as
// long as the calls to the store that are under way, and then goes on as the new one
// says; a removed one fails with [ErrRouteRemoved] from then on. Drainers of changed
// and removed routes stop as in a shutdown: what is on its way is settled, for
// Options.Grace at most. Those of the new ones go on under the same leases. Whatever
// waited goes on under the new settings, in its order. When Reconfigure returns, no
// sender of the old routes is used any more, but for sends that ignore their context.
//
// Processes that share a store can be changed one by one: each drains with the
// others what they all serve, and alone what it alone serves.
func (b *Bridge) Reconfigure(ctx context.Context, c Change) error {
	if err := b.changing.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("bridge: another change is under way: %w", err)
	}
	defer b.changing.Release(1)
	s, err := b.planSwitch(c)
	if err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	if _, err := b.checkPartitions(ctx, s.to); err != nil {
		return err
	}
	if err := b.refuseUnserved(ctx, s.to); err != nil { // before anybody has to wait
		return err
	}
	if err := s.perform(ctx); err != nil {
		return err
	}
	if k := b.keeper.Load(); k != nil {
		k.wake()
	}
	if c.Switched != nil {
		c.Switched()
	}
	s.retire()
	for _, r := range c.Set {
		b.opts.Logger.LogAttrs(ctx, slog.LevelInfo, "route set", slog.String("route", r.Name))
	}
	for _, name := range c.Remove {
		b.opts.Logger.LogAttrs(ctx, slog.LevelInfo, "route removed", slog.String("route", name))
	}
	return nil
}

// lineupSwitch is one lineup on its way to become another.
type lineupSwitch struct {
	bridge *Bridge
	to     *lineup
	// setups are those of the routes that change, nil for one that is removed, and
	// of those that are added.
	setups map[*RouteHandle]*setup
	// old is what is drained for the last time.
	old []*destination
}

// planSwitch checks all that can be checked without the store. It changes nothing.
func (b *Bridge) planSwitch(c Change) (*lineupSwitch, error) {
	from := b.lineup.Load()
	set := map[string]Route{}
	for _, r := range c.Set {
		if _, twice := set[r.Name]; twice {
			return nil, fmt.Errorf("route %q is to be set twice", r.Name)
		}
		set[r.Name] = r
	}
	for _, name := range c.Remove {
		_, twice := set[name]
		switch {
		case from.routes[name] == nil:
			return nil, fmt.Errorf("route %q is to be removed, and there is none", name)
		case twice:
			return nil, fmt.Errorf("route %q is to be set and to be removed", name)
		}
	}
	opts := b.opts
	opts.Routes = nil
	var handles []*RouteHandle
	for _, h := range from.handles {
		r, changes := set[h.name]
		if !changes {
			r = h.setup.Load().route
		}
		if !slices.Contains(c.Remove, h.name) {
			handles, opts.Routes = append(handles, h), append(opts.Routes, r)
		}
	}
	for _, r := range c.Set {
		if from.routes[r.Name] == nil {
			handles, opts.Routes = append(handles, newHandle(b, r.Name)), append(opts.Routes, r)
		}
	}
	opts, err := opts.withDefaults(b.store)
	if err != nil {
		return nil, err
	}
	s := &lineupSwitch{bridge: b, to: newLineup(c.Parked, c.Repartitioned), setups: map[*RouteHandle]*setup{}}
	for _, name := range c.Remove {
		s.setups[from.routes[name]] = nil
	}
	for i, h := range handles {
		now, r := h.setup.Load(), opts.Routes[i]
		if _, changes := set[h.name]; changes {
			if now != nil && now.route.Partitions != r.Partitions {
				was, is := now.route.Partitions, r.Partitions
				return nil, &PartitionsError{
					Changes: []PartitionsChange{{h.name, was, is}},
					Living:  []string{fmt.Sprintf("%s, this process, serves route %s in %d, not %d", b.opts.Owner, h.name, was, is)},
				}
			}
			now = newSetup(b, r, from)
			s.setups[h] = now
		}
		s.to.add(h, now)
	}
	for _, d := range from.destinations {
		if s.to.byPartition[d.partition] != d {
			s.old = append(s.old, d)
		}
	}
	return s, nil
}

// refuseUnserved is checkRemoved of a running bridge.
func (b *Bridge) refuseUnserved(ctx context.Context, l *lineup) error {
	unserved, _, err := b.unserved(ctx, l)
	switch {
	case b.opts.Removed != RemovedRefuse:
		return nil
	case err != nil:
		return fmt.Errorf("look for records that no route serves: %w", err)
	case len(unserved) > 0:
		return &UnservedError{unserved}
	}
	return nil
}

// perform switches when nobody persists anything to the routes that change, unless
// that finds records that no route would serve.
func (s *lineupSwitch) perform(ctx context.Context) error {
	handles := slices.Collect(maps.Keys(s.setups))
	for i, h := range handles {
		if err := h.gate.Acquire(ctx, whole); err != nil {
			for _, earlier := range handles[:i] {
				earlier.gate.Release(whole)
			}
			return fmt.Errorf("route %q: wait for what is being stored: %w", h.name, err)
		}
	}
	defer func() {
		for _, h := range handles {
			h.gate.Release(whole)
		}
	}()
	if err := s.bridge.refuseUnserved(ctx, s.to); err != nil {
		return err
	}
	s.bridge.lineup.Store(s.to)
	for h, setup := range s.setups {
		h.setup.Store(setup)
	}
	return nil
}

// retire ends the drainers of what is not served any more as it was, and waits for
// that. They bound it themselves.
func (s *lineupSwitch) retire() {
	for _, d := range s.old {
		d.retire()
	}
	for _, d := range s.old {
		d.serving <- struct{}{}
		<-d.serving
	}
}
