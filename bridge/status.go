package bridge

import (
	"fmt"
	"time"

	"gobridge"
)

// Status is what a bridge is doing. What the store holds is the store's to
// tell ([gobridge.Inspector]).
type Status struct {
	Owner    string
	Bindings []BindingStatus
}

// BindingStatus is one destination as this process sees it.
type BindingStatus struct {
	Route   string
	Binding string

	// Down says that the destination takes nothing: the circuit is open. Since
	// is from when on it has been so, or not so.
	Down  bool
	Since time.Time
	// NextProbe is when a record is tried next while the destination is down.
	NextProbe time.Time
	// LastError is the newest failure that was not clearly a record's own.
	LastError   string
	LastErrorAt time.Time

	// InFlight counts sends under way, Held records claimed and not settled.
	InFlight int
	Held     int

	// Partitions are the binding's, in order of their numbers, Owned those that this process drains.
	Partitions []gobridge.Partition
	Owned      []gobridge.Partition
}

// Status returns a snapshot, the bindings in the order of the options,
// those of routes that were added later last.
func (b *Bridge) Status() Status {
	s := Status{Owner: b.opts.Owner}
	for _, o := range b.lineup.Load().outlets {
		bs := BindingStatus{Route: o.route.Name, Binding: o.binding.Name, Partitions: o.partitions()}
		o.circuit.report(&bs)
		for _, d := range o.shards {
			if dr := d.drainer.Load(); dr != nil {
				inFlight, held := dr.status.read()
				bs.InFlight += inFlight
				bs.Held += held
				bs.Owned = append(bs.Owned, d.partition)
			}
		}
		s.Bindings = append(s.Bindings, bs)
	}
	return s
}

// Probe makes this process try a destination that is down at once, after it has
// been mended say, instead of when the next probe is due.
func (b *Bridge) Probe(route, binding string) error {
	for _, o := range b.lineup.Load().outlets {
		if o.route.Name == route && o.binding.Name == binding {
			o.circuit.probeNow()
			o.wakeUp()
			return nil
		}
	}
	return fmt.Errorf("binding %s/%s: %w", route, binding, gobridge.ErrNotFound)
}

func (c *circuit) report(s *BindingStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Down, s.Since, s.NextProbe = c.open, c.since, c.nextProbe
	s.LastError, s.LastErrorAt = c.lastErr, c.lastErrAt
}

func (s *drainerStatus) read() (inFlight, held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight, s.held
}
