package sns_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/internal/awsclient"
	"gobridge/internal/awsmessage"
	"gobridge/internal/fakeaws"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/transport/sns"
	"gobridge/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

func text(s string) func() (string, error) { return func() (string, error) { return s, nil } }

func server(t testing.TB) *fakeaws.Server {
	s := fakeaws.Start()
	t.Cleanup(s.Close)
	return s
}

func connect(t testing.TB, endpoint string) *sns.Connection {
	t.Helper()
	config, closeIdle, err := awsclient.Load(awsclient.Options{
		Region: fakeaws.Region, Endpoint: endpoint, AccessKey: text("AKIA"), SecretKey: text("secret"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeIdle)
	conn, err := sns.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func proxied(t testing.TB, s *fakeaws.Server) (*sns.Connection, *faultproxy.Proxy) {
	t.Helper()
	proxy, err := faultproxy.Start(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return connect(t, "http://"+proxy.Addr()), proxy
}

func sender(t testing.TB, c *sns.Connection, o sns.SenderOptions) *sns.Sender {
	t.Helper()
	s, err := c.Sender(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t testing.TB, s *sns.Sender, all ...messaging.Envelope) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	batch := make([]gobridge.Delivery, len(all))
	for i, e := range all {
		batch[i] = gobridge.Delivery{Envelope: e, Route: "r", Binding: "b", Partition: "r/b/0", Attempt: 1, Seq: int64(i + 1)}
	}
	return s.Send(ctx, batch)
}

func outcome(err error) gobridge.Outcome {
	kind, _ := gobridge.Classify(err)
	return kind
}

// published is what a topic has taken, in its order.
func published(t testing.TB, s *fakeaws.Server, arn string) []messaging.Envelope {
	t.Helper()
	var out []messaging.Envelope
	for _, m := range s.Published(arn) {
		e, _, err := awsmessage.Decode(awsmessage.Message{Body: m.Body, Attributes: m.Attributes})
		if err != nil {
			t.Fatal(err)
		}
		meta, err := url.ParseQuery(m.Attributes["gobridge"])
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.OrderingKey = meta.Get("id"), meta.Get("ordering-key")
		out = append(out, e)
	}
	return out
}

func TestSender(t *testing.T) {
	for _, topic := range []string{"orders.fifo", "orders"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			transporttest.RunSender(t, func(t testing.TB) transporttest.Destination {
				s := server(t)
				arn := s.CreateTopic(topic)
				conn, proxy := proxied(t, s)
				return transporttest.Destination{
					Sender:     sender(t, conn, sns.SenderOptions{Topic: arn}),
					Received:   func(t testing.TB) []messaging.Envelope { return published(t, s, arn) },
					Cut:        func(testing.TB) { proxy.Cut() },
					Down:       func(_ testing.TB, down bool) { proxy.Refuse(down); proxy.Cut() },
					Stall:      stall(proxy),
					TooLarge:   256 << 10,
					MaxPayload: 180 << 10,
					Unordered:  !strings.HasSuffix(topic, ".fifo"),
					Swallows:   strings.HasSuffix(topic, ".fifo"),
				}
			})
		})
	}
}

// stall makes a black hole of a proxy. What was sent into it is lost when it ends: a
// service that got a request late would carry it out, whatever the sender does.
func stall(proxy *faultproxy.Proxy) func(testing.TB, bool) {
	return func(_ testing.TB, on bool) {
		if !on {
			proxy.Cut()
		}
		proxy.Stall(on)
	}
}

func keyed(ids ...string) []messaging.Envelope {
	var out []messaging.Envelope
	for _, id := range ids {
		out = append(out, messaging.Envelope{ID: id, OrderingKey: "k" + id, Payload: []byte(id)})
	}
	return out
}

func bodies(s *fakeaws.Server, arn string) string {
	var out []string
	for _, m := range s.Published(arn) {
		out = append(out, m.Body)
	}
	return strings.Join(out, " ")
}

func TestFailuresInTheMiddleOfABatch(t *testing.T) {
	s := server(t)
	arn := s.CreateTopic("t.fifo")
	to := sender(t, connect(t, s.URL()), sns.SenderOptions{Topic: arn})
	s.OnCall(func(fakeaws.Call) fakeaws.Fault {
		return fakeaws.Fault{Entries: func(e fakeaws.Entry) (string, bool) {
			code := map[string]string{"b": "InternalError", "c": "InvalidParameter", "d": "Throttled", "e": "KMSDisabled"}[e.Body]
			return code, e.Body == "c"
		}}
	})
	errs := send(t, to, keyed("a", "b", "c", "d", "e", "f")...)
	want := []gobridge.Outcome{
		gobridge.OutcomeDelivered, gobridge.OutcomeTransient, gobridge.OutcomePermanent, gobridge.OutcomeUnavailable,
		gobridge.OutcomeUnavailable, gobridge.OutcomeDelivered,
	}
	for i, err := range errs {
		if outcome(err) != want[i] {
			t.Errorf("message %d: %v, want outcome %v", i, err, want[i])
		}
	}
	if got := bodies(s, arn); got != "a f" {
		t.Errorf("the topic has %q", got)
	}
}

// The topic takes less than the configuration says: what is too much for it is
// found out.
func TestTopicThatTakesLess(t *testing.T) {
	s := server(t)
	arn := s.CreateTopic("t")
	to := sender(t, connect(t, s.URL()), sns.SenderOptions{Topic: arn, MaxSize: 1 << 20})
	all := keyed("a", "b", "c", "d")
	all[1].Payload = bytes.Repeat([]byte("x"), 300<<10)
	all[2].Payload = bytes.Repeat([]byte("y"), 200<<10)
	for i, err := range send(t, to, all...) {
		if (outcome(err) == gobridge.OutcomePermanent) != (i == 1) || i != 1 && err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if n := len(s.Published(arn)); n != 3 {
		t.Errorf("the topic has %d messages", n)
	}
	if _, err := to.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "max_message_size is 1048576") {
		t.Errorf("Connect says %v", err)
	}
}

func TestUnknownOutcomeIsRepeatedUnderTheSameID(t *testing.T) {
	s := server(t)
	arn := s.CreateTopic("t.fifo")
	s.OnCall(func(c fakeaws.Call) fakeaws.Fault { return fakeaws.Fault{Lose: c.N <= 2} })
	to := sender(t, connect(t, s.URL()), sns.SenderOptions{Topic: arn})
	for _, err := range send(t, to, keyed("a", "b")...) {
		if outcome(err) != gobridge.OutcomeTransient {
			t.Errorf("an unknown outcome is %v", err)
		}
	}
	for _, err := range send(t, to, keyed("a", "b")...) {
		if err != nil {
			t.Error(err)
		}
	}
	if got := bodies(s, arn); got != "a b" {
		t.Errorf("the topic has %q, want each once", got)
	}
}

func TestTopicsThatAreMissingOrForbidden(t *testing.T) {
	s := server(t)
	arn := s.CreateTopic("t")
	s.DeleteTopic(arn)
	conn := connect(t, s.URL())
	fixed := sender(t, conn, sns.SenderOptions{Topic: arn})
	chosen := sender(t, conn, sns.SenderOptions{TopicFrom: func(*messaging.Envelope) (string, error) { return arn, nil }})
	if err := send(t, fixed, keyed("a")...)[0]; outcome(err) != gobridge.OutcomeUnavailable {
		t.Errorf("a topic that does not exist gave %v", err)
	}
	if err := send(t, chosen, keyed("a")...)[0]; outcome(err) != gobridge.OutcomeTransient {
		t.Errorf("a topic that a message asks for gave %v", err)
	}
	if _, err := fixed.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "topic t") {
		t.Errorf("Connect says %v", err)
	}
	s.CreateTopic("t")
	if said, err := fixed.Connect(t.Context()); err != nil || !strings.Contains(said, "publishes to topic t, a standard topic, which keeps no order, with 0 subscriptions") {
		t.Errorf("Connect says %q, %v", said, err)
	}
	s.OnCall(func(fakeaws.Call) fakeaws.Fault { return fakeaws.Fault{Code: "AuthorizationError", Status: 403} })
	if _, err := fixed.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "sns:Publish") {
		t.Errorf("Connect says %v", err)
	}
	s.OnCall(func(fakeaws.Call) fakeaws.Fault { return fakeaws.Fault{Code: "Throttled", Status: 429} })
	if _, after := gobridge.Classify(send(t, fixed, keyed("a")...)[0]); after == 0 {
		t.Error("a throttled topic does not ask to slow down")
	}
	if n := len(s.Published(arn)); n != 0 {
		t.Errorf("%d messages were published", n)
	}
}

func TestSubjects(t *testing.T) {
	s := server(t)
	arn := s.CreateTopic("t")
	to := sender(t, connect(t, s.URL()), sns.SenderOptions{Topic: arn})
	subjects := []string{"order.placed", "", "Köln", "two\nlines", " ends ", strings.Repeat("x", 99), strings.Repeat("x", 100)}
	var all []messaging.Envelope
	for i, subject := range subjects {
		all = append(all, messaging.Envelope{ID: fmt.Sprint(i), Subject: subject, Payload: []byte("p")})
	}
	for i, err := range send(t, to, all...) {
		if err != nil {
			t.Errorf("subject %q: %v", subjects[i], err)
		}
	}
	want := map[int]bool{0: true, 2: true, 5: true}
	for i, m := range s.Published(arn) {
		if shown := m.Subject != ""; shown != want[i] || shown && m.Subject != subjects[i] {
			t.Errorf("subject %q was published as %q", subjects[i], m.Subject)
		}
		if back := published(t, s, arn)[i]; back.Subject != subjects[i] {
			t.Errorf("subject %q came back as %q", subjects[i], back.Subject)
		}
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	conn := connect(t, server(t).URL())
	for want, o := range map[string]sns.SenderOptions{
		"give a topic":              {},
		"no ARN of a topic":         {Topic: "orders"},
		"it is in Region us-east-1": {Topic: "arn:aws:sns:us-east-1:123456789012:t"},
		"MaximumMessageSize is":     {Topic: "arn:aws:sns:eu-central-1:123456789012:t", MaxSize: 2 << 20},
		"have no binary mode":       {Topic: "arn:aws:sns:eu-central-1:123456789012:t", Format: "cloudevents"},
	} {
		if _, err := conn.Sender(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	o := sns.SenderOptions{Topic: "arn:aws:sns:eu-central-1:123456789012:t"}
	s := sender(t, conn, o)
	e := messaging.Envelope{ID: "1", Payload: bytes.Repeat([]byte("x"), 256<<10)}
	if err := s.Carry(&e); err == nil || !strings.Contains(err.Error(), "the topic takes 262144") {
		t.Errorf("Carry says %v", err)
	}
}
