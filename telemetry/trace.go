package telemetry

import (
	"context"
	"maps"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"gobridge"
	"gobridge/messaging"
)

// Tracer makes a span where a message is accepted and one for each attempt to send
// it. A nil Tracer makes none and wraps nothing.
//
// Between the two lies the outbox: a record has the context of the span that
// accepted it in its trace headers, and a request that of its attempt. A message
// that came with a context which is not sampled keeps it, untouched, and has no
// spans; one without any is traced as often as the provider's sampler says.
//
// Spans are as the conventions for messaging have them (OpenTelemetry semantic
// conventions, messaging spans, "Trace structure" and "Span kind"): accepting is
// "process" of kind CONSUMER, an attempt is "send" of kind PRODUCER, for its context
// is the one that the outgoing message has. Both link to the context that the
// message had, as the conventions ask, and are its children, too, as they allow for
// single messages: so that one trace shows the whole way, and the sampling flag
// counts on all of it. Each message of a batch has its own spans.
type Tracer struct {
	tracer trace.Tracer
	w3c    propagation.TraceContext
}

// NewTracer returns a tracer, nil for a nil provider.
func NewTracer(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{tracer: provider.Tracer(scope)}
}

// system is the conventions' messaging.system.
const system = "gobridge"

// Attributes that the conventions have none for.
const (
	attrAttempt  = attribute.Key("gobridge.attempt")
	attrRedrives = attribute.Key("gobridge.redrives")
	attrBinding  = attribute.Key("gobridge.binding")
	attrOutcome  = attribute.Key("gobridge.outcome")
	attrBindings = attribute.Key("gobridge.bindings")
	attrRepeat   = attribute.Key("gobridge.duplicate")
)

// Publish is what makes messages durable and answers for each.
type Publish func(ctx context.Context, envelopes ...messaging.Envelope) ([]gobridge.Receipt, error)

// Publish returns a route's publish with a span for each message.
func (t *Tracer) Publish(route string, inside Publish) Publish {
	if t == nil {
		return inside
	}
	return func(ctx context.Context, envelopes ...messaging.Envelope) ([]gobridge.Receipt, error) {
		spans := make([]trace.Span, len(envelopes))
		traced := make([]messaging.Envelope, len(envelopes))
		for i := range envelopes {
			traced[i], spans[i] = t.accept(ctx, route, envelopes[i])
		}
		if len(spans) == 1 && spans[0] != nil {
			ctx = trace.ContextWithSpan(ctx, spans[0])
		}
		receipts, err := inside(ctx, traced...)
		for i, span := range spans {
			if span == nil {
				continue
			}
			if i < len(receipts) {
				r := receipts[i]
				span.SetAttributes(semconv.MessagingMessageID(r.EnvelopeID), attrBindings.Int(r.Bindings), attrRepeat.Bool(r.Duplicate))
			}
			endAccept(span, err)
		}
		return receipts, err
	}
}

// Receiver returns a route's receiver with a span for each message that it hands
// over. It has the optional powers of the one inside.
func (t *Tracer) Receiver(route string, inside gobridge.Receiver) gobridge.Receiver {
	if t == nil {
		return inside
	}
	return newReceiver(inside, func(ctx context.Context, take gobridge.Take) error {
		return inside.Receive(ctx, func(ctx context.Context, batch []gobridge.Incoming) error {
			spans := make([]trace.Span, len(batch))
			traced := make([]gobridge.Incoming, len(batch))
			for i := range batch {
				traced[i] = batch[i]
				if batch[i].Reject == nil { // one that is no message is kept as it came
					traced[i].Envelope, spans[i] = t.accept(ctx, route, batch[i].Envelope)
				}
			}
			err := take(ctx, traced)
			for _, span := range spans {
				if span != nil {
					endAccept(span, err)
				}
			}
			return err
		})
	})
}

// Sender returns a binding's sender with a span for each delivery of each attempt.
// It has the optional powers of the one inside.
func (t *Tracer) Sender(inside gobridge.Sender) gobridge.Sender {
	if t == nil {
		return inside
	}
	return newSender(inside, func(ctx context.Context, batch []gobridge.Delivery) []error {
		var traced []gobridge.Delivery
		var spans []trace.Span
		for i := range batch {
			if !t.contextOf(ctx, &batch[i].Envelope).IsSampled() {
				continue
			}
			if traced == nil {
				traced, spans = append(traced, batch...), make([]trace.Span, len(batch))
			}
			traced[i].Envelope, spans[i] = t.attempt(ctx, &batch[i])
		}
		if traced == nil {
			return inside.Send(ctx, batch)
		}
		if len(batch) == 1 {
			ctx = trace.ContextWithSpan(ctx, spans[0])
		}
		sent := false // a sender that panics or ends its goroutine has not answered
		defer func() {
			for _, span := range spans {
				if span != nil && !sent {
					endAttempt(span, "panic", true)
				}
			}
		}()
		errs := inside.Send(ctx, traced)
		sent = true
		for i, span := range spans {
			if span == nil {
				continue
			}
			outcome := gobridge.OutcomeTransient // no answer is none that says more
			if i < len(errs) {
				outcome, _ = gobridge.Classify(errs[i])
			}
			text := outcomes[outcome]
			if outcome == gobridge.OutcomeNotSent {
				text = "not_sent"
			}
			endAttempt(span, text, outcome != gobridge.OutcomeDelivered && outcome != gobridge.OutcomeNotSent)
		}
		return errs
	})
}

// contextOf returns the trace context of a message, an invalid one for none.
func (t *Tracer) contextOf(ctx context.Context, e *messaging.Envelope) trace.SpanContext {
	if e.Headers[messaging.HeaderTraceParent] == "" {
		return trace.SpanContext{}
	}
	none := trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // or a broken header had that of ctx
	return trace.SpanContextFromContext(t.w3c.Extract(none, propagation.MapCarrier(e.Headers)))
}

// start starts a span of one message, a child of its context, and links to it. One of
// a message without a context is a child of what ctx has.
func (t *Tracer) start(ctx context.Context, name string, of trace.SpanContext, kind trace.SpanKind, attributes []attribute.KeyValue) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attributes...)}
	if of.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: of}))
		ctx = trace.ContextWithRemoteSpanContext(ctx, of)
	}
	return t.tracer.Start(ctx, name, options...)
}

// carry returns the envelope with the context of ctx in its headers.
func (t *Tracer) carry(ctx context.Context, e messaging.Envelope) messaging.Envelope {
	headers := maps.Clone(e.Headers)
	if headers == nil {
		headers = messaging.Headers{}
	}
	delete(headers, messaging.HeaderTraceState) // it belongs to the traceparent before
	t.w3c.Inject(ctx, propagation.MapCarrier(headers))
	e.Headers = headers
	return e
}

// accept starts the span of a message that a source hands over, and returns the
// message with its context; nil, and the message as it is, if it is not sampled.
func (t *Tracer) accept(ctx context.Context, route string, e messaging.Envelope) (messaging.Envelope, trace.Span) {
	of := t.contextOf(ctx, &e)
	if of.IsValid() && !of.IsSampled() {
		return e, nil
	}
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(system), semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("accept"),
		semconv.MessagingDestinationName(route), semconv.MessagingMessageBodySize(len(e.Payload)),
	}
	if e.ID != "" {
		attributes = append(attributes, semconv.MessagingMessageID(e.ID))
	}
	ctx, span := t.start(ctx, "accept "+route, of, trace.SpanKindConsumer, attributes)
	if !span.SpanContext().IsSampled() {
		span.End()
		return e, nil
	}
	return t.carry(ctx, e), span
}

// endAccept ends the span of a message that was accepted, or refused. The text of an
// error may have something of the message in it, so there is its class alone.
func endAccept(span trace.Span, err error) {
	if err != nil {
		reason := refusalOf(err)
		span.SetAttributes(semconv.ErrorTypeKey.String(reason))
		span.SetStatus(codes.Error, reason)
	}
	span.End()
}

// attempt starts the span of one delivery, and returns its envelope with its context.
func (t *Tracer) attempt(ctx context.Context, d *gobridge.Delivery) (messaging.Envelope, trace.Span) {
	place := d.Route + "/" + d.Binding
	ctx, span := t.start(ctx, "send "+place, t.contextOf(ctx, &d.Envelope), trace.SpanKindProducer, []attribute.KeyValue{
		semconv.MessagingSystemKey.String(system), semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"),
		semconv.MessagingDestinationName(d.Route), attrBinding.String(d.Binding),
		semconv.MessagingDestinationPartitionID(string(d.Partition)),
		semconv.MessagingMessageID(d.Envelope.ID), semconv.MessagingMessageBodySize(len(d.Envelope.Payload)),
		attrAttempt.Int(d.Attempt), attrRedrives.Int(d.Redrives),
	})
	return t.carry(ctx, d.Envelope), span
}

// endAttempt ends the span of a delivery with what it came to.
func endAttempt(span trace.Span, outcome string, failed bool) {
	span.SetAttributes(attrOutcome.String(outcome))
	if failed {
		span.SetAttributes(semconv.ErrorTypeKey.String(outcome))
		span.SetStatus(codes.Error, outcome)
	}
	span.End()
}
