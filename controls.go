package gobridge

import (
	"context"
	"time"
)

// Controls keeps what people and policies have put on hold. A control is
// durable, survives restarts, and holds in every process within a second of
// being set; the first Claim of a token sees every control set before it.
type Controls interface {
	// SetControl puts a control in force; one that is already in force keeps
	// its Since and By. Since is stamped if it is zero.
	SetControl(ctx context.Context, control Control) error

	// ClearControl lifts the control with this kind and scope. [ErrNotFound] if
	// there is none.
	ClearControl(ctx context.Context, control Control) error

	// ListControls returns the controls in force, oldest first.
	ListControls(ctx context.Context) ([]Control, error)

	// Retry makes the released records that match the filter due at once, so
	// far as their NotBefore allows, and returns how many. It takes up to 1,000
	// a call; call it again until it returns zero.
	Retry(ctx context.Context, filter Filter) (int, error)
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
