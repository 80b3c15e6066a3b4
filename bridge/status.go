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

	// Partitions are the binding's, Owned those that this process drains.
	Partitions []gobridge.Partition
	Owned      []gobridge.Partition
}

// Status returns a snapshot, the bindings in the order of the options.
func (b *Bridge) Status() Status {
	s := Status{Owner: b.opts.Owner}
	for _, d := range b.destinations {
		bs := BindingStatus{
			Route: d.route.Name, Binding: d.binding.Name, Partitions: []gobridge.Partition{d.partition},
		}
		d.circuit.report(&bs)
		if dr := d.drainer.Load(); dr != nil {
			bs.InFlight, bs.Held = dr.status.read()
			bs.Owned = bs.Partitions
		}
		s.Bindings = append(s.Bindings, bs)
	}
	return s
}

// Probe makes this process try a destination that is down at once, after it has
// been mended say, instead of when the next probe is due.
func (b *Bridge) Probe(route, binding string) error {
	for _, d := range b.destinations {
		if d.route.Name == route && d.binding.Name == binding {
			d.circuit.probeNow()
			d.wakeUp()
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
