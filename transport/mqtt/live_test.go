package mqtt_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"gobridge"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/transport/mqtt"
	"gobridge/transporttest"
)

// live returns the address of the real broker.
func live(t testing.TB) string {
	t.Helper()
	text := os.Getenv("GOBRIDGE_MQTT_URL")
	if text == "" {
		t.Skip("GOBRIDGE_MQTT_URL names no broker; scripts/mqtt-live.sh starts one")
	}
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// node tells the script that controls the broker something.
func node(t testing.TB, what string) {
	t.Helper()
	script := os.Getenv("GOBRIDGE_MQTT_NODE")
	if script == "" {
		t.Skip("GOBRIDGE_MQTT_NODE names no script that controls the broker; scripts/mqtt-live.sh does")
	}
	if out, err := exec.Command(script, what).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", what, err, out)
	}
}

func through(t testing.TB, address string) *faultproxy.Proxy {
	t.Helper()
	proxy, err := faultproxy.Start(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// other is a client of the broker that is not ours.
type other struct {
	client *paho.Client
	mu     sync.Mutex
	got    []*packets.Publish
}

func another(t testing.TB, address string, filters ...string) *other {
	t.Helper()
	o := &other{}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	o.client = paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: 30 * time.Second,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.got = append(o.got, p.Packet.Packet())
			return true, nil
		}}})
	if _, err := o.client.Connect(t.Context(), &paho.Connect{ClientID: "other-" + messaging.NewID(), CleanStart: true, KeepAlive: 60}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.client.Disconnect(&paho.Disconnect{}) })
	for _, f := range filters {
		if _, err := o.client.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: f, QoS: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func (o *other) publish(t testing.TB, p *packets.Publish) {
	t.Helper()
	out := &paho.Publish{Topic: p.Topic, QoS: p.QoS, Retain: p.Retain, Payload: p.Payload}
	out.InitProperties(p.Properties)
	if _, err := o.client.Publish(context.Background(), out); err != nil {
		t.Fatal(err)
	}
}

func (o *other) received() []*packets.Publish {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got)
}

// place is a topic of the test's own.
func place() string { return "test/" + messaging.NewID() + "/x" }

func TestLiveReceiver(t *testing.T) {
	address := live(t)
	transporttest.RunSource(t, func(t testing.TB) transporttest.Source { return liveSource(t, address) })
}

func liveSource(t testing.TB, address string) transporttest.Source {
	proxy := through(t, address)
	topic, id := place(), "live-"+messaging.NewID()
	change := func(o *mqtt.ReceiverOptions) { o.ClientID, o.Topics = id, []string{topic} }
	establish(t, receiver(t, open(t, "mqtt://"+address), change), another(t, address), topic)
	producer := another(t, address)
	return transporttest.Source{
		Receiver: func(t testing.TB) gobridge.Receiver { return receiver(t, open(t, "mqtt://"+proxy.Addr()), change) },
		Publish: func(t testing.TB, all ...messaging.Envelope) {
			for _, e := range all {
				producer.publish(t, asPublished(e, topic, 1))
			}
		},
		PublishBad: func(t testing.TB) []byte {
			bad := asPublished(messaging.Envelope{Payload: []byte("bad")}, topic, 1)
			bad.Properties.User = append(bad.Properties.User, packets.User{Key: "gobridge-created-at", Value: "yesterday"})
			producer.publish(t, bad)
			return bad.Payload
		},
		Cut: func(testing.TB) { proxy.Cut() },
	}
}

// establish lets the receiver make its session: it runs until a message comes.
func establish(t testing.TB, r gobridge.Receiver, producer *other, topic string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	came, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var once sync.Once
		_ = r.Receive(ctx, func(context.Context, []gobridge.Incoming) error {
			once.Do(func() { close(came) })
			return nil
		})
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		producer.publish(t, asPublished(messaging.Envelope{Payload: []byte("hello")}, topic, 1))
		select {
		case <-came:
		case <-time.After(50 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("nothing has come for a minute")
			}
			continue
		}
		break
	}
	stop()
	<-done
	// What was published on the way is taken by the next one: no payload of a suite.
}

func TestLiveSender(t *testing.T) {
	address := live(t)
	transporttest.RunSender(t, func(t testing.TB) transporttest.Destination { return liveDestination(t, address) })
}

func liveDestination(t testing.TB, address string) transporttest.Destination {
	proxy := through(t, address)
	topic := place()
	consumer := another(t, address, topic)
	s := sender(t, open(t, "mqtt://"+proxy.Addr()), func(o *mqtt.SenderOptions) { o.Topic = topic })
	return transporttest.Destination{
		Sender: s,
		Received: func(t testing.TB) []messaging.Envelope {
			var out []messaging.Envelope
			for _, p := range consumer.received() {
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
		TooLarge: 300 << 10, // above max_packet_size
	}
}

// TestLiveRestart stops and starts the broker while both ends are at work, and cuts
// connections: what was acknowledged to the producer arrives, in order.
func TestLiveRestart(t *testing.T) {
	address := live(t)
	in, id := place(), "live-"+messaging.NewID()
	change := func(o *mqtt.ReceiverOptions) { o.ClientID, o.Topics = id, []string{in} }
	establish(t, receiver(t, open(t, "mqtt://"+address), change), another(t, address), in)

	proxy := through(t, address)
	c := open(t, "mqtt://"+proxy.Addr())
	k := &collector{}
	k.run(t, receiver(t, c, change))
	s := sender(t, c, func(o *mqtt.SenderOptions) { o.Topic = in })
	const n = 600
	for i := 0; i < n; {
		switch i {
		case 150, 450:
			proxy.Cut()
		case 300:
			node(t, "stop")
			node(t, "start")
		}
		batch := make([]gobridge.Delivery, 0, 10)
		for j := range 10 {
			batch = append(batch, gobridge.Delivery{Envelope: messaging.Envelope{
				ID: fmt.Sprintf("%d-%d", j, i/10), OrderingKey: fmt.Sprint(j), Payload: fmt.Appendf(nil, "%d %d", j, i/10),
			}, Attempt: 1})
		}
		for len(batch) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			errs := s.Send(ctx, batch)
			cancel()
			var again []gobridge.Delivery
			for j, err := range errs {
				if outcome, _ := gobridge.Classify(err); outcome == gobridge.OutcomePermanent {
					t.Fatal(err)
				}
				if err != nil {
					again = append(again, batch[j])
				}
			}
			if batch = again; len(batch) > 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
		i += 10
	}
	deadline := time.Now().Add(time.Minute)
	for len(distinct(k.all())) < n {
		if time.Now().After(deadline) {
			var lost []string
			for i := range n {
				if id := fmt.Sprintf("%d-%d", i%10, i/10); !distinct(k.all())[id] {
					lost = append(lost, id)
				}
			}
			t.Fatalf("acknowledged by the broker, and not come after a minute: %s", strings.Join(lost, ", "))
		}
		time.Sleep(5 * time.Millisecond)
	}
	last := map[string]int{}
	for _, in := range k.all() {
		var key string
		var number int
		if _, err := fmt.Sscanf(string(in.Envelope.Payload), "%s %d", &key, &number); err != nil {
			continue
		}
		if number > last[key]+1 {
			t.Errorf("key %s: %d came after %d", key, number, last[key])
		}
		last[key] = max(last[key], number)
	}
}

func distinct(all []gobridge.Incoming) map[string]bool {
	out := map[string]bool{}
	for _, in := range all {
		if in.Envelope.OrderingKey != "" {
			out[in.Envelope.ID] = true
		}
	}
	return out
}

// TestLiveRefusals learns what the broker answers.
func TestLiveRefusals(t *testing.T) {
	address := live(t)
	c := open(t, "mqtt://"+address)
	send := func(s *mqtt.Sender, e messaging.Envelope) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return s.Send(ctx, []gobridge.Delivery{{Envelope: e, Attempt: 1}})[0]
	}
	topic := place()
	for _, one := range []struct {
		name  string
		topic string
		size  int
		want  gobridge.Outcome
		text  string
	}{
		{"a packet beyond max_packet_size", topic, 3 << 20, gobridge.OutcomePermanent, "the broker takes 262144"},
	} {
		t.Run(one.name, func(t *testing.T) {
			err := send(sender(t, c, func(o *mqtt.SenderOptions) { o.Topic = one.topic }), messaging.Envelope{ID: "a", Payload: make([]byte, one.size)})
			if outcome, _ := gobridge.Classify(err); outcome != one.want || err == nil || !strings.Contains(err.Error(), one.text) {
				t.Errorf("%v: outcome %d, want %d and %q", err, outcome, one.want, one.text)
			}
		})
	}
	err := sender(t, c, func(o *mqtt.SenderOptions) { o.Topic = topic }).Carry(&messaging.Envelope{ID: "a", Payload: make([]byte, 3<<20)})
	if err == nil || !strings.Contains(err.Error(), "the broker takes 262144") {
		t.Errorf("Carry of 3 MiB: %v", err)
	}
}

// TestLiveForbidden publishes where nobody may, beside a topic that is allowed.
func TestLiveForbidden(t *testing.T) {
	live(t)
	strict := os.Getenv("GOBRIDGE_MQTT_STRICT_URL")
	if strict == "" {
		t.Skip("GOBRIDGE_MQTT_STRICT_URL names no broker; scripts/mqtt-live.sh starts one")
	}
	c := open(t, strict)
	allowed := sender(t, c)
	forbidden := sender(t, c, func(o *mqtt.SenderOptions) { o.Topic = "forbidden/x" })
	one := []gobridge.Delivery{{Envelope: messaging.Envelope{ID: "a"}, Attempt: 1}}
	for range 3 {
		err := forbidden.Send(t.Context(), one)[0]
		if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable {
			t.Errorf("a forbidden topic: %v, outcome %d", err, outcome)
		}
		if err := allowed.Send(t.Context(), one)[0]; err != nil {
			t.Errorf("beside a forbidden topic: %v", err)
		}
	}
}

// TestLiveOddText publishes what MQTT can carry at its limits.
func TestLiveOddText(t *testing.T) {
	address := live(t)
	topic := place()
	consumer := another(t, address, topic)
	s := sender(t, open(t, "mqtt://"+address), func(o *mqtt.SenderOptions) { o.Topic = topic })
	e := messaging.Envelope{ID: "odd", OrderingKey: "ключ\u2028", Payload: []byte{0, 255}, Headers: messaging.Headers{
		"plain": "a", "control": "a\x01\n", "nul": "\x00", "bytes": "\xff", "long": strings.Repeat("x", 70000), "nonchar": "\ufffe\ufdd0",
	}}
	if err := s.Carry(&e); err == nil {
		t.Error("Carry takes a gobridge-headers of more than 65535 bytes")
	}
	delete(e.Headers, "long")
	if err := s.Send(t.Context(), []gobridge.Delivery{{Envelope: e, Attempt: 1}})[0]; err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for len(consumer.received()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("nothing has come for a minute")
		}
		time.Sleep(5 * time.Millisecond)
	}
	got := asReceived(t, consumer.received()[0])
	for name, value := range e.Headers {
		if got.Headers[name] != value {
			t.Errorf("header %q is %q, want %q", name, got.Headers[name], value)
		}
	}
	if got.OrderingKey != e.OrderingKey {
		t.Errorf("ordering key %q, want %q", got.OrderingKey, e.OrderingKey)
	}
}

// TestLiveConnect looks without leaving a session.
func TestLiveConnect(t *testing.T) {
	address := live(t)
	c := open(t, "mqtt://"+address)
	said, err := receiver(t, c).Connect(t.Context())
	if err != nil || !strings.Contains(said, "takes in/# at mqtt://"+address) {
		t.Errorf("%q, %v", said, err)
	}
	said, err = sender(t, c).Connect(t.Context())
	if err != nil || !strings.Contains(said, "publishes to topic out/a at mqtt://"+address) {
		t.Errorf("%q, %v", said, err)
	}
	nowhere := open(t, "mqtt://127.0.0.1:1")
	if _, err := sender(t, nowhere).Connect(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a broker that is not there: %v", err)
	}
}
