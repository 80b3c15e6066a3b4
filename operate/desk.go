package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"gobridge"
)

// Options configure a [Desk]. The zero value of every field works.
type Options struct {
	// Leases is nil for the store's own ([gobridge.Leaser]).
	Leases gobridge.LeaseStore
	// Plan is what the configuration says, nil when there is none at hand:
	// depths, filters and routes that were removed are not known then.
	Plan *Plan
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Plan is what is configured, as far as it explains what happens.
type Plan struct {
	Bindings []PlannedBinding
	// Parked names routes, bindings and partitions whose records may wait.
	Parked []string
}

// PlannedBinding is one destination of the configuration.
type PlannedBinding struct {
	Route   string
	Binding string
	// Destination says for people where it goes.
	Destination string
	// Filter is the expression, empty for none.
	Filter string
	// Partitions is over how many partitions it is spread; zero means 1.
	Partitions int
	// MaxOutboxDepth is zero for no bound.
	MaxOutboxDepth int
	// RejectsWhenFull says that new messages are refused when it is full.
	RejectsWhenFull bool
}

// Who says who acts, and why. The store keeps both.
type Who struct {
	By     string
	Reason string
}

// Step is what to do about something.
type Step struct {
	// Text says it in words, without the command.
	Text string `json:"text"`
	// Command does it, if any does: a program, gobridge as a rule, and its
	// arguments. Where the outbox is must be added. A kill is for the machine that the
	// text names.
	Command []string `json:"command,omitempty"`
}

// gobridgeDo returns a command of gobridge.
func gobridgeDo(args ...string) []string { return append([]string{"gobridge"}, args...) }

// Desk answers and acts. It is safe for concurrent use.
type Desk struct {
	store  gobridge.Store
	leases gobridge.LeaseStore
	plan   atomic.Pointer[Plan] // nil without a configuration
	// process is what is to be said of the process; nil is nothing.
	process atomic.Pointer[[]Finding]
	now     func() time.Time
	host    string // this machine
}

// New returns a desk on a store.
func New(store gobridge.Store, opts Options) *Desk {
	d := &Desk{store: store, leases: opts.Leases, now: opts.Now}
	d.plan.Store(opts.Plan)
	if leaser, ok := store.(gobridge.Leaser); ok && d.leases == nil {
		d.leases = leaser.Leases()
	}
	if d.now == nil {
		d.now = time.Now
	}
	var err error
	if d.host, err = os.Hostname(); err != nil {
		d.host = "the machine of the bridge"
	}
	return d
}

// SetPlan puts another configuration in the place of [Options.Plan].
func (d *Desk) SetPlan(plan *Plan) { d.plan.Store(plan) }

// SetProcess puts what is to be said of this process in the place of what was.
func (d *Desk) SetProcess(findings ...Finding) { d.process.Store(&findings) }

func (d *Desk) processFindings() []Finding {
	if all := d.process.Load(); all != nil {
		return *all
	}
	return nil
}

// Target is what an act is about: a route, one of its bindings, or a partition.
type Target struct {
	Route   string
	Binding string
	// Partition is set for a single one, "orders/billing/0".
	Partition gobridge.Partition
}

// ParseTarget reads "orders", "orders/billing" or "orders/billing/0".
func ParseTarget(text string) (Target, error) {
	if route, binding, _, ok := gobridge.Partition(text).Split(); ok {
		return Target{Route: route, Binding: binding, Partition: gobridge.Partition(text)}, nil
	}
	route, binding, both := strings.Cut(text, "/")
	err := gobridge.CheckName(route)
	if both {
		err = errors.Join(err, gobridge.CheckName(binding))
	}
	if err != nil {
		return Target{}, fmt.Errorf("%q is no route (orders), binding (orders/billing) or partition (orders/billing/0)", text)
	}
	return Target{Route: route, Binding: binding}, nil
}

func (t Target) String() string {
	switch {
	case t.Partition != "":
		return string(t.Partition)
	case t.Binding != "":
		return t.Route + "/" + t.Binding
	}
	return t.Route
}

// Filter returns the filter that selects the target's records.
func (t Target) Filter() gobridge.Filter {
	if t.Partition != "" {
		return gobridge.Filter{Partition: t.Partition}
	}
	return gobridge.Filter{Route: t.Route, Binding: t.Binding}
}

// Known reports an error that names what there is if the store and the
// configuration have nothing of the target.
func (d *Desk) Known(ctx context.Context, t Target) error {
	stats, err := d.store.Stats(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, b := range d.bindings(stats) {
		if b.Route == t.Route && (t.Binding == "" || t.Binding == b.Binding) {
			return nil
		}
		names = append(names, b.Route+"/"+b.Binding)
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: %s; the store is empty", gobridge.ErrNotFound, t)
	}
	return fmt.Errorf("%w: %s; there is %s", gobridge.ErrNotFound, t, strings.Join(names, ", "))
}

// Pause stops a binding, or all of a route.
func (d *Desk) Pause(ctx context.Context, t Target, who Who) error {
	return d.store.SetControl(ctx, gobridge.Control{
		Kind: gobridge.Pause, Route: t.Route, Binding: t.Binding, By: who.By, Reason: who.Reason,
	})
}

// Halt stops one key of a binding, or one record without a key.
func (d *Desk) Halt(ctx context.Context, t Target, key, id string, who Who) error {
	return d.store.SetControl(ctx, gobridge.Control{
		Kind: gobridge.Halt, Route: t.Route, Binding: t.Binding, OrderingKey: key, EnvelopeID: id, By: who.By, Reason: who.Reason,
	})
}

// Holding returns the controls that Resume would lift: of a key or an ID if one
// is given, otherwise the pauses of the target.
func (d *Desk) Holding(ctx context.Context, t Target, key, id string) ([]gobridge.Control, error) {
	all, err := d.store.ListControls(ctx)
	if err != nil {
		return nil, err
	}
	var out []gobridge.Control
	for _, c := range all {
		match := c.Route == t.Route && c.Binding == t.Binding
		if key == "" && id == "" {
			match = match && c.Kind == gobridge.Pause
		} else {
			match = match && c.Kind == gobridge.Halt && c.OrderingKey == key && c.EnvelopeID == id
		}
		if match {
			out = append(out, c)
		}
	}
	return out, nil
}

// Controls returns every pause and halt in force, oldest first.
func (d *Desk) Controls(ctx context.Context) ([]gobridge.Control, error) {
	return d.store.ListControls(ctx)
}

// Resume lifts what Holding returns, and fails with [gobridge.ErrNotFound] if
// that is nothing.
func (d *Desk) Resume(ctx context.Context, t Target, key, id string, who Who) error {
	controls, err := d.Holding(ctx, t, key, id)
	if err != nil {
		return err
	}
	if len(controls) == 0 {
		return fmt.Errorf("%w: nothing holds %s", gobridge.ErrNotFound, t)
	}
	for _, c := range controls {
		c.By, c.Reason = who.By, who.Reason
		if err := d.store.ClearControl(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// Audit returns the newest entries of what was done, newest first.
func (d *Desk) Audit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	return d.store.ListAudit(ctx, limit)
}
