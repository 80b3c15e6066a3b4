package bridgetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gobridge"
)

// errAnswerLost is what a send comes to whose answer did not arrive.
var errAnswerLost = errors.New("the answer was lost")

// Attempt is a delivery that was tried, and what came of it.
type Attempt struct {
	Delivery gobridge.Delivery
	// Err is the answer that the engine got; nil is delivered.
	Err error
}

// Fail makes the next attempts at a binding fail, one for each error, in that
// order; its sender is not called. A nil error stands for an attempt that goes its
// ordinary way. [gobridge.Permanent], [gobridge.RetryAfter] and
// [gobridge.Unavailable] say what kind of failure it is.
func (h *Harness) Fail(binding string, errs ...error) {
	h.tb.Helper()
	b := h.binding(binding)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range errs {
		b.script = append(b.script, scripted{before: err})
	}
}

// LoseAnswer lets the next attempt at a binding reach its sender, and then fail
// as if the answer had been lost: the message comes again, and whoever takes it
// has to see that it is a repeat.
func (h *Harness) LoseAnswer(binding string) {
	h.tb.Helper()
	b := h.binding(binding)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.script = append(b.script, scripted{lost: true})
}

// Down makes a destination answer nothing but [gobridge.Unavailable] with err,
// until [Harness.Up].
func (h *Harness) Down(binding string, err error) {
	h.tb.Helper()
	h.Answer(binding, func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(err) })
}

// Up undoes [Harness.Down] and [Harness.Answer], and makes a destination forget
// that it asked to be left alone.
func (h *Harness) Up(binding string) {
	h.tb.Helper()
	h.Answer(binding, nil)
}

// Answer has f answer for a binding instead of its sender.
func (h *Harness) Answer(binding string, f func(ctx context.Context, delivery gobridge.Delivery) error) {
	h.tb.Helper()
	b := h.binding(binding)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer, b.quiet = f, time.Time{}
}

// scripted is the outcome of one attempt.
type scripted struct {
	before error // instead of calling the sender
	lost   bool  // after calling it
}

// binding is a destination in the test's hands: the sender that the engine sees.
type binding struct {
	route, name string
	partitions  []gobridge.Partition
	sender      gobridge.Sender // nil takes everything
	clock       *Clock

	// sending is held during a send: the partitions of a binding are drained side
	// by side, and its sender is not to notice.
	sending sync.Mutex

	mu     sync.Mutex
	script []scripted
	answer func(context.Context, gobridge.Delivery) error
	quiet  time.Time // it asked to be left alone until then
	tried  []Attempt
}

func (b *binding) String() string { return b.route + "/" + b.name }

// batching is a binding whose sender takes batches.
type batching struct {
	*binding
	sender gobridge.BatchSender
}

// BatchLimits implements [gobridge.BatchSender].
func (b batching) BatchLimits() gobridge.BatchLimits { return b.sender.BatchLimits() }

// Send implements [gobridge.Sender].
func (b *binding) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	b.sending.Lock()
	defer b.sending.Unlock()
	if left := b.leftAloneUntil().Sub(b.clock.Now()); left > 0 {
		err := gobridge.RetryAfter(left, fmt.Errorf("the destination asked to be left alone for %s more", left))
		return slices.Repeat([]error{err}, len(batch))
	}
	defer func() {
		if v := recover(); v != nil {
			b.record(batch, slices.Repeat([]error{fmt.Errorf("the sender panicked: %v", v)}, len(batch)))
			panic(v) // the engine deals with it
		}
	}()
	out := make([]error, len(batch))
	var through []gobridge.Delivery // to the real sender
	var at []int                    // where in the batch they stand
	var lost []bool
	for i, d := range batch {
		step, answer := b.next()
		switch {
		case step.before != nil:
			out[i] = step.before
		case answer != nil:
			if out[i] = answer(ctx, d); out[i] == nil && step.lost {
				out[i] = errAnswerLost
			}
		default:
			through, at, lost = append(through, d), append(at, i), append(lost, step.lost)
		}
		if out[i] != nil { // a batch ends with its first failure, so that no key gets ahead of it
			for j := i + 1; j < len(batch); j++ {
				out[j] = gobridge.ErrNotSent
			}
			break
		}
	}
	for i, err := range b.pass(ctx, through) {
		if err == nil && lost[i] {
			err = errAnswerLost
		}
		out[at[i]] = err
	}
	b.record(batch, out)
	return out
}

// next takes the next outcome off the script.
func (b *binding) next() (scripted, func(context.Context, gobridge.Delivery) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var step scripted
	if len(b.script) > 0 {
		step, b.script = b.script[0], b.script[1:]
	}
	return step, b.answer
}

// pass calls the real sender.
func (b *binding) pass(ctx context.Context, batch []gobridge.Delivery) []error {
	if len(batch) == 0 || b.sender == nil {
		return make([]error, len(batch))
	}
	out := b.sender.Send(ctx, batch)
	if len(out) != len(batch) {
		err := fmt.Errorf("the sender gave %d answers for %d deliveries", len(out), len(batch))
		return slices.Repeat([]error{err}, len(batch))
	}
	return out
}

// record notes what came of a batch.
func (b *binding) record(batch []gobridge.Delivery, answers []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, d := range batch {
		outcome, after := gobridge.Classify(answers[i])
		if outcome == gobridge.OutcomeNotSent {
			continue
		}
		if outcome == gobridge.OutcomeUnavailable && after > 0 {
			b.quiet = b.clock.Now().Add(after)
		}
		d.Envelope.Payload = slices.Clone(d.Envelope.Payload)
		d.Envelope.Headers = maps.Clone(d.Envelope.Headers)
		b.tried = append(b.tried, Attempt{d, answers[i]})
	}
}

func (b *binding) leftAloneUntil() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.quiet
}

func (b *binding) attempts() []Attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.tried)
}

// binding finds a binding by its name.
func (h *Harness) binding(name string) *binding {
	h.tb.Helper()
	var found []*binding
	for _, b := range h.bindings {
		if b.String() == name {
			return b
		}
		if b.name == name {
			found = append(found, b)
		}
	}
	switch len(found) {
	case 1:
		return found[0]
	case 0:
		h.tb.Fatalf("there is no binding %q; the bindings are %s", name, join(h.bindings))
	default:
		h.tb.Fatalf("binding %q may be any of %s: name the route too", name, join(found))
	}
	return nil
}

func (h *Harness) routeNames() string {
	var names []string
	for _, b := range h.bindings {
		if !slices.Contains(names, b.route) {
			names = append(names, b.route)
		}
	}
	return strings.Join(names, ", ")
}

func join(bindings []*binding) string {
	names := make([]string, len(bindings))
	for i, b := range bindings {
		names[i] = b.String()
	}
	return strings.Join(names, ", ")
}
