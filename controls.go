package gobridge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Controls keeps what people and policies have put on hold. A control is
// durable, survives restarts, and holds in every process within a second of
// being set; the first Claim of a token sees every control set before it.
type Controls interface {
	// SetControl puts a control in force; one that is already in force keeps
	// its Since and By. Since is stamped if it is zero.
	SetControl(ctx context.Context, control Control) error

	// ClearControl lifts the control with this kind and scope; By and Reason say
	// who lifts it and why. [ErrNotFound] if there is none.
	ClearControl(ctx context.Context, control Control) error

	// ListControls returns the controls in force, oldest first.
	ListControls(ctx context.Context) ([]Control, error)

	// Retry makes the released records that match the filter due at once, so
	// far as their NotBefore allows, and returns how many. It takes up to 1,000
	// a call; call it again until it returns zero. Each call also counts up
	// [Stats].Retries of the partitions that the filter names (by Partition,
	// Route and Binding), which tells an owner whose destination is down to try
	// it at once.
	Retry(ctx context.Context, request RetryRequest) (int, error)

	// ListAudit returns the newest entries, newest first, limit of them at most.
	// There is one for every SetControl, ClearControl, Retry, Redrive and
	// Discard that did not fail, written in its transaction; none for a dry run,
	// nor for a Redrive or Discard that changed nothing. [AuditEntry.Continues]
	// says which share an entry. The newest [AuditLimit] are kept.
	ListAudit(ctx context.Context, limit int) ([]AuditEntry, error)
}

// RetryRequest asks to have records tried again, and says who asks and why.
type RetryRequest struct {
	Filter Filter
	By     string
	Reason string
}

// ControlKind is what a control does.
type ControlKind string

// The kinds.
const (
	// Pause stops claims of a binding, or of all bindings of a route.
	Pause ControlKind = "pause"
	// Halt stops claims of one key, or of one record without a key.
	Halt ControlKind = "halt"
)

// Control is a hold on something. Kind and scope (Route, Binding, OrderingKey,
// EnvelopeID) are its identity.
type Control struct {
	Kind ControlKind

	// Route is required. Binding may be empty for a pause: all of the route's.
	Route   string
	Binding string

	// A halt has one of OrderingKey, or EnvelopeID for a record without a key.
	OrderingKey string
	EnvelopeID  string

	Since  time.Time
	By     string
	Reason string
}

// Check says what is wrong with a control.
func (c *Control) Check() error {
	switch {
	case c.Route == "":
		return errors.New("a control needs a route")
	case c.Kind == Pause && (c.OrderingKey != "" || c.EnvelopeID != ""):
		return errors.New("a pause is of a route or a binding; a key or a record is halted")
	case c.Kind == Pause:
		return nil
	case c.Kind != Halt:
		return fmt.Errorf("control kind %q; there are %q and %q", c.Kind, Pause, Halt)
	case c.Binding == "":
		return errors.New("a halt needs a binding")
	case (c.OrderingKey == "") == (c.EnvelopeID == ""):
		return errors.New("a halt has either an ordering key, or the envelope ID of a record without one")
	}
	return nil
}
