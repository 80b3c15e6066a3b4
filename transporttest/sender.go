package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// Destination is a destination under test: a queue, topic or subject of its own,
// empty at first. Sender and Received are required.
type Destination struct {
	Sender gobridge.Sender
	// Received returns what a consumer of the destination has seen so far, in its
	// order, as far as the transport has a place for it: ID, ordering key, content
	// type, headers, payload. The suite asks again until something has come.
	Received func(t testing.TB) []messaging.Envelope
	// Cut, unless nil, breaks every connection there is, without warning.
	Cut func(t testing.TB)
	// Down, unless nil, makes the destination unreachable, and reachable again.
	Down func(t testing.TB, down bool)
	// Stall, unless nil, keeps everything from passing either way, and lets it
	// pass again, with no connection broken.
	Stall func(t testing.TB, stall bool)

	// TooLarge, unless zero, is a payload in bytes that the destination refuses,
	// or that the sender refuses for it.
	TooLarge int
	// MaxPayload is a payload in bytes that it takes; 64 KiB when zero.
	MaxPayload int

	// Unordered says that the destination itself keeps no order.
	Unordered bool
	// Swallows says that the destination knows a repetition by its deduplication ID.
	Swallows bool
	// NoHeaders, NoKey, NoID and NoEmpty say what it has no place for.
	NoHeaders, NoKey, NoID, NoEmpty bool
	// Patience bounds every wait for what must happen; 60 s when zero.
	Patience time.Duration
	// Timeout is what the engine gives a send; 20 s when zero.
	Timeout time.Duration
}

// RunSender runs the suite.
func RunSender(t *testing.T, open func(t testing.TB) Destination) {
	for _, c := range senderCases() {
		t.Run(c.name, func(t *testing.T) { c.check(t, open) })
	}
}

func senderCases() []testCase[Destination] {
	return []testCase[Destination]{
		{"Fidelity", "A message arrives as it is: payload, ID, key, headers, content type.", nil, senderFidelity},
		{"Sizes", "Empty, binary and large payloads arrive byte for byte.", nil, senderSizes},
		{"ManyInOrder", "Everything arrives, each key in its order.", nil, senderManyInOrder},
		{"SideBySide", "Sends side by side do not mix their answers up.", nil, senderSideBySide},
		{"TooLarge", "A message that is too large is refused for good, and its neighbours arrive.", needsTooLarge, senderTooLarge},
		{"Redrive", "A message from the dead letters arrives again under its ID; a repetition may be swallowed.", nil, senderRedrive},
		{"Cut", "Broken connections lose and reorder nothing.", needsSenderCut, senderCut},
		{"Down", "A destination that can't be reached is nobody's fault, and works again by itself.", needsDown, senderDown},
		{"Abandoned", "A send that was given up does not appear behind a later message of its key.", needsStall, senderAbandoned},
		{"Ended", "A send whose time is over answers at once.", nil, senderEnded},
	}
}

func needsTooLarge(d *Destination) string { return unless(d.TooLarge > 0, "nothing is too large") }
func needsSenderCut(d *Destination) string {
	return unless(d.Cut != nil, "there is no connection to break")
}
func needsDown(d *Destination) string { return unless(d.Down != nil, "it can't be unreachable") }
func needsStall(d *Destination) string {
	return unless(d.Stall != nil, "there is no connection to stall")
}

// deliveries turns messages into first attempts.
func deliveries(messages []messaging.Envelope) []gobridge.Delivery {
	out := make([]gobridge.Delivery, len(messages))
	for i, e := range messages {
		out[i] = gobridge.Delivery{
			Envelope: e, Route: "route", Binding: "binding", Partition: "route/binding/0",
			Attempt: 1, Token: gobridge.Token{Owner: "suite", Version: 1}, Seq: int64(i + 1),
		}
	}
	return out
}

func (d *Destination) timeout() time.Duration {
	if d.Timeout > 0 {
		return d.Timeout
	}
	return 20 * time.Second
}

func (d *Destination) send(t testing.TB, batch ...gobridge.Delivery) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout())
	defer cancel()
	errs := d.Sender.Send(ctx, batch)
	if len(errs) != len(batch) {
		t.Fatalf("Send gave %d answers for %d deliveries", len(errs), len(batch))
	}
	return errs
}

// drive delivers everything as the engine does: one send of a key at a time, in
// batches as large as the sender takes, and again after a failure. It returns what
// was refused for good.
func (d *Destination) drive(t testing.TB, all []gobridge.Delivery) (refused map[string]error) {
	t.Helper()
	refused = map[string]error{}
	limits := gobridge.BatchLimits{MaxRecords: 1}
	if b, ok := d.Sender.(gobridge.BatchSender); ok {
		limits = b.BatchLimits()
	}
	if limits.MaxRecords <= 0 {
		limits.MaxRecords = 100
	}
	deadline := time.Now().Add(2 * patience(d.Patience).length())
	for len(all) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d messages have not been delivered", len(all))
		}
		batch, rest := nextBatch(all, limits)
		errs := d.send(t, batch...)
		blocked := map[string]bool{}
		var again []gobridge.Delivery
		failed := false
		for i, err := range errs {
			key := batch[i].Envelope.OrderingKey
			outcome, _ := gobridge.Classify(err)
			switch {
			case outcome == gobridge.OutcomeDelivered && blocked[key]:
				t.Fatalf("%s was delivered in a batch in which an earlier message of its key failed", batch[i].Envelope.ID)
			case outcome == gobridge.OutcomeDelivered:
			case outcome == gobridge.OutcomePermanent && !blocked[key]:
				refused[batch[i].Envelope.ID] = err
			default:
				failed = true
				blocked[key] = true
				batch[i].Attempt++
				again = append(again, batch[i])
			}
		}
		all = append(again, rest...)
		slices.SortFunc(all, func(a, b gobridge.Delivery) int { return int(a.Seq - b.Seq) })
		if failed {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return refused
}

// nextBatch splits what the sender gets next from the rest.
func nextBatch(all []gobridge.Delivery, limits gobridge.BatchLimits) (batch, rest []gobridge.Delivery) {
	keys := map[string]bool{}
	var bytes int64
	for _, d := range all {
		key := d.Envelope.OrderingKey
		size := int64(len(d.Envelope.Payload) + d.Envelope.Headers.Size())
		full := len(batch) >= limits.MaxRecords || len(batch) > 0 && limits.MaxBytes > 0 && bytes+size > limits.MaxBytes
		if full || limits.OnePerKey && key != "" && keys[key] {
			keys[key] = true // nothing of the key overtakes it
			rest = append(rest, d)
			continue
		}
		keys[key] = limits.OnePerKey && key != ""
		bytes += size
		batch = append(batch, d)
	}
	return batch, rest
}

func (d *Destination) payloads(t testing.TB) [][]byte {
	t.Helper()
	var out [][]byte
	for _, e := range d.Received(t) {
		out = append(out, e.Payload)
	}
	return out
}

func (d *Destination) await(t testing.TB, want []messaging.Envelope) {
	t.Helper()
	patience(d.Patience).awaitAll(t, want, func() [][]byte { return d.payloads(t) })
	if d.Unordered {
		return
	}
	if wrong := inOrder(d.payloads(t)); wrong != "" {
		t.Errorf("out of order: %s", wrong)
	}
}

func wantAllNil(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("delivery %d: %v", i, err)
		}
	}
}

func senderFidelity(t testing.TB, d *Destination) {
	want := messaging.Envelope{
		ID: "order/7#a", Subject: "order.placed", OrderingKey: "customer-7", ContentType: "application/json; charset=utf-8",
		Headers: messaging.Headers{
			"x-tenant": "blue", messaging.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			messaging.HeaderTraceState: "vendor=value",
		},
		Payload: []byte(`{"n":1.0,"s":"ü"}`),
	}
	wantAllNil(t, d.send(t, deliveries([]messaging.Envelope{want})...))
	patience(d.Patience).eventually(t, "the message's arrival", func() bool { return len(d.Received(t)) > 0 })
	got := d.Received(t)[0]
	if !d.NoID && got.ID != want.ID {
		t.Errorf("ID %q, want %q", got.ID, want.ID)
	}
	wantSame(t, got, want, d.NoKey, d.NoHeaders)
}

func senderSizes(t testing.TB, d *Destination) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	size := d.MaxPayload
	if size == 0 {
		size = 64 << 10
	}
	all := [][]byte{every, bytes.Repeat([]byte("0123456789abcdef"), size/16)}
	if !d.NoEmpty {
		all = append(all, []byte{})
	}
	for i, payload := range all {
		e := messaging.Envelope{ID: fmt.Sprint("size-", i), OrderingKey: "sizes", Payload: payload}
		if c, ok := d.Sender.(gobridge.Carrier); ok {
			if err := c.Carry(&e); err != nil {
				t.Fatalf("Carry refuses %d bytes: %v", len(payload), err)
			}
		}
		wantAllNil(t, d.send(t, deliveries([]messaging.Envelope{e})...))
		patience(d.Patience).eventually(t, fmt.Sprintf("the arrival of %d bytes", len(payload)), func() bool {
			return slices.ContainsFunc(d.payloads(t), func(p []byte) bool { return bytes.Equal(p, payload) })
		})
	}
}

func senderManyInOrder(t testing.TB, d *Destination) {
	all := series(10, 500)
	d.drive(t, deliveries(all))
	d.await(t, all)
}

func senderSideBySide(t testing.TB, d *Destination) {
	all := series(16, 320)
	byKey := map[string][]gobridge.Delivery{}
	for _, one := range deliveries(all) {
		byKey[one.Envelope.OrderingKey] = append(byKey[one.Envelope.OrderingKey], one)
	}
	var group sync.WaitGroup
	for _, some := range byKey {
		group.Go(func() {
			for _, one := range some {
				ctx, cancel := context.WithTimeout(context.Background(), d.timeout())
				errs := d.Sender.Send(ctx, []gobridge.Delivery{one})
				cancel()
				if len(errs) != 1 || errs[0] != nil {
					t.Errorf("%s: %v", one.Envelope.ID, errs)
					return
				}
			}
		})
	}
	group.Wait()
	d.await(t, all)
}

// senderTooLarge has a message that the destination refuses in the middle of a key,
// among other keys.
func senderTooLarge(t testing.TB, d *Destination) {
	all := series(5, 50)
	bad := 21 // key-1 4
	big := bytes.Repeat([]byte("x"), d.TooLarge)
	copy(big, all[bad].Payload)
	all[bad].Payload = big
	if c, ok := d.Sender.(gobridge.Carrier); ok {
		if err := c.Carry(&all[bad]); err == nil {
			t.Log("Carry does not know that it is too large")
		}
	}
	refused := d.drive(t, deliveries(all))
	if len(refused) != 1 || refused[all[bad].ID] == nil {
		t.Fatalf("refused for good: %v, want %s alone", refused, all[bad].ID)
	}
	want := slices.Delete(slices.Clone(all), bad, bad+1)
	patience(d.Patience).awaitAll(t, want, func() [][]byte { return d.payloads(t) })
}

func senderRedrive(t testing.TB, d *Destination) {
	one := deliveries([]messaging.Envelope{{ID: "again", OrderingKey: "k", Payload: []byte("again")}})[0]
	wantAllNil(t, d.send(t, one))
	repeat := one
	repeat.Attempt = 2
	wantAllNil(t, d.send(t, repeat))
	redriven := one
	redriven.Redrives, redriven.Seq = 1, 2
	wantAllNil(t, d.send(t, redriven))
	want := 3
	if d.Swallows {
		want = 2
	}
	patience(d.Patience).eventually(t, fmt.Sprintf("%d arrivals", want), func() bool { return len(d.Received(t)) >= want })
	if n := len(d.Received(t)); n != want {
		t.Errorf("%d arrivals, want %d", n, want)
	}
	if d.NoID {
		return
	}
	for _, e := range d.Received(t) {
		if e.ID != one.Envelope.ID {
			t.Errorf("it arrived as %q; a redrive keeps the message's ID", e.ID)
		}
	}
}

func senderCut(t testing.TB, d *Destination) {
	all := series(8, 800)
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for i := 0; i < 8; i++ {
			d.Cut(t)
			select {
			case <-stop:
				return
			case <-time.After(40 * time.Millisecond):
			}
		}
	})
	d.drive(t, deliveries(all))
	close(stop)
	cutter.Wait()
	d.await(t, all)
}

func senderDown(t testing.TB, d *Destination) {
	all := series(2, 8)
	d.drive(t, deliveries(all[:2]))
	d.Down(t, true)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	errs := d.Sender.Send(ctx, deliveries(all[2:3]))
	cancel()
	outcome, _ := gobridge.Classify(errs[0])
	if outcome != gobridge.OutcomeUnavailable && outcome != gobridge.OutcomeTransient {
		t.Errorf("a destination that can't be reached gave %v, which is neither unavailable nor transient", errs[0])
	}
	d.Down(t, false)
	d.drive(t, deliveries(all[2:]))
	d.await(t, all)
}

// senderAbandoned gives a send up whose outcome it can't know, and sends the next
// message of the key, as after a dead letter.
func senderAbandoned(t testing.TB, d *Destination) {
	all := series(1, 4)
	d.drive(t, deliveries(all[:1]))
	d.Stall(t, true)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	errs := d.Sender.Send(ctx, deliveries(all[1:2]))
	cancel()
	if errs[0] == nil {
		t.Fatal("a send through which nothing passed was answered as delivered")
	}
	d.Stall(t, false)
	d.drive(t, deliveries(all[2:]))
	patience(d.Patience).eventually(t, "the arrival of the last", func() bool { return len(missing(all[3:], d.payloads(t))) == 0 })
	time.Sleep(500 * time.Millisecond) // for what may still be on its way
	if d.Unordered {
		return
	}
	newest := -1
	for _, p := range d.payloads(t) {
		_, number, _ := place(p)
		if number == 1 && newest > 1 {
			t.Error("the message that was given up appeared after later ones of its key")
		}
		newest = max(newest, number)
	}
}

func senderEnded(t testing.TB, d *Destination) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	done := make(chan []error, 1)
	all := series(3, 3)
	go func() { done <- d.Sender.Send(ctx, deliveries(all)) }()
	select {
	case errs := <-done:
		for i, err := range errs {
			if errors.Is(err, gobridge.ErrNotSent) || err == nil {
				continue
			}
			if outcome, _ := gobridge.Classify(err); outcome == gobridge.OutcomePermanent {
				t.Errorf("delivery %d: %v, which would dead-letter it for the end of its time", i, err)
			}
		}
	case <-time.After(patience(d.Patience).length()):
		t.Fatal("Send has not returned though its context had ended before")
	}
}
