package fakeamqp_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// rawConn speaks to a server byte by byte.
type rawConn struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func frame(typ byte, channel uint16, payload ...byte) []byte {
	out := binary.BigEndian.AppendUint16([]byte{typ}, channel)
	out = binary.BigEndian.AppendUint32(out, uint32(len(payload))) //nolint:gosec // short
	return append(append(out, payload...), 0xCE)
}

func method(channel, class, id uint16, arguments ...byte) []byte {
	payload := binary.BigEndian.AppendUint16(nil, class)
	payload = binary.BigEndian.AppendUint16(payload, id)
	return frame(1, channel, append(payload, arguments...)...)
}

func shortstr(s string) []byte { return append([]byte{byte(len(s))}, s...) } //nolint:gosec // short

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// open logs in and opens channel 1.
func (s server) open(t *testing.T) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	r := &rawConn{t: t, conn: conn, in: bufio.NewReader(conn)}
	r.write([]byte("AMQP\x00\x00\x09\x01"))
	r.expect(10, 10)
	response := "\x00" + s.user + "\x00" + s.password
	r.write(method(0, 10, 11, join([]byte{0, 0, 0, 0}, shortstr("PLAIN"), []byte{0, 0, 0, byte(len(response))}, []byte(response), shortstr("en_US"))...)) //nolint:gosec // short
	r.expect(10, 30)
	r.write(method(0, 10, 31, 0, 10, 0, 0, 0x10, 0, 0, 0)) // 10 channels, frames of 4096 bytes, no heartbeat
	r.write(method(0, 10, 40, join(shortstr("/"), shortstr(""), []byte{0})...))
	r.expect(10, 41)
	r.write(method(1, 20, 10, 0))
	r.expect(20, 11)
	return r
}

func (r *rawConn) write(b []byte) {
	r.t.Helper()
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// next returns the next method.
func (r *rawConn) next() (class, id uint16, arguments []byte) {
	r.t.Helper()
	var head [7]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		r.t.Fatal(err)
	}
	payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	if _, err := io.ReadFull(r.in, payload); err != nil {
		r.t.Fatal(err)
	}
	return binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]), payload[4:]
}

func (r *rawConn) expect(class, id uint16) {
	r.t.Helper()
	if c, i, _ := r.next(); c != class || i != id {
		r.t.Fatalf("method %d.%d came, want %d.%d", c, i, class, id)
	}
}

// TestWireViolations looks at what the server ends a connection for.
func TestWireViolations(t *testing.T) {
	publish := method(1, 60, 40, join([]byte{0, 0}, shortstr(""), shortstr("k"), []byte{0})...)
	header := func(size byte) []byte {
		return frame(2, 1, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, size, 0, 0)
	}
	for what, c := range map[string]struct {
		code  uint16
		bytes []byte
	}{
		"no frame end":             {501, append(frame(1, 1, 0, 60, 0, 10)[:11], 0)},
		"frame above the limit":    {501, frame(3, 1, make([]byte, 5000)...)},
		"unknown type of frame":    {501, frame(7, 1, 0)},
		"method without content":   {505, join(publish, publish)},
		"content without method":   {505, header(1)},
		"body before its header":   {505, join(publish, frame(3, 1, 'x'))},
		"header twice":             {505, join(publish, header(1), header(1))},
		"channel that is not open": {504, method(2, 85, 10, 0)},
		"channel opened twice":     {504, method(1, 20, 10, 0)},
		"immediate":                {540, join(method(1, 60, 40, join([]byte{0, 0}, shortstr(""), shortstr("k"), []byte{2})...), header(0))},
		"prefetch in bytes":        {540, method(1, 60, 10, 0, 0, 0, 1, 0, 0, 0)},
		"arguments too short":      {501, method(1, 60, 10, 0, 0)},
	} {
		t.Run(what, func(t *testing.T) {
			each(t, func(t *testing.T, s server) {
				r := s.open(t)
				r.write(c.bytes)
				class, id, arguments := r.next()
				if class != 10 || id != 50 {
					t.Fatalf("method %d.%d came, want connection.close", class, id)
				}
				if code := binary.BigEndian.Uint16(arguments); code != c.code {
					t.Errorf("closed with %d %q, want %d", code, arguments[3:3+arguments[2]], c.code)
				}
			})
		})
	}
}
