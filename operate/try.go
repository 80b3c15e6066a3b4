package operate

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
)

// Trial is what would become of a message.
type Trial struct {
	Route     string    `json:"route"`
	ID        string    `json:"id"`
	Key       string    `json:"key,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Refused says why the route would not take it, empty if it would.
	Refused string `json:"refused,omitempty"`
	// Known says that every binding has it already: it would be a duplicate.
	Known    bool           `json:"known"`
	Bindings []TrialBinding `json:"bindings"`
}

// TrialBinding is what one binding would make of it.
type TrialBinding struct {
	Binding     string `json:"binding"`
	Destination string `json:"destination,omitempty"`
	// Takes is false where the filter leaves it out.
	Takes     bool   `json:"takes"`
	Filter    string `json:"filter,omitempty"`
	Partition string `json:"partition,omitempty"`
	// Held is the state of a record that has this ID already, empty for none,
	// Since when it was stored.
	Held  string    `json:"held,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// Try says what would become of a message on a route, and sends and stores
// nothing. Store, unless nil, is looked at for what has the ID already. An error
// means that there is no such route.
func Try(ctx context.Context, b *bridge.Bridge, plan *Plan, store gobridge.Inspector, route string, e messaging.Envelope) (Trial, error) {
	out := Trial{Route: route, ID: e.ID}
	handle := b.Route(route)
	if handle == nil {
		return out, errNoRoute(plan, route)
	}
	records, err := handle.Records(e)
	if err != nil {
		out.Refused = err.Error()
		return out, nil //nolint:nilerr // it is the answer
	}
	known, taken := true, 0
	for _, p := range plan.Bindings {
		if p.Route != route {
			continue
		}
		one := TrialBinding{Binding: p.Binding, Destination: p.Destination, Filter: oneLine(p.Filter)}
		i := slices.IndexFunc(records, func(r gobridge.Record) bool { return r.Binding == p.Binding })
		if i >= 0 {
			r := &records[i]
			taken++
			out.ID, out.Key = r.Envelope.ID, r.Envelope.OrderingKey
			out.NotBefore, out.ExpiresAt = r.Envelope.NotBefore, r.Envelope.ExpiresAt
			one.Takes, one.Partition = true, string(r.Partition)
			held, err := heldAs(ctx, store, r)
			switch {
			case err != nil:
				return out, err
			case held == nil:
				known = false
			case held.ContentHash != r.ContentHash:
				out.Refused = gobridge.ErrIdentityReused.Error() + ": " + r.Envelope.ID + " is that of a message with another content"
				fallthrough
			default:
				one.Held, one.Since = held.State.String(), held.StoredAt
			}
		}
		out.Bindings = append(out.Bindings, one)
	}
	out.Known = known && taken > 0 && out.Refused == ""
	return out, nil
}

// heldAs returns the record that has the identity of r, nil if none has.
func heldAs(ctx context.Context, store gobridge.Inspector, r *gobridge.Record) (*gobridge.Record, error) {
	if store == nil {
		return nil, nil
	}
	held, err := store.Get(ctx, r.Ref())
	if errors.Is(err, gobridge.ErrNotFound) {
		return nil, nil
	}
	return &held, err
}

func errNoRoute(plan *Plan, route string) error {
	var names []string
	for _, p := range plan.Bindings {
		if !slices.Contains(names, p.Route) {
			names = append(names, p.Route)
		}
	}
	return &NoRouteError{Route: route, Routes: names}
}

// NoRouteError says that there is no such route, and which there are.
type NoRouteError struct {
	Route  string
	Routes []string
}

func (e *NoRouteError) Error() string {
	return "there is no route " + strconv.Quote(e.Route) + "; there is " + strings.Join(e.Routes, ", ")
}
