package bridge_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
)

func TestAnOutageIsReportedAndARetryProbesAtOnce(t *testing.T) {
	dest := &target{}
	dest.answers(func(context.Context, gobridge.Delivery) error {
		return gobridge.RetryAfter(time.Hour, errors.New("401 unauthorized"))
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("k", 2)
		opened := time.Now()
		w.after(2 * time.Second)
		c := w.stats(partition).Condition
		if !c.Down || c.Error != "401 unauthorized" || c.Since.Sub(opened) > time.Second || c.Token != w.stats(partition).Fence {
			t.Fatalf("reported as %+v", c)
		}
		if wait := c.NextProbe.Sub(opened); wait < 59*time.Minute || wait > 61*time.Minute {
			t.Errorf("the next probe is in %s, want an hour", wait)
		}
		dest.answers(nil)
		w.after(time.Minute)
		if got := dest.ids("k"); len(got) != 0 {
			t.Fatalf("tried before it was time: %v", got)
		}
		// Another process asks for it, through the store.
		if _, err := w.store.Handle(nil).Retry(w.Context(), gobridge.RetryRequest{
			Filter: gobridge.Filter{Route: "r", Binding: "b"}, By: "ann", Reason: "mended",
		}); err != nil {
			t.Fatal(err)
		}
		w.after(2 * time.Second)
		w.wantOrder(dest, "k", 2)
		if c := w.stats(partition).Condition; c.Down || c.Error != "" {
			t.Errorf("up again, it is reported as %+v", c)
		}
	})
}
