package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"gobridge"
)

// depthAge is how long a count of a binding's records is relied upon:
// what other processes add in that time is not seen.
const depthAge = time.Second

// depth keeps a binding within MaxOutboxDepth. What is claimed counts too: a
// destination that is down gives it back. Between two reads of the store it counts
// what this process adds and ignores what is drained, so it can only be too high;
// before anything is refused the store is read again.
type depth struct {
	limit      int64
	partitions []gobridge.Partition

	// persisting is held, shared, around every Persist, and whole around a read, so
	// that no record is both in the figure read and counted as added. Waiting for
	// it ends with the caller's context, for a Persist may take long.
	persisting *semaphore.Weighted

	mu       sync.Mutex
	read     int64     // as of the last read
	readAt   time.Time // monotonic
	added    int64     // stored since
	reserved int64     // promised, and not stored yet
}

func newDepth(limit int, partitions []gobridge.Partition) *depth {
	return &depth{limit: int64(limit), partitions: partitions, persisting: semaphore.NewWeighted(whole)}
}

// take reserves room for n records, if what is known is recent and says that
// there is room.
func (d *depth) take(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readAt.IsZero() || time.Since(d.readAt) >= depthAge || d.read+d.added+d.reserved+n > d.limit {
		return false
	}
	d.reserved += n
	return true
}

// refresh reads the figure from the store and reserves room for n records if
// there is any. It returns the figure.
func (d *depth) refresh(ctx context.Context, store gobridge.Inspector, n int64) (int64, bool, error) {
	if err := d.persisting.Acquire(ctx, whole); err != nil {
		return 0, false, err
	}
	defer d.persisting.Release(whole)
	stats, err := store.Stats(ctx, d.partitions...)
	if err != nil {
		return 0, false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read, d.readAt, d.added = 0, time.Now(), 0
	for _, s := range stats {
		d.read += s.Pending + s.Claimed
	}
	if d.read+d.reserved+n > d.limit {
		return d.read + d.reserved, false, nil
	}
	d.reserved += n
	return d.read, true, nil
}

// settle turns a reservation into stored records, or gives it back.
func (d *depth) settle(n int64, stored bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved -= n
	if stored {
		d.added += n
	}
}

// reservation is the room that one call took in one binding.
type reservation struct {
	depth *depth
	n     int64
}

// reserve makes room for the records, in every binding with a bound. Where
// there is none, the whole call is refused, or the binding's records turn into
// dead letters. The function returned must be called with Persist's answer.
func (s *setup) reserve(ctx context.Context, records []gobridge.Record) (func(error), error) {
	var taken []reservation
	giveBack := func() {
		for _, r := range taken {
			r.depth.settle(r.n, false)
		}
	}
	for _, o := range s.outlets {
		if o.depth == nil {
			continue
		}
		n := int64(0)
		for i := range records {
			if records[i].Binding == o.binding.Name {
				n++
			}
		}
		if n == 0 {
			continue
		}
		ok, err := s.reserveIn(ctx, o, records, n)
		if err != nil {
			giveBack()
			return nil, err
		}
		if ok {
			taken = append(taken, reservation{o.depth, n})
		}
	}
	for i, r := range taken {
		if err := r.depth.persisting.Acquire(ctx, 1); err != nil {
			for _, earlier := range taken[:i] {
				earlier.depth.persisting.Release(1)
			}
			giveBack()
			return nil, err
		}
	}
	return func(err error) {
		// An unknown outcome counts as stored: too high is put right by a read.
		stored := !errors.Is(err, gobridge.ErrDuplicateRecord) && !errors.Is(err, gobridge.ErrInvalidRecord)
		for _, r := range taken {
			r.depth.settle(r.n, stored)
			r.depth.persisting.Release(1)
		}
	}, nil
}

// reserveIn makes room for n records in one binding; not ok says that they were
// turned into dead letters.
func (s *setup) reserveIn(ctx context.Context, o *outlet, records []gobridge.Record, n int64) (bool, error) {
	if o.depth.take(n) {
		return true, nil
	}
	waiting, ok, err := o.depth.refresh(ctx, s.bridge.store, n)
	if err != nil || ok {
		return ok, err
	}
	why := fmt.Sprintf("binding %s/%s has %d records to deliver and room for %d", s.route.Name, o.binding.Name, waiting, o.depth.limit)
	s.bridge.observe(ctx, Event{Kind: EventFull, Route: s.route.Name, Binding: o.binding.Name, Count: int(n)})
	if o.binding.OnFull == FullReject {
		return false, fmt.Errorf("%w: %s", gobridge.ErrOutboxFull, why)
	}
	for i := range records {
		if records[i].Binding == o.binding.Name {
			records[i].State = gobridge.StateDead
			records[i].Reason = gobridge.ReasonFull
			records[i].Error = why
		}
	}
	return false, nil
}
