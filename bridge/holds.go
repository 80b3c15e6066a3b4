package bridge

import (
	"context"
	"log/slog"
	"time"

	"gobridge"
)

// holdsEvery is the pause between two looks at the controls, so that one holds
// within a second for what is claimed but not sent as well. The store sees to
// the rest.
const holdsEvery = 500 * time.Millisecond

// holds are the controls in force.
type holds struct {
	at     time.Time          // when they were asked for
	paused map[[2]string]bool // route, and binding or empty
	halted map[haltScope]bool
}

type haltScope struct{ route, binding, key, id string }

// stop reports whether a control holds the record.
func (h *holds) stop(route, binding string, r *gobridge.Record) bool {
	if len(h.paused) > 0 && (h.paused[[2]string{route}] || h.paused[[2]string{route, binding}]) {
		return true
	}
	if len(h.halted) == 0 {
		return false
	}
	if key := r.Envelope.OrderingKey; key != "" {
		return h.halted[haltScope{route: route, binding: binding, key: key}]
	}
	return h.halted[haltScope{route: route, binding: binding, id: r.Envelope.ID}]
}

// watchHolds looks at the controls while anything is claimed, until ctx ends.
func (b *Bridge) watchHolds(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(holdsEvery):
		}
		if !b.holding() {
			continue
		}
		call, cancel := context.WithTimeout(ctx, settleTimeout)
		asked := time.Now()
		controls, err := b.store.ListControls(call)
		cancel()
		if err != nil {
			if !failing && ctx.Err() == nil {
				b.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "controls cannot be read", slog.String("error", err.Error()))
			}
			failing = true
			continue
		}
		failing = false
		b.holds.Store(newHolds(controls, asked))
	}
}

// holding reports whether any drainer has records.
func (b *Bridge) holding() bool {
	for _, d := range b.lineup.Load().destinations {
		if dr := d.drainer.Load(); dr != nil {
			if _, held := dr.status.read(); held > 0 {
				return true
			}
		}
	}
	return false
}

func newHolds(controls []gobridge.Control, at time.Time) *holds {
	h := &holds{at: at, paused: map[[2]string]bool{}, halted: map[haltScope]bool{}}
	for _, c := range controls {
		switch c.Kind {
		case gobridge.Pause:
			h.paused[[2]string{c.Route, c.Binding}] = true
		case gobridge.Halt:
			h.halted[haltScope{c.Route, c.Binding, c.OrderingKey, c.EnvelopeID}] = true
		}
	}
	return h
}
