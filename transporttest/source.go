package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// Source is a source under test: a queue, topic or stream of its own, empty at
// first. Receiver and Publish are required.
type Source struct {
	// Receiver makes a receiver of the source, as the next run of a process has
	// it. The suite runs one at a time.
	Receiver func(t testing.TB) gobridge.Receiver
	// Publish puts messages into the source, in their order, with ID, ordering key,
	// content type, headers and payload where the transport has a place for them.
	Publish func(t testing.TB, messages ...messaging.Envelope)
	// PublishBad, unless nil, puts something in of which no message can be made and
	// returns its payload.
	PublishBad func(t testing.TB) []byte
	// Left, unless nil, is how many messages the source has that are not
	// acknowledged: waiting or in flight.
	Left func(t testing.TB) int
	// Cut, unless nil, breaks every connection there is, without warning.
	Cut func(t testing.TB)

	// Unordered says that the source itself keeps no order.
	Unordered bool
	// Forgets says that the source does not keep what was not acknowledged.
	Forgets bool
	// Fresh says that a redelivery to another receiver can't be known as one.
	Fresh bool
	// Repeats says that a redelivery can happen at any time, not only after a break.
	Repeats bool
	// NoHeaders says that the source has no place for headers, NoKey none for an
	// ordering key, NoEmpty none for an empty payload.
	NoHeaders, NoKey, NoEmpty bool

	// Hold, unless zero, is longer than the source waits for an acknowledgement by
	// itself: a message that take holds for so long must not be given to another.
	Hold time.Duration
	// MaxPayload is the largest payload of the source; 64 KiB when zero.
	MaxPayload int
	// Patience bounds every wait for what must happen; 60 s when zero.
	Patience time.Duration
	// MaxHeld bounds the messages that may be with take at a time; 4,096 when zero.
	MaxHeld int
}

// RunSource runs the suite.
func RunSource(t *testing.T, open func(t testing.TB) Source) {
	for _, c := range sourceCases() {
		t.Run(c.name, func(t *testing.T) { c.check(t, open) })
	}
}

func sourceCases() []testCase[Source] {
	return []testCase[Source]{
		{"Fidelity", "A message comes as it was published: payload, key, headers, content type.", nil, sourceFidelity},
		{"Sizes", "Empty, binary and large payloads come byte for byte.", nil, sourceSizes},
		{"ManyInOrder", "Everything comes, each key in its order, many messages in one take.", nil, sourceManyInOrder},
		{"AcknowledgedWhenDurable", "What take has made durable is acknowledged, and does not come again.", needsLeft, sourceAcknowledges},
		{"NotAcknowledgedBefore", "What take has not made durable is not acknowledged, and comes again under the same ID.", needsMemory, sourceKeeps},
		{"Backpressure", "While take waits little is taken; then it goes on by itself.", nil, sourceBackpressure},
		{"HeldForLong", "A message that take holds for long is not given to another.", needsHold, sourceHeldForLong},
		{"Rejects", "What is no message is handed over with the reason and what came, and holds up nobody.", needsBad, sourceRejects},
		{"Stops", "A receiver ends when it is told to, also while take waits.", nil, sourceStops},
		{"Resumes", "After an end in the middle another receiver goes on where durability ended.", needsMemory, sourceResumes},
		{"Cut", "Broken connections lose and reorder nothing.", needsCut, sourceCut},
	}
}

func needsLeft(s *Source) string {
	return unless(s.Left != nil, "the source does not tell what is left")
}
func needsMemory(s *Source) string { return unless(!s.Forgets, "the source keeps nothing") }
func needsHold(s *Source) string {
	return unless(s.Hold > 0, "the source waits for acknowledgements for ever")
}
func needsBad(s *Source) string {
	return unless(s.PublishBad != nil, "whatever the source has is a message")
}
func needsCut(s *Source) string { return unless(s.Cut != nil, "there is no connection to break") }

func unless(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}

// taker is an outbox for a receiver: it keeps what it gets, and can be held.
type taker struct {
	mu      sync.Mutex
	got     []gobridge.Incoming // durable, in order
	offered []gobridge.Incoming // handed over, durable or not
	holding int                 // with takes now
	most    int
	calls   int
	largest int
	gate    chan struct{} // takes wait while it is not closed; nil for none
}

func (k *taker) take(ctx context.Context, batch []gobridge.Incoming) error {
	k.mu.Lock()
	k.calls++
	k.largest = max(k.largest, len(batch))
	k.holding += len(batch)
	k.most = max(k.most, k.holding)
	for _, in := range batch {
		k.offered = append(k.offered, clone(in))
	}
	gate := k.gate
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.holding -= len(batch)
		k.mu.Unlock()
	}()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, in := range batch {
		k.got = append(k.got, clone(in))
	}
	return nil
}

// clone keeps what a receiver may use again.
func clone(in gobridge.Incoming) gobridge.Incoming {
	in.Envelope.Payload = bytes.Clone(in.Envelope.Payload)
	return in
}

// hold makes takes wait until the function returned is called.
func (k *taker) hold() (release func()) {
	gate := make(chan struct{})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gate = gate
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.gate == gate {
			k.gate = nil
		}
		close(gate)
	}
}

func (k *taker) taken() []gobridge.Incoming {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]gobridge.Incoming(nil), k.got...)
}

func (k *taker) offers() []gobridge.Incoming {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]gobridge.Incoming(nil), k.offered...)
}

func (k *taker) held() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holding
}

func payloads(all []gobridge.Incoming) [][]byte {
	out := make([][]byte, len(all))
	for i := range all {
		out[i] = all[i].Envelope.Payload
	}
	return out
}

// start runs a receiver until the function returned is called, which fails the
// test if it does not end or ends with an error.
func (s *Source) start(t testing.TB, k *taker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	receiver := s.Receiver(t)
	done := make(chan error, 1)
	go func() { done <- receiver.Receive(ctx, k.take) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Receive ended with %v, want nil after the end of its context", err)
			}
		case <-time.After(patience(s.Patience).length()):
			t.Errorf("Receive has not ended %s after its context", patience(s.Patience).length())
		}
	})
	t.Cleanup(stop)
	return stop
}

func (s *Source) await(t testing.TB, k *taker, want []messaging.Envelope) {
	t.Helper()
	patience(s.Patience).awaitAll(t, want, func() [][]byte { return payloads(k.taken()) })
}

func sourceFidelity(t testing.TB, s *Source) {
	k := &taker{}
	s.start(t, k)
	want := messaging.Envelope{
		ID: "fidelity-1", OrderingKey: "customer 7 — ü", ContentType: "application/json; charset=utf-8",
		Headers: messaging.Headers{
			"x-tenant": "blue", "x-note": "grün, 50% off; a=b", messaging.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			messaging.HeaderTraceState: "vendor=value",
		},
		Payload: []byte(`{"n":1.0,"s":"ü"}`),
	}
	s.Publish(t, want)
	patience(s.Patience).eventually(t, "the message's arrival", func() bool { return len(k.taken()) > 0 })
	in := k.taken()[0]
	got := in.Envelope
	if in.Reject != nil {
		t.Fatalf("it was rejected: %v", in.Reject)
	}
	if got.ID == "" && !s.Fresh {
		t.Error("it has no ID, so that a redelivery would not be known")
	}
	wantSame(t, got, want, s.NoKey, s.NoHeaders)
	for name := range got.Headers {
		if strings.EqualFold(name, messaging.HeaderOrderingKey) {
			t.Errorf("the ordering key stands among the headers, too: no store takes it so")
		}
	}
}

func sourceSizes(t testing.TB, s *Source) {
	k := &taker{}
	s.start(t, k)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	size := s.MaxPayload
	if size == 0 {
		size = 64 << 10
	}
	all := [][]byte{every, bytes.Repeat([]byte("0123456789abcdef"), size/16)}
	if !s.NoEmpty {
		all = append(all, []byte{})
	}
	for i, payload := range all {
		s.Publish(t, messaging.Envelope{ID: fmt.Sprint("size-", i), OrderingKey: "sizes", Payload: payload})
		patience(s.Patience).eventually(t, fmt.Sprintf("the arrival of %d bytes", len(payload)), func() bool {
			for _, in := range k.taken() {
				if bytes.Equal(in.Envelope.Payload, payload) && in.Reject == nil {
					return true
				}
			}
			return false
		})
	}
}

func sourceManyInOrder(t testing.TB, s *Source) {
	k := &taker{}
	release := k.hold() // so that there is something to gather
	s.start(t, k)
	all := series(10, 1000)
	s.Publish(t, all...)
	patience(s.Patience).eventually(t, "a first take", func() bool { return k.held() > 0 })
	release()
	s.await(t, k, all)
	s.wantOrder(t, k)
	if k.largest < 2 {
		t.Errorf("1,000 messages came one by one, in %d takes: each take is a commit", k.calls)
	}
}

func (s *Source) wantOrder(t testing.TB, k *taker) {
	t.Helper()
	if s.Unordered {
		return
	}
	if wrong := inOrder(payloads(k.taken())); wrong != "" {
		t.Errorf("out of order: %s", wrong)
	}
}

func sourceAcknowledges(t testing.TB, s *Source) {
	k := &taker{}
	stop := s.start(t, k)
	all := series(3, 60)
	s.Publish(t, all...)
	s.await(t, k, all)
	patience(s.Patience).eventually(t, "the acknowledgement of all", func() bool { return s.Left(t) == 0 })
	stop()
	next := &taker{}
	s.start(t, next)
	more := messaging.Envelope{ID: "marker", OrderingKey: "marker", Payload: []byte("marker 0 ")}
	s.Publish(t, more)
	s.await(t, next, []messaging.Envelope{more})
	if n := len(next.taken()); n != 1 && !s.Repeats {
		t.Errorf("%d messages came to the next receiver, want the one that was not acknowledged", n)
	}
}

func sourceKeeps(t testing.TB, s *Source) {
	k := &taker{}
	release := k.hold()
	stop := s.start(t, k)
	all := series(1, 20)
	s.Publish(t, all...)
	patience(s.Patience).eventually(t, "a first take", func() bool { return k.held() > 0 })
	if s.Left != nil {
		if n := s.Left(t); n != len(all) {
			t.Errorf("while none is durable the source has %d messages left, want %d", n, len(all))
		}
	}
	stop()
	release()
	if n := len(k.taken()); n != 0 {
		t.Fatalf("%d takes went through after the end of their context", n)
	}
	next := &taker{}
	s.start(t, next)
	s.await(t, next, all)
	s.wantOrder(t, next)
	if s.Fresh {
		return
	}
	ids := map[string]string{}
	for _, in := range next.taken() {
		ids[string(in.Envelope.Payload)] = in.Envelope.ID
	}
	for _, in := range k.offers() {
		if id := ids[string(in.Envelope.Payload)]; id != in.Envelope.ID {
			t.Errorf("%q came as %q and again as %q: the second is not known as a duplicate", in.Envelope.Payload, in.Envelope.ID, id)
		}
	}
}

func sourceBackpressure(t testing.TB, s *Source) {
	k := &taker{}
	release := k.hold()
	s.start(t, k)
	const n = 6000
	all := series(20, n)
	for i := 0; i < n; i += 500 {
		s.Publish(t, all[i:i+500]...)
	}
	patience(s.Patience).eventually(t, "a first take", func() bool { return k.held() > 0 })
	// It may take more for a while, but not for ever.
	for last := -1; last != k.held(); {
		last = k.held()
		time.Sleep(300 * time.Millisecond)
	}
	bound := s.MaxHeld
	if bound == 0 {
		bound = 4096
	}
	if held := k.held(); held > bound {
		t.Errorf("%d messages are with takes that wait, want at most %d", held, bound)
	}
	release()
	s.await(t, k, all)
	s.wantOrder(t, k)
	if s.Left != nil {
		patience(s.Patience).eventually(t, "the acknowledgement of all", func() bool { return s.Left(t) == 0 })
	}
}

func sourceHeldForLong(t testing.TB, s *Source) {
	k := &taker{}
	release := k.hold()
	s.start(t, k)
	all := series(5, 50)
	s.Publish(t, all...)
	patience(s.Patience).eventually(t, "a first take", func() bool { return k.held() > 0 })
	time.Sleep(s.Hold)
	release()
	s.await(t, k, all)
	s.wantOrder(t, k)
	if s.Left != nil {
		patience(s.Patience).eventually(t, "the acknowledgement of all", func() bool { return s.Left(t) == 0 })
	}
	if n := len(k.offers()); n != len(all) {
		t.Errorf("%d messages were handed over %d times: the source took some back while take held them", len(all), n)
	}
}

func sourceRejects(t testing.TB, s *Source) {
	k := &taker{}
	s.start(t, k)
	before := series(1, 1)
	s.Publish(t, before...)
	raw := s.PublishBad(t)
	after := series(1, 2)[1:]
	s.Publish(t, after...)
	s.await(t, k, append(before, after...))
	patience(s.Patience).eventually(t, "the hand-over of what is no message", func() bool {
		for _, in := range k.taken() {
			if in.Reject != nil && bytes.Equal(in.Envelope.Payload, raw) {
				return true
			}
		}
		return false
	})
	if s.Left != nil {
		patience(s.Patience).eventually(t, "the acknowledgement of all", func() bool { return s.Left(t) == 0 })
	}
}

func sourceStops(t testing.TB, s *Source) {
	idle := s.start(t, &taker{})
	idle()
	k := &taker{}
	k.hold()
	stop := s.start(t, k)
	s.Publish(t, series(2, 10)...)
	patience(s.Patience).eventually(t, "a first take", func() bool { return k.held() > 0 })
	stop()
	if n := k.held(); n != 0 {
		t.Errorf("%d messages are with takes after Receive has returned", n)
	}
}

func sourceResumes(t testing.TB, s *Source) {
	all := series(4, 400)
	together := &taker{}
	for i := 0; i < len(all); i += 100 {
		stop := s.start(t, together)
		s.Publish(t, all[i:i+50]...)
		patience(s.Patience).eventually(t, "some of what was published", func() bool { return len(together.taken()) > i/2 })
		release := together.hold()
		s.Publish(t, all[i+50:i+100]...)
		patience(s.Patience).eventually(t, "a take in the middle", func() bool { return together.held() > 0 })
		stop()
		release()
	}
	s.start(t, together)
	s.await(t, together, all)
	s.wantOrder(t, together)
}

func sourceCut(t testing.TB, s *Source) {
	k := &taker{}
	s.start(t, k)
	all := series(8, 1200)
	for i := 0; i < len(all); i += 200 {
		s.Publish(t, all[i:i+200]...)
		if i%400 == 0 {
			patience(s.Patience).eventually(t, "some of what was published", func() bool { return len(k.taken()) > i })
			s.Cut(t)
		}
	}
	s.await(t, k, all)
	s.wantOrder(t, k)
	if s.Left != nil {
		patience(s.Patience).eventually(t, "the acknowledgement of all", func() bool { return s.Left(t) == 0 })
	}
}
