package bridgetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/bridge"
	"gobridge/bridgetest"
	"gobridge/messaging"
	"gobridge/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBusy = errors.New("mailbox busy")

// orders is a route with the bindings mail and bill.
func orders(mail gobridge.Sender) []bridge.Route {
	return []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{Name: "mail", Sender: mail}, {Name: "bill"}}}}
}

func message(id, key string) messaging.Envelope {
	return messaging.Envelope{ID: id, OrderingKey: key, Subject: "order.placed", Payload: []byte(id)}
}

func ids(deliveries []gobridge.Delivery) []string {
	var out []string
	for _, d := range deliveries {
		out = append(out, d.Envelope.ID)
	}
	return out
}

func TestDeliversThroughTheSenderAndInOrder(t *testing.T) {
	var handled []string
	h := bridgetest.New(t, nil, orders(gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
		handled = append(handled, d.Envelope.ID)
		return nil
	})))
	h.Publish("orders", message("1", "a"), message("2", "b"), message("3", "a"), message("4", ""))
	h.RequireDelivered("mail", 0)
	h.RequirePending("mail", 4)
	h.Drain()
	want := []string{"1", "2", "4", "3"} // the keys take turns
	if got := ids(h.RequireDelivered("mail", 4)); !slices.Equal(got, want) || !slices.Equal(handled, want) {
		t.Errorf("delivered %v, handled %v, want %v", got, handled, want)
	}
	h.RequireDelivered("orders/bill", 4)
	h.RequireEmpty()
}

func TestFailIsOneAttemptAndAdvanceBringsTheRetry(t *testing.T) {
	h := bridgetest.New(t, nil, orders(gobridge.HandlerFunc(nil)))
	h.Publish("orders", message("1", "a"))
	h.Fail("mail", errBusy)
	h.Drain()
	h.RequireDelivered("mail", 0)
	h.RequireDelivered("bill", 1)
	h.Drain() // it is not due
	h.RequireAttempts("mail", 1)
	h.Advance(time.Minute)
	if d := h.RequireDelivered("mail", 1)[0]; d.Attempt != 2 || string(d.Envelope.Payload) != "1" {
		t.Errorf("delivered as %+v", d)
	}
}

func TestAdvanceRetriesWhenEachRetryIsDue(t *testing.T) {
	h := bridgetest.New(t, nil, orders(nil))
	h.Publish("orders", message("1", "a"))
	h.Fail("mail", errBusy, errBusy, nil)
	before := h.Now()
	h.Advance(time.Hour)
	if tries := h.RequireAttempts("mail", 3); tries[0].Err == nil || tries[1].Err == nil || tries[2].Err != nil {
		t.Errorf("attempts came to %v", tries)
	}
	if got := h.Now().Sub(before); got != time.Hour {
		t.Errorf("an hour was %s", got)
	}
}

func TestLostAnswerIsARepeat(t *testing.T) {
	var handled []int
	h := bridgetest.New(t, nil, orders(gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
		handled = append(handled, d.Attempt)
		return nil
	})))
	h.Publish("orders", message("1", "a"))
	h.LoseAnswer("mail")
	h.Drain()
	h.RequireDelivered("mail", 0)
	h.Advance(time.Minute)
	h.RequireDelivered("mail", 1)
	if !slices.Equal(handled, []int{1, 2}) {
		t.Errorf("the sender saw attempts %v, want 1 and 2", handled)
	}
}

func TestDownAndUp(t *testing.T) {
	h := bridgetest.New(t, nil, orders(nil))
	h.Publish("orders", message("1", "a"), message("2", "b"))
	h.Down("mail", errBusy)
	h.Drain()
	h.Advance(24 * time.Hour)
	for _, r := range h.RequirePending("mail", 2) {
		if r.Attempts != 0 {
			t.Errorf("%s was charged with %d attempts", r.Envelope.ID, r.Attempts)
		}
	}
	h.Up("mail")
	h.Drain()
	h.RequireDelivered("mail", 2)
}

func TestRetryAfterIsKept(t *testing.T) {
	h := bridgetest.New(t, nil, orders(nil))
	h.Publish("orders", message("1", "a"))
	h.Fail("mail", gobridge.RetryAfter(10*time.Minute, errBusy))
	h.Drain()
	h.Publish("orders", message("2", "b"))
	h.Drain()
	h.Advance(9 * time.Minute)
	h.RequireAttempts("mail", 1)
	h.Advance(time.Minute)
	h.RequireDelivered("mail", 2)
}

func TestPermanentFailureIsADeadLetter(t *testing.T) {
	h := bridgetest.New(t, nil, orders(nil))
	h.Publish("orders", message("1", "a"), message("2", "a"))
	h.Fail("mail", gobridge.Permanent(errors.New("no such mailbox")))
	h.Drain()
	if r := h.RequireDead("mail", 1)[0]; r.Envelope.ID != "1" || r.Error != "no such mailbox" {
		t.Errorf("dead letter %+v", r)
	}
	h.RequireDelivered("mail", 1)
}

func TestAttemptsRunOutWhileOtherKeysGetThrough(t *testing.T) {
	routes := orders(nil)
	routes[0].Bindings[0].Retry = bridge.Retry{Attempts: 3, MinBackoff: time.Second}
	h := bridgetest.New(t, nil, routes)
	h.Answer("mail", func(_ context.Context, d gobridge.Delivery) error {
		if d.Envelope.OrderingKey == "poisoned" {
			return errBusy
		}
		return nil
	})
	h.Publish("orders", message("bad", "poisoned"))
	for i := range 3 {
		h.Publish("orders", message(fmt.Sprint(i), "good"))
		h.Drain()
		h.Advance(time.Minute)
	}
	h.RequireDead("mail", 1)
	h.RequireDelivered("mail", 3)
}

func TestPanicIsAFailedAttempt(t *testing.T) {
	h := bridgetest.New(quiet{t}, nil, orders(nil))
	h.Publish("orders", message("1", "a"))
	h.Answer("mail", func(context.Context, gobridge.Delivery) error { panic("nil map") })
	h.Drain()
	h.RequireAttempts("mail", 1)
	if r := h.RequirePending("mail", 1)[0]; r.Attempts != 1 || !strings.Contains(r.Error, "nil map") {
		t.Errorf("after a panic: %d attempts, error %q", r.Attempts, r.Error)
	}
	h.Up("mail")
	h.Advance(time.Minute)
	h.RequireDelivered("mail", 1)
}

func TestNotBeforeAndExpiry(t *testing.T) {
	h := bridgetest.New(t, nil, orders(nil))
	later, short := message("later", ""), message("short", "")
	later.NotBefore = h.Now().Add(time.Hour)
	short.ExpiresAt = h.Now().Add(time.Minute)
	h.Publish("orders", later, short)
	h.Down("mail", errBusy)
	h.Advance(59 * time.Minute)
	h.Up("mail")
	h.Drain()
	h.RequireDelivered("mail", 0)
	h.Advance(time.Minute)
	if got := ids(h.RequireDelivered("mail", 1)); got[0] != "later" {
		t.Errorf("delivered %v, want later only: short has expired", got)
	}
	h.RequireEmpty()
}

// all is a sender that takes batches.
type all struct{ batches [][]string }

func (s *all) Send(_ context.Context, batch []gobridge.Delivery) []error {
	s.batches = append(s.batches, ids(batch))
	return make([]error, len(batch))
}

func (s *all) BatchLimits() gobridge.BatchLimits { return gobridge.BatchLimits{MaxRecords: 10} }

func TestBatchesStayBatches(t *testing.T) {
	sender := &all{}
	h := bridgetest.New(t, nil, orders(sender))
	h.Publish("orders", message("1", "a"), message("2", "b"), message("3", "a"))
	h.Fail("mail", nil, errBusy)
	h.Drain()
	h.Advance(time.Minute)
	h.RequireDelivered("mail", 3)
	if len(sender.batches[0]) != 1 || sender.batches[0][0] != "1" {
		t.Errorf("batches %v; the first ends before the failure", sender.batches)
	}
}

func TestStoreOfTheTestIsUsed(t *testing.T) {
	store := memory.New(memory.Options{})
	h := bridgetest.New(t, store, orders(nil))
	records, err := h.Route("orders").Records(message("1", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Persist(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	h.Fail("mail", errBusy)
	h.Drain()
	h.Advance(time.Minute)
	h.RequireDelivered("mail", 1)
}

func TestPartitionsAreOneBinding(t *testing.T) {
	const keys, each = 20, 3
	var handled []string // not guarded: sends are made one after the other
	routes := orders(gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
		handled = append(handled, d.Envelope.ID)
		return nil
	}))
	routes[0].Partitions = 4
	h := bridgetest.New(t, nil, routes)
	partitions := map[gobridge.Partition]bool{}
	for n := range each {
		for k := range keys {
			h.Publish("orders", message(fmt.Sprintf("%02d-%d", k, n), fmt.Sprint(k)))
		}
	}
	for _, r := range h.RequirePending("mail", keys*each) {
		partitions[r.Partition] = true
	}
	if len(partitions) != 4 {
		t.Errorf("they are in the partitions %v, want 4", partitions)
	}
	h.Answer("mail", func(_ context.Context, d gobridge.Delivery) error {
		switch d.Envelope.ID {
		case "03-0", "04-0", "05-0", "06-0", "07-0", "08-0":
			return gobridge.Permanent(errBusy)
		}
		return nil
	})
	h.Drain()
	h.RequireDead("mail", 6)
	h.RequireDelivered("mail", keys*each-6)
	h.RequireDelivered("bill", keys*each)
	h.Up("mail")

	// Retries come due in whatever partition they are.
	for k := range keys {
		m := message(fmt.Sprintf("%02d-later", k), fmt.Sprint(k))
		m.NotBefore = h.Now().Add(time.Duration(k+1) * time.Minute)
		h.Publish("orders", m)
	}
	h.Advance(keys * time.Minute)
	if len(handled) != keys {
		t.Errorf("the sender was handed %d messages, want %d", len(handled), keys)
	}
	if !slices.IsSorted(handled) {
		t.Errorf("they came as %v, want as they came due", handled)
	}
	last := map[string]string{}
	for _, d := range h.Delivered("mail") {
		if key := d.Envelope.OrderingKey; d.Envelope.ID <= last[key] {
			t.Errorf("%s came after %s", d.Envelope.ID, last[key])
		} else {
			last[key] = d.Envelope.ID
		}
	}
	h.RequirePending("mail", 0)
	text := failureOf(t, func(tb testing.TB) {
		h := bridgetest.New(tb, nil, routes)
		for k := range keys {
			h.Publish("orders", message(fmt.Sprint(k), fmt.Sprint(k)))
		}
		h.RequireEmpty()
	})
	for k := range keys {
		if want := fmt.Sprintf(`"%d" "order.placed" of key "%d": it can be delivered with the next Drain`, k, k); !strings.Contains(text, want) {
			t.Errorf("the failure does not say %q:\n%s", want, text)
		}
	}
}

// During a rolling deploy the old version of a service leaves alone what only
// the new one serves.
func TestOldAndNewVersionsSideBySide(t *testing.T) {
	store := memory.New(memory.Options{})
	versions := map[string][]bridge.Route{
		"old": {{Name: "orders", Bindings: []bridge.Binding{{Name: "mail"}}}},
		"new": {{Name: "orders", Bindings: []bridge.Binding{{Name: "mail"}, {Name: "text"}}}},
	}
	before, after := bridgetest.New(t, store, versions["old"]), bridgetest.New(t, store, versions["new"])
	after.Publish("orders", message("1", "a"))
	before.Publish("orders", message("2", "a"))
	before.Drain()
	before.RequireDelivered("mail", 2)
	after.RequirePending("text", 1)
	after.Drain()
	if got := ids(after.RequireDelivered("text", 1)); got[0] != "1" {
		t.Errorf("text got %v, want what was published with that binding", got)
	}
	after.RequireDelivered("mail", 0)
	after.RequireEmpty()
}

func TestFailuresAreReadable(t *testing.T) {
	cases := map[string]struct {
		do   func(h *bridgetest.Harness)
		want []string
	}{
		"nothing came": {
			func(h *bridgetest.Harness) { h.RequireDelivered("mail", 1) },
			[]string{"orders/mail has taken 0 messages, want 1", "nothing has ever come to orders/mail"},
		},
		"not drained": {
			func(h *bridgetest.Harness) {
				h.Publish("orders", message("1", "a"))
				h.RequireDelivered("mail", 1)
			},
			[]string{`"1" "order.placed" of key "a": it can be delivered with the next Drain`},
		},
		"tried": {
			func(h *bridgetest.Harness) {
				h.Publish("orders", message("1", "a"), message("2", "a"))
				h.Fail("mail", errBusy)
				h.Drain()
				h.RequireDelivered("mail", 2)
			},
			[]string{`"1" "order.placed" of key "a", attempt 1: mailbox busy`, "it is not due before",
				"the answer was: mailbox busy", `"2" "order.placed" of key "a": it waits behind "1" of the same key, which is not due`},
		},
		"dead": {
			func(h *bridgetest.Harness) {
				h.Publish("orders", message("1", "a"))
				h.Fail("mail", gobridge.Permanent(errBusy))
				h.Drain()
				h.RequireEmpty()
			},
			[]string{"the outbox is not empty", "dead letters of orders/mail", "permanent: mailbox busy"},
		},
		"paused": {
			func(h *bridgetest.Harness) {
				h.Publish("orders", message("1", "a"))
				err := h.Store().SetControl(t.Context(), gobridge.Control{
					Kind: gobridge.Pause, Route: "orders", By: "bo", Reason: "stocktaking"})
				if err != nil {
					t.Error(err)
				}
				h.Drain()
				h.RequireDelivered("mail", 1)
			},
			[]string{`it is paused by "bo": stocktaking`},
		},
		"unknown binding": {
			func(h *bridgetest.Harness) { h.Fail("mall", errBusy) },
			[]string{`there is no binding "mall"; the bindings are orders/mail, orders/bill, returns/mail`},
		},
		"unknown route": {
			func(h *bridgetest.Harness) { h.Publish("order", message("1", "")) },
			[]string{`there is no route "order"; the routes are orders, returns`},
		},
		"ambiguous binding": {
			func(h *bridgetest.Harness) { h.RequireDelivered("returns/mail", 0); h.Drain(); h.Down("any", errBusy) },
			[]string{`there is no binding "any"`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := failureOf(t, func(tb testing.TB) {
				routes := append(orders(nil), bridge.Route{Name: "returns", Bindings: []bridge.Binding{{Name: "mail"}}})
				if !strings.Contains(name, "unknown") && name != "ambiguous binding" {
					routes = routes[:1]
				}
				c.do(bridgetest.New(tb, nil, routes))
			})
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("the failure does not say %q:\n%s", want, text)
				}
			}
		})
	}
	text := failureOf(t, func(tb testing.TB) {
		routes := append(orders(nil), bridge.Route{Name: "returns", Bindings: []bridge.Binding{{Name: "mail"}}})
		bridgetest.New(tb, nil, routes).Fail("mail", errBusy)
	})
	if want := `binding "mail" may be any of orders/mail, returns/mail`; !strings.Contains(text, want) {
		t.Errorf("the failure does not say %q:\n%s", want, text)
	}
}

func TestWrongRoutesFailTheTest(t *testing.T) {
	text := failureOf(t, func(tb testing.TB) { bridgetest.New(tb, nil, []bridge.Route{{Name: "or/ders"}}) })
	if !strings.Contains(text, `"or/ders"`) {
		t.Errorf("the failure says %q", text)
	}
}

// quiet is a test whose log goes nowhere.
type quiet struct{ testing.TB }

func (quiet) Output() io.Writer { return io.Discard }

// failing is a test that keeps what it failed with.
type failing struct {
	quiet
	text *strings.Builder
}

func (f failing) Fatal(args ...any) {
	fmt.Fprint(f.text, args...)
	runtime.Goexit()
}

func (f failing) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// failureOf returns what a test fails with.
func failureOf(t *testing.T, f func(tb testing.TB)) string {
	t.Helper()
	var text strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(failing{quiet{t}, &text})
	}()
	<-done
	if text.Len() == 0 {
		t.Error("the test did not fail")
	}
	return text.String()
}
