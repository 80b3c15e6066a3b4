package mqtt_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"go.uber.org/goleak"

	"gobridge"
	"gobridge/internal/faultproxy"
	"gobridge/internal/mapping"
	"gobridge/messaging"
	"gobridge/transport/mqtt"
	"gobridge/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const client = "gw-route"

// open makes a connection that ends with the test.
func open(t testing.TB, url string, change ...func(*mqtt.Options)) *mqtt.Connection {
	t.Helper()
	options := mqtt.Options{URLs: []string{url}, ClientID: "gw", Logger: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	for _, f := range change {
		f(&options)
	}
	c, err := mqtt.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// testLog writes lines to the test's log.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(string(p))
	return len(p), nil
}

func receiver(t testing.TB, c *mqtt.Connection, change ...func(*mqtt.ReceiverOptions)) *mqtt.Receiver {
	t.Helper()
	options := mqtt.ReceiverOptions{Topics: []string{"in/#"}, ClientID: client, QoS: 1, SessionExpiry: time.Hour}
	for _, f := range change {
		f(&options)
	}
	r, err := c.Receiver(options)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sender(t testing.TB, c *mqtt.Connection, change ...func(*mqtt.SenderOptions)) *mqtt.Sender {
	t.Helper()
	options := mqtt.SenderOptions{ClientID: "gw-route-out", Topic: "out/a", QoS: 1}
	for _, f := range change {
		f(&options)
	}
	s, err := c.Sender(options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asPublished makes the packet of a message as any producer would.
func asPublished(e messaging.Envelope, topic string, qos byte) *packets.Publish {
	p := &packets.Publish{Topic: topic, QoS: qos, Payload: e.Payload, Properties: &packets.Properties{ContentType: e.ContentType}}
	add := func(name, value string) {
		p.Properties.User = append(p.Properties.User, packets.User{Key: name, Value: value})
	}
	if e.ID != "" {
		add("gobridge-id", e.ID)
	}
	if e.OrderingKey != "" {
		add("gobridge-ordering-key", e.OrderingKey)
	}
	for name, value := range e.Headers {
		add(name, value)
	}
	return p
}

// asReceived takes a packet apart as a consumer would.
func asReceived(t testing.TB, p *packets.Publish) messaging.Envelope {
	t.Helper()
	m := mapping.Message{ContentType: p.Properties.ContentType, Payload: p.Payload}
	for _, u := range p.Properties.User {
		m.Pairs = append(m.Pairs, mapping.Pair{Name: u.Key, Value: u.Value})
	}
	e, err := mapping.Protocol{}.Decode(m)
	if err != nil {
		t.Errorf("what was published is no message: %v", err)
	}
	e.ID = userProperty(p, "gobridge-id") // gobridge-dedupe-id is for a broker's deduplication
	return e
}

func userProperty(p *packets.Publish, name string) string {
	for _, u := range p.Properties.User {
		if u.Key == name {
			return u.Value
		}
	}
	return ""
}

func TestReceiver(t *testing.T) {
	for _, qos := range []byte{1, 2} {
		t.Run("QoS"+string('0'+qos), func(t *testing.T) {
			transporttest.RunSource(t, func(t testing.TB) transporttest.Source { return source(t, qos) })
		})
	}
}

// source is a session of the broker in memory. Before a receiver first runs there is
// nothing that keeps messages, so one has been there already.
func source(t testing.TB, qos byte) transporttest.Source {
	b := newBroker(t)
	b.sessions[client] = &session{filters: map[string]packets.SubOptions{"in/#": {Topic: "in/#", QoS: qos}}, most: 1}
	return transporttest.Source{
		Receiver: func(t testing.TB) gobridge.Receiver {
			return receiver(t, open(t, b.url()), func(o *mqtt.ReceiverOptions) { o.QoS = qos })
		},
		Publish: func(t testing.TB, all ...messaging.Envelope) {
			for _, e := range all {
				b.publish(asPublished(e, "in/x", qos))
			}
		},
		PublishBad: func(t testing.TB) []byte {
			bad := asPublished(messaging.Envelope{Payload: []byte("bad")}, "in/x", qos)
			bad.Properties.User = append(bad.Properties.User, packets.User{Key: "gobridge-created-at", Value: "yesterday"})
			b.publish(bad)
			return bad.Payload
		},
		Left: func(testing.TB) int { return b.left() },
		Cut:  func(testing.TB) { b.cut() },
	}
}

func TestSender(t *testing.T) {
	for _, qos := range []byte{1, 2} {
		t.Run("QoS"+string('0'+qos), func(t *testing.T) {
			transporttest.RunSender(t, func(t testing.TB) transporttest.Destination { return destination(t, qos) })
		})
	}
}

func destination(t testing.TB, qos byte) transporttest.Destination {
	b := newBroker(t)
	limit, places := uint32(128<<10), uint16(20)
	b.greeting = packets.Properties{MaximumPacketSize: &limit, ReceiveMaximum: &places}
	proxy, err := faultproxy.Start(b.listen.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	s := sender(t, open(t, "mqtt://"+proxy.Addr()), func(o *mqtt.SenderOptions) { o.QoS = qos })
	return transporttest.Destination{
		Sender: s,
		Received: func(t testing.TB) []messaging.Envelope {
			var out []messaging.Envelope
			for _, p := range b.got() {
				out = append(out, asReceived(t, p))
			}
			return out
		},
		Cut: func(testing.TB) { proxy.Cut() },
		Down: func(_ testing.TB, down bool) {
			proxy.Refuse(down)
			if down {
				proxy.Cut()
			}
		},
		Stall:    func(_ testing.TB, on bool) { proxy.Stall(on) },
		TooLarge: 200 << 10,
	}
}
