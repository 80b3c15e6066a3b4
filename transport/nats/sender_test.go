package nats_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	server "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
	"gobridge/transport/nats"
)

func sender(t testing.TB, conn *nats.Connection, options nats.SenderOptions) *nats.Sender {
	t.Helper()
	s, err := conn.Sender(options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func delivery(binding, id, payload string) gobridge.Delivery {
	return gobridge.Delivery{Route: "r", Binding: binding, Attempt: 1, Seq: 1, Envelope: messaging.Envelope{ID: id, Payload: []byte(payload)}}
}

// send sends one delivery and returns what it came to.
func send(t testing.TB, s *nats.Sender, d gobridge.Delivery) (gobridge.Outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := s.Send(ctx, []gobridge.Delivery{d})[0]
	outcome, _ := gobridge.Classify(err)
	return outcome, err
}

// subjectOf takes the subject from the message.
func subjectOf(e *messaging.Envelope) (string, error) {
	if e.Subject == "" {
		return "", errors.New("no subject")
	}
	return e.Subject, nil
}

func messages(t testing.TB, stream jetstream.Stream) int {
	t.Helper()
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(info.State.Msgs)
}

func TestWhatAStreamRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		stream  func(*jetstream.StreamConfig)
		options nats.SenderOptions
		before  int // messages that are sent first
		want    gobridge.Outcome
		text    string
	}{
		{"no stream has the subject", nil, nats.SenderOptions{Subject: "other"}, 0, gobridge.OutcomeUnavailable, "no response from stream"},
		{"no stream has a chosen subject", nil, nats.SenderOptions{SubjectFrom: func(*messaging.Envelope) (string, error) { return "other", nil }}, 0,
			gobridge.OutcomeTransient, "no response from stream"},
		{"another stream has it", nil, nats.SenderOptions{Subject: "S.x", Stream: "T"}, 0, gobridge.OutcomeUnavailable, "expected stream does not match"},
		{"it is full", func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew }, nats.SenderOptions{Subject: "S.x"}, 2,
			gobridge.OutcomeUnavailable, "maximum messages exceeded"},
		{"the subject is full", func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.Discard, c.DiscardNewPerSubject = 1, jetstream.DiscardNew, true
		}, nats.SenderOptions{Subject: "S.x"}, 1, gobridge.OutcomeTransient, "per subject"},
		{"it takes smaller ones", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 3 }, nats.SenderOptions{Subject: "S.x"}, 0,
			gobridge.OutcomePermanent, "message size exceeds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBroker(t, nil)
			_, js := dial(t, b.url())
			stream := makeStream(t, js, "S", c.stream)
			s := sender(t, connect(t, b.url(), nil), c.options)
			for i := range c.before {
				if _, err := send(t, s, delivery("b", fmt.Sprint(i), "x")); err != nil {
					t.Fatal(err)
				}
			}
			outcome, err := send(t, s, delivery("b", "last", "xxxx"))
			if outcome != c.want || err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v (outcome %d), want outcome %d and %q", err, outcome, c.want, c.text)
			}
			if n := messages(t, stream); n != c.before {
				t.Errorf("the stream has %d messages, want %d", n, c.before)
			}
		})
	}
}

func TestRepeatsAndOthers(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	stream := makeStream(t, js, "S", nil)
	s := sender(t, connect(t, b.url(), nil), nats.SenderOptions{Subject: "S.x"})
	redriven := delivery("one", "id", "p")
	redriven.Redrives = 1
	for _, c := range []struct {
		d    gobridge.Delivery
		want int
	}{
		{delivery("one", "id", "p"), 1},
		{delivery("one", "id", "p"), 1}, // a repeat
		{delivery("two", "id", "p"), 2}, // another destination's
		{redriven, 3},
		{redriven, 3},
		{delivery("one", "id", "another message"), 4},
	} {
		if _, err := send(t, s, c.d); err != nil {
			t.Fatal(err)
		}
		if n := messages(t, stream); n != c.want {
			t.Errorf("after %s of %s the stream has %d messages, want %d", c.d.DedupeID(), c.d.Binding, n, c.want)
		}
	}
}

func TestPermissions(t *testing.T) {
	b := startBroker(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "test", Password: "x"},
			{Username: "gw", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"S.allowed"}}}},
		}
		o.NoAuthUser = "test"
	})
	_, js := dial(t, b.url())
	stream := makeStream(t, js, "S", nil)
	conn := connect(t, b.url(), asGateway)
	for _, core := range []bool{false, true} {
		s := sender(t, conn, nats.SenderOptions{Subject: "S.forbidden", Core: core})
		outcome, err := send(t, s, delivery("b", "1", "x"))
		if outcome != gobridge.OutcomeUnavailable || !strings.Contains(err.Error(), `Publish to "S.forbidden"`) {
			t.Errorf("core %v: %v (outcome %d), want it unavailable with what is forbidden", core, err, outcome)
		}
		chosen := sender(t, conn, nats.SenderOptions{SubjectFrom: subjectOf, Core: core})
		batch := []gobridge.Delivery{delivery("b", "2", "x"), delivery("b", "3", "x")}
		batch[0].Envelope.Subject, batch[1].Envelope.Subject = "S.forbidden", "S.allowed"
		errs := chosen.Send(t.Context(), batch)
		if outcome, _ := gobridge.Classify(errs[0]); outcome != gobridge.OutcomeTransient {
			t.Errorf("core %v: %v, want it transient", core, errs[0])
		}
		if errs[1] != nil {
			t.Errorf("core %v: its neighbour failed, too: %v", core, errs[1])
		}
	}
	eventually(t, "the arrival of what is allowed", func() bool { return messages(t, stream) == 2 })
	receiver, err := conn.Receiver(options())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := receiver.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "Permissions Violation") {
		t.Errorf("a source without permissions: %v", err)
	}
}

func TestCore(t *testing.T) {
	b := startBroker(t, func(o *server.Options) { o.JetStream = false })
	nc, _ := dial(t, b.url())
	sub, err := nc.SubscribeSync("x.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s := sender(t, connect(t, b.url(), nil), nats.SenderOptions{Subject: "x.y", Core: true})
	if _, err := send(t, s, delivery("b", "1", "hello")); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(patience)
	if err != nil || string(m.Data) != "hello" || m.Header.Get("gobridge-id") != "1" || m.Header.Get("Nats-Msg-Id") != "" {
		t.Errorf("%+v, %v", m, err)
	}
	if outcome, err := send(t, sender(t, connect(t, b.url(), nil), nats.SenderOptions{Subject: "nobody"}), delivery("b", "1", "x")); outcome != gobridge.OutcomeUnavailable {
		t.Errorf("into a stream, without JetStream: %v (outcome %d), want it unavailable", err, outcome)
	}
	large := delivery("b", "2", strings.Repeat("x", 2<<20))
	if outcome, err := send(t, s, large); outcome != gobridge.OutcomePermanent || !strings.Contains(err.Error(), "the server takes 1048576") {
		t.Errorf("%v (outcome %d), want it permanent with the limit", err, outcome)
	}
}

func TestCarry(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	conn := connect(t, b.url(), nil)
	s := sender(t, conn, nats.SenderOptions{SubjectFrom: subjectOf, Headers: map[string]nats.Text{
		"x-note": func(e *messaging.Envelope) (string, error) { return e.Headers["note"], nil },
	}})
	large := messaging.Envelope{ID: "1", Subject: "S.x", Payload: make([]byte, 1<<20)}
	if err := s.Carry(&large); err != nil {
		t.Errorf("before any server has said what it takes: %v", err)
	}
	first := delivery("b", "0", "x")
	first.Envelope.Subject = "S.x"
	if _, err := send(t, s, first); err != nil {
		t.Fatal(err)
	}
	for want, e := range map[string]messaging.Envelope{
		"":                         {ID: "1", Subject: "S.x", Payload: make([]byte, 1<<20-500)},
		"the server takes 1048576": large,
		"no subject":               {ID: "1"},
		"wildcard":                 {ID: "1", Subject: "S.*"},
		"keeps for itself":         {ID: "1", Subject: "$JS.API.STREAM.DELETE.S"},
		"a space":                  {ID: "1", Subject: "S.a b"},
		"header x-note":            {ID: "1", Subject: "S.x", Headers: messaging.Headers{"note": "a\r\nb"}},
		"its headers have":         {ID: "1", Subject: "S.x", Headers: messaging.Headers{"big": strings.Repeat("x", 70<<10)}},
		"content type":             {ID: "1", Subject: "S.x", ContentType: "a\nb"},
	} {
		err := s.Carry(&e)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
		d := gobridge.Delivery{Envelope: e, Route: "r", Binding: "b", Attempt: 1}
		if outcome, err := send(t, s, d); (outcome == gobridge.OutcomePermanent) != (want != "") {
			t.Errorf("%q: sent all the same: %v", want, err)
		}
	}
}

func TestHeadersAndFormats(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	stream := makeStream(t, js, "S", nil)
	conn := connect(t, b.url(), nil)
	d := delivery("b", "1", `{"a":1}`)
	d.Envelope.ContentType, d.Envelope.Subject = "application/json", "order.placed"
	d.Envelope.Headers = messaging.Headers{"x-kind": "the message's", "Nats-Rollup": "all", "nats-expected-stream": "X", "Status": "503"}
	for format, check := range map[mapping.Format]func(*jetstream.RawStreamMsg) bool{
		mapping.Plain: func(m *jetstream.RawStreamMsg) bool {
			return m.Header.Get("content-type") == "application/json" && m.Header.Get("gobridge-subject") == "order.placed"
		},
		mapping.Binary: func(m *jetstream.RawStreamMsg) bool {
			return m.Header.Get("ce-id") == "1" && m.Header.Get("ce-type") == "order.placed"
		},
		mapping.Structured: func(m *jetstream.RawStreamMsg) bool {
			return m.Header.Get("content-type") == "application/cloudevents+json" && strings.Contains(string(m.Data), `"specversion":"1.0"`)
		},
	} {
		s := sender(t, conn, nats.SenderOptions{Subject: "S." + fmt.Sprint(format), Stream: "S", Format: format, Headers: map[string]nats.Text{
			"x-kind": func(e *messaging.Envelope) (string, error) { return "of " + e.Subject, nil },
			"x-none": func(*messaging.Envelope) (string, error) { return "", nil },
		}})
		d.Binding = fmt.Sprint(format)
		if _, err := send(t, s, d); err != nil {
			t.Fatal(err)
		}
		m, err := stream.GetLastMsgForSubject(t.Context(), "S."+fmt.Sprint(format))
		if err != nil {
			t.Fatal(err)
		}
		if !check(m) || !slices.Equal(m.Header.Values("x-kind"), []string{"of order.placed"}) || m.Header["x-none"] != nil ||
			m.Header["Nats-Rollup"] != nil || m.Header["Status"] != nil {
			t.Errorf("%s: %v %s", format, m.Header, m.Data)
		}
	}
	if n := messages(t, stream); n != 3 {
		t.Errorf("the stream has %d messages, want 3: a message's header commanded it", n)
	}
}

func TestSenderConnect(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	stream := makeStream(t, js, "S", nil)
	conn := connect(t, b.url(), nil)
	for _, c := range []struct {
		options nats.SenderOptions
		want    string
		fails   bool
	}{
		{nats.SenderOptions{Subject: "S.x"}, "publishes to S.x of stream S at " + b.url(), false},
		{nats.SenderOptions{Subject: "S.x", Stream: "T"}, "is that of stream S, not T", true},
		{nats.SenderOptions{Subject: "other"}, "has the subject other", true},
		{nats.SenderOptions{Subject: "other", Core: true}, "publishes to other at " + b.url() + ", without JetStream", false},
		{nats.SenderOptions{SubjectFrom: subjectOf}, "by an expression", false},
		{nats.SenderOptions{SubjectFrom: subjectOf, Stream: "T"}, "stream not found", true},
	} {
		text, err := sender(t, conn, c.options).Connect(t.Context())
		if err != nil {
			text = err.Error()
		}
		if (err != nil) != c.fails || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %s, want %q", c.options, text, c.want)
		}
	}
	if n := messages(t, stream); n != 0 {
		t.Errorf("Connect has published %d messages", n)
	}
}

func TestSenderOptionsThatAreWrong(t *testing.T) {
	conn := connect(t, "nats://127.0.0.1:1", nil)
	text := func(*messaging.Envelope) (string, error) { return "", nil }
	for want, o := range map[string]nats.SenderOptions{
		"give a subject":          {},
		"wildcard":                {Subject: "a.*"},
		"for JetStream alone":     {Subject: "a", Core: true, Stream: "S"},
		"timeout":                 {Subject: "a", Timeout: -time.Second},
		`"Nats-Rollup" can't be`:  {Subject: "a", Headers: map[string]nats.Text{"Nats-Rollup": text}},
		`"gobridge-id" can't be`:  {Subject: "a", Headers: map[string]nats.Text{"gobridge-id": text}},
		`"content-type" can't be`: {Subject: "a", Headers: map[string]nats.Text{"content-type": text}},
		`"a b" can't be`:          {Subject: "a", Headers: map[string]nats.Text{"a b": text}},
	} {
		if _, err := conn.Sender(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
