package mqtt_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/mqtt"
)

// journal keeps what is logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), text)
}

func (j *journal) keep(o *mqtt.Options) { o.Logger = slog.New(slog.NewTextHandler(j, nil)) }

// nameless are messages to which their producer gave no ID.
func nameless(n int, qos byte) []*packets.Publish {
	var out []*packets.Publish
	for i := range n {
		out = append(out, asPublished(messaging.Envelope{Payload: fmt.Append(nil, i)}, "in/x", qos))
	}
	return out
}

// started runs a receiver on a broker until its subscription stands.
func started(t *testing.T, b *broker, k *collector, change ...func(*mqtt.ReceiverOptions)) (stop func()) {
	t.Helper()
	stop = k.run(t, receiver(t, open(t, b.url()), change...))
	eventually(t, "a subscription", b.subscribed)
	return stop
}

func count(n int) func([]gobridge.Incoming) bool {
	return func(all []gobridge.Incoming) bool { return len(all) >= n }
}

// TestRepeatsWithinASession: what the broker sends again after a broken connection is
// known though nobody gave it an ID, whether it is durable by then or not.
func TestRepeatsWithinASession(t *testing.T) {
	for _, qos := range []byte{1, 2} {
		b := newBroker(t)
		k := &collector{gate: make(chan struct{})}
		started(t, b, k, func(o *mqtt.ReceiverOptions) { o.QoS = qos })
		b.publish(nameless(50, qos)...)
		eventually(t, "all on their way", func() bool { return b.left() == 50 })
		for range 3 {
			before := b.connected()
			b.cut()
			eventually(t, "another connection", func() bool { return b.connected() > before })
		}
		close(k.gate)
		k.await(t, "all messages", count(50))
		eventually(t, "the acknowledgement of all", func() bool { return b.left() == 0 })
		ids := map[string]bool{}
		for i, in := range k.all() {
			if string(in.Envelope.Payload) != fmt.Sprint(i) {
				t.Fatalf("QoS %d: message %d is %q: they came twice, or out of order", qos, i, in.Envelope.Payload)
			}
			ids[in.Envelope.ID] = true
		}
		if len(ids) != 50 {
			t.Errorf("QoS %d: 50 messages have %d IDs", qos, len(ids))
		}
	}
}

// TestAnotherMessageUnderTheSamePacketIdentifier: equal content alone is no repeat.
func TestAnotherMessageUnderTheSamePacketIdentifier(t *testing.T) {
	b := newBroker(t)
	k := &collector{}
	started(t, b, k)
	same := asPublished(messaging.Envelope{Payload: []byte("21.5")}, "in/x", 1)
	b.publish(same)
	k.await(t, "the first", count(1))
	eventually(t, "its acknowledgement", func() bool { return b.left() == 0 })
	b.set(func() {
		// The second is on its way under the first one's identifier when the
		// connection breaks, and nothing of it has come.
		s := b.sessions[client]
		s.next--
		again := *same
		again.PacketID, again.QoS = s.next+1, 1
		s.next++
		s.inflight = append(s.inflight, &again)
	})
	b.cut()
	k.await(t, "the second", count(2))
	if all := k.all(); all[0].Envelope.ID == all[1].Envelope.ID {
		t.Error("two messages have one ID: the second would be taken for a duplicate")
	}
	eventually(t, "its acknowledgement", func() bool { return b.left() == 0 })
}

// TestAfterARestartRepeatsAreNew: so the documentation has it.
func TestAfterARestartRepeatsAreNew(t *testing.T) {
	b := newBroker(t)
	first := &collector{gate: make(chan struct{})}
	stop := started(t, b, first)
	b.publish(nameless(1, 1)...)
	eventually(t, "a message on its way", func() bool { return b.left() == 1 })
	stop()
	second := &collector{}
	second.run(t, receiver(t, open(t, b.url())))
	second.await(t, "the message", count(1))
	if id := second.all()[0].Envelope.ID; len(id) != 36 {
		t.Errorf("ID %q, want a new one", id)
	}
}

func TestProducersIDs(t *testing.T) {
	b := newBroker(t)
	k := &collector{}
	started(t, b, k, func(o *mqtt.ReceiverOptions) { o.IDProperty = "MessageID" })
	with := func(pairs ...string) *packets.Publish {
		p := asPublished(messaging.Envelope{Payload: []byte("x")}, "in/x", 1)
		for i := 0; i < len(pairs); i += 2 {
			p.Properties.User = append(p.Properties.User, packets.User{Key: pairs[i], Value: pairs[i+1]})
		}
		return p
	}
	b.publish(
		with("MessageID", "m-1", "gobridge-id", "g-1"),
		with("gobridge-id", "g-2"),
		with("gobridge-id", "g-3", "gobridge-dedupe-id", "g-3~1"),
		with("specversion", "1.0", "id", "7", "source", "/plant", "type", "t"),
	)
	k.await(t, "all messages", count(4))
	for i, want := range []string{"m-1", "g-2", "g-3~1", "/plant 7"} {
		if got := k.all()[i].Envelope.ID; got != want {
			t.Errorf("message %d has ID %q, want %q", i, got, want)
		}
	}
}

// TestForgottenSession: a broker that has lost the session is subscribed to again,
// and what had come is stored.
func TestForgottenSession(t *testing.T) {
	b := newBroker(t)
	j := &journal{}
	k := &collector{gate: make(chan struct{})}
	k.run(t, receiver(t, open(t, b.url(), j.keep)))
	eventually(t, "a subscription", b.subscribed)
	b.publish(nameless(3, 1)...)
	eventually(t, "all on their way", func() bool { return b.left() == 3 })
	before := b.connected()
	b.set(func() { b.forgets = true })
	b.cut()
	eventually(t, "another subscription", func() bool { return b.connected() > before && b.subscribed() })
	close(k.gate)
	b.publish(asPublished(messaging.Envelope{Payload: []byte("after")}, "in/x", 1))
	k.await(t, "what came before and after", func(all []gobridge.Incoming) bool {
		return len(all) > 0 && string(all[len(all)-1].Envelope.Payload) == "after"
	})
	eventually(t, "the acknowledgement of all", func() bool { return b.left() == 0 })
	if !j.has("the broker has forgotten the session") {
		t.Error("it is not said that the session was lost")
	}
}

// TestTakenOver: another client of the same ID is not fought with.
func TestTakenOver(t *testing.T) {
	b := newBroker(t)
	j := &journal{}
	(&collector{}).run(t, receiver(t, open(t, b.url(), j.keep)))
	eventually(t, "a subscription", b.subscribed)
	second := &collector{}
	second.run(t, receiver(t, open(t, b.url())))
	eventually(t, "word of it", func() bool { return j.has("another client has connected under this client ID") })
	b.publish(nameless(1, 1)...)
	second.await(t, "a message for the other", count(1))
	if n := b.connected(); n != 2 {
		t.Errorf("%d connections, want 2: it came back at once", n)
	}
}

// TestRefusedSubscription: the other topics flow, and the refusal is named.
func TestRefusedSubscription(t *testing.T) {
	b := newBroker(t)
	b.grant = func(filter string) byte {
		switch filter {
		case "secret/#":
			return 0x87
		case "low/#":
			return 0
		}
		return 1
	}
	j := &journal{}
	k := &collector{}
	topics := func(o *mqtt.ReceiverOptions) { o.Topics = []string{"in/#", "secret/#", "low/#"} }
	r := receiver(t, open(t, b.url(), j.keep), topics)
	k.run(t, r)
	eventually(t, "word of the refusal", func() bool { return j.has("topic=secret/# error=\"not authorized (0x87)\"") })
	b.publish(nameless(1, 1)...)
	k.await(t, "a message of the other topic", count(1))

	_, err := r.Connect(t.Context())
	for _, want := range []string{"subscribe to secret/#: not authorized (0x87)", "subscribe to low/#: the broker grants QoS 0, not 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Connect: %v, want %q", err, want)
		}
	}
}

// TestConnectLeavesNothing: a look takes no message and disturbs no session.
func TestConnectLeavesNothing(t *testing.T) {
	b := newBroker(t)
	k := &collector{}
	started(t, b, k, func(o *mqtt.ReceiverOptions) { o.Share = "group"; o.Topics = []string{"#"} })
	said, err := receiver(t, open(t, b.url()), func(o *mqtt.ReceiverOptions) { o.Share = "group" }).Connect(t.Context())
	if err != nil || !strings.Contains(said, "takes in/# shared by group group") {
		t.Errorf("%q, %v", said, err)
	}
	if b.connected() != 2 || b.left() != 0 {
		t.Errorf("%d connections", b.connected())
	}
	b.set(func() {
		for _, c := range b.connects {
			if c.ClientID != client && (!c.CleanStart || *c.Properties.SessionExpiryInterval != 0) {
				t.Errorf("client %s leaves a session", c.ClientID)
			}
		}
		for name, s := range b.sessions {
			for filter := range s.filters {
				if name != client && strings.HasPrefix(filter, "$share") {
					t.Errorf("a look takes messages off %s", filter)
				}
			}
		}
	})
}

func TestShared(t *testing.T) {
	b := newBroker(t)
	r := receiver(t, open(t, b.url()), func(o *mqtt.ReceiverOptions) { o.Share = "g" })
	if r.Solo() || !receiver(t, open(t, b.url())).Solo() {
		t.Error("a shared subscription is for many processes, any other for one")
	}
	k := &collector{}
	k.run(t, r)
	eventually(t, "a subscription", b.subscribed)
	b.set(func() {
		if _, there := b.sessions[client].filters["$share/g/in/#"]; !there {
			t.Errorf("subscriptions %v, want $share/g/in/#", b.sessions[client].filters)
		}
	})
}

func TestRetained(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		b := newBroker(t)
		kept := asPublished(messaging.Envelope{Payload: []byte("kept")}, "in/x", 1)
		kept.Retain = true
		b.publish(kept)
		k := &collector{}
		started(t, b, k, func(o *mqtt.ReceiverOptions) { o.IgnoreRetained = ignore })
		b.publish(nameless(1, 1)...)
		want := 2
		if ignore {
			want = 1
		}
		k.await(t, "the messages", count(want))
		first := k.all()[0].Envelope
		if !ignore && (string(first.Payload) != "kept" || first.Headers["mqtt-retained"] != "true") {
			t.Errorf("the first is %q with %v, want the retained one", first.Payload, first.Headers)
		}
		if ignore && string(first.Payload) != "0" {
			t.Errorf("the first is %q, though retained ones are ignored", first.Payload)
		}
		eventually(t, "the acknowledgement of all", func() bool { return b.left() == 0 })
		// A connection of the same session gets none again.
		before := b.connected()
		b.cut()
		eventually(t, "another connection", func() bool { return b.connected() > before })
		b.publish(nameless(1, 1)...)
		k.await(t, "one more", count(want+1))
		if n := len(k.all()); n != want+1 {
			t.Errorf("%d messages, want %d: what is retained came again", n, want+1)
		}
	}
}

// TestStrangeTopic: a subscription of an earlier configuration.
func TestStrangeTopic(t *testing.T) {
	b := newBroker(t)
	b.sessions[client] = &session{filters: map[string]packets.SubOptions{"old/#": {Topic: "old/#", QoS: 1}}, most: 1}
	j := &journal{}
	k := &collector{}
	k.run(t, receiver(t, open(t, b.url(), j.keep)))
	b.publish(asPublished(messaging.Envelope{Payload: []byte("old")}, "old/x", 1))
	eventually(t, "the acknowledgement", func() bool { return b.left() == 0 })
	eventually(t, "word of it", func() bool { return j.has("topic=old/x") })
	if n := len(k.all()); n != 0 {
		t.Errorf("%d messages were handed over", n)
	}
}

// TestUnconfirmedWithoutRoom: messages of QoS 0 that find no room are lost, and it is
// said how many.
func TestUnconfirmedWithoutRoom(t *testing.T) {
	b := newBroker(t)
	j := &journal{}
	k := &collector{gate: make(chan struct{})}
	k.run(t, receiver(t, open(t, b.url(), j.keep), func(o *mqtt.ReceiverOptions) { o.ReceiveMaximum = 5 }))
	eventually(t, "a subscription", b.subscribed)
	before := b.sent()
	b.publish(nameless(100, 0)...)
	b.publish(asPublished(messaging.Envelope{Payload: []byte("last")}, "in/x", 1))
	eventually(t, "all sent", func() bool { return b.sent() >= before+101 })
	close(k.gate)
	k.await(t, "the one of QoS 1", func(all []gobridge.Incoming) bool {
		return slices.ContainsFunc(all, func(in gobridge.Incoming) bool { return string(in.Envelope.Payload) == "last" })
	})
	eventually(t, "word of the loss", func() bool { return j.has("came while there was no room, and are lost") })
	if n := len(k.all()); n < 2 || n > 100 {
		t.Errorf("%d messages, want those for which there was room and the last", n)
	}
}

// TestFullOfLargeMessages: beyond a bound nothing is read, and the connection lives.
func TestFullOfLargeMessages(t *testing.T) {
	t.Parallel() // it waits for pings
	b := newBroker(t)
	k := &collector{gate: make(chan struct{})}
	k.run(t, receiver(t, open(t, b.url(), func(o *mqtt.Options) { o.KeepAlive = 4 * time.Second })))
	eventually(t, "a subscription", b.subscribed)
	const n = 20
	payload := make([]byte, 4<<20)
	for range n {
		b.publish(asPublished(messaging.Envelope{Payload: payload}, "in/x", 1))
	}
	pings := func() (n int) {
		b.set(func() { n = b.pings })
		return n
	}
	eventually(t, "a full queue", func() bool { return b.sent() >= 16 })
	before := pings()
	// A second one would find that nothing has come since the first.
	eventually(t, "pings beside it", func() bool { return pings() >= before+2 })
	close(k.gate)
	k.await(t, "all messages", count(n))
	if b.connected() != 1 {
		t.Errorf("%d connections, want one: waiting counted as silence", b.connected())
	}
}

// TestFullWhileConnecting: a connection holds while there is no room, though the answer
// to its subscription waits behind the messages.
func TestFullWhileConnecting(t *testing.T) {
	t.Parallel() // it waits longer than a subscription may take
	b := newBroker(t)
	k := &collector{gate: make(chan struct{})}
	k.run(t, receiver(t, open(t, b.url(), func(o *mqtt.Options) { o.KeepAlive = 4 * time.Second })))
	eventually(t, "a subscription", b.subscribed)
	const n = 20
	payload := make([]byte, 4<<20)
	for range n {
		b.publish(asPublished(messaging.Envelope{Payload: payload}, "in/x", 1))
	}
	eventually(t, "a full queue", func() bool { return b.sent() >= 16 })
	b.cut()
	eventually(t, "another connection", func() bool { return b.connected() == 2 })
	pings := func() (n int) {
		b.set(func() { n = b.pings })
		return n
	}
	before := pings()
	eventually(t, "15 seconds of pings", func() bool { return pings() >= before+5 || b.connected() > 2 })
	close(k.gate)
	k.await(t, "all messages", count(n))
	eventually(t, "the acknowledgement of all", func() bool { return b.left() == 0 })
	if b.connected() != 2 {
		t.Errorf("%d connections, want two: waiting for room ended one", b.connected())
	}
	if got := len(k.all()); got != n {
		t.Errorf("%d messages, want %d: some came twice", got, n)
	}
}

// TestSilentBroker: pings that are not answered end a connection, whatever interval the
// broker would like better.
func TestSilentBroker(t *testing.T) {
	never, seldom := uint16(0), uint16(65535)
	for name, wanted := range map[string]*uint16{"as asked": nil, "never": &never, "seldom": &seldom} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			b.mute, b.greeting.ServerKeepAlive = true, wanted
			j := &journal{}
			(&collector{}).run(t, receiver(t, open(t, b.url(), func(o *mqtt.Options) { o.KeepAlive = time.Second }, j.keep)))
			eventually(t, "another connection", func() bool { return b.connected() > 1 })
			if !j.has("has not answered a ping") {
				t.Error("it is not said that the broker is silent")
			}
		})
	}
}

func TestReceiverRefuses(t *testing.T) {
	c := open(t, "mqtt://127.0.0.1:1")
	for want, change := range map[string]func(*mqtt.ReceiverOptions){
		"there is no topic filter":                     func(o *mqtt.ReceiverOptions) { o.Topics = nil },
		"# can only be its last level":                 func(o *mqtt.ReceiverOptions) { o.Topics = []string{"a/#/b"} },
		"a wildcard fills a whole level":               func(o *mqtt.ReceiverOptions) { o.Topics = []string{"a/b+"} },
		"has the character U+0000":                     func(o *mqtt.ReceiverOptions) { o.Topics = []string{"a\x00"} },
		`takes nothing that "a/#" does not`:            func(o *mqtt.ReceiverOptions) { o.Topics = []string{"a/b", "a/#"} },
		"stands there twice":                           func(o *mqtt.ReceiverOptions) { o.Topics = []string{"a", "a"} },
		"write it without $share/":                     func(o *mqtt.ReceiverOptions) { o.Topics = []string{"$share/g/a"} },
		"the name of a group has no /":                 func(o *mqtt.ReceiverOptions) { o.Share = "a/b" },
		"QoS is 3":                                     func(o *mqtt.ReceiverOptions) { o.QoS = 3 },
		"client ID \"\": it is text that is not empty": func(o *mqtt.ReceiverOptions) { o.ClientID = "" },
	} {
		options := mqtt.ReceiverOptions{Topics: []string{"in/#"}, ClientID: client, QoS: 1}
		change(&options)
		if _, err := c.Receiver(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// Topics of the broker's own are not below #.
	if _, err := c.Receiver(mqtt.ReceiverOptions{Topics: []string{"#", "$SYS/#"}, ClientID: client}); err != nil {
		t.Error(err)
	}
}

// TestTakeThatFails ends Receive with its error, though Take says that it never does.
func TestTakeThatFails(t *testing.T) {
	b := newBroker(t)
	done := make(chan error, 1)
	go func() {
		done <- receiver(t, open(t, b.url())).Receive(t.Context(), func(context.Context, []gobridge.Incoming) error { return fmt.Errorf("no room") })
	}()
	eventually(t, "a subscription", b.subscribed)
	b.publish(nameless(1, 1)...)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("Receive: %v", err)
	}
	if b.left() != 1 {
		t.Error("a message that was not stored has been acknowledged")
	}
}
