package amqp

import (
	"bytes"
	"encoding/binary"
	"io"
)

// maxRead is the largest frame that is read from a server whose messages are consumed.
const maxRead = 16 << 20

// tuner lets a client read larger frames than it has agreed on with the server. What
// a server delivers has the headers of the message in one frame, and those may be
// larger than that: RabbitMQ adds some of its own (x-delivery-count, x-death), and its
// bound for another producer may be a larger one. The client library would end the
// connection with each such message, again and again.
//
// So the client is told of a server without a bound, and its answer is put right
// (AMQP 0-9-1, connection.tune and tune-ok). Bodies, and what the client sends, stay
// within what was agreed, for the client must not publish on this connection.
type tuner struct {
	*wire
	ahead  []byte // read, and not yet handed on
	tuned  bool
	agreed uint32

	answered bool
}

// The beginnings of the frames' payloads: class and method.
var (
	tune   = []byte{0, 10, 0, 30}
	tuneOK = []byte{0, 10, 0, 31}
)

const (
	methodFrame  = 1
	frameHead    = 7    // type, channel, size
	tuneSize     = 12   // class, method, channel-max, frame-max, heartbeat
	frameMaxAt   = 6    // in a payload of tune and tune-ok
	handshakeMax = 4096 // frame-min-size: no frame is larger before the bound is agreed on
)

func (t *tuner) Read(p []byte) (int, error) {
	if len(t.ahead) == 0 && !t.tuned {
		if err := t.handshake(); err != nil {
			return 0, err
		}
	}
	if len(t.ahead) > 0 {
		n := copy(p, t.ahead)
		t.ahead = t.ahead[n:]
		return n, nil
	}
	return t.wire.Read(p)
}

// handshake reads a frame, and takes the bound out of tune.
func (t *tuner) handshake() error {
	head := make([]byte, frameHead)
	if _, err := io.ReadFull(t.wire, head); err != nil {
		return err
	}
	t.ahead = head
	size := binary.BigEndian.Uint32(head[3:])
	if size > handshakeMax { // this is no AMQP, as the client will find
		t.tuned = true
		return nil
	}
	rest := make([]byte, size+1) // with the octet that ends a frame
	if _, err := io.ReadFull(t.wire, rest); err != nil {
		return err
	}
	if head[0] == methodFrame && size == tuneSize && bytes.HasPrefix(rest, tune) {
		t.tuned, t.agreed = true, maxFrame
		frameMax := rest[frameMaxAt:]
		if offered := binary.BigEndian.Uint32(frameMax); offered > 0 {
			t.agreed = min(t.agreed, offered)
		}
		binary.BigEndian.PutUint32(frameMax, 0)
	}
	t.ahead = append(head, rest...)
	return nil
}

// Write writes p, which begins with a frame.
func (t *tuner) Write(p []byte) (int, error) {
	if !t.answered && len(p) > frameHead+tuneSize && p[0] == methodFrame && bytes.HasPrefix(p[frameHead:], tuneOK) {
		t.answered = true
		p = bytes.Clone(p)
		binary.BigEndian.PutUint32(p[frameHead+frameMaxAt:], t.agreed)
	}
	return t.wire.Write(p)
}
