package sqs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"gobridge"
	"gobridge/internal/fakeaws"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/transport/sqs"
)

// keyed are n messages, each of its own key, whose payload is their ID.
func keyed(ids ...string) []messaging.Envelope {
	var out []messaging.Envelope
	for _, id := range ids {
		out = append(out, messaging.Envelope{ID: id, OrderingKey: "k" + id, Payload: []byte(id)})
	}
	return out
}

func bodies(s *fakeaws.Server, queue string) string {
	var out []string
	for _, m := range s.Sent(queue) {
		out = append(out, m.Body)
	}
	return strings.Join(out, " ")
}

// failing makes the entries with these bodies fail.
func failing(action string, codes map[string]string, sender bool) func(fakeaws.Call) fakeaws.Fault {
	return func(c fakeaws.Call) fakeaws.Fault {
		if c.Action != action {
			return fakeaws.Fault{}
		}
		return fakeaws.Fault{Entries: func(e fakeaws.Entry) (string, bool) { return codes[e.Body], sender }}
	}
}

func TestFailuresInTheMiddleOfABatch(t *testing.T) {
	s := server(t)
	s.CreateQueue("q.fifo")
	to := sender(t, connect(t, s.URL()), sqs.SenderOptions{Queue: "q.fifo"})
	s.OnCall(failing("SendMessageBatch", map[string]string{"b": "InternalError", "d": "KmsThrottled", "e": "KmsDisabled"}, false))
	errs := send(t, to, deliveries(keyed("a", "b", "c", "d", "e", "f")...)...)
	want := []gobridge.Outcome{
		gobridge.OutcomeDelivered, gobridge.OutcomeTransient, gobridge.OutcomeDelivered, gobridge.OutcomeUnavailable,
		gobridge.OutcomeUnavailable, gobridge.OutcomeDelivered,
	}
	for i, err := range errs {
		if outcome(err) != want[i] {
			t.Errorf("message %d: %v, want outcome %v", i, err, want[i])
		}
	}
	if _, after := gobridge.Classify(errs[3]); after == 0 {
		t.Errorf("%v asks to slow down, but not for how long", errs[3])
	}
	if got := bodies(s, "q.fifo"); got != "a c f" {
		t.Errorf("the queue has %q", got)
	}
	s.OnCall(failing("SendMessageBatch", map[string]string{"b": "InvalidParameterValue"}, true))
	if errs := send(t, to, deliveries(keyed("b", "d")...)...); outcome(errs[0]) != gobridge.OutcomePermanent || errs[1] != nil {
		t.Errorf("answers %v, want the first refused for good", errs)
	}
}

func TestABatchRefusedForOneOfIt(t *testing.T) {
	s := server(t)
	s.CreateQueue("q")
	s.OnCall(func(c fakeaws.Call) fakeaws.Fault {
		for _, e := range c.Entries {
			if e.Body == "poison" && c.Action == "SendMessageBatch" {
				return fakeaws.Fault{Code: "InvalidMessageContents"}
			}
		}
		return fakeaws.Fault{}
	})
	all := keyed("a", "b", "c", "poison", "d", "e", "f")
	for i, err := range send(t, sender(t, connect(t, s.URL()), sqs.SenderOptions{Queue: "q"}), deliveries(all...)...) {
		if want := all[i].ID == "poison"; (outcome(err) == gobridge.OutcomePermanent) != want || !want && err != nil {
			t.Errorf("message %s: %v", all[i].ID, err)
		}
	}
	if got := bodies(s, "q"); got != "a b c d e f" {
		t.Errorf("the queue has %q", got)
	}
}

// The connection breaks when the queue has the batch and nobody knows.
func TestUnknownOutcomeIsRepeatedUnderTheSameID(t *testing.T) {
	s := server(t)
	address := s.CreateQueue("q.fifo")
	conn, proxy := proxied(t, s)
	to := sender(t, conn, sqs.SenderOptions{Queue: address})
	all := deliveries(keyed("a", "b", "c")...)
	proxy.StallFrom(faultproxy.FromServer, true)
	answers := make(chan []error)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { answers <- to.Send(ctx, all) }()
	for calls := range 2 { // the client's own repetition comes to the same
		eventually(t, "a call", func() bool { return s.Calls("SendMessageBatch") > calls && len(s.Sent("q.fifo")) == 3 })
		proxy.Cut()
	}
	for _, err := range <-answers {
		if outcome(err) != gobridge.OutcomeTransient {
			t.Errorf("an unknown outcome is %v, want transient", err)
		}
	}
	if got := bodies(s, "q.fifo"); got != "a b c" {
		t.Fatalf("the queue has %q, so that the outcome was known", got)
	}
	proxy.StallFrom(faultproxy.FromServer, false)
	for i := range all {
		all[i].Attempt++
	}
	for _, err := range send(t, to, all...) {
		if err != nil {
			t.Error(err)
		}
	}
	if got := bodies(s, "q.fifo"); got != "a b c" {
		t.Errorf("the queue has %q, want each once", got)
	}
	all[0].Redrives = 1
	send(t, to, all[0])
	if got := bodies(s, "q.fifo"); got != "a b c a" {
		t.Errorf("the queue has %q, want what comes from the dead letters again", got)
	}
}

func TestQueueThatIsMissing(t *testing.T) {
	s := server(t)
	conn := connect(t, s.URL())
	fixed := sender(t, conn, sqs.SenderOptions{Queue: "later"})
	chosen := sender(t, conn, sqs.SenderOptions{QueueFrom: func(e *messaging.Envelope) (string, error) { return e.Subject, nil }})
	one := messaging.Envelope{ID: "1", Subject: "later", Payload: []byte("1")}
	if err := send(t, fixed, deliveries(one)...)[0]; outcome(err) != gobridge.OutcomeUnavailable || !strings.Contains(err.Error(), "queue later") {
		t.Errorf("a queue that does not exist gave %v, want unavailable", err)
	}
	if err := send(t, chosen, deliveries(one)...)[0]; outcome(err) != gobridge.OutcomeTransient {
		t.Errorf("a queue that a message asks for gave %v, want the message's own failure", err)
	}
	for range 2 { // and when it is made anew
		s.CreateQueue("later")
		if err := send(t, fixed, deliveries(one)...)[0]; err != nil {
			t.Error(err)
		}
		s.DeleteQueue("later")
		if err := send(t, fixed, deliveries(one)...)[0]; outcome(err) != gobridge.OutcomeUnavailable {
			t.Errorf("a deleted queue gave %v", err)
		}
	}
}

func TestMessagesChooseTheirQueues(t *testing.T) {
	s := server(t)
	s.CreateQueue("one")
	s.CreateQueue("two.fifo")
	to := sender(t, connect(t, s.URL()), sqs.SenderOptions{QueueFrom: func(e *messaging.Envelope) (string, error) {
		if e.Subject == "" {
			return "", errors.New("it has no subject")
		}
		return e.Subject, nil
	}})
	all := keyed("a", "b", "c", "d", "e")
	all[0].Subject, all[1].Subject, all[2].Subject, all[4].Subject = "one", "two.fifo", "one", "no queue"
	errs := send(t, to, deliveries(all...)...)
	if errs[0] != nil || errs[1] != nil || errs[2] != nil || outcome(errs[3]) != gobridge.OutcomePermanent || outcome(errs[4]) != gobridge.OutcomePermanent {
		t.Errorf("answers %v", errs)
	}
	if bodies(s, "one") != "a c" || bodies(s, "two.fifo") != "b" {
		t.Errorf("the queues have %q and %q", bodies(s, "one"), bodies(s, "two.fifo"))
	}
	if err := to.Carry(&all[3]); err == nil || !strings.Contains(err.Error(), "it has no subject") {
		t.Errorf("Carry says %v", err)
	}
	if err := to.Carry(&all[4]); err == nil || !strings.Contains(err.Error(), `"no queue"`) {
		t.Errorf("Carry says %v", err)
	}
}

func TestGroupsAndDeduplicationIDs(t *testing.T) {
	s := server(t)
	s.CreateQueue("q.fifo")
	s.CreateQueue("fair")
	s.CreateQueue("plain")
	conn := connect(t, s.URL())
	long := strings.Repeat("x", 129)
	all := []messaging.Envelope{
		{ID: "id-1", OrderingKey: "customer-7", Payload: []byte("1")},
		{ID: "id-2", Payload: []byte("2")},
		{ID: "id 3", OrderingKey: "Köln", Payload: []byte("3")},
		{ID: long, OrderingKey: long + "y", Payload: []byte("4")},
	}
	for _, err := range send(t, sender(t, conn, sqs.SenderOptions{Queue: "q.fifo"}), deliveries(all...)...) {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := s.Sent("q.fifo")
	if got[0].Group != "customer-7" || !strings.HasPrefix(got[0].Dedupe, "r/b/id-1/") || got[1].Group != "id-2" || !strings.HasPrefix(got[1].Dedupe, "r/b/id-2/") {
		t.Errorf("groups and IDs that fit: %+v", got[:2])
	}
	for _, m := range got[2:] {
		if !strings.HasPrefix(m.Group, "sha256-") {
			t.Errorf("groups that do not fit: %+v", m)
		}
	}
	if !strings.HasPrefix(got[3].Dedupe, "sha256-") {
		t.Errorf("an ID that does not fit: %+v", got[3])
	}
	for _, fair := range []bool{false, true} {
		queue := map[bool]string{false: "plain", true: "fair"}[fair]
		for _, err := range send(t, sender(t, conn, sqs.SenderOptions{Queue: queue, Fair: fair}), deliveries(all...)...) {
			if err != nil {
				t.Error(err)
			}
		}
		if m := s.Sent(queue)[0]; m.Group != map[bool]string{false: "", true: "customer-7"}[fair] || m.Dedupe != "" {
			t.Errorf("queue %s has %+v", queue, m)
		}
	}
}

// Routes know nothing of each other's IDs, and producers choose them: a FIFO queue must
// swallow nothing but a repetition.
func TestOneIDOfSeveralRoutes(t *testing.T) {
	s := server(t)
	s.CreateQueue("q.fifo")
	to := sender(t, connect(t, s.URL()), sqs.SenderOptions{Queue: "q.fifo"})
	for _, d := range []gobridge.Delivery{
		{Envelope: messaging.Envelope{ID: "1", Payload: []byte("order")}, Route: "orders", Binding: "b", Attempt: 1},
		{Envelope: messaging.Envelope{ID: "1", Payload: []byte("return")}, Route: "returns", Binding: "b", Attempt: 1},
		{Envelope: messaging.Envelope{ID: "1", Payload: []byte("order")}, Route: "orders", Binding: "copy", Attempt: 1},
		{Envelope: messaging.Envelope{ID: "1", Payload: []byte("order")}, Route: "orders", Binding: "b", Attempt: 2},
	} {
		if err := send(t, to, d)[0]; err != nil {
			t.Fatal(err)
		}
	}
	if got := bodies(s, "q.fifo"); got != "order return order" {
		t.Errorf("the queue has %q, want all but the repetition", got)
	}
}

func TestAttributesAreTenAtMost(t *testing.T) {
	s := server(t)
	s.CreateQueue("q")
	headers := messaging.Headers{
		messaging.HeaderTraceParent: "00-1", "a b": "name", "x-empty": "", "x-control": "\x00\x01", "x-invalid": "\xff",
		"aws.reserved": "1", ".dot": "1", "gobridge": "own", "content-type": "own", "Tenant": "as it is",
	}
	for i := range 20 {
		headers[fmt.Sprintf("x-%02d", i)] = "value & more=%"
	}
	one := messaging.Envelope{ID: "1", ContentType: "text/plain\x00", Headers: headers, Payload: []byte("\x00\xff")}
	to := sender(t, connect(t, s.URL()), sqs.SenderOptions{
		Queue: "q", Attributes: map[string]func(*messaging.Envelope) (string, error){
			"region": func(*messaging.Envelope) (string, error) { return "eu", nil },
			"none":   func(*messaging.Envelope) (string, error) { return "", nil },
		},
	})
	if err := to.Carry(&one); err != nil {
		t.Fatal(err)
	}
	if err := send(t, to, deliveries(one)...)[0]; err != nil {
		t.Fatal(err)
	}
	got := s.Sent("q")[0]
	if len(got.Attributes) > 10 || got.Attributes["region"] != "eu" || got.Attributes[messaging.HeaderTraceParent] != "00-1" {
		t.Errorf("attributes %v", got.Attributes)
	}
	back := sent(t, s, "q")[0]
	if back.ContentType != one.ContentType || !bytes.Equal(back.Payload, one.Payload) {
		t.Errorf("content type %q, payload %q", back.ContentType, back.Payload)
	}
	for name, value := range headers {
		if back.Headers[name] != value {
			t.Errorf("header %q came back as %q, want %q", name, back.Headers[name], value)
		}
	}
	extra, err := url.ParseQuery(got.Attributes["gobridge-headers"])
	if err != nil || extra.Get("a b") != "name" || extra.Get("x-19") != "value & more=%" {
		t.Errorf("gobridge-headers are read as %v, %v", extra, err)
	}
}

func TestLargeMessagesAreSentInSeveralCalls(t *testing.T) {
	s := server(t)
	s.CreateQueue("q")
	to := sender(t, connect(t, s.URL()), sqs.SenderOptions{Queue: "q"})
	var all []messaging.Envelope
	for i := range 10 {
		all = append(all, messaging.Envelope{ID: fmt.Sprint(i), Payload: bytes.Repeat([]byte{'x'}, 300_000)})
	}
	all[3].Payload = bytes.Repeat([]byte{0}, 800_000) // in base64 too large
	if err := to.Carry(&all[3]); err == nil || !strings.Contains(err.Error(), "payload 800000, body 1066668") || !strings.Contains(err.Error(), "SQS takes 1048576") {
		t.Errorf("Carry says %v", err)
	}
	for i, err := range send(t, to, deliveries(all...)...) {
		if (outcome(err) == gobridge.OutcomePermanent) != (i == 3) || i != 3 && err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if n := len(s.Sent("q")); n != 9 {
		t.Errorf("the queue has %d messages", n)
	}
}

func TestCloudEvents(t *testing.T) {
	s := server(t)
	s.CreateQueue("q")
	to := sender(t, connect(t, s.URL()), sqs.SenderOptions{Queue: "q", Format: "cloudevents_structured"})
	one := messaging.Envelope{ID: "1", Subject: "order.placed", ContentType: "application/json", Payload: []byte(`{"n":1}`)}
	if err := send(t, to, deliveries(one)...)[0]; err != nil {
		t.Fatal(err)
	}
	if m := s.Sent("q")[0]; !strings.Contains(m.Body, `"type":"order.placed"`) || m.Attributes["content-type"] != "application/cloudevents+json" {
		t.Errorf("the queue has %+v", m)
	}
	if back := sent(t, s, "q")[0]; back.Subject != one.Subject || string(back.Payload) != string(one.Payload) || back.ContentType != one.ContentType {
		t.Errorf("it came back as %+v", back)
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	conn := connect(t, server(t).URL())
	for want, o := range map[string]sqs.SenderOptions{
		"give a queue":              {},
		"1 to 80 letters":           {Queue: "a b"},
		"it is in Region us-east-1": {Queue: "arn:aws:sqs:us-east-1:123456789012:q"},
		"it is in Region us-west-2": {Queue: "https://sqs.us-west-2.amazonaws.com/123456789012/q"},
		"it is in Region us-west-1": {Queue: "https://us-west-1.queue.amazonaws.com/123456789012/q"},
		"no ARN of a queue":         {Queue: "arn:aws:sns:eu-central-1:123456789012:q"},
		"does not end in the name":  {Queue: "https://sqs.eu-central-1.amazonaws.com/"},
		"have no binary mode":       {Queue: "q", Format: "cloudevents"},
		"gobridge uses this name":   {Queue: "q", Attributes: map[string]func(*messaging.Envelope) (string, error){"gobridge-id": nil}},
		"not begin with AWS. or":    {Queue: "q", Attributes: map[string]func(*messaging.Envelope) (string, error){"AWS.x": nil}},
	} {
		if _, err := conn.Sender(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
