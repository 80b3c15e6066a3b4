package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"gobridge"
	"gobridge/messaging"
)

// ErrRouteRemoved says that a route is not served any more: see
// [Bridge.Reconfigure]. Nothing was stored.
var ErrRouteRemoved = errors.New("the route has been removed")

// RouteHandle is the way into a route. It is safe for concurrent use, and works
// whether or not the bridge runs. It stays the same when the route is changed.
type RouteHandle struct {
	bridge *Bridge
	name   string
	setup  atomic.Pointer[setup] // nil when the route has been removed
	// gate is held, shared, around everything that persists records, and whole
	// while the setup is exchanged. Waiting for it ends with the caller's context.
	gate *semaphore.Weighted
}

// Name returns the route's name.
func (h *RouteHandle) Name() string { return h.name }

// within calls f, which may persist records, with the setup, which stays in force
// meanwhile.
func (h *RouteHandle) within(ctx context.Context, f func(*setup) error) error {
	if !h.gate.TryAcquire(1) {
		if err := h.gate.Acquire(ctx, 1); err != nil {
			return fmt.Errorf("route %q: %w", h.name, err)
		}
	}
	defer h.gate.Release(1)
	s := h.setup.Load()
	if s == nil {
		return h.removed()
	}
	return f(s)
}

// Records returns the records that envelope becomes: one for each binding whose
// filter takes it, for the caller to persist. It stores nothing, and does not
// look at MaxOutboxDepth. An envelope without ID gets one.
//
// The errors are [gobridge.ErrRejected], [gobridge.ErrInvalidRecord],
// [gobridge.ErrTooLarge] and [ErrRouteRemoved].
func (h *RouteHandle) Records(envelope messaging.Envelope) ([]gobridge.Record, error) {
	s := h.setup.Load()
	if s == nil {
		return nil, h.removed()
	}
	records, _, err := s.records(make([]gobridge.Record, 0, len(s.outlets)), envelope)
	return records, err
}

// records appends the records of an envelope to all, and returns its ID.
func (s *setup) records(all []gobridge.Record, e messaging.Envelope) ([]gobridge.Record, string, error) {
	// The hash is of what the source handed over: a redelivery must have the
	// same one after the route's rules have changed.
	hash := messaging.ContentHash(&e)
	if e.ID == "" {
		e.ID = messaging.NewID()
	}
	if f := s.route.OrderingKey; f != nil {
		key, err := guard(func() (string, error) { return f(&e) })
		if err != nil {
			return nil, e.ID, s.rejected("ordering key", err)
		}
		e.OrderingKey = key
	}
	if e.ExpiresAt.IsZero() && s.route.ExpireAfter > 0 {
		e.ExpiresAt = s.bridge.opts.Now().Add(s.route.ExpireAfter).Round(0)
	}
	limits := s.bridge.store.Limits()
	if err := limits.CheckEnvelope(&e); err != nil {
		return nil, e.ID, fmt.Errorf("route %q: %w", s.route.Name, err)
	}
	before := len(all)
	shard := gobridge.Shard(s.route.Partitions, e.OrderingKey, e.ID)
	for _, o := range s.outlets {
		if f := o.binding.Filter; f != nil {
			take, err := guard(func() (bool, error) { return f(&e) })
			if err != nil {
				return nil, e.ID, s.rejected("filter of binding "+o.binding.Name, err)
			}
			if !take {
				continue
			}
		}
		if o.carrier != nil {
			if _, err := guard(func() (struct{}, error) { return struct{}{}, o.carrier.Carry(&e) }); err != nil {
				return nil, e.ID, s.rejected("binding "+o.binding.Name+" can't carry it", err)
			}
		}
		all = append(all, gobridge.Record{
			Partition: o.shards[shard].partition, Binding: o.binding.Name, Envelope: e, ContentHash: hash,
		})
	}
	count := len(all) - before
	total := int64(count) * int64(gobridge.EnvelopeSize(&e))
	if most := limits.MaxCallBytes; most > 0 && total > most {
		return nil, e.ID, fmt.Errorf("route %q: %w", s.route.Name, &gobridge.FieldError{
			Field: fmt.Sprintf("Envelope times %d bindings", count), Problem: "bytes", Size: total, Limit: most,
		})
	}
	return all, e.ID, nil
}

func (s *setup) rejected(what string, err error) error {
	return fmt.Errorf("route %q: %s: %w: %w", s.route.Name, what, gobridge.ErrRejected, err)
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
// [gobridge.ErrRejected], [gobridge.ErrInvalidRecord] and [ErrRouteRemoved] nothing has been
// stored; with any other, the rest may have been, and publishing again under
// the same IDs is safe.
func (h *RouteHandle) Publish(ctx context.Context, envelopes ...messaging.Envelope) ([]gobridge.Receipt, error) {
	var receipts []gobridge.Receipt
	var bytes int64
	err := h.within(ctx, func(s *setup) (err error) {
		receipts, bytes, err = s.publish(ctx, envelopes)
		return err
	})
	if err != nil {
		h.bridge.observe(ctx, Event{Kind: EventRefused, Route: h.name, Count: len(envelopes), Bytes: bytes, Err: err})
		return nil, err
	}
	return receipts, nil
}

func (s *setup) publish(ctx context.Context, envelopes []messaging.Envelope) ([]gobridge.Receipt, int64, error) {
	receipts := make([]gobridge.Receipt, len(envelopes))
	all := make([]gobridge.Record, 0, len(envelopes)*len(s.outlets))
	var bytes int64
	for i := range envelopes {
		before := len(all)
		var err error
		if all, receipts[i].EnvelopeID, err = s.records(all, envelopes[i]); err != nil {
			return nil, bytes, err
		}
		receipts[i].Bindings = len(all) - before
		bytes += int64(gobridge.EnvelopeSize(&envelopes[i]))
	}
	if len(all) == 0 {
		return receipts, bytes, nil
	}
	began := time.Now()
	err := s.persist(ctx, all)
	duplicate := errors.Is(err, gobridge.ErrDuplicateRecord)
	switch {
	case duplicate:
		for i := range receipts {
			receipts[i].Duplicate = receipts[i].Bindings > 0
		}
		s.bridge.observe(ctx, Event{Kind: EventDuplicate, Route: s.route.Name, Count: len(envelopes)})
		return receipts, bytes, nil
	case err != nil:
		return nil, bytes, err
	}
	s.bridge.observe(ctx, Event{
		Kind: EventAccepted, Route: s.route.Name, Count: len(all), Bytes: bytes, Took: time.Since(began),
	})
	return receipts, bytes, nil
}

// persist stores the records where there is room, and wakes their drainers.
func (s *setup) persist(ctx context.Context, records []gobridge.Record) error {
	release, err := s.reserve(ctx, records)
	if err != nil {
		return err
	}
	err = s.bridge.store.Persist(ctx, records)
	release(err)
	lineup := s.bridge.lineup.Load()
	for i := range records {
		if d := lineup.byPartition[records[i].Partition]; d != nil {
			d.wakeUp()
		}
	}
	if errors.Is(err, gobridge.ErrDeadLettersFull) {
		return fmt.Errorf("route %q: %w: %w", s.route.Name, gobridge.ErrOutboxFull, err)
	}
	return err
}
