package mill_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"gobridge"
	"gobridge/messaging"
	mill "gobridge/watermill"
)

// caught is an outbox that keeps what it is given.
type caught struct {
	all []messaging.Envelope
	err error
}

func (c *caught) outbox(_ context.Context, all ...messaging.Envelope) error {
	c.all = append(c.all, all...)
	return c.err
}

// spy is a publisher of Watermill that keeps what it is given.
type spy struct {
	topics []string
	all    []*message.Message
	err    error
}

func (s *spy) Publish(topic string, messages ...*message.Message) error {
	s.topics = append(s.topics, topic)
	s.all = append(s.all, messages...)
	return s.err
}

func (s *spy) Close() error { return nil }

func newMessage(uuid, payload string, metadata ...string) *message.Message {
	m := message.NewMessage(uuid, []byte(payload))
	for i := 0; i < len(metadata); i += 2 {
		m.Metadata.Set(metadata[i], metadata[i+1])
	}
	return m
}

func TestWhatAMessageBecomes(t *testing.T) {
	var box caught
	p := publisher(t, box.outbox, mill.PublisherOptions{})
	err := p.Publish("orders.placed", newMessage("u 1", "p", "content-type", "text/plain", "gobridge-ordering-key", "k",
		"gobridge-created-at", "2026-01-02T03:04:05Z", "gobridge-expires-at", "2026-02-02T03:04:05Z",
		"Tenant", "acme", "ce-specversion", "1.0", "gobridge-attempt", "7", "gobridge-id", "other", "gobridge-event", "made"),
		newMessage("", "q"))
	if err != nil {
		t.Fatal(err)
	}
	e := box.all[0]
	if e.ID != "orders.placed u 1" || e.Subject != "orders.placed" || string(e.Payload) != "p" || e.ContentType != "text/plain" ||
		e.OrderingKey != "k" || e.CreatedAt.Year() != 2026 || e.ExpiresAt.Month() != time.February ||
		!maps.Equal(e.Headers, messaging.Headers{"Tenant": "acme", "ce-specversion": "1.0"}) {
		t.Errorf("the message is %+v", e)
	}
	if e := box.all[1]; e.ID != "" || string(e.Payload) != "q" {
		t.Errorf("a message without a UUID is %+v", e)
	}
}

func TestWhatIsNotPublished(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	late := newMessage("u", "p")
	late.SetContext(ended)
	for name, c := range map[string]struct {
		topic string
		m     *message.Message
		want  error
		says  string
	}{
		"a misspelt key":    {"t", newMessage("u", "p", "gobridge-orderingkey", "k"), gobridge.ErrInvalidRecord, "the nearest is gobridge-ordering-key"},
		"no time":           {"t", newMessage("u", "p", "gobridge-expires-at", "soon"), gobridge.ErrInvalidRecord, "RFC 3339"},
		"no topic":          {"", newMessage("u", "p"), gobridge.ErrInvalidRecord, "topic is empty"},
		"a topic in two":    {"a b", newMessage("u", "p"), gobridge.ErrInvalidRecord, "has a space"},
		"an ended context":  {"t", late, context.Canceled, "its context has ended"},
		"no message at all": {"t", nil, nil, "message 2 of the call is nil"},
	} {
		var box caught
		err := publisher(t, box.outbox, mill.PublisherOptions{}).Publish(c.topic, newMessage("first", "p"), c.m)
		if err == nil || !strings.Contains(err.Error(), c.says) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if len(box.all) != 0 {
			t.Errorf("%s: half a call was published", name)
		}
	}
	box := caught{err: gobridge.ErrOutboxFull}
	p := publisher(t, box.outbox, mill.PublisherOptions{})
	if err := p.Publish("t", newMessage("u", "p")); !errors.Is(err, gobridge.ErrOutboxFull) {
		t.Errorf("a full outbox: %v", err)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish("t", newMessage("u", "p")); !errors.Is(err, mill.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := mill.NewPublisher(nil, mill.PublisherOptions{}); err == nil {
		t.Error("a publisher into nothing")
	}
	if _, err := mill.NewSender(nil, mill.SenderOptions{}); err == nil {
		t.Error("a sender to nothing")
	}
}

func delivery() gobridge.Delivery {
	return gobridge.Delivery{
		Envelope: messaging.Envelope{
			ID: "orders u1", Subject: "orders", OrderingKey: "k", ContentType: "text/plain", Payload: []byte("p"),
			Headers: messaging.Headers{
				"Tenant": "acme", "Content-Type": "x", "": "", "gobridge-attempt": "99", "ce-specversion": "1.0", "gobridge-received-at": "now",
			},
		},
		Route: "r", Binding: "b", Partition: "r/b/0", Attempt: 2, Seq: 3, Token: gobridge.Token{Owner: "o", Version: 4},
	}
}

func TestWhatADeliveryBecomes(t *testing.T) {
	var out spy
	s := sender(t, &out, mill.SenderOptions{})
	d := delivery()
	delete(d.Envelope.Headers, "")
	redriven := d
	redriven.Redrives = 1
	other := d
	other.Envelope.ID = "from elsewhere"
	ctx := t.Context()
	for _, d := range []gobridge.Delivery{d, redriven, other} {
		if errs := s.Send(ctx, []gobridge.Delivery{d}); errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	m := out.all[0]
	want := message.Metadata{
		"content-type": "text/plain", "Tenant": "acme", "Content-Type": "x", "ce-specversion": "1.0", "gobridge-received-at": "now",
		"gobridge-headers": "gobridge-attempt=99", "gobridge-id": "orders u1", "gobridge-subject": "orders", "gobridge-ordering-key": "k",
		"gobridge-route": "r", "gobridge-binding": "b", "gobridge-partition": "r/b/0", "gobridge-seq": "3", "gobridge-token-version": "4",
		"gobridge-attempt": "2",
	}
	if m.UUID != "u1" || string(m.Payload) != "p" || !maps.Equal(m.Metadata, want) || out.topics[0] != "orders" || m.Context() != ctx {
		t.Errorf("got  %s %q %q\nwant %q", out.topics[0], m.UUID, m.Metadata, want)
	}
	if m := out.all[1]; m.UUID != "u1~1" || m.Metadata["gobridge-dedupe-id"] != "orders u1~1" {
		t.Errorf("a redrive is %s %q", m.UUID, m.Metadata)
	}
	if m := out.all[2]; m.UUID != "from elsewhere" {
		t.Errorf("the UUID is %s", m.UUID)
	}

	// A handler that publishes what it got publishes the same message.
	var box caught
	if err := publisher(t, box.outbox, mill.PublisherOptions{}).Publish("orders", m); err != nil {
		t.Fatal(err)
	}
	if e := box.all[0]; e.ID != d.Envelope.ID || messaging.ContentHash(&e) != messaging.ContentHash(&d.Envelope) {
		t.Errorf("it came back as %+v", e)
	}
}

// A message with the metadata of an event passes through the outbox as it is, and a
// handler may publish it on.
func TestMetadataOfAnEvent(t *testing.T) {
	var box caught
	p := publisher(t, box.outbox, mill.PublisherOptions{})
	want := message.Metadata{
		"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/s", "ce-type": "t", "ce-time": "2026-01-02T03:04:05Z", "ce-partitionkey": "k",
	}
	in := message.NewMessage("u1", []byte("p"))
	in.Metadata = maps.Clone(want)
	if err := p.Publish("orders", in); err != nil {
		t.Fatal(err)
	}
	var out spy
	if errs := sender(t, &out, mill.SenderOptions{}).Send(t.Context(), []gobridge.Delivery{{Envelope: box.all[0]}}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	want["gobridge-id"], want["gobridge-subject"] = "orders u1", "orders"
	if got := out.all[0].Metadata; !maps.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if err := p.Publish("orders", out.all[0]); err != nil {
		t.Fatal(err)
	}
	if e := box.all[1]; e.ID != box.all[0].ID || messaging.ContentHash(&e) != messaging.ContentHash(&box.all[0]) {
		t.Errorf("it came back as %+v", e)
	}
}

// Messages of two topics may have one UUID. Where both go to a third one, its
// deduplication must not take the second for a repeat.
func TestTopicsThatMeet(t *testing.T) {
	var box caught
	p := publisher(t, box.outbox, mill.PublisherOptions{})
	for _, topic := range []string{"north", "south"} {
		if err := p.Publish(topic, newMessage("1", topic)); err != nil {
			t.Fatal(err)
		}
	}
	var out spy
	s := sender(t, &out, mill.SenderOptions{Topic: func(*messaging.Envelope) (string, error) { return "both", nil }})
	for _, e := range box.all {
		if errs := s.Send(t.Context(), []gobridge.Delivery{{Envelope: e}}); errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	if out.all[0].UUID == out.all[1].UUID {
		t.Errorf("both have the UUID %q", out.all[0].UUID)
	}
}

func TestAnswers(t *testing.T) {
	d := delivery()
	broken := errors.New("broken")
	down := func(err error) error { return gobridge.Unavailable(err) }
	for name, c := range map[string]struct {
		out     spy
		options mill.SenderOptions
		subject string
		want    gobridge.Outcome
	}{
		"taken":           {spy{}, mill.SenderOptions{}, "t", gobridge.OutcomeDelivered},
		"an error":        {spy{err: broken}, mill.SenderOptions{}, "t", gobridge.OutcomeTransient},
		"one with a name": {spy{err: broken}, mill.SenderOptions{Classify: down}, "t", gobridge.OutcomeUnavailable},
		"one explained away": {spy{err: broken}, mill.SenderOptions{Classify: func(error) error { return nil }}, "t",
			gobridge.OutcomeTransient},
		"no subject": {spy{}, mill.SenderOptions{}, "", gobridge.OutcomePermanent},
		"no topic": {spy{}, mill.SenderOptions{Topic: func(*messaging.Envelope) (string, error) { return "", nil }}, "t",
			gobridge.OutcomePermanent},
		"a topic that fails": {spy{}, mill.SenderOptions{Topic: func(*messaging.Envelope) (string, error) { return "", broken }}, "t",
			gobridge.OutcomePermanent},
	} {
		d.Envelope.Subject = c.subject
		s := sender(t, &c.out, c.options)
		errs := s.Send(t.Context(), []gobridge.Delivery{d, d})
		if got, _ := gobridge.Classify(errs[0]); got != c.want {
			t.Errorf("%s: the outcome is %v: %v", name, got, errs[0])
		}
		if got, _ := gobridge.Classify(errs[1]); c.want != gobridge.OutcomeDelivered && got != gobridge.OutcomeNotSent {
			t.Errorf("%s: the second was sent after the first had failed", name)
		}
		if early := s.Carry(&d.Envelope); (early != nil) != (c.want == gobridge.OutcomePermanent) {
			t.Errorf("%s: beforehand: %v", name, early)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var out spy
	if errs := sender(t, &out, mill.SenderOptions{}).Send(ended, []gobridge.Delivery{delivery()}); errs[0] == nil || len(out.all) != 0 {
		t.Errorf("after the end: %v, %d messages", errs[0], len(out.all))
	}
}
