package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
	"gobridge/telemetry"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func message(id string, headers ...string) messaging.Envelope {
	e := messaging.Envelope{ID: id, OrderingKey: "KEY", Payload: []byte("PAYLOAD"), Headers: messaging.Headers{"x": "y"}}
	for i := 0; i+1 < len(headers); i += 2 {
		e.Headers[headers[i]] = headers[i+1]
	}
	return e
}

// accepts is a publish that takes everything.
func accepts(_ context.Context, envelopes ...messaging.Envelope) ([]gobridge.Receipt, error) {
	out := make([]gobridge.Receipt, len(envelopes))
	for i := range envelopes {
		out[i] = gobridge.Receipt{EnvelopeID: envelopes[i].ID, Bindings: 1}
	}
	return out, nil
}

// traced is a tracer whose spans are kept.
func traced(t *testing.T, share float64) (*telemetry.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(share))))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return telemetry.NewTracer(provider), recorder
}

// parentOf is the traceparent of a span.
func parentOf(c trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%02x", c.TraceID(), c.SpanID(), byte(c.TraceFlags()))
}

func attributesOf(s sdk.ReadOnlySpan) map[attribute.Key]string {
	out := map[attribute.Key]string{}
	for _, a := range s.Attributes() {
		out[a.Key] = a.Value.String()
	}
	return out
}

// TestOneTraceFromTheSourceToTheDestination sends a message through a bridge whose
// destination refuses it once: the accept is a child of the source's context, both
// attempts of the accept, and each request has the context of its attempt.
func TestOneTraceFromTheSourceToTheDestination(t *testing.T) {
	tracer, recorder := traced(t, 0)
	var sent []string
	answers := []error{gobridge.Unavailable(errors.New("SECRET")), nil}
	sender := tracer.Sender(gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
		sent = append(sent, d.Envelope.Headers[messaging.HeaderTraceParent])
		if d.Envelope.Headers["tracestate"] != "vendor=1" || d.Envelope.Headers["x"] != "y" {
			t.Errorf("the headers are %v", d.Envelope.Headers)
		}
		answer := answers[0]
		answers = answers[1:]
		return answer
	}))
	b, err := bridge.New(memory.New(memory.Options{}), bridge.Options{Routes: []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{Name: "crm", Sender: sender}}}}})
	if err != nil {
		t.Fatal(err)
	}
	publish := tracer.Publish("orders", b.Route("orders").Publish)
	in := message("m-1", "traceparent", sampled, "tracestate", "vendor=1")
	if _, err := publish(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if in.Headers["traceparent"] != sampled {
		t.Error("the caller's message was changed")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	eventually(t, "accept and two attempts have ended", func() bool { return len(recorder.Ended()) == 3 })
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	accept, first, second := recorder.Ended()[0], recorder.Ended()[1], recorder.Ended()[2]
	if got := parentOf(accept.Parent()); got != sampled {
		t.Errorf("the parent of accept is %s, want the source's %s", got, sampled)
	}
	if accept.Name() != "accept orders" || accept.SpanKind() != trace.SpanKindConsumer || len(accept.Links()) != 1 {
		t.Errorf("accept is %q of kind %s with %d links", accept.Name(), accept.SpanKind(), len(accept.Links()))
	}
	for i, attempt := range []sdk.ReadOnlySpan{first, second} {
		if attempt.Parent().SpanID() != accept.SpanContext().SpanID() || attempt.SpanContext().TraceID() != accept.SpanContext().TraceID() {
			t.Errorf("attempt %d is no child of accept", i+1)
		}
		if len(attempt.Links()) != 1 || attempt.Links()[0].SpanContext.SpanID() != accept.SpanContext().SpanID() {
			t.Errorf("attempt %d has the links %v", i+1, attempt.Links())
		}
		if attempt.Name() != "send orders/crm" || attempt.SpanKind() != trace.SpanKindProducer {
			t.Errorf("attempt %d is %q of kind %s", i+1, attempt.Name(), attempt.SpanKind())
		}
		if want := parentOf(attempt.SpanContext()); sent[i] != want {
			t.Errorf("request %d had %s, want %s", i+1, sent[i], want)
		}
	}
	for key, want := range map[attribute.Key]string{
		"messaging.system": "gobridge", "messaging.operation.type": "send", "messaging.operation.name": "send",
		"messaging.destination.name": "orders", "messaging.message.id": "m-1", "messaging.destination.partition.id": "orders/crm/0",
		"messaging.message.body.size": "7", "gobridge.binding": "crm", "gobridge.attempt": "1", "gobridge.redrives": "0",
		"gobridge.outcome": "unavailable", "error.type": "unavailable",
	} {
		if got := attributesOf(first)[key]; got != want {
			t.Errorf("%s of the first attempt is %q, want %q", key, got, want)
		}
	}
	if a := attributesOf(second); first.Status().Code != codes.Error || second.Status().Code == codes.Error || a["gobridge.outcome"] != "delivered" || a["gobridge.attempt"] != "2" {
		t.Errorf("status %v then %v, %v", first.Status(), second.Status(), a)
	}
	for _, s := range recorder.Ended() {
		if text := fmt.Sprint(attributesOf(s), s.Status(), s.Events()); strings.Contains(text, "SECRET") || strings.Contains(text, "PAYLOAD") || strings.Contains(text, "KEY") {
			t.Errorf("%s says %s", s.Name(), text)
		}
	}
}

// TestTheSamplingFlagIsKept: what is not sampled is passed on as it came, and what
// has no context is traced by the share.
func TestTheSamplingFlagIsKept(t *testing.T) {
	for _, c := range []struct {
		name, parent string
		share        float64
		spans        int
	}{
		{"sampled, nothing else is", sampled, 0, 2},
		{"not sampled, all else is", unsampled, 1, 0},
		{"none, all are", "", 1, 2},
		{"none, none is", "", 0, 0},
		{"broken, none is", "00-zz-1-01", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracer, recorder := traced(t, c.share)
			in := message("m")
			if c.parent != "" {
				in.Headers["traceparent"] = c.parent
			}
			var stored messaging.Envelope
			_, _ = tracer.Publish("orders", func(ctx context.Context, envelopes ...messaging.Envelope) ([]gobridge.Receipt, error) {
				stored = envelopes[0]
				return accepts(ctx, envelopes...)
			})(t.Context(), in)
			if messaging.ContentHash(&stored) != messaging.ContentHash(&in) {
				t.Error("the content has another hash: a redelivery would not be known")
			}
			var out string
			tracer.Sender(gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
				out = d.Envelope.Headers["traceparent"]
				return nil
			})).Send(t.Context(), []gobridge.Delivery{{Envelope: stored, Attempt: 1}})
			if n := len(recorder.Ended()); n != c.spans {
				t.Errorf("%d spans, want %d", n, c.spans)
			}
			if c.spans == 0 && out != c.parent {
				t.Errorf("the request has %q, want %q", out, c.parent)
			}
		})
	}
}

func TestEachMessageOfABatchHasItsSpan(t *testing.T) {
	tracer, recorder := traced(t, 1)
	receiver := tracer.Receiver("orders", receiverFunc(func(ctx context.Context, take gobridge.Take) error {
		return take(ctx, []gobridge.Incoming{{Envelope: message("a")}, {Envelope: message("b"), Reject: errors.New("no message")}, {Envelope: message("c")}})
	}))
	var stored []messaging.Envelope
	err := receiver.Receive(t.Context(), func(_ context.Context, batch []gobridge.Incoming) error {
		for _, in := range batch {
			stored = append(stored, in.Envelope)
		}
		return nil
	})
	if err != nil || len(recorder.Ended()) != 2 {
		t.Fatalf("%v, %d spans", err, len(recorder.Ended()))
	}
	sender := tracer.Sender(senderFunc(func(_ context.Context, batch []gobridge.Delivery) []error {
		return []error{nil, gobridge.Permanent(errors.New("no")), gobridge.ErrNotSent}
	}))
	batch := []gobridge.Delivery{{Envelope: stored[0]}, {Envelope: stored[2]}, {Envelope: message("d", "traceparent", sampled)}}
	before := batch[0].Envelope.Headers["traceparent"]
	sender.Send(t.Context(), batch)
	var outcomes []string
	for _, s := range recorder.Ended()[2:] {
		outcomes = append(outcomes, attributesOf(s)["gobridge.outcome"])
	}
	if !slices.Equal(outcomes, []string{"delivered", "permanent", "not_sent"}) {
		t.Errorf("the outcomes are %v", outcomes)
	}
	if batch[0].Envelope.Headers["traceparent"] != before {
		t.Error("the engine's batch was changed")
	}
}

func TestRefusedMessagesSayTheirClass(t *testing.T) {
	tracer, recorder := traced(t, 1)
	_, err := tracer.Publish("orders", func(context.Context, ...messaging.Envelope) ([]gobridge.Receipt, error) {
		return nil, fmt.Errorf("payload.x is PAYLOAD: %w", gobridge.ErrRejected)
	})(t.Context(), message("m"))
	if !errors.Is(err, gobridge.ErrRejected) {
		t.Fatal(err)
	}
	s := recorder.Ended()[0]
	if attributesOf(s)["error.type"] != "rejected" || s.Status().Description != "rejected" {
		t.Errorf("%v %v", attributesOf(s), s.Status())
	}
}

func TestAPanicEndsTheSpan(t *testing.T) {
	tracer, recorder := traced(t, 1)
	sender := tracer.Sender(senderFunc(func(context.Context, []gobridge.Delivery) []error { panic("SECRET") }))
	func() {
		defer func() { _ = recover() }()
		sender.Send(t.Context(), []gobridge.Delivery{{Envelope: message("m", "traceparent", sampled)}})
	}()
	if s := recorder.Ended(); len(s) != 1 || attributesOf(s[0])["gobridge.outcome"] != "panic" {
		t.Errorf("%d spans", len(s))
	}
}

// full is a sender and a receiver with every optional power.
type full struct{}

func (full) Receive(context.Context, gobridge.Take) error { return nil }
func (full) Solo() bool                                   { return true }
func (full) Connect(context.Context) (string, error)      { return "connected", nil }
func (full) Send(_ context.Context, batch []gobridge.Delivery) []error {
	return make([]error, len(batch))
}
func (full) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: 7, OnePerKey: true}
}
func (full) Carry(*messaging.Envelope) error { return errors.New("never") }

// TestPowersArePassedOn: what is wrapped can do what it could before.
func TestPowersArePassedOn(t *testing.T) {
	tracer, _ := traced(t, 1)
	_, o := began(t, telemetry.Options{})
	for _, s := range []gobridge.Sender{tracer.Sender(full{}), o.Sender("r", "b", full{}), tracer.Sender(o.Sender("r", "b", full{}))} {
		if l := s.(gobridge.BatchSender).BatchLimits(); l != (full{}).BatchLimits() {
			t.Errorf("limits %+v", l)
		}
		if err := s.(gobridge.Carrier).Carry(nil); err == nil {
			t.Error("it carries everything")
		}
		if what, _ := s.(gobridge.Connector).Connect(t.Context()); what != "connected" {
			t.Errorf("it connects to %q", what)
		}
	}
	for _, r := range []gobridge.Receiver{tracer.Receiver("r", full{}), o.Receiver("r", full{})} {
		if !r.(gobridge.Solo).Solo() {
			t.Error("it is not solo")
		}
		if what, _ := r.(gobridge.Connector).Connect(t.Context()); what != "connected" {
			t.Errorf("it connects to %q", what)
		}
	}
	plain := senderFunc(func(context.Context, []gobridge.Delivery) []error { return nil })
	s := tracer.Sender(plain)
	if l := s.(gobridge.BatchSender).BatchLimits(); l != (gobridge.BatchLimits{MaxRecords: 1}) {
		t.Errorf("a plain sender has the limits %+v", l)
	}
	if _, ok := s.(gobridge.Connector); ok {
		t.Error("a plain sender connects")
	}
	if r := tracer.Receiver("r", receiverFunc(nil)); r.(gobridge.Solo).Solo() {
		t.Error("a plain receiver is solo")
	}
}

func TestNoTracerWrapsNothing(t *testing.T) {
	none := telemetry.NewTracer(nil)
	if s := none.Sender(full{}); s != (full{}) {
		t.Errorf("%T", s)
	}
	if r := none.Receiver("r", full{}); r != (full{}) {
		t.Errorf("%T", r)
	}
}
