package bridge

import (
	"fmt"

	"golang.org/x/sync/semaphore"

	"gobridge"
)

// lineup is the routes that a bridge serves, as of a moment. It never changes;
// [Bridge.Reconfigure] puts another in its place.
type lineup struct {
	handles      []*RouteHandle // in the order of the options, added ones last
	routes       map[string]*RouteHandle
	outlets      []*outlet
	destinations []*destination // the partitions of all outlets
	byPartition  map[gobridge.Partition]*destination

	partitions []gobridge.Partition // of the destinations
	serves     []serves             // what other processes are told

	parked, repartitioned []string // as in Options
}

func newLineup(parked, repartitioned []string) *lineup {
	return &lineup{
		routes: map[string]*RouteHandle{}, byPartition: map[gobridge.Partition]*destination{},
		parked: parked, repartitioned: repartitioned,
	}
}

// add puts a route, as s sets it up, behind the others.
func (l *lineup) add(h *RouteHandle, s *setup) {
	l.handles = append(l.handles, h)
	l.routes[h.name] = h
	for _, o := range s.outlets {
		l.outlets = append(l.outlets, o)
		l.serves = append(l.serves, serves{o.route.Name, o.binding.Name, o.route.Partitions})
		l.partitions = append(l.partitions, o.partitions()...)
		l.destinations = append(l.destinations, o.shards...)
		for _, d := range o.shards {
			l.byPartition[d.partition] = d
		}
	}
}

// setup is a route at work. It never changes; its handle may get another.
type setup struct {
	bridge  *Bridge
	route   Route
	outlets []*outlet // as route.Bindings
}

// newSetup sets a route up. What is under way still in the partitions that old,
// unless nil, serves is known to the new ones.
func newSetup(b *Bridge, r Route, old *lineup) *setup {
	s := &setup{bridge: b, route: r}
	for i := range s.route.Bindings {
		o := newOutlet(b, &s.route, &s.route.Bindings[i])
		if old != nil {
			for _, d := range o.shards {
				d.inherit(old.byPartition[d.partition])
			}
		}
		s.outlets = append(s.outlets, o)
	}
	return s
}

// whole is all of a semaphore that many share: more than there can be calls at a time.
const whole = 1 << 40

func newHandle(b *Bridge, name string) *RouteHandle {
	return &RouteHandle{bridge: b, name: name, gate: semaphore.NewWeighted(whole)}
}

// removed is the error of a route that is not served any more.
func (h *RouteHandle) removed() error { return fmt.Errorf("route %q: %w", h.name, ErrRouteRemoved) }
