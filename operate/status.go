package operate

import (
	"context"
	"slices"
	"strings"
	"time"

	"gobridge"
)

// The levels of a status.
const (
	LevelOK       = "ok"
	LevelDegraded = "degraded" // something needs a person
)

// The states of a binding, and what can be said of the store as a whole.
const (
	StateOK         = "ok"
	StateRemoved    = "removed"           // the configuration has no such binding
	StateParked     = "parked"            // the same, and it may wait
	StatePaused     = "paused"            // a person stopped it
	StateNoOwner    = "no owner"          // no process drains it
	StateStaleOwner = "stale owner"       // the process that drained it has died
	StateDown       = "down"              // the destination takes nothing
	StateFull       = "full"              // the configured depth is reached
	StateDeadFull   = "dead letters full" // there is no room for another one
	StateHalted     = "halted"            // keys wait for a person
	StateFailing    = "failing"           // the oldest record fails again and again
	StateDead       = "dead letters"      // there are some
	StateClock      = "clock"             // stamps are ahead of this clock
	StateLocked     = "store locked"      // somebody else's transaction holds it
	StateDisk       = "disk full"         // new messages are refused for want of space
	StateThrottled  = "store throttled"   // many requests are refused for want of throughput
	StateUnwritable = "store unwritable"  // it refuses writes for another reason
	// The state of a process that has a listener.
	StateNotReloaded = "not reloaded" // its configuration file was refused
)

// Status is how things stand.
type Status struct {
	At    time.Time `json:"at"`
	Level string    `json:"level"`
	// Store is what can be said of the store as a whole.
	Store []Finding `json:"store,omitempty"`
	// Process is what can be said of the process that answers, if it is a bridge.
	Process  []Finding       `json:"process,omitempty"`
	Bindings []BindingStatus `json:"bindings"`
}

// BindingStatus is how one binding stands.
type BindingStatus struct {
	Route       string `json:"route"`
	Binding     string `json:"binding"`
	Destination string `json:"destination,omitempty"`

	// State is that of the first finding that needs a person, or "ok".
	State string `json:"state"`

	Pending   int64 `json:"pending"`
	Claimed   int64 `json:"claimed"`
	Dead      int64 `json:"dead"`
	DeadBytes int64 `json:"dead_bytes"`
	// Stored counts what was ever stored, redriven messages once more each time. It
	// may skip numbers, and starts anew with another number of partitions: it is for
	// rates.
	Stored int64 `json:"stored"`
	// OldestPending is when the oldest pending record was stored, and how long
	// ago that is in seconds.
	OldestPending    time.Time `json:"oldest_pending,omitzero"`
	OldestAgeSeconds float64   `json:"oldest_age_seconds,omitempty"`

	// Owner is the process that drains it, or those that share it, empty when none
	// does. Owners says who has which partition, those that nobody has included; it
	// is empty where the store has no leases.
	Owner  string      `json:"owner,omitempty"`
	Owners []Ownership `json:"owners,omitempty"`
	// NextProbe is when a destination that is down is tried again.
	NextProbe time.Time `json:"next_probe,omitzero"`

	Findings []Finding `json:"findings,omitempty"`
}

// Ownership is a partition and the process that drains it.
type Ownership struct {
	Partition gobridge.Partition `json:"partition"`
	// Owner is empty when nobody has it: then the rest is of the last who did.
	Owner string `json:"owner"`
	// Version is zero when nobody ever had it.
	Version int64 `json:"version"`
	// AcquiredAt is since when the owner has it, and RenewedAt his last sign of
	// life, by his clock.
	AcquiredAt time.Time `json:"acquired_at,omitzero"`
	RenewedAt  time.Time `json:"renewed_at,omitzero"`
	// LastError is what last went wrong for the owner with the partition, and
	// LastErrorAt when, by his clock.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// Finding is something worth knowing.
type Finding struct {
	State string `json:"state"`
	// Note says that nobody needs to get up for it.
	Note  bool      `json:"note,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Text is a sentence without its full stop.
	Text  string `json:"text"`
	Steps []Step `json:"steps,omitempty"`
}

// Status looks at everything. Where a process seems to be dead it watches its
// lease for up to three seconds, to be sure.
func (d *Desk) Status(ctx context.Context) (Status, error) {
	v, err := d.look(ctx)
	if err != nil {
		return Status{}, err
	}
	out := Status{At: v.now, Level: LevelOK, Store: v.store, Process: d.processFindings(), Bindings: []BindingStatus{}}
	for _, b := range v.bindings {
		one, err := v.status(ctx, b)
		if err != nil {
			return Status{}, err
		}
		out.Bindings = append(out.Bindings, one)
		if one.State != StateOK {
			out.Level = LevelDegraded
		}
	}
	for _, f := range slices.Concat(out.Store, out.Process) {
		if !f.Note {
			out.Level = LevelDegraded
		}
	}
	return out, nil
}

// view is one look at the store.
type view struct {
	desk     *Desk
	now      time.Time
	limits   gobridge.Limits
	bindings []*bindingOf
	controls []gobridge.Control
	owners   map[gobridge.Partition]owner
	store    []Finding // of the store as a whole
}

func (d *Desk) look(ctx context.Context) (*view, error) {
	stats, err := d.store.Stats(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{desk: d, now: d.now(), limits: d.store.Limits(), bindings: d.bindings(stats)}
	if v.controls, err = d.store.ListControls(ctx); err != nil {
		return nil, err
	}
	if v.owners, err = d.owners(ctx); err != nil {
		return nil, err
	}
	v.store = d.checkStore(ctx)
	return v, nil
}

func (v *view) status(ctx context.Context, b *bindingOf) (BindingStatus, error) {
	out := BindingStatus{Route: b.Route, Binding: b.Binding, State: StateOK}
	if b.plan != nil {
		out.Destination = b.plan.Destination
	}
	for i := range b.partitions {
		s := &b.partitions[i]
		out.Pending += s.Pending
		out.Claimed += s.Claimed
		out.Dead += s.Dead
		out.DeadBytes += s.DeadBytes
		out.Stored += s.LastSeq
		if !s.OldestPending.IsZero() && (out.OldestPending.IsZero() || s.OldestPending.Before(out.OldestPending)) {
			out.OldestPending = s.OldestPending
		}
		if c := v.down(s); c != nil {
			out.NextProbe = c.NextProbe
		}
	}
	out.Owners = v.ownership(b)
	var names []string
	for _, s := range out.Shares() {
		names = append(names, s.Owner)
	}
	out.Owner = strings.Join(names, ", ")
	if !out.OldestPending.IsZero() {
		out.OldestAgeSeconds = max(0, v.now.Sub(out.OldestPending).Seconds())
	}
	var err error
	if out.Findings, err = v.findings(ctx, b); err != nil {
		return out, err
	}
	for _, f := range out.Findings {
		if !f.Note {
			out.State = f.State
			break
		}
	}
	return out, nil
}

// down returns what the present owner reports of a destination that is down. One
// that has gone knows nothing of the present.
func (v *view) down(s *gobridge.Stats) *gobridge.Condition {
	c := &s.Condition
	if gone := v.desk.leases != nil && !v.owners[s.Partition].alive; gone || !c.Down || c.Token != s.Fence {
		return nil
	}
	return c
}
