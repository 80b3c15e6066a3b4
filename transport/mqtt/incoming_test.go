package mqtt

import (
	"errors"
	"net"
	"testing"

	"github.com/eclipse/paho.golang/packets"
)

// TestDurableAfterTheEnd: a message that becomes durable when its connection has ended,
// and nobody has said so yet, is known when it comes again.
func TestDurableAfterTheEnd(t *testing.T) {
	session := newIncoming(&ReceiverOptions{Topics: []string{"#"}, ReceiveMaximum: 10}, func(string) {})
	connected := func() *receiving {
		near, far := net.Pipe()
		_ = far.Close()
		r := &receiving{incoming: session, wire: newWire(near)}
		if err := r.ConAckReceived(nil, nil, &packets.Connack{SessionPresent: true}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := connected()
	first.arrived(&packets.Publish{Topic: "x", QoS: 1, PacketID: 7, Payload: []byte("21.5")})
	first.wire.fail(errors.New("cut"))
	session.done(session.gather())

	second := connected()
	second.arrived(&packets.Publish{Topic: "x", QoS: 1, PacketID: 7, Payload: []byte("21.5"), Duplicate: true})
	if n := len(session.waiting); n != 0 {
		t.Errorf("%d messages are to be handed over, want none: it is a repeat", n)
	}
}
