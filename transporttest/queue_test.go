package transporttest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// queue is a broker in memory, with defects on demand.
type queue struct {
	mu      sync.Mutex
	waiting []gobridge.Incoming
	changed chan struct{}
	flight  int // handed over, not acknowledged
	cut     int // counts breaks
	defect  string

	down, stalled bool
	arrived       []messaging.Envelope
	known         map[string]bool
	late          []messaging.Envelope
}

func newQueue(defect string) *queue {
	return &queue{changed: make(chan struct{}), defect: defect, known: map[string]bool{}}
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *queue) put(messages ...gobridge.Incoming) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, messages...)
	q.wake()
}

// next takes up to n messages, waiting for the first.
func (q *queue) next(ctx context.Context, n int) ([]gobridge.Incoming, int) {
	for {
		q.mu.Lock()
		n := min(n, len(q.waiting))
		batch := slices.Clone(q.waiting[:n])
		q.waiting = q.waiting[n:]
		q.flight += n
		changed, cut := q.changed, q.cut
		q.mu.Unlock()
		if n > 0 {
			return batch, cut
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0
		}
	}
}

// settle acknowledges a batch, or puts it back.
func (q *queue) settle(batch []gobridge.Incoming, acknowledge bool, cut int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flight -= len(batch)
	if !acknowledge || cut != q.cut {
		q.waiting = append(slices.Clone(batch), q.waiting...)
		q.wake()
	}
}

func (q *queue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) + q.flight
}

// queueReceiver receives from a queue, in order, one take at a time.
type queueReceiver struct{ q *queue }

func (r queueReceiver) Receive(ctx context.Context, take gobridge.Take) error {
	q := r.q
	size := 200
	if q.defect == "one by one" {
		size = 1
	}
	var asides sync.WaitGroup
	defer asides.Wait()
	for ctx.Err() == nil {
		batch, cut := q.next(ctx, size)
		if len(batch) == 0 {
			break
		}
		for i := range batch {
			batch[i] = q.spoil(batch[i])
		}
		switch q.defect {
		case "acknowledges first":
			q.settle(batch, true, cut)
			_ = take(ctx, batch)
			continue
		case "no backpressure":
			asides.Go(func() { q.settle(batch, take(ctx, batch) == nil, cut) })
			continue
		case "drops bad":
			batch = slices.DeleteFunc(batch, func(in gobridge.Incoming) bool { return in.Reject != nil })
		case "puts back at the end":
			if len(batch) > 3 && cut > 0 {
				q.mu.Lock()
				q.waiting = append(q.waiting, batch[1])
				q.mu.Unlock()
				batch = slices.Delete(batch, 1, 2)
				q.mu.Lock()
				q.flight--
				q.mu.Unlock()
			}
		}
		err := take(ctx, batch)
		acknowledge := err == nil
		if q.defect == "never acknowledges" {
			acknowledge = false
			<-ctx.Done()
		}
		if q.defect == "loses at the end" {
			acknowledge = true
		}
		q.settle(batch, acknowledge, cut)
		if q.defect == "ends with an error" && err != nil {
			return err
		}
	}
	if q.defect == "does not stop" {
		time.Sleep(2 * time.Second)
	}
	return nil
}

func (q *queue) spoil(in gobridge.Incoming) gobridge.Incoming {
	e := &in.Envelope
	switch q.defect {
	case "new identity":
		e.ID = messaging.NewID()
	case "drops headers":
		e.Headers = nil
	case "drops the key":
		e.OrderingKey = ""
	case "cuts payloads":
		e.Payload = e.Payload[:min(len(e.Payload), 4096)]
	}
	return in
}

func openQueue(defect string) func(testing.TB) Source {
	return func(testing.TB) Source {
		q := newQueue(defect)
		s := Source{
			Receiver: func(testing.TB) gobridge.Receiver { return queueReceiver{q} },
			Publish: func(_ testing.TB, messages ...messaging.Envelope) {
				for _, e := range messages {
					q.put(gobridge.Incoming{Envelope: e})
				}
			},
			PublishBad: func(testing.TB) []byte {
				q.put(gobridge.Incoming{Envelope: messaging.Envelope{ID: "bad", Payload: []byte{0}}, Reject: fmt.Errorf("no message")})
				return []byte{0}
			},
			Left: func(testing.TB) int { return q.left() },
			Cut: func(testing.TB) {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.cut++
			},
			Hold: 50 * time.Millisecond,
		}
		if defect != "" {
			s.Patience = 700 * time.Millisecond
		}
		return s
	}
}

// queueSender sends to a queue.
type queueSender struct{ q *queue }

func (queueSender) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: 50, OnePerKey: true}
}

const queueMax = 1 << 20

func (s queueSender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	q := s.q
	out := make([]error, len(batch))
	for i := range batch {
		out[i] = q.arrive(ctx, &batch[i])
	}
	if q.defect == "mixes answers up" && len(out) > 1 {
		slices.Reverse(out)
	}
	return out
}

func (q *queue) arrive(ctx context.Context, d *gobridge.Delivery) error {
	for {
		if ctx.Err() != nil {
			if q.defect == "dead-letters what has no time" {
				return gobridge.Permanent(ctx.Err())
			}
			if q.defect == "lingers" {
				q.mu.Lock()
				q.late = append(q.late, d.Envelope)
				q.mu.Unlock()
			}
			return ctx.Err()
		}
		q.mu.Lock()
		stalled := q.stalled
		q.mu.Unlock()
		if !stalled {
			break
		}
		time.Sleep(time.Millisecond)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.down && q.defect == "blames the message":
		return gobridge.Permanent(fmt.Errorf("no connection"))
	case q.down:
		return gobridge.Unavailable(fmt.Errorf("no connection"))
	case len(d.Envelope.Payload) > queueMax && q.defect == "tries for ever":
		return fmt.Errorf("too large")
	case len(d.Envelope.Payload) > queueMax:
		return gobridge.Permanent(fmt.Errorf("%d bytes, the limit is %d", len(d.Envelope.Payload), queueMax))
	case q.known[d.DedupeID()]:
		return nil
	case q.cut%2 == 1:
		q.cut++
		if q.defect == "answers before it has it" {
			return nil
		}
		return fmt.Errorf("connection lost")
	}
	id := d.DedupeID()
	if q.defect == "swallows redrives" {
		id = d.Envelope.ID
	}
	if q.known[id] {
		return nil
	}
	q.known[id] = true
	q.arrived = append(q.arrived, d.Envelope)
	if len(q.late) > 0 && !q.stalled {
		q.arrived = append(q.arrived, q.late...)
		q.late = nil
	}
	if n := len(q.arrived); q.defect == "swaps neighbours" && n > 21 && n%7 == 0 {
		q.arrived[n-1], q.arrived[n-11] = q.arrived[n-11], q.arrived[n-1]
	}
	return nil
}

func openDestination(defect string) func(testing.TB) Destination {
	return func(testing.TB) Destination {
		q := newQueue(defect)
		set := func(f func()) {
			q.mu.Lock()
			defer q.mu.Unlock()
			f()
		}
		d := Destination{
			Sender: queueSender{q},
			Received: func(testing.TB) []messaging.Envelope {
				q.mu.Lock()
				defer q.mu.Unlock()
				return slices.Clone(q.arrived)
			},
			Cut:      func(testing.TB) { set(func() { q.cut |= 1 }) },
			Down:     func(_ testing.TB, down bool) { set(func() { q.down = down }) },
			Stall:    func(_ testing.TB, stall bool) { set(func() { q.stalled = stall }) },
			TooLarge: queueMax + 1,
			Swallows: true,
		}
		if defect != "" {
			d.Patience = 700 * time.Millisecond
		}
		return d
	}
}

func TestSourceSuite(t *testing.T) { RunSource(t, openQueue("")) }
func TestSenderSuite(t *testing.T) { RunSender(t, openDestination("")) }

// recorder is a test that may fail without anybody minding.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Log(...any)                {}
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Errorf(string, ...any)     { r.fail() }
func (r *recorder) Error(...any)              { r.fail() }
func (r *recorder) Fatalf(f string, a ...any) { r.fail(); runtime.Goexit() }
func (r *recorder) Fatal(...any)              { r.fail(); runtime.Goexit() }
func (r *recorder) Skip(...any)               { runtime.Goexit() }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) fail()                     { r.mu.Lock(); r.failed = true; r.mu.Unlock() }
func (r *recorder) Failed() bool              { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }

// fails reports whether a case fails.
func fails(t *testing.T, run func(testing.TB)) bool {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		run(r)
	}()
	<-done
	return r.Failed()
}

// TestSuiteCatches runs the suite against broken transports: each defect makes the
// case fail that is about it.
func TestSuiteCatches(t *testing.T) {
	for defect, cases := range map[string]string{
		"acknowledges first":   "NotAcknowledgedBefore",
		"loses at the end":     "NotAcknowledgedBefore Resumes",
		"never acknowledges":   "AcknowledgedWhenDurable",
		"no backpressure":      "Backpressure",
		"one by one":           "ManyInOrder",
		"drops bad":            "Rejects",
		"puts back at the end": "Cut",
		"ends with an error":   "Stops",
		"does not stop":        "Stops",
		"new identity":         "NotAcknowledgedBefore",
		"drops headers":        "Fidelity",
		"drops the key":        "Fidelity",
		"cuts payloads":        "Sizes",
	} {
		for _, c := range sourceCases() {
			if slices.Contains(strings.Fields(cases), c.name) {
				t.Run(c.name+"/"+defect, func(t *testing.T) {
					t.Parallel()
					if !fails(t, func(tb testing.TB) { c.check(tb, openQueue(defect)) }) {
						t.Errorf("a source that %s passes %s", defect, c.name)
					}
				})
			}
		}
	}
	for defect, cases := range map[string]string{
		"mixes answers up":              "TooLarge",
		"dead-letters what has no time": "Ended",
		"lingers":                       "Abandoned",
		"blames the message":            "Down",
		"tries for ever":                "TooLarge",
		"answers before it has it":      "Cut",
		"swallows redrives":             "Redrive",
		"swaps neighbours":              "ManyInOrder",
	} {
		for _, c := range senderCases() {
			if slices.Contains(strings.Fields(cases), c.name) {
				t.Run(c.name+"/"+defect, func(t *testing.T) {
					t.Parallel()
					if !fails(t, func(tb testing.TB) { c.check(tb, openDestination(defect)) }) {
						t.Errorf("a sender that %s passes %s", defect, c.name)
					}
				})
			}
		}
	}
}
