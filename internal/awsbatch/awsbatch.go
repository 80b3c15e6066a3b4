// Package awsbatch sends deliveries in the batches of SQS and SNS, which are alike:
// ten entries at most, a bound on the bytes of all of them together, one queue or
// topic, and an answer for each entry unless the whole batch is refused.
package awsbatch

import (
	"context"
	"errors"
	"strconv"

	"gobridge"
)

// MaxEntries is how many entries a batch has (API references, SendMessageBatch and
// PublishBatch).
const MaxEntries = 10

// errNoAnswer says that AWS told nothing of an entry.
var errNoAnswer = errors.New("there is no answer for this message; it may have been accepted")

// Entry is a delivery as an entry of a batch.
type Entry[T any] struct {
	Target string // the queue or the topic
	Value  T
	Size   int

	at int // the delivery's place in what is sent
}

// Call sends entries to a target, numbered as [ID] writes it, and tells of each that
// it is asked for by calling answer. An error is that of them all. Errors have their
// meaning for a delivery already.
type Call[T any] func(ctx context.Context, target string, entries []T, answer func(id *string, err error)) error

// ID is what an entry is called in its batch.
func ID(number int) *string {
	id := strconv.Itoa(number)
	return &id
}

// Send sends deliveries, as the entries that prepare makes of them, in as many calls
// as their targets and sizes need, and answers for each. Of which prepare makes none,
// there never will be one. If a batch is refused for good, it is halved until the entry
// that is to blame is alone. When the first of a batch finds the target unavailable,
// what comes behind that batch is not sent.
func Send[T any](ctx context.Context, all []gobridge.Delivery, maxBytes int, prepare func(*gobridge.Delivery) (Entry[T], error), call Call[T]) []error {
	errs := make([]error, len(all))
	entries := make([]Entry[T], 0, len(all))
	for i := range all {
		e, err := prepare(&all[i])
		if err != nil {
			errs[i] = gobridge.Permanent(err)
			continue
		}
		e.at = i
		entries = append(entries, e)
	}
	batches := pack(entries, maxBytes)
	for n, batch := range batches {
		send(ctx, batch, call, errs)
		if kind, _ := gobridge.Classify(errs[batch[0].at]); kind == gobridge.OutcomeUnavailable {
			for _, rest := range batches[n+1:] {
				fill(errs, rest, gobridge.ErrNotSent)
			}
			break
		}
	}
	return errs
}

// pack puts each entry into the first batch for its target that has room.
func pack[T any](entries []Entry[T], maxBytes int) [][]Entry[T] {
	var batches [][]Entry[T]
	var sizes []int
	for _, e := range entries {
		at := 0
		for at < len(batches) && (batches[at][0].Target != e.Target || len(batches[at]) == MaxEntries || sizes[at]+e.Size > maxBytes) {
			at++
		}
		if at == len(batches) {
			batches, sizes = append(batches, nil), append(sizes, 0)
		}
		batches[at] = append(batches[at], e)
		sizes[at] += e.Size
	}
	return batches
}

func send[T any](ctx context.Context, batch []Entry[T], call Call[T], errs []error) {
	fill(errs, batch, errNoAnswer)
	values := make([]T, len(batch))
	for i, e := range batch {
		values[i] = e.Value
	}
	err := call(ctx, batch[0].Target, values, func(id *string, err error) {
		if id == nil {
			return
		}
		if number, bad := strconv.Atoi(*id); bad == nil && number >= 0 && number < len(batch) {
			errs[batch[number].at] = err
		}
	})
	if err == nil {
		return
	}
	if kind, _ := gobridge.Classify(err); kind == gobridge.OutcomePermanent && len(batch) > 1 {
		half := len(batch) / 2
		send(ctx, batch[:half], call, errs)
		send(ctx, batch[half:], call, errs)
		return
	}
	fill(errs, batch, err)
}

func fill[T any](errs []error, batch []Entry[T], err error) {
	for _, e := range batch {
		errs[e.at] = err
	}
}
