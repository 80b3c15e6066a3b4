package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"

	"gobridge/messaging"
)

// message gives an evaluation what it asks for of an envelope. One serves one
// evaluation.
type message struct {
	envelope *messaging.Envelope
	payload  any // parsed when it is first asked for
}

// Parent is nil: there is nothing around a message.
func (m *message) Parent() interpreter.Activation { return nil }

// ResolveName returns a variable.
func (m *message) ResolveName(name string) (any, bool) {
	e := m.envelope
	switch name {
	case "id":
		return e.ID, true
	case "subject":
		return e.Subject, true
	case "key":
		return e.OrderingKey, true
	case "content_type":
		return e.ContentType, true
	case "headers":
		return map[string]string(e.Headers), true
	case "payload":
		return m.parsed(), true
	case "payload_size":
		return int64(len(e.Payload)), true
	case "created_at":
		return e.CreatedAt, true
	}
	return nil, false
}

// parsed returns the payload as CEL sees it, or a CEL error.
func (m *message) parsed() any {
	if m.payload == nil {
		v, err := parse(m.envelope.Payload)
		switch {
		case err != nil:
			m.payload = types.WrapErr(err)
		case v == nil:
			m.payload = types.NullValue
		default:
			m.payload = v
		}
	}
	return m.payload
}

// parse reads one JSON value. Numbers become int64, uint64 or float64, the
// first that holds them exactly; what none does is the nearest float64.
func parse(payload []byte) (any, error) {
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("the payload has %d bytes; expressions read up to %d", len(payload), maxPayload)
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the payload is empty, not JSON")
		}
		return nil, fmt.Errorf("the payload is not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the payload is not JSON: something follows the first value")
	}
	return numbers(v), nil
}

// numbers replaces every json.Number in v, in place where it can.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = numbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = numbers(e)
		}
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return n
		}
		f, _ := strconv.ParseFloat(string(v), 64) // out of range is infinite, the nearest there is
		return f
	}
	return v
}
