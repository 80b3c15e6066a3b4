package messaging

import (
	"crypto/sha256"
	"encoding/binary"
)

// Hash is a digest of an envelope's content.
type Hash [sha256.Size]byte

// ContentHash digests what e says: subject, ordering key, content type,
// payload and headers. It leaves out the ID, every time, and the headers that
// differ between two deliveries of one message (trace context, delivery count,
// time of receipt), so that a redelivery has the hash of the first delivery and
// another message under the same ID has not.
func ContentHash(e *Envelope) Hash {
	d := sha256.New()
	var size [8]byte
	write := func(s string) {
		binary.BigEndian.PutUint64(size[:], uint64(len(s)))
		d.Write(size[:])
		d.Write([]byte(s))
	}
	write(e.Subject)
	write(e.OrderingKey)
	write(e.ContentType)
	binary.BigEndian.PutUint64(size[:], uint64(len(e.Payload)))
	d.Write(size[:])
	d.Write(e.Payload)
	lasting := make(Headers, len(e.Headers))
	for name, value := range e.Headers {
		switch name {
		case HeaderTraceParent, HeaderTraceState, HeaderBaggage, HeaderDeliveryCount, HeaderReceivedAt:
		default:
			lasting[name] = value
		}
	}
	encoded, _ := lasting.MarshalBinary() // never fails
	d.Write(encoded)
	var h Hash
	d.Sum(h[:0])
	return h
}
