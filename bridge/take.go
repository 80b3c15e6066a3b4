package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
// it is stored under the ID with a digest of its content behind it, or a digest of both
// where that is too long.
func (h *RouteHandle) Take(ctx context.Context, batch []gobridge.Incoming) error {
	var s *setup
	var rest []taken // what is left of the batch, as s makes it
	size, failures := len(batch), 0
	for len(batch) > 0 {
		n := min(size, len(batch))
		err := h.within(ctx, func(now *setup) error {
			if now != s { // the route has been changed while it waited
				s, rest = now, now.takenAll(ctx, batch)
			}
			return s.store(ctx, rest[:n])
		})
		switch {
		case errors.Is(err, ErrRouteRemoved):
			return err
		case err == nil:
			if failures > 0 {
				h.bridge.opts.Logger.Info("the source goes on", "route", h.name)
			}
			batch, rest, size, failures = batch[n:], rest[n:], 2*size, 0
		case ctx.Err() != nil:
			return fmt.Errorf("route %q: %w", h.name, ctx.Err())
		case n > 1 && errors.Is(err, gobridge.ErrOutboxFull):
			size = n / 2 // there may be room for some
		case n > 1 && refusal(err):
			size = 1 // to find which it is; the others are duplicates by now
		case refusal(err):
			s.rename(ctx, &rest[0], err)
		default:
			if failures == 0 {
				h.bridge.opts.Logger.Warn("the source waits", "route", h.name, "error", err)
			}
			if !pauseFor(ctx, takeWait(failures)) {
				return fmt.Errorf("route %q: %w", h.name, ctx.Err())
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

func (s *setup) takenAll(ctx context.Context, batch []gobridge.Incoming) []taken {
	out := make([]taken, len(batch))
	for i := range batch {
		out[i] = s.taken(ctx, &batch[i])
	}
	return out
}

// taken makes the records of one message.
func (s *setup) taken(ctx context.Context, in *gobridge.Incoming) taken {
	t := taken{envelope: &in.Envelope}
	err := in.Reject
	if err == nil {
		if t.records, _, err = s.records(nil, in.Envelope); err == nil {
			return t
		}
	} else {
		err = fmt.Errorf("route %q: %w: %w", s.route.Name, gobridge.ErrRejected, err)
	}
	s.reject(ctx, &t, err)
	return t
}

// store stores what is new of the messages, in one call.
func (s *setup) store(ctx context.Context, all []taken) error {
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
	err := s.persist(ctx, records)
	switch {
	case errors.Is(err, gobridge.ErrDuplicateRecord):
		s.bridge.observe(ctx, Event{Kind: EventDuplicate, Route: s.route.Name, Count: len(all)})
		return nil
	case err == nil:
		s.bridge.observe(ctx, Event{
			Kind: EventAccepted, Route: s.route.Name, Count: len(records), Bytes: bytes, Took: time.Since(began),
		})
	}
	return err
}

// rename deals with a message that the store refused by itself.
func (s *setup) rename(ctx context.Context, t *taken, err error) {
	if !errors.Is(err, gobridge.ErrIdentityReused) || len(t.records) == 0 {
		if t.rejected { // even what was made of it to be kept
			s.bridge.opts.Logger.Error("a message could not be kept, not even as a dead letter, and is gone",
				"route", s.route.Name, about(t.envelope), "error", err)
			t.records = nil
			return
		}
		s.reject(ctx, t, err)
		return
	}
	held := t.records[0].Envelope.ID
	id := s.otherID(t.envelope.ID, t.records[0].ContentHash)
	if id == held { // under that ID too
		id = messaging.NewID()
	}
	s.bridge.opts.Logger.Warn("a source gave one ID to two messages; the second is stored under another",
		"route", s.route.Name, "record", held, "stored_as", id)
	for i := range t.records {
		r := &t.records[i]
		r.Envelope.ID = id
		r.Partition = s.outlet(r.Binding).shards[gobridge.Shard(s.route.Partitions, r.Envelope.OrderingKey, id)].partition
	}
}

// otherID returns an ID for the message of a content, where its own is another's. It is
// the same for a redelivery, and the store has room for it.
func (s *setup) otherID(id string, content messaging.Hash) string {
	other := id + "~" + hex.EncodeToString(content[:6])
	if most := s.bridge.store.Limits().MaxID; most > 0 && len(other) > most {
		sum := sha256.Sum256([]byte(other))
		other = "sha256:" + hex.EncodeToString(sum[:])
	}
	return other
}

func (s *setup) outlet(binding string) *outlet {
	for _, o := range s.outlets {
		if o.binding.Name == binding {
			return o
		}
	}
	return nil
}

// reject turns a message into what the policy makes of one that can't be taken:
// dead letters of every binding, or nothing.
func (s *setup) reject(ctx context.Context, t *taken, why error) {
	s.bridge.observe(ctx, Event{
		Kind: EventRefused, Route: s.route.Name, Count: 1, Bytes: int64(gobridge.EnvelopeSize(t.envelope)), Err: why,
	})
	t.rejected, t.records = true, nil
	became := "dead letter"
	if s.route.OnReject == RejectDiscard {
		became = "nothing"
	}
	e, hash := s.keepable(t.envelope)
	s.bridge.opts.Logger.WarnContext(ctx, "a message of the source was rejected",
		"route", s.route.Name, about(&e), "became", became, "error", errorText(why))
	if s.route.OnReject == RejectDiscard {
		return
	}
	shard := gobridge.Shard(s.route.Partitions, e.OrderingKey, e.ID)
	for _, o := range s.outlets {
		t.records = append(t.records, gobridge.Record{
			Partition: o.shards[shard].partition, Binding: o.binding.Name, Envelope: e, ContentHash: hash,
			State: gobridge.StateDead, Reason: gobridge.ReasonRejected, Error: errorText(why),
		})
	}
}
