package bridge

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// Waits between two tries to store what a source delivered.
const (
	minTakeWait = 50 * time.Millisecond
	maxTakeWait = 5 * time.Second
)

// taken is one message of a batch, as the records that it becomes: none if every
// filter leaves it out, or policy discards it.
type taken struct {
	envelope *messaging.Envelope // as the source handed it over
	records  []gobridge.Record
	rejected bool
}

// Take is a [gobridge.Take]: it makes what a source delivered durable for every
// binding that takes it, in its order, and waits for as long as there is no room
// or no store.
//
// What can never be stored, and what the route's expressions or a binding's
// destination ([gobridge.Carrier]) refuse, goes where Route.OnReject says. An ID
// that the store holds with other content is that of another message all the same:
// it is stored under the ID with a digest of its content behind it.
func (h *RouteHandle) Take(ctx context.Context, batch []gobridge.Incoming) error {
	rest := make([]taken, len(batch))
	for i := range batch {
		rest[i] = h.taken(ctx, &batch[i])
	}
	size, failures := len(rest), 0
	for len(rest) > 0 {
		n := min(size, len(rest))
		err := h.store(ctx, rest[:n])
		switch {
		case err == nil:
			if failures > 0 {
				h.bridge.opts.Logger.Info("the source goes on", "route", h.route.Name)
			}
			rest, size, failures = rest[n:], 2*size, 0
		case ctx.Err() != nil:
			return fmt.Errorf("route %q: %w", h.route.Name, ctx.Err())
		case n > 1 && errors.Is(err, gobridge.ErrOutboxFull):
			size = n / 2 // there may be room for some
		case n > 1 && refusal(err):
			size = 1 // to find which it is; the others are duplicates by now
		case refusal(err):
			h.rename(ctx, &rest[0], err)
		default:
			if failures == 0 {
				h.bridge.opts.Logger.Warn("the source waits", "route", h.route.Name, "error", err)
			}
			if !pauseFor(ctx, takeWait(failures)) {
				return fmt.Errorf("route %q: %w", h.route.Name, ctx.Err())
			}
			failures++
		}
	}
	return nil
}

// refusal reports whether the store will never take a message as it is.
func refusal(err error) bool {
	return errors.Is(err, gobridge.ErrIdentityReused) || errors.Is(err, gobridge.ErrInvalidRecord)
}

func takeWait(failures int) time.Duration {
	wait := min(minTakeWait<<min(failures, 10), maxTakeWait)
	return wait - rand.N(wait/2) //nolint:gosec // jitter
}

// pauseFor waits, and reports false if ctx ends first.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// taken makes the records of one message.
func (h *RouteHandle) taken(ctx context.Context, in *gobridge.Incoming) taken {
	t := taken{envelope: &in.Envelope}
	err := in.Reject
	if err == nil {
		if t.records, _, err = h.records(nil, in.Envelope); err == nil {
			return t
		}
	} else {
		err = fmt.Errorf("route %q: %w: %w", h.route.Name, gobridge.ErrRejected, err)
	}
	h.reject(ctx, &t, err)
	return t
}

// store stores what is new of the messages, in one call.
func (h *RouteHandle) store(ctx context.Context, all []taken) error {
	var records []gobridge.Record
	var bytes int64
	for i := range all {
		records = append(records, all[i].records...)
		bytes += int64(gobridge.EnvelopeSize(all[i].envelope))
	}
	if len(records) == 0 {
		return nil
	}
	began := time.Now()
	err := h.persist(ctx, records)
	switch {
	case errors.Is(err, gobridge.ErrDuplicateRecord):
		h.bridge.observe(ctx, Event{Kind: EventDuplicate, Route: h.route.Name, Count: len(all)})
		return nil
	case err == nil:
		h.bridge.observe(ctx, Event{
			Kind: EventAccepted, Route: h.route.Name, Count: len(records), Bytes: bytes, Took: time.Since(began),
		})
	}
	return err
}

// rename deals with a message that the store refused by itself.
func (h *RouteHandle) rename(ctx context.Context, t *taken, err error) {
	if !errors.Is(err, gobridge.ErrIdentityReused) || len(t.records) == 0 {
		if t.rejected { // even what was made of it to be kept
			h.bridge.opts.Logger.Error("a message could not be kept, not even as a dead letter, and is gone",
				"route", h.route.Name, "record", t.envelope.ID, "error", err)
			t.records = nil
			return
		}
		h.reject(ctx, t, err)
		return
	}
	hash := t.records[0].ContentHash
	id := t.envelope.ID + "~" + hex.EncodeToString(hash[:6])
	if id == t.records[0].Envelope.ID { // under that ID too
		id = messaging.NewID()
	}
	h.bridge.opts.Logger.Warn("a source gave one ID to two messages; the second is stored under another",
		"route", h.route.Name, "record", t.envelope.ID, "stored_as", id)
	for i := range t.records {
		r := &t.records[i]
		r.Envelope.ID = id
		r.Partition = h.outlet(r.Binding).shards[gobridge.Shard(h.route.Partitions, r.Envelope.OrderingKey, id)].partition
	}
}

func (h *RouteHandle) outlet(binding string) *outlet {
	for _, o := range h.outlets {
		if o.binding.Name == binding {
			return o
		}
	}
	return nil
}

// reject turns a message into what the policy makes of one that can't be taken:
// dead letters of every binding, or nothing.
func (h *RouteHandle) reject(ctx context.Context, t *taken, why error) {
	h.bridge.observe(ctx, Event{
		Kind: EventRefused, Route: h.route.Name, Count: 1, Bytes: int64(gobridge.EnvelopeSize(t.envelope)), Err: why,
	})
	t.rejected, t.records = true, nil
	level, became := slog.LevelWarn, "dead letter"
	if h.route.OnReject == RejectDiscard {
		became = "nothing"
	}
	e, hash := h.keepable(t.envelope)
	h.bridge.opts.Logger.Log(ctx, level, "a message of the source was rejected",
		"route", h.route.Name, "record", e.ID, "became", became, "error", errorText(why))
	if h.route.OnReject == RejectDiscard {
		return
	}
	shard := gobridge.Shard(h.route.Partitions, e.OrderingKey, e.ID)
	for _, o := range h.outlets {
		t.records = append(t.records, gobridge.Record{
			Partition: o.shards[shard].partition, Binding: o.binding.Name, Envelope: e, ContentHash: hash,
			State: gobridge.StateDead, Reason: gobridge.ReasonRejected, Error: errorText(why),
		})
	}
}
