package telemetry

import (
	"context"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// sender is a sender with another Send. It has the optional powers of the one
// inside: one that takes no batches has batches of one, and one that can't tell
// what it can carry refuses nothing.
type sender struct {
	inside gobridge.Sender
	send   func(ctx context.Context, batch []gobridge.Delivery) []error
}

// Send implements [gobridge.Sender].
func (s *sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	return s.send(ctx, batch)
}

// BatchLimits implements [gobridge.BatchSender].
func (s *sender) BatchLimits() gobridge.BatchLimits {
	if b, ok := s.inside.(gobridge.BatchSender); ok {
		return b.BatchLimits()
	}
	return gobridge.BatchLimits{MaxRecords: 1}
}

// Carry implements [gobridge.Carrier].
func (s *sender) Carry(envelope *messaging.Envelope) error {
	if c, ok := s.inside.(gobridge.Carrier); ok {
		return c.Carry(envelope)
	}
	return nil
}

// connectingSender is one that can look whether what it needs is there.
type connectingSender struct {
	*sender
	gobridge.Connector
}

func newSender(inside gobridge.Sender, send func(ctx context.Context, batch []gobridge.Delivery) []error) gobridge.Sender {
	s := &sender{inside, send}
	if c, ok := inside.(gobridge.Connector); ok {
		return connectingSender{s, c}
	}
	return s
}

// receiver is a receiver whose take is another one. It has the optional powers of
// the one inside.
type receiver struct {
	inside  gobridge.Receiver
	receive func(ctx context.Context, take gobridge.Take) error
}

// Receive implements [gobridge.Receiver].
func (r *receiver) Receive(ctx context.Context, take gobridge.Take) error {
	return r.receive(ctx, take)
}

// Solo implements [gobridge.Solo].
func (r *receiver) Solo() bool {
	s, ok := r.inside.(gobridge.Solo)
	return ok && s.Solo()
}

type connectingReceiver struct {
	*receiver
	gobridge.Connector
}

func newReceiver(inside gobridge.Receiver, receive func(ctx context.Context, take gobridge.Take) error) gobridge.Receiver {
	r := &receiver{inside, receive}
	if c, ok := inside.(gobridge.Connector); ok {
		return connectingReceiver{r, c}
	}
	return r
}

// Sender returns a binding's sender, measured: which attempt it was that delivered.
// It has the optional powers of the one inside.
func (o *Observer) Sender(route, binding string, inside gobridge.Sender) gobridge.Sender {
	m := o.binding(route, binding)
	return newSender(inside, func(ctx context.Context, batch []gobridge.Delivery) []error {
		errs := inside.Send(ctx, batch)
		for i := range min(len(batch), len(errs)) {
			if errs[i] == nil {
				m.attempts.put(ctx, float64(batch[i].Attempt))
			}
		}
		return errs
	})
}

// Receiver returns a route's receiver, measured: whether it runs, what it hands
// over, and for how long it is held back. It has the optional powers of the one
// inside.
func (o *Observer) Receiver(route string, inside gobridge.Receiver) gobridge.Receiver {
	m := o.route(route)
	m.hasReceiver.Store(true)
	return newReceiver(inside, func(ctx context.Context, take gobridge.Take) error {
		m.receivers.Add(1)
		defer m.receivers.Add(-1)
		return inside.Receive(ctx, func(ctx context.Context, batch []gobridge.Incoming) error {
			began := time.Now()
			err := take(ctx, batch)
			took := m.take
			if err != nil {
				took = m.takeEnded
			}
			took.put(ctx, time.Since(began).Seconds())
			m.batch.put(ctx, float64(len(batch)))
			return err
		})
	})
}
