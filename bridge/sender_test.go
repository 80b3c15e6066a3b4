package bridge_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
)

// broken is an error whose text cannot be had: calling it on nil panics.
type broken struct{ text string }

func (b *broken) Error() string { return b.text }

// Whatever a sender answers, the record is delivered later or ends with a
// reason, and the other keys go on.
func TestWhateverASenderAnswers(t *testing.T) {
	var noSendError *gobridge.SendError
	var noError *broken
	for name, answer := range map[string]func() error{
		"a SendError without an outcome": func() error { return &gobridge.SendError{Err: errBoom} },
		"a SendError without a cause":    func() error { return &gobridge.SendError{Outcome: gobridge.OutcomePermanent} },
		"an outcome that there is not":   func() error { return &gobridge.SendError{Outcome: 77, Err: errBoom} },
		"a nil SendError":                func() error { return noSendError },
		"a nil error of another type":    func() error { return noError },
		"the end of its goroutine":       func() error { runtime.Goexit(); return nil },
		"a panic with nil":               func() error { panic(nil) },
		"not sent":                       func() error { return gobridge.ErrNotSent },
		"not sent, joined with a cause":  func() error { return errors.Join(gobridge.ErrNotSent, errBoom) },
	} {
		t.Run(name, func(t *testing.T) {
			dest := &target{}
			dest.answers(func(_ context.Context, d gobridge.Delivery) error {
				if d.Envelope.ID == "bad-1" {
					return answer()
				}
				return nil
			})
			inWorld(t, one(bridge.Binding{Sender: dest, Retry: bridge.Retry{Attempts: 3}}), func(w *world) {
				w.publish("bad", 2)
				for i := range 20 {
					w.publishFrom("good", i+1, i+1)
					w.after(time.Second)
				}
				w.wantOrder(dest, "good", 20)
				w.after(time.Minute)
				w.publishFrom("good", 21, 21)
				w.after(time.Minute)
				w.wantState("bad-1", gobridge.StateDead)
				w.wantState("bad-2", gobridge.StateDelivered)
			})
		})
	}
}
