package admin

import (
	"context"
	"testing"

	"gobridge/operate"
)

// aged is a desk at which what waits has waited for an hour.
type aged struct{ Desk }

func (a aged) Status(ctx context.Context) (operate.Status, error) {
	s, err := a.Desk.Status(ctx)
	for i := range s.Bindings {
		if s.Bindings[i].Pending > 0 {
			s.Bindings[i].OldestAgeSeconds = 3600
		}
	}
	return s, err
}

func target(t testing.TB, text string) operate.Target {
	t.Helper()
	out, err := operate.ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
