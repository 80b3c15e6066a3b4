package sqs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gobridge"
	"gobridge/internal/awsbatch"
)

// errLost says that messages are not kept from others any more.
var errLost = errors.New("their visibility timeout is over, or could not be extended")

// parcel is what one poll brought: up to ten messages that become visible again
// together.
type parcel struct {
	messages []gobridge.Incoming
	handles  []string
	bytes    int64

	// The rest is the hand's.
	expires time.Time // at the earliest; that it may be later is nobody's knowledge
	lost    bool
	durable bool
	cancel  context.CancelCauseFunc // of the take that has it
}

// hand is what has been received and neither deleted nor given up.
type hand struct {
	visibility time.Duration
	fifo       bool

	mu      sync.Mutex
	parcels []*parcel // in the order of their arrival
}

func newHand(visibility time.Duration, fifo bool) *hand {
	return &hand{visibility: visibility, fifo: fifo}
}

func (h *hand) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *hand) add(p *parcel) { h.locked(func() { h.parcels = append(h.parcels, p) }) }

func (h *hand) remove(p *parcel) {
	h.locked(func() {
		if i := slices.Index(h.parcels, p); i >= 0 {
			h.parcels = slices.Delete(h.parcels, i, i+1)
		}
	})
}

// tick is how often is looked which messages need more time.
func (h *hand) tick() time.Duration { return max(h.visibility/8, 100*time.Millisecond) }

// usable reports whether a parcel may be handed over. One of a standard queue
// always may: what others take meanwhile is a duplicate, and there is no order.
func (h *hand) usable(p *parcel) (ok bool) {
	h.locked(func() { ok = !h.fifo || !p.lost && time.Until(p.expires) > h.tick() })
	return ok
}

// watch has a take cancelled when one of its parcels is lost.
func (h *hand) watch(batch []*parcel, cancel context.CancelCauseFunc) {
	h.locked(func() {
		for _, p := range batch {
			p.cancel = cancel
			if p.lost && h.fifo {
				cancel(errLost)
			}
		}
	})
}

// durable says that a batch is stored, and needs no more time than its deletion.
func (h *hand) durable(batch []*parcel) {
	h.locked(func() {
		for _, p := range batch {
			p.durable, p.cancel = true, nil
		}
	})
}

// due returns what needs more time, and gives up what has none left.
func (h *hand) due() []*parcel {
	var out []*parcel
	h.locked(func() {
		for _, p := range h.parcels {
			left := time.Until(p.expires)
			switch {
			case p.durable || p.lost:
			case left <= h.tick():
				h.lose(p)
			case left < h.visibility/2+h.tick():
				out = append(out, p)
			}
		}
	})
	return out
}

// extended says that a parcel has time from a moment on.
func (h *hand) extended(p *parcel, from time.Time) {
	h.locked(func() { p.expires = from.Add(h.visibility) })
}

// gone says that a parcel, or one of its messages, is not kept from others any more.
// It reports whether that matters: not if it has become durable meanwhile.
func (h *hand) gone(p *parcel) (matters bool) {
	h.locked(func() {
		if matters = !p.durable; matters {
			h.lose(p)
		}
	})
	return matters
}

func (h *hand) lose(p *parcel) {
	p.lost = true
	if p.cancel != nil && h.fifo {
		p.cancel(errLost)
	}
}

// rest takes what is left and is not another's by now.
func (h *hand) rest() (out []*parcel) {
	h.locked(func() {
		for _, p := range h.parcels {
			if !p.lost && time.Now().Before(p.expires) {
				out = append(out, p)
			}
		}
		h.parcels = nil
	})
	return out
}

// gate bounds what is in hand.
type gate struct {
	maxCount int
	maxBytes int64

	mu      sync.Mutex
	count   int
	bytes   int64
	changed chan struct{} // closed when there may be room
}

func newGate(maxCount int, maxBytes int64) *gate {
	return &gate{maxCount: maxCount, maxBytes: maxBytes, changed: make(chan struct{})}
}

// enter waits for room for a poll, and reports false if ctx ends first.
func (g *gate) enter(ctx context.Context) bool {
	for ctx.Err() == nil {
		g.mu.Lock()
		if g.count+awsbatch.MaxEntries <= g.maxCount && g.bytes < g.maxBytes {
			g.count += awsbatch.MaxEntries
			g.mu.Unlock()
			return true
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// settle says what a poll brought: fewer messages than it had room for, and bytes.
func (g *gate) settle(fewer int, bytes int64) { g.leave(fewer, -bytes) }

// leave makes room.
func (g *gate) leave(count int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count -= count
	g.bytes -= bytes
	close(g.changed)
	g.changed = make(chan struct{})
}
