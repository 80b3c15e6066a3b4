package bridge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
)

// TestAPoisonedRecordAmongSlowOnes: sends of the others take longer than it waits
// to be tried again, so none ever begins and ends between two of its tries.
func TestAPoisonedRecordAmongSlowOnes(t *testing.T) {
	dest := &target{}
	dest.answers(func(ctx context.Context, d gobridge.Delivery) error {
		if d.Envelope.OrderingKey == "bad" {
			return errBoom
		}
		time.Sleep(40 * time.Second)
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, Timeout: time.Minute, Retry: bridge.Retry{Attempts: 5}}), func(w *world) {
		w.publish("bad", 1)
		for n := range 120 {
			w.publish(fmt.Sprint("good", n), 1)
			w.after(15 * time.Second)
		}
		w.after(time.Minute)
		w.wantState("bad-1", gobridge.StateDead)
		if n := len(dest.ids("*")); n != 120 {
			t.Errorf("%d of 120 good ones arrived", n)
		}
	})
}

// TestASuccessIsProofOnce: what got through once says that the destination was
// there once. A record that goes on failing in the outage that follows spends no
// more for it.
func TestASuccessIsProofOnce(t *testing.T) {
	dest := &target{}
	down := false
	dest.answers(func(ctx context.Context, d gobridge.Delivery) error {
		switch {
		case d.Envelope.OrderingKey == "slow": // so that there is something to wait for
			<-ctx.Done()
			return ctx.Err()
		case down || d.Envelope.OrderingKey == "bad":
			return errBoom
		}
		time.Sleep(500 * time.Millisecond)
		down = true
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("slow", 1)
		w.publish("bad", 1)
		time.Sleep(100 * time.Millisecond)
		w.publish("good", 1)
		w.after(10 * time.Hour)
		if r := w.get("bad-1"); r.Attempts > 1 {
			t.Errorf("one message got through, and %d attempts are spent in ten hours of outage", r.Attempts)
		}
		w.wantOrder(dest, "good", 1)
	})
}
