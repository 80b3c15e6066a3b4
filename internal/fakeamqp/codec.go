package fakeamqp

import (
	"encoding/binary"
	"math"
	"time"
	"unicode/utf8"
)

// maxDepth bounds how deep tables and arrays may nest.
const maxDepth = 100

// args reads the arguments of a method, or properties. What can't be read sets bad,
// and everything after it is zero.
type args struct {
	b   []byte
	bad bool
}

func (a *args) take(n int) []byte {
	if a.bad || n < 0 || n > len(a.b) {
		a.bad = true
		return nil
	}
	out := a.b[:n:n]
	a.b = a.b[n:]
	return out
}

func (a *args) uint(size int) uint64 {
	var whole [8]byte
	copy(whole[8-size:], a.take(size))
	return binary.BigEndian.Uint64(whole[:])
}

func (a *args) octet() byte      { return byte(a.uint(1)) }
func (a *args) short() uint16    { return uint16(a.uint(2)) } //nolint:gosec // two bytes
func (a *args) long() uint32     { return uint32(a.uint(4)) } //nolint:gosec // four bytes
func (a *args) longlong() uint64 { return a.uint(8) }

// shortstr is at most 255 bytes of UTF-8 (AMQP 0-9-1, 4.2.5.3).
func (a *args) shortstr() string {
	text := a.take(int(a.octet()))
	if !utf8.Valid(text) {
		a.bad = true
	}
	return string(text)
}

func (a *args) longstr() string {
	n := a.long()
	if n > math.MaxInt32 {
		a.bad = true
		return ""
	}
	return string(a.take(int(n)))
}

// bits are up to eight flags in an octet, the first in its lowest bit; those beyond
// n have to be zero.
func (a *args) bits(n int) [8]bool {
	var out [8]bool
	b := a.octet()
	for i := range n {
		out[i] = b&(1<<i) != 0
	}
	if b>>n != 0 {
		a.bad = true
	}
	return out
}

func (a *args) table() map[string]any { return a.tableAt(0) }

func (a *args) tableAt(depth int) map[string]any {
	inner := args{b: a.take(int(a.long())), bad: a.bad || depth > maxDepth}
	out := map[string]any{}
	for len(inner.b) > 0 && !inner.bad {
		name := inner.shortstr()
		out[name] = inner.field(depth)
	}
	a.bad = a.bad || inner.bad
	return out
}

// field reads a value as RabbitMQ writes them
// (https://www.rabbitmq.com/amqp-0-9-1-errata#section_3).
func (a *args) field(depth int) any {
	switch a.octet() {
	case 't':
		return a.octet() != 0
	case 'b':
		return int8(a.octet()) //nolint:gosec // the same bits
	case 'B':
		return a.octet()
	case 's':
		return int16(a.short()) //nolint:gosec // the same bits
	case 'u':
		return a.short()
	case 'I':
		return int32(a.long()) //nolint:gosec // the same bits
	case 'i':
		return a.long()
	case 'l':
		return int64(a.longlong()) //nolint:gosec // the same bits
	case 'f':
		return math.Float32frombits(a.long())
	case 'd':
		return math.Float64frombits(a.longlong())
	case 'D':
		return [2]uint32{uint32(a.octet()), a.long()}
	case 'S', 'x':
		return a.longstr()
	case 'T':
		return time.Unix(int64(a.longlong()), 0) //nolint:gosec // the same bits
	case 'F':
		return a.tableAt(depth + 1)
	case 'A':
		inner := args{b: a.take(int(a.long())), bad: a.bad || depth > maxDepth}
		out := []any{}
		for len(inner.b) > 0 && !inner.bad {
			out = append(out, inner.field(depth+1))
		}
		a.bad = a.bad || inner.bad
		return out
	case 'V':
		return nil
	}
	a.bad = true
	return nil
}

// out writes arguments.
type out []byte

func (o out) octet(v byte) out      { return append(o, v) }
func (o out) short(v uint16) out    { return binary.BigEndian.AppendUint16(o, v) }
func (o out) long(v uint32) out     { return binary.BigEndian.AppendUint32(o, v) }
func (o out) longlong(v uint64) out { return binary.BigEndian.AppendUint64(o, v) }
func (o out) longstr(s string) out  { return append(o.long(uint32(len(s))), s...) } //nolint:gosec // our own

func (o out) shortstr(s string) out {
	s = s[:min(len(s), 255)]
	return append(o.octet(byte(len(s))), s...) //nolint:gosec // cut to 255
}

func (o out) bit(v bool) out {
	if v {
		return o.octet(1)
	}
	return o.octet(0)
}

// table writes strings, booleans, int64s and tables.
func (o out) table(t map[string]any) out {
	var inner out
	for name, value := range t {
		inner = inner.shortstr(name)
		switch v := value.(type) {
		case string:
			inner = inner.octet('S').longstr(v)
		case bool:
			inner = inner.octet('t').bit(v)
		case int64:
			inner = inner.octet('l').longlong(uint64(v)) //nolint:gosec // the same bits
		case map[string]any:
			inner = inner.octet('F').table(v)
		}
	}
	return o.longstr(string(inner))
}

// Which properties are there, from the content header's flags.
const (
	flagHeaders    = 1 << 13
	flagExpiration = 1 << 8
	flagUserID     = 1 << 4
)

// properties are those of a message: as they came, and what of them the broker
// looks at.
type properties struct {
	flags         uint16
	before, after []byte // the headers
	fields        []byte // of the headers table
	headers       map[string]any
	expiration    string
	userID        string
}

// properties reads the flags and the list of a content header.
func (a *args) properties() properties {
	p := properties{flags: a.short()}
	if p.flags&3 != 0 { // more flags, and one that does not exist
		a.bad = true
	}
	all := a.b
	for bit := 15; bit >= 2; bit-- {
		if bit == 13 {
			p.before = all[:len(all)-len(a.b)]
		}
		start := a.b
		if p.flags&(1<<bit) != 0 {
			switch bit {
			case 13:
				p.headers = a.table()
				if !a.bad {
					p.fields = start[4 : len(start)-len(a.b)]
				}
			case 12, 11: // delivery mode, priority
				a.octet()
			case 6: // timestamp
				a.longlong()
			case 8:
				p.expiration = a.shortstr()
			case 4:
				p.userID = a.shortstr()
			default:
				a.shortstr()
			}
		}
		if bit == 13 {
			p.after = a.b
		}
	}
	return p
}

// encode writes the properties, with one more header unless count is negative.
func (p properties) encode(count int64) out {
	flags, fields := p.flags, out(p.fields)
	if count >= 0 {
		flags |= flagHeaders
		fields = append(out(nil), fields...)
		fields = fields.shortstr("x-delivery-count").octet('l').longlong(uint64(count)) //nolint:gosec // not negative
	}
	o := append(out(nil).short(flags), p.before...)
	if flags&flagHeaders != 0 {
		o = o.longstr(string(fields))
	}
	return append(o, p.after...)
}
