package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
)

// TestManyPoisonedRecordsInFrontOfGoodOnes: together they look like a destination
// that is down. The good ones behind them must be found all the same.
func TestManyPoisonedRecordsInFrontOfGoodOnes(t *testing.T) {
	const bad, good = 300, 20
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if strings.HasPrefix(d.Envelope.OrderingKey, "bad") {
			return errBoom
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		for n := range bad {
			w.publish(fmt.Sprint("bad", n), 1)
		}
		for n := range good {
			w.publish(fmt.Sprint("good", n), 1)
		}
		w.after(5 * time.Hour)
		if n := len(dest.ids("*")); n != good {
			t.Errorf("with %d poisoned ones in front %d of %d good ones arrived", bad, n, good)
		}
		for n := range bad {
			if r := w.get(fmt.Sprintf("bad%d-1", n)); r.State != gobridge.StatePending || r.Attempts > good {
				t.Fatalf("%s is %s with %d attempts", r.Envelope.ID, r.State, r.Attempts)
			}
		}
	})
}
