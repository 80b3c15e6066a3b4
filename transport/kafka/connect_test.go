package kafka

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gobridge/messaging"
)

func TestConnectSaysWhatIsThere(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 3, nil)
	small := f.topic(t, 1, map[string]string{"max.message.bytes": "5000"})
	conn := f.connect(t)
	given := func(*messaging.Envelope) (string, error) { return topic, nil }
	for _, c := range []struct {
		options SenderOptions
		want    string
		fails   bool
	}{
		{SenderOptions{Topic: topic}, "publishes to topic " + topic + " at 127.0.0.1:", false},
		{SenderOptions{Topic: topic}, ", 3 partitions", false},
		{SenderOptions{TopicFrom: given}, "publishes to the topic that each message gives", false},
		{SenderOptions{Topic: "absent"}, "there is no topic absent", true},
		{SenderOptions{Topic: small}, "takes messages of up to 5000 bytes", true},
		{SenderOptions{Topic: small, MaxMessageBytes: 5000}, "1 partition", false},
	} {
		s := newSender(t, conn, c.options)
		finding, err := s.Connect(t.Context())
		if c.fails != (err != nil) || err != nil && !strings.Contains(err.Error(), c.want) || err == nil && !strings.Contains(finding, c.want) {
			t.Errorf("%+v: %q, %v; want %q", c.options, finding, err, c.want)
		}
	}
	r, err := conn.Receiver(ReceiverOptions{Topics: []string{topic, "absent", "gone"}, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Connect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no topic absent") || !strings.Contains(err.Error(), "no topic gone") {
		t.Errorf("got %v, want both topics named", err)
	}
	if f.TopicInfo("absent") != nil {
		t.Error("looking made a topic")
	}
	if r, err = conn.Receiver(ReceiverOptions{Topics: []string{topic}, Group: "g"}); err != nil {
		t.Fatal(err)
	}
	if finding, err := r.Connect(t.Context()); err != nil || !strings.Contains(finding, "as group g, 3 partitions") {
		t.Errorf("got %q, %v", finding, err)
	}
	if info := f.GroupInfo("g"); info != nil && len(info.Members) > 0 {
		t.Error("looking joined the group")
	}
}

func TestConnectWithoutPermissions(t *testing.T) {
	acl := func(kind kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	f := startFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders"), kfake.User("PLAIN", "gw", "pw",
		acl(kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLOperationDescribe), acl(kmsg.ACLResourceTypeGroup, "g", kmsg.ACLOperationDescribe)))
	conn := f.connect(t, func(o *Options) {
		o.SASL = &SASL{Mechanism: Plain, Username: "gw", Secret: func() (string, error) { return "pw", nil }}
	})
	if _, err := newSender(t, conn, SenderOptions{Topic: "orders"}).Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "no permission to write") {
		t.Errorf("sender: %v", err)
	}
	wantUnavailable(t, sendOne(t, conn, "orders"), "AUTHORIZATION_FAILED")
	r, err := conn.Receiver(ReceiverOptions{Topics: []string{"orders"}, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "no permission to read") {
		t.Errorf("receiver: %v", err)
	}
}

// A cluster without groups makes itself ready when it is asked for one.
func TestConnectToAClusterWithoutGroups(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	r, err := f.connect(t).Receiver(ReceiverOptions{Topics: []string{topic}, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.CoordinatorNotAvailable, Count: 8})
	if finding, err := r.Connect(t.Context()); err != nil {
		t.Errorf("got %q, %v", finding, err)
	}
	f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator, kmsg.DescribeGroups}, Err: kerr.CoordinatorNotAvailable, Count: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := r.Connect(ctx); err == nil || !strings.Contains(err.Error(), "__consumer_offsets") {
		t.Errorf("got %v, want what it may lack", err)
	}
}

func TestConnectToNothing(t *testing.T) {
	conn, err := New(Options{Brokers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := newSender(t, conn, SenderOptions{Topic: "t"}).Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

func TestWrongOptions(t *testing.T) {
	secret := func() (string, error) { return "x", nil }
	for want, o := range map[string]Options{
		"no broker":      {},
		"not host:port":  {Brokers: []string{"k1"}},
		`"k1:0" is not`:  {Brokers: []string{"k1:0"}},
		"SASL mechanism": {Brokers: []string{"k1:9092"}, SASL: &SASL{Mechanism: "GSSAPI", Secret: secret}},
		"needs a user":   {Brokers: []string{"k1:9092"}, SASL: &SASL{Mechanism: Plain, Secret: secret}},
		"needs a secret": {Brokers: []string{"k1:9092"}, SASL: &SASL{Mechanism: OAuthBearer}},
		"no username":    {Brokers: []string{"k1:9092"}, SASL: &SASL{Mechanism: OAuthBearer, Username: "u", Secret: secret}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	conn, err := New(Options{Brokers: []string{"k1:9092"}})
	if err != nil {
		t.Fatal(err)
	}
	header := func(name string) map[string]func(*messaging.Envelope) (string, error) {
		return map[string]func(*messaging.Envelope) (string, error){name: func(*messaging.Envelope) (string, error) { return "", nil }}
	}
	for want, o := range map[string]SenderOptions{
		"either a topic":    {},
		"no name":           {Topic: "a b"},
		"it can be 1024":    {Topic: "t", MaxMessageBytes: 10},
		"compression":       {Topic: "t", Compression: "brotli"},
		`"Gobridge-Id"`:     {Topic: "t", Headers: header("Gobridge-Id")},
		`"ce_id" is not`:    {Topic: "t", Headers: header("ce_id")},
		`"content-type" is`: {Topic: "t", Headers: header("content-type")},
	} {
		if _, err := conn.Sender(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for want, o := range map[string]ReceiverOptions{
		"needs a topic": {Group: "g"}, "no name": {Topics: []string{"a b"}, Group: "g"}, "needs a consumer group": {Topics: []string{"t"}},
	} {
		if _, err := conn.Receiver(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
