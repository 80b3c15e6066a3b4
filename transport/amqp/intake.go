package amqp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"slices"
)

// maxRead is the largest frame that is read from a server whose messages are consumed.
const maxRead = 16 << 20

// unreadable is the header in which the headers stand, as they came, that the client
// library can't read.
const unreadable = "gobridge-amqp-headers"

// intake stands between a server whose messages are consumed and the client library,
// which ends the connection when it can't read the headers of a message: and would
// again, each time that the message is delivered. Any producer could have that.
//
//   - The headers of a message are in one frame, which may be larger than what was
//     agreed on: RabbitMQ adds some of its own (x-delivery-count, x-death), and its
//     bound for the producer may have been a larger one. So the client is told of a
//     server without a bound, and its answer is put right (AMQP 0-9-1, connection.tune
//     and tune-ok). Bodies, and what the client sends, stay within what was agreed, for
//     nothing is published on this connection.
//   - The library reads tables up to some depth and number of entries. Others it is
//     given as they are, as the one header [unreadable].
type intake struct {
	*wire
	in    *bufio.Reader
	frame []byte // the one that is looked into
	ahead []byte // what the client has not read of it
	rest  int64  // of a frame that goes on as it comes

	tuned    bool
	agreed   uint32
	answered bool
}

func newIntake(w *wire) *intake { return &intake{wire: w, in: bufio.NewReader(w)} }

const (
	methodFrame  = 1
	headerFrame  = 2
	frameHead    = 7    // type, channel, size
	handshakeMax = 4096 // frame-min-size: no frame is larger before a bound is agreed on
	tuneSize     = 12   // class, method, channel-max, frame-max, heartbeat
	frameMaxAt   = 6    // in tune and tune-ok
	tune         = "\x00\x0a\x00\x1e"
	tuneOK       = "\x00\x0a\x00\x1f"
)

func (i *intake) Read(p []byte) (int, error) {
	if len(i.ahead) == 0 && i.rest == 0 {
		if err := i.next(); err != nil {
			return 0, err
		}
	}
	if len(i.ahead) > 0 {
		n := copy(p, i.ahead)
		i.ahead = i.ahead[n:]
		return n, nil
	}
	n, err := i.in.Read(p[:min(int64(len(p)), i.rest)])
	i.rest -= int64(n)
	return n, err
}

// next reads the next frame, or the head of one that is none of its business.
func (i *intake) next() error {
	i.frame = append(i.frame[:0], make([]byte, frameHead)...)
	if _, err := io.ReadFull(i.in, i.frame); err != nil {
		return err
	}
	i.ahead = i.frame
	size := binary.BigEndian.Uint32(i.frame[3:])
	kind := i.frame[0]
	if kind != headerFrame && (i.tuned || kind != methodFrame) || size > maxRead || !i.tuned && size > handshakeMax {
		i.rest = int64(size) + 1 // with the octet that ends a frame
		return nil
	}
	i.frame = slices.Grow(i.frame, int(size)+1)[:frameHead+int(size)+1]
	payload := i.frame[frameHead:]
	if _, err := io.ReadFull(i.in, payload); err != nil {
		return err
	}
	if kind == methodFrame {
		i.tune(payload)
	} else {
		i.frame = wrapped(i.frame)
	}
	i.ahead = i.frame
	return nil
}

// tune takes the bound out of the server's connection.tune.
func (i *intake) tune(payload []byte) {
	if len(payload) != tuneSize+1 || string(payload[:len(tune)]) != tune {
		return
	}
	i.tuned, i.agreed = true, maxFrame
	frameMax := payload[frameMaxAt:]
	if offered := binary.BigEndian.Uint32(frameMax); offered > 0 {
		i.agreed = min(i.agreed, offered)
	}
	binary.BigEndian.PutUint32(frameMax, 0)
}

// Write writes p, which begins with a frame.
func (i *intake) Write(p []byte) (int, error) {
	if !i.answered && len(p) > frameHead+tuneSize && p[0] == methodFrame && bytes.HasPrefix(p[frameHead:], []byte(tuneOK)) {
		i.answered = true
		p = bytes.Clone(p)
		binary.BigEndian.PutUint32(p[frameHead+frameMaxAt:], i.agreed)
	}
	return i.wire.Write(p)
}

// The flags of the properties before the headers, and of these (AMQP 0-9-1, 4.2.6.1),
// and where the properties begin: behind class, weight, size of the body and flags.
const (
	hasContentType = 1 << 15
	hasEncoding    = 1 << 14
	hasHeaders     = 1 << 13
	flagsAt        = frameHead + 12
	propertiesAt   = flagsAt + 2
)

// wrapped returns a frame of properties as the library can read it.
func wrapped(frame []byte) []byte {
	if len(frame) < propertiesAt {
		return frame
	}
	flags := binary.BigEndian.Uint16(frame[flagsAt:])
	rest := frame[propertiesAt:]
	for _, flag := range []uint16{hasContentType, hasEncoding} {
		if flags&flag != 0 {
			if len(rest) == 0 || len(rest) <= int(rest[0]) {
				return frame
			}
			rest = rest[1+int(rest[0]):]
		}
	}
	table, behind, ok := long(rest)
	if flags&hasHeaders == 0 || !ok || readable(table, 0) {
		return frame
	}
	entry := append([]byte{byte(len(unreadable))}, unreadable...)
	entry = binary.BigEndian.AppendUint32(append(entry, 'S'), uint32(len(table))) //nolint:gosec // a part of a frame
	out := bytes.Clone(frame[:len(frame)-len(rest)])
	out = binary.BigEndian.AppendUint32(out, uint32(len(entry)+len(table))) //nolint:gosec // as above
	out = slices.Concat(out, entry, table, behind)
	binary.BigEndian.PutUint32(out[3:], uint32(len(out)-frameHead-1)) //nolint:gosec // as above
	return out
}

// long takes what has its length before it in four bytes.
func long(b []byte) (content, behind []byte, ok bool) {
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, nil, false
	}
	end := 4 + int(binary.BigEndian.Uint32(b))
	return b[4:end], b[end:], true
}

// What the library reads of tables and arrays.
const (
	maxDepth   = 32
	maxEntries = 8192
)

// fixed are the sizes of values by their types.
var fixed = map[byte]int{
	't': 1, 'b': 1, 'B': 1, 's': 2, 'u': 2, 'I': 4, 'i': 4, 'f': 4, 'D': 5, 'l': 8, 'd': 8, 'T': 8, 'V': 0,
}

// readable reports whether the library reads a table.
func readable(table []byte, depth int) bool {
	for entries := 0; len(table) > 0; entries++ {
		name := 1 + int(table[0])
		if entries == maxEntries || len(table) <= name {
			return false
		}
		var ok bool
		if table, ok = skipValue(table[name:], depth); !ok {
			return false
		}
	}
	return depth <= maxDepth
}

// skipValue returns what is behind a value, which has its type before it.
func skipValue(b []byte, depth int) ([]byte, bool) {
	kind, b := b[0], b[1:]
	if size, ok := fixed[kind]; ok {
		return b[min(size, len(b)):], size <= len(b)
	}
	content, behind, ok := long(b)
	switch {
	case !ok:
		return nil, false
	case kind == 'S' || kind == 'x':
		return behind, true
	case kind == 'F':
		return behind, depth < maxDepth && readable(content, depth+1)
	case kind != 'A' || depth >= maxDepth:
		return nil, false
	}
	for entries := 0; len(content) > 0; entries++ {
		if content, ok = skipValue(content, depth+1); !ok || entries == maxEntries {
			return nil, false
		}
	}
	return behind, true
}
