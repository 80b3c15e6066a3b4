package bridge_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
)

func TestDeliversAtOnceAndInOrder(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.after(time.Second)
		for i := 1; i <= 50; i++ {
			w.publishFrom("a", i, i)
			w.publishFrom("b", i, i)
			w.publishFrom("", i, i)
		}
		w.after(0)
		w.after(time.Millisecond)
		w.wantOrder(dest, "a", 50)
		w.wantOrder(dest, "b", 50)
		if got := len(dest.ids("")); got != 50 {
			t.Errorf("%d messages without a key arrived, want 50", got)
		}
		w.after(time.Second)
		if s := w.stats(partition); s.Pending+s.Claimed+s.Dead != 0 {
			t.Errorf("left in the outbox: %+v", s)
		}
	})
}

func TestTenThousandRecords(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		var all []messaging.Envelope
		for i := 1; i <= 1000; i++ {
			for k := range 10 {
				all = append(all, messaging.Envelope{ID: fmt.Sprintf("k%d-%d", k, i), OrderingKey: fmt.Sprintf("k%d", k)})
			}
		}
		if _, err := w.bridge.Route("r").Publish(w.Context(), all...); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		for k := range 10 {
			w.wantOrder(dest, fmt.Sprintf("k%d", k), 1000)
		}
	})
}

func TestAFailedRecordStopsItsKeyAndNoOther(t *testing.T) {
	dest := &target{}
	failures := 0
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.ID == "a-2" && failures < 3 {
			failures++
			return errBoom
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("a", 5)
		w.publish("b", 5)
		w.after(10 * time.Millisecond)
		if got := dest.ids("a"); !slices.Equal(got, []string{"a-1"}) {
			t.Errorf("key a arrived as %v before its second message was tried again", got)
		}
		w.wantOrder(dest, "b", 5)
		for i := 1; i <= 20; i++ { // others go on getting through
			w.after(time.Second)
			w.publishFrom("c", i, i)
		}
		w.after(time.Second)
		w.wantOrder(dest, "a", 5)
		w.wantOrder(dest, "c", 20)
		if failures != 3 {
			t.Errorf("%d failures, want 3", failures)
		}
	})
}

func TestOnePoisonedRecordAmongGoodOnes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy bridge.FailurePolicy
		state  gobridge.State
		after  int // messages of its key behind it that arrive
	}{
		{"dead letter", bridge.FailDeadLetter, gobridge.StateDead, 2},
		{"discard", bridge.FailDiscard, gobridge.StateDiscarded, 2},
		{"halt", bridge.FailHaltKey, gobridge.StatePending, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dest := &target{}
			dest.answers(func(_ context.Context, d gobridge.Delivery) error {
				if d.Envelope.ID == "bad-1" {
					return errBoom
				}
				return nil
			})
			opts := one(bridge.Binding{Sender: dest, OnFailure: tc.policy, Retry: bridge.Retry{Attempts: 4}})
			inWorld(t, opts, func(w *world) {
				w.publishFrom("good", 1, 1)
				w.after(time.Second)
				w.publish("bad", 3)
				for i := 2; i <= 60; i++ {
					w.publishFrom("good", i, i)
					w.after(time.Second)
				}
				w.wantState("bad-1", tc.state)
				w.wantOrder(dest, "good", 60)
				// Tries that nothing got through after are nobody's attempts.
				if n := dest.tries("bad-1"); n < 4 {
					t.Errorf("tried %d times, want 4 at least", n)
				}
				r := w.get("bad-1")
				if r.Attempts != 4 && tc.policy != bridge.FailDiscard || r.Reason != gobridge.ReasonExhausted || r.Error != "boom" {
					t.Errorf("ended with %d attempts, %s: %s", r.Attempts, r.Reason, r.Error)
				}
				if got := len(dest.ids("bad")); got != tc.after {
					t.Errorf("%d messages behind it arrived, want %d", got, tc.after)
				}
				controls, err := w.store.ListControls(w.Context())
				if err != nil {
					t.Fatal(err)
				}
				if halted := len(controls) == 1; halted != (tc.policy == bridge.FailHaltKey) {
					t.Errorf("controls: %+v", controls)
				}
			})
		})
	}
}

func TestAPoisonedRecordIsFoundOutByWhatGetsThroughMeanwhile(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.ID == "bad-1" {
			return errBoom
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, Concurrency: 1}), func(w *world) {
		w.publish("good", 9)
		w.publish("bad", 1)
		w.after(time.Hour)
		// What was sent beside it has told at most twice, after its first try and
		// before its second.
		if r := w.get("bad-1"); r.State != gobridge.StatePending || r.Attempts > 2 {
			t.Errorf("left alone for an hour it is %s with %d attempts: the destination may be down", r.State, r.Attempts)
		}
		for n := 10; n < 70; n++ {
			w.publishFrom("good", n, n)
			w.after(time.Minute)
		}
		w.wantState("bad-1", gobridge.StateDead)
		w.wantOrder(dest, "good", 69)
	})
}

func TestManyPoisonedRecordsDontStopTheRest(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.OrderingKey != "good" {
			return errBoom
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, Retry: bridge.Retry{Attempts: 3}}), func(w *world) {
		w.publish("", 100)
		for i := 1; i <= 600; i++ {
			w.publishFrom("good", i, i)
			w.after(10 * time.Second)
		}
		w.after(time.Hour)
		w.wantOrder(dest, "good", 600)
		if s := w.stats(partition); s.Dead != 100 || s.Pending != 0 {
			t.Errorf("%d dead and %d pending, want 100 and 0", s.Dead, s.Pending)
		}
	})
}

func TestPermanentFailure(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.ID == "a-2" {
			return gobridge.Permanent(errBoom)
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("a", 3)
		w.after(time.Second)
		w.wantState("a-2", gobridge.StateDead)
		if r := w.get("a-2"); r.Reason != gobridge.ReasonPermanent || r.Attempts != 1 {
			t.Errorf("dead for %s after %d attempts", r.Reason, r.Attempts)
		}
		if got := dest.ids("a"); !slices.Equal(got, []string{"a-1", "a-3"}) {
			t.Errorf("arrived: %v", got)
		}
	})
}

func TestPanicFailsTheAttempt(t *testing.T) {
	dest := &target{}
	dest.answers(func(_ context.Context, d gobridge.Delivery) error {
		if dest.tries("a-1") < 3 {
			panic("out of cheese")
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("a", 1)
		w.after(time.Millisecond)
		if r := w.get("a-1"); r.Attempts != 1 || r.State != gobridge.StatePending {
			t.Errorf("%s after %d attempts: %s", r.State, r.Attempts, r.Error)
		}
		w.after(time.Minute)
		w.wantState("a-1", gobridge.StateDelivered)
	})
}

// shortAnswers gives too few answers at first.
type shortAnswers struct {
	target
	calls int
}

func (s *shortAnswers) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	if s.calls++; s.calls < 3 {
		return nil
	}
	return s.target.Send(ctx, batch)
}

func TestWrongNumberOfAnswersIsAFailure(t *testing.T) {
	dest := &shortAnswers{}
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.publish("a", 1)
		w.after(time.Minute)
		w.wantState("a-1", gobridge.StateDelivered)
	})
}

func TestSlowKeyDoesNotHoldUpOthers(t *testing.T) {
	dest := &target{}
	dest.answers(func(ctx context.Context, d gobridge.Delivery) error {
		if d.Envelope.OrderingKey == "slow" {
			time.Sleep(10 * time.Second)
		}
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, Concurrency: 2}), func(w *world) {
		w.publish("slow", 5000)
		w.after(time.Second)
		w.publish("fast", 100)
		w.after(time.Second)
		w.wantOrder(dest, "fast", 100)
	})
}

func TestExpiry(t *testing.T) {
	for _, policy := range []bridge.ExpirePolicy{bridge.ExpireDrop, bridge.ExpireDeadLetter} {
		dest := &target{}
		dest.answers(func(_ context.Context, d gobridge.Delivery) error { return gobridge.Unavailable(errBoom) })
		opts := one(bridge.Binding{Sender: dest})
		opts.Routes[0].ExpireAfter = time.Minute
		opts.Routes[0].OnExpire = policy
		inWorld(t, opts, func(w *world) {
			w.publish("a", 2)
			w.put(messaging.Envelope{ID: "keeps", ExpiresAt: time.Now().Add(time.Hour)})
			w.after(70 * time.Second)
			want := gobridge.StateExpired
			if policy == bridge.ExpireDeadLetter {
				want = gobridge.StateDead
			}
			w.wantState("a-1", want)
			w.wantState("a-2", want)
			w.wantState("keeps", gobridge.StatePending)
			if r := w.get("a-1"); r.Reason != gobridge.ReasonExpired {
				t.Errorf("ended for %q", r.Reason)
			}
			dest.answers(nil)
			w.after(time.Minute)
			if got := dest.ids("*"); !slices.Equal(got, []string{"keeps"}) {
				t.Errorf("arrived: %v", got)
			}
		})
	}
}

func TestRate(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest, Rate: 10}), func(w *world) {
		w.publish("", 100)
		w.after(5 * time.Second)
		if n := len(dest.ids("*")); n < 49 || n > 52 {
			t.Errorf("%d messages in 5 s at 10/s", n)
		}
	})
}

func TestDueRecordsAreSentWhenTheyAreDue(t *testing.T) {
	dest := &target{}
	inWorld(t, one(bridge.Binding{Sender: dest}), func(w *world) {
		w.put(messaging.Envelope{ID: "later", NotBefore: time.Now().Add(time.Minute)})
		w.after(59 * time.Second)
		if n := dest.tries("later"); n != 0 {
			t.Errorf("sent %d times before it was due", n)
		}
		w.after(2 * time.Second)
		w.wantState("later", gobridge.StateDelivered)
	})
}

func TestPauseStopsWhatIsClaimed(t *testing.T) {
	dest := &target{}
	dest.answers(func(ctx context.Context, d gobridge.Delivery) error {
		time.Sleep(100 * time.Millisecond)
		return nil
	})
	inWorld(t, one(bridge.Binding{Sender: dest, Concurrency: 1}), func(w *world) {
		w.publish("", 100)
		w.after(2 * time.Second)
		pause := gobridge.Control{Kind: gobridge.Pause, Route: "r", Binding: "b", By: "test"}
		if err := w.store.SetControl(w.Context(), pause); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		n := len(dest.ids("*"))
		w.after(time.Minute)
		if more := len(dest.ids("*")); more != n {
			t.Errorf("%d sent a second after the pause, %d a minute after", n, more)
		}
		if s := w.stats(partition); s.Claimed != 0 {
			t.Errorf("%d still claimed under the pause", s.Claimed)
		}
		if err := w.store.ClearControl(w.Context(), pause); err != nil {
			t.Fatal(err)
		}
		w.after(20 * time.Second)
		if n := len(dest.ids("*")); n != 100 {
			t.Errorf("%d arrived after the pause, want 100", n)
		}
	})
}

func TestDrainMakesOnePass(t *testing.T) {
	dest := &target{}
	opts := one(bridge.Binding{Sender: dest})
	inWorld(t, opts, func(w *world) {
		w.stop()
		w.publish("a", 300)
		w.publish("", 300)
		if err := w.bridge.Drain(w.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantOrder(dest, "a", 300)
		if n := len(dest.ids("*")); n != 600 {
			t.Errorf("%d arrived, want 600", n)
		}
		dest.answers(func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(errBoom) })
		w.publishFrom("a", 301, 400)
		for range 3 {
			if err := w.bridge.Drain(w.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := w.stats(partition); s.Pending != 100 {
			t.Errorf("%d pending, want 100", s.Pending)
		}
		dest.answers(nil)
		if err := w.bridge.Drain(w.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantOrder(dest, "a", 400)
	})
}
