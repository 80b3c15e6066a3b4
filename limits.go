package gobridge

import (
	"fmt"
	"strings"
	"time"

	"gobridge/messaging"
)

// Limits is what a store can hold. Sizes are bytes; zero means no limit.
type Limits struct {
	MaxPartition   int
	MaxID          int
	MaxBinding     int
	MaxKey         int
	MaxSubject     int
	MaxContentType int
	MaxHeaders     int // how many
	MaxHeaderBytes int // names and values together
	MaxPayload     int
	// MaxEnvelope bounds payload, headers, subject, key, ID and content type together.
	MaxEnvelope int
	// MaxBindings bounds the records of one envelope in a call, which are
	// stored all or none.
	MaxBindings int
	// MaxDead and MaxDeadBytes bound the dead letters of a partition.
	MaxDead      int64
	MaxDeadBytes int64
	// Retention is how long the identity of an ended record is remembered; zero
	// when the store does not tell.
	Retention time.Duration
	// MaxCallBytes bounds the envelopes of the records of one envelope together.
	MaxCallBytes int64
}

// Times that a store can hold are from 1970 to 2261: their nanoseconds fit 63 bits.
var (
	minTime = time.Unix(0, 1)
	maxTime = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Check returns a [*FieldError] if r can't be stored within the limits.
func (l Limits) Check(r *Record) error {
	if r.Partition == "" {
		return &FieldError{Field: "Partition", Problem: "is empty"}
	}
	if r.Binding == "" {
		return &FieldError{Field: "Binding", Problem: "is empty"}
	}
	if r.State != StatePending && r.State != StateDead {
		return &FieldError{Field: "State", Problem: "is " + r.State.String() + "; a new record is pending or dead"}
	}
	if err := errFirst(
		over("Partition", len(r.Partition), l.MaxPartition),
		over("Binding", len(r.Binding), l.MaxBinding),
		inRange("CreatedAt", r.CreatedAt),
	); err != nil {
		return err
	}
	return l.CheckEnvelope(&r.Envelope)
}

// CheckCall returns an [*Error] that names the first of the records of a Persist that
// can't be stored within the limits, by itself or with the others of its envelope, or
// whose CreatedAt is further ahead of now, the store's clock, than maxSkew.
func (l Limits) CheckCall(records []Record, now time.Time, maxSkew time.Duration) error {
	type total struct {
		records int
		bytes   int64
	}
	totals := make(map[string]total, 1)
	for i := range records {
		r := &records[i]
		t := totals[r.Envelope.ID]
		t.records++
		t.bytes += int64(EnvelopeSize(&r.Envelope))
		totals[r.Envelope.ID] = t
		err := l.Check(r)
		switch ahead := r.CreatedAt.Sub(now); {
		case err != nil:
		case !r.CreatedAt.IsZero() && ahead > maxSkew:
			err = &FieldError{Field: "CreatedAt", Problem: fmt.Sprintf("is %s ahead of the store's clock; at most %s is taken", ahead, maxSkew)}
		case l.MaxBindings > 0 && t.records > l.MaxBindings:
			err = &FieldError{Field: "Binding", Problem: "records of one envelope", Size: int64(t.records), Limit: int64(l.MaxBindings)}
		case l.MaxCallBytes > 0 && t.bytes > l.MaxCallBytes:
			err = &FieldError{Field: "Envelope", Problem: "bytes in all its records", Size: t.bytes, Limit: l.MaxCallBytes}
		}
		if err != nil {
			return &Error{Op: "persist", Partition: r.Partition, Ref: r.Ref(), Err: err}
		}
	}
	return nil
}

// CheckEnvelope returns a [*FieldError] if no record of e can be stored within
// the limits.
func (l Limits) CheckEnvelope(e *messaging.Envelope) error {
	if e.ID == "" {
		return &FieldError{Field: "Envelope.ID", Problem: "is empty"}
	}
	for name := range e.Headers {
		if strings.EqualFold(name, messaging.HeaderOrderingKey) {
			return &FieldError{Field: "Envelope.Headers", Problem: "has " + name + "; set Envelope.OrderingKey instead"}
		}
		if name == "" {
			return &FieldError{Field: "Envelope.Headers", Problem: "has an empty name"}
		}
	}
	if l.MaxHeaders > 0 && len(e.Headers) > l.MaxHeaders {
		return &FieldError{Field: "Envelope.Headers", Problem: "entries", Size: int64(len(e.Headers)), Limit: int64(l.MaxHeaders)}
	}
	return errFirst(
		over("Envelope.ID", len(e.ID), l.MaxID),
		over("Envelope.Subject", len(e.Subject), l.MaxSubject),
		over("Envelope.OrderingKey", len(e.OrderingKey), l.MaxKey),
		over("Envelope.ContentType", len(e.ContentType), l.MaxContentType),
		over("Envelope.Headers", e.Headers.Size(), l.MaxHeaderBytes),
		over("Envelope.Payload", len(e.Payload), l.MaxPayload),
		over("Envelope", EnvelopeSize(e), l.MaxEnvelope),
		inRange("Envelope.CreatedAt", e.CreatedAt),
		inRange("Envelope.NotBefore", e.NotBefore),
		inRange("Envelope.ExpiresAt", e.ExpiresAt),
	)
}

// EnvelopeSize is what [Limits].MaxEnvelope bounds.
func EnvelopeSize(e *messaging.Envelope) int {
	return len(e.ID) + len(e.Subject) + len(e.OrderingKey) + len(e.ContentType) + e.Headers.Size() + len(e.Payload)
}

func over(field string, size, limit int) error {
	if limit > 0 && size > limit {
		return &FieldError{Field: field, Problem: "bytes", Size: int64(size), Limit: int64(limit)}
	}
	return nil
}

func inRange(field string, t time.Time) error {
	if !t.IsZero() && (t.Before(minTime) || !t.Before(maxTime)) {
		return &FieldError{Field: field, Problem: "is " + t.UTC().Format(time.RFC3339) + ", outside 1970 to 2261"}
	}
	return nil
}

func errFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
