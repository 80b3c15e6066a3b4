// Package messaging holds what travels: the envelope, its headers and its
// ordering key. It imports the standard library only.
package messaging

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Envelope is one message.
//
// Payload and Headers are carried byte for byte: NUL, invalid UTF-8 and empty
// values come out as they went in. Nothing in this module changes an Envelope
// that it was handed, and whoever hands one over must not change it afterwards.
type Envelope struct {
	// ID names the message. A message that comes again under the same ID is a
	// duplicate and is not delivered again while the store remembers it.
	ID string

	// Subject is what the message is about: a topic, an event type, a path.
	Subject string

	// OrderingKey groups messages that must arrive in order. Messages with the
	// same key reach a destination in age order; messages without one in any.
	// Transports that have only headers carry it as [HeaderOrderingKey].
	OrderingKey string

	// ContentType is the media type of Payload, empty when unknown.
	ContentType string

	// Headers go with the message. Names are compared exactly; by convention
	// they are lower case.
	Headers Headers

	// Payload is the body.
	Payload []byte

	// CreatedAt is when the message says it was made. It is carried, never
	// used for order, due times or expiry.
	CreatedAt time.Time

	// NotBefore, unless zero, is the earliest time of delivery.
	NotBefore time.Time

	// ExpiresAt, unless zero, is when the message stops being worth delivering.
	ExpiresAt time.Time
}

// NewID returns a new message ID: a version 7 UUID (RFC 9562, section 5.7),
// which sorts by the time it was made, to the millisecond.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // crypto/rand.Read never fails: it ends the process instead
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], b[0:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// JSON returns an envelope with a new ID whose payload is v encoded as JSON.
func JSON(subject string, v any) (Envelope, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return Envelope{}, fmt.Errorf("encode payload of %q as JSON: %w", subject, err)
	}
	return Envelope{
		ID:          NewID(),
		Subject:     subject,
		ContentType: "application/json",
		Payload:     payload,
		CreatedAt:   time.Now(),
	}, nil
}

// IsJSON reports whether ContentType says that the payload is JSON
// (application/json, or a +json suffix: RFC 6839, section 3.1).
func (e *Envelope) IsJSON() bool {
	media, _, _ := strings.Cut(e.ContentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/json" || strings.HasSuffix(media, "+json")
}
