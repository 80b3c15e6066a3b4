package messaging

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// Names of headers with a meaning. Transports spell them in their own way.
const (
	// HeaderOrderingKey carries [Envelope.OrderingKey] where there are only
	// headers. It never stands in [Envelope.Headers].
	HeaderOrderingKey = "gobridge-ordering-key"

	// HeaderTraceParent and HeaderTraceState carry the trace context (W3C Trace Context).
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"

	// HeaderBaggage carries W3C Baggage.
	HeaderBaggage = "baggage"

	// HeaderDeliveryCount and HeaderReceivedAt say how often and when a source
	// handed the message over; they differ between redeliveries.
	HeaderDeliveryCount = "gobridge-delivery-count"
	HeaderReceivedAt    = "gobridge-received-at"
)

// Headers are the names and values that go with a message.
type Headers map[string]string

// Size is the number of bytes of all names and values.
func (h Headers) Size() int {
	n := 0
	for k, v := range h {
		n += len(k) + len(v)
	}
	return n
}

// errHeaders says that bytes are no encoded headers.
var errHeaders = errors.New("headers: not an encoding of headers")

// MarshalBinary encodes h so that every byte survives and equal headers have
// equal encodings: the number of headers, then name and value of each in
// ascending order of names, every number and length as a varint. No headers
// are no bytes.
func (h Headers) MarshalBinary() ([]byte, error) {
	if len(h) == 0 {
		return nil, nil
	}
	out := make([]byte, 0, h.Size()+4*len(h)+4)
	out = binary.AppendUvarint(out, uint64(len(h)))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		out = binary.AppendUvarint(out, uint64(len(name)))
		out = append(out, name...)
		out = binary.AppendUvarint(out, uint64(len(h[name])))
		out = append(out, h[name]...)
	}
	return out, nil
}

// UnmarshalBinary decodes what [Headers.MarshalBinary] encoded, and refuses
// anything else. No bytes are no headers.
func (h *Headers) UnmarshalBinary(data []byte) error {
	if len(data) == 0 {
		*h = nil
		return nil
	}
	count, data, err := uvarint(data)
	if err != nil || count == 0 || count > uint64(len(data)) {
		return errHeaders
	}
	out := make(Headers, count)
	last := ""
	for i := range count {
		var name, value string
		if name, data, err = chunk(data); err != nil {
			return err
		}
		if value, data, err = chunk(data); err != nil {
			return err
		}
		if i > 0 && name <= last {
			return errHeaders
		}
		last = name
		out[name] = value
	}
	if len(data) != 0 {
		return errHeaders
	}
	*h = out
	return nil
}

// uvarint cuts a varint in its shortest form off data.
func uvarint(data []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(data)
	if n <= 0 || n > 1 && data[n-1] == 0 {
		return 0, nil, errHeaders
	}
	return v, data[n:], nil
}

// chunk cuts a length and that many bytes off data.
func chunk(data []byte) (string, []byte, error) {
	n, data, err := uvarint(data)
	if err != nil || n > uint64(len(data)) {
		return "", nil, errHeaders
	}
	return string(data[:n]), data[n:], nil
}
