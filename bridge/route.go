package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// RouteHandle is the way into a route. It is safe for concurrent use, and works
// whether or not the bridge runs.
type RouteHandle struct {
	bridge  *Bridge
	route   Route
	outlets []*outlet // as route.Bindings
}

// Name returns the route's name.
func (h *RouteHandle) Name() string { return h.route.Name }

// Records returns the records that envelope becomes: one for each binding whose
// filter takes it, for the caller to persist. It stores nothing, and does not
// look at MaxOutboxDepth. An envelope without ID gets one.
//
// The errors are [gobridge.ErrRejected], [gobridge.ErrInvalidRecord] and
// [gobridge.ErrTooLarge].
func (h *RouteHandle) Records(envelope messaging.Envelope) ([]gobridge.Record, error) {
	records, _, err := h.records(make([]gobridge.Record, 0, len(h.outlets)), envelope)
	return records, err
}

// records appends the records of an envelope to all, and returns its ID.
func (h *RouteHandle) records(all []gobridge.Record, e messaging.Envelope) ([]gobridge.Record, string, error) {
	// The hash is of what the source handed over: a redelivery must have the
	// same one after the route's rules have changed.
	hash := messaging.ContentHash(&e)
	if e.ID == "" {
		e.ID = messaging.NewID()
	}
	if f := h.route.OrderingKey; f != nil {
		key, err := guard(func() (string, error) { return f(&e) })
		if err != nil {
			return nil, e.ID, h.rejected("ordering key", err)
		}
		e.OrderingKey = key
	}
	if e.ExpiresAt.IsZero() && h.route.ExpireAfter > 0 {
		e.ExpiresAt = h.bridge.opts.Now().Add(h.route.ExpireAfter).Round(0)
	}
	limits := h.bridge.store.Limits()
	if err := limits.CheckEnvelope(&e); err != nil {
		return nil, e.ID, fmt.Errorf("route %q: %w", h.route.Name, err)
	}
	before := len(all)
	shard := gobridge.Shard(h.route.Partitions, e.OrderingKey, e.ID)
	for _, o := range h.outlets {
		if f := o.binding.Filter; f != nil {
			take, err := guard(func() (bool, error) { return f(&e) })
			if err != nil {
				return nil, e.ID, h.rejected("filter of binding "+o.binding.Name, err)
			}
			if !take {
				continue
			}
		}
		if o.carrier != nil {
			if _, err := guard(func() (struct{}, error) { return struct{}{}, o.carrier.Carry(&e) }); err != nil {
				return nil, e.ID, h.rejected("binding "+o.binding.Name+" can't carry it", err)
			}
		}
		all = append(all, gobridge.Record{
			Partition: o.shards[shard].partition, Binding: o.binding.Name, Envelope: e, ContentHash: hash,
		})
	}
	count := len(all) - before
	total := int64(count) * int64(gobridge.EnvelopeSize(&e))
	if most := limits.MaxCallBytes; most > 0 && total > most {
		return nil, e.ID, fmt.Errorf("route %q: %w", h.route.Name, &gobridge.FieldError{
			Field: fmt.Sprintf("Envelope times %d bindings", count), Problem: "bytes", Size: total, Limit: most,
		})
	}
	return all, e.ID, nil
}

func (h *RouteHandle) rejected(what string, err error) error {
	return fmt.Errorf("route %q: %s: %w: %w", h.route.Name, what, gobridge.ErrRejected, err)
}

// guard turns a panic of a route's function into an error: whatever a message
// does to it, the process goes on.
func guard[T any](f func() (T, error)) (out T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}

// Accept is [RouteHandle.Publish] of one envelope, as a source wants it: a
// [gobridge.Accept].
func (h *RouteHandle) Accept(ctx context.Context, envelope messaging.Envelope) (gobridge.Receipt, error) {
	receipts, err := h.Publish(ctx, envelope)
	if err != nil {
		return gobridge.Receipt{}, err
	}
	return receipts[0], nil
}

// Publish makes envelopes durable for every binding that takes them, in their
// order. It returns a receipt for each, in which Duplicate is set only if all
// of them had been published before.
//
// Its errors are those of [gobridge.Accept]. With [gobridge.ErrOutboxFull],
// [gobridge.ErrRejected] and [gobridge.ErrInvalidRecord] nothing has been
// stored; with any other, the rest may have been, and publishing again under
// the same IDs is safe.
func (h *RouteHandle) Publish(ctx context.Context, envelopes ...messaging.Envelope) ([]gobridge.Receipt, error) {
	receipts, bytes, err := h.publish(ctx, envelopes)
	if err != nil {
		h.bridge.observe(ctx, Event{Kind: EventRefused, Route: h.route.Name, Count: len(envelopes), Bytes: bytes, Err: err})
		return nil, err
	}
	return receipts, nil
}

func (h *RouteHandle) publish(ctx context.Context, envelopes []messaging.Envelope) ([]gobridge.Receipt, int64, error) {
	receipts := make([]gobridge.Receipt, len(envelopes))
	all := make([]gobridge.Record, 0, len(envelopes)*len(h.outlets))
	var bytes int64
	for i := range envelopes {
		before := len(all)
		var err error
		if all, receipts[i].EnvelopeID, err = h.records(all, envelopes[i]); err != nil {
			return nil, bytes, err
		}
		receipts[i].Bindings = len(all) - before
		bytes += int64(gobridge.EnvelopeSize(&envelopes[i]))
	}
	if len(all) == 0 {
		return receipts, bytes, nil
	}
	began := time.Now()
	err := h.persist(ctx, all)
	duplicate := errors.Is(err, gobridge.ErrDuplicateRecord)
	switch {
	case duplicate:
		for i := range receipts {
			receipts[i].Duplicate = receipts[i].Bindings > 0
		}
		h.bridge.observe(ctx, Event{Kind: EventDuplicate, Route: h.route.Name, Count: len(envelopes)})
		return receipts, bytes, nil
	case err != nil:
		return nil, bytes, err
	}
	h.bridge.observe(ctx, Event{
		Kind: EventAccepted, Route: h.route.Name, Count: len(all), Bytes: bytes, Took: time.Since(began),
	})
	return receipts, bytes, nil
}

// persist stores the records where there is room, and wakes their drainers.
func (h *RouteHandle) persist(ctx context.Context, records []gobridge.Record) error {
	release, err := h.reserve(ctx, records)
	if err != nil {
		return err
	}
	err = h.bridge.store.Persist(ctx, records)
	release(err)
	for i := range records {
		if d := h.bridge.byPartition[records[i].Partition]; d != nil {
			d.wakeUp()
		}
	}
	if errors.Is(err, gobridge.ErrDeadLettersFull) {
		return fmt.Errorf("route %q: %w: %w", h.route.Name, gobridge.ErrOutboxFull, err)
	}
	return err
}
