package amqp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// frameOf is a frame with the payload.
func frameOf(kind byte, payload []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{kind, 0, 1}, uint32(len(payload)))
	return append(append(out, payload...), 0xce)
}

// propertiesOf is a frame of properties with a content type and headers.
func propertiesOf(table []byte) []byte {
	payload := append(make([]byte, 12), 0xa0, 0, 1, 'c')
	payload = binary.BigEndian.AppendUint32(payload, uint32(len(table)))
	return frameOf(headerFrame, append(append(payload, table...), "rest"...))
}

// What is there after wrapping is a frame that the library reads, and nothing of the
// message is lost.
func FuzzWrapped(f *testing.F) {
	f.Add([]byte("\x01aS\x00\x00\x00\x01v"))
	f.Add([]byte("\x01aF\x00\x00\x00\x03\x01bV"))
	f.Add([]byte("\x01aA\x00\x00\x00\x01?"))
	f.Add([]byte("\x01"))
	f.Fuzz(func(t *testing.T, table []byte) {
		frame := propertiesOf(table)
		got := wrapped(bytes.Clone(frame))
		if !bytes.Equal(wrapped(bytes.Clone(got)), got) {
			t.Fatalf("%q is wrapped twice", table)
		}
		if same := bytes.Equal(got, frame); same != readable(table, 0) {
			t.Fatalf("%q: as it was: %v", table, same)
		}
		if size := binary.BigEndian.Uint32(got[3:]); int(size) != len(got)-frameHead-1 || got[len(got)-1] != 0xce || !bytes.Contains(got, table) {
			t.Fatalf("%q became %q", table, got)
		}
	})
}

// Frames go through as they are, in whatever pieces they come, and properties that
// are no properties are left to the library.
func FuzzIntake(f *testing.F) {
	f.Add(frameOf(methodFrame, []byte(tune+"\x07\xff\x00\x02\x00\x00\x00\x3c")))
	f.Add(append(frameOf(3, []byte("body")), propertiesOf(nil)...))
	f.Add([]byte("AMQP\x00\x00\x09\x01"))
	f.Add([]byte{headerFrame, 0, 1, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		read := func(from io.Reader) ([]byte, error) {
			i := newIntake(&wire{readOnly{from: from}})
			return io.ReadAll(i)
		}
		at, err := read(bytes.NewReader(stream))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		pieces, _ := read(iotest.OneByteReader(bytes.NewReader(stream)))
		if !bytes.Equal(at, pieces) {
			t.Fatalf("%q in pieces, %q at once", pieces, at)
		}
	})
}

// readOnly is a connection that is read from.
type readOnly struct {
	net.Conn
	from io.Reader
}

func (r readOnly) Read(p []byte) (int, error) { return r.from.Read(p) }
func (readOnly) Close() error                 { return nil }
