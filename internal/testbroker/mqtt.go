package testbroker

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// MQTT is a broker of MQTT 5. Its places are topics, which need not be made; what
// is published while nobody has subscribed is gone.
type MQTT struct {
	proxied
	direct string
}

// StartMQTT runs a broker. It keeps no order in what it sends again after a
// connection has broken.
func StartMQTT(t testing.TB) *MQTT {
	t.Helper()
	s := mochi.New(&mochi.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, s.AddHook(new(anyone), nil))
	listener := listeners.NewTCP(listeners.Config{ID: "tcp", Address: "127.0.0.1:0"})
	must(t, s.AddListener(listener))
	must(t, s.Serve())
	t.Cleanup(func() { _ = s.Close() })
	return &MQTT{before(t, listener.Address()), listener.Address()}
}

// anyone may do anything.
type anyone struct{ mochi.HookBase }

func (anyone) ID() string { return "anyone" }
func (anyone) Provides(what byte) bool {
	return what == mochi.OnConnectAuthenticate || what == mochi.OnACLCheck
}
func (anyone) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }
func (anyone) OnACLCheck(*mochi.Client, string, bool) bool              { return true }

// UseMQTT uses the broker at a URL.
func UseMQTT(t testing.TB, address string) *MQTT {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	return &MQTT{before(t, u.Host), u.Host}
}

var clients atomic.Int64

// connect returns a client with a session that ends with it.
func (m *MQTT) connect(t testing.TB, got func(paho.PublishReceived) (bool, error)) *paho.Client {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", m.direct)
	must(t, err)
	config := paho.ClientConfig{Conn: conn}
	if got != nil {
		config.OnPublishReceived = []func(paho.PublishReceived) (bool, error){got}
	}
	c := paho.NewClient(config)
	most := uint16(60000)
	// Without RequestProblemInfo the broker of StartMQTT leaves user properties out.
	_, err = c.Connect(t.Context(), &paho.Connect{
		ClientID: "test-" + strconv.FormatInt(clients.Add(1), 10), CleanStart: true, KeepAlive: 600,
		Properties: &paho.ConnectProperties{ReceiveMaximum: &most, RequestProblemInfo: true},
	})
	must(t, err)
	return c
}

// Make does nothing.
func (m *MQTT) Make(testing.TB, string) {}

// Put publishes to a topic with QoS 1.
func (m *MQTT) Put(t testing.TB, topic string, messages ...Message) {
	t.Helper()
	c := m.connect(t, nil)
	for i, message := range messages {
		out := &paho.Publish{Topic: topic, QoS: 1, Payload: message.Body, Properties: &paho.PublishProperties{}}
		if message.Key != "" {
			out.Properties.User.Add(headerKey, message.Key)
		}
		// Confirmations come in order, so the last is that of all.
		method := paho.PublishMethod_AsyncSend
		if i == len(messages)-1 {
			method = paho.PublishMethod_Blocking
		}
		_, err := c.PublishWithOptions(t.Context(), out, paho.PublishOptions{Method: method})
		must(t, err)
	}
	must(t, c.Disconnect(&paho.Disconnect{}))
}

// Watch subscribes to a topic.
func (m *MQTT) Watch(t testing.TB, topic string, f func(Message)) {
	t.Helper()
	var one sync.Mutex
	c := m.connect(t, func(p paho.PublishReceived) (bool, error) {
		one.Lock()
		defer one.Unlock()
		key := ""
		if p.Packet.Properties != nil {
			key = p.Packet.Properties.User.Get(headerKey)
		}
		f(Message{key, p.Packet.Payload})
		return true, nil
	})
	_, err := c.Subscribe(context.Background(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: topic, QoS: 1}}})
	must(t, err)
	t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
}
