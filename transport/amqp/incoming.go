package amqp

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// Headers that stand for what AMQP has as properties of a message, and for where
// it came from.
const (
	headerEncoding    = "content-encoding"
	headerCorrelation = "amqp-correlation-id"
	headerReplyTo     = "amqp-reply-to"
	headerType        = "amqp-type"
	headerAppID       = "amqp-app-id"
	headerUserID      = "amqp-user-id"
	headerPriority    = "amqp-priority"
	headerExchange    = "amqp-exchange"
	headerTimestamp   = "amqp-timestamp"
)

// Headers by which RabbitMQ counts deliveries: they differ between redeliveries.
const (
	deliveryCount = "x-delivery-count"
	acquiredCount = "x-acquired-count"
)

// streamOffset is the header by which streams number their messages, an int64.
const streamOffset = "x-stream-offset"

// Headers by which RabbitMQ routes to further keys.
const (
	headerCC  = "CC"
	headerBCC = "BCC"
)

// protocol is how messages travel in AMQP 0-9-1.
var protocol = mapping.Protocol{CloudEvents: "cloudEvents:", Carries: carries}

// Dedupe says what the identity of a message is that has neither gobridge's own
// nor that of a CloudEvent.
type Dedupe int

// The identities.
const (
	// ByMessageID is the property message-id.
	ByMessageID Dedupe = iota
	// ByNothing: each delivery is a message of its own.
	ByNothing
)

// endOfTime is the first second that no message can have as its time of creation:
// the beginning of 2262.
const endOfTime = 9214646400

// incoming makes a message of a delivery.
func incoming(d *amqp091.Delivery, dedupe Dedupe) gobridge.Incoming {
	m := mapping.Message{ContentType: d.ContentType, Pairs: pairs(d), Payload: d.Body}
	e, err := protocol.Decode(m)
	if _, ok := d.Headers[unreadable]; ok { // by its name it is refused already
		err = errUnreadable
	}
	if e.Headers == nil {
		e.Headers = messaging.Headers{}
	}
	if e.ID == "" && dedupe == ByMessageID {
		e.ID = d.MessageId
	}
	if e.Subject == "" {
		e.Subject = d.RoutingKey
	}
	switch seconds := d.Timestamp.Unix(); {
	case d.Timestamp.IsZero():
	case seconds <= 0 || seconds >= endOfTime: // milliseconds, as a rule
		e.Headers[headerTimestamp] = strconv.FormatInt(seconds, 10)
	case e.CreatedAt.IsZero():
		e.CreatedAt = d.Timestamp.UTC()
	}
	for name, value := range described(d) {
		e.Headers[name] = value
	}
	if n := deliveries(d); n > 1 {
		e.Headers[messaging.HeaderDeliveryCount] = strconv.FormatInt(n, 10)
	}
	return gobridge.Incoming{Envelope: e, Reject: err}
}

// errUnreadable says that a message has headers that the client library can't read.
var errUnreadable = fmt.Errorf("its headers can't be read: a table has more than %d entries, or more than %d are in each other, or a value has a type that is none; %s has them as they came",
	maxEntries, maxDepth, unreadable)

// described are the headers that stand for properties.
func described(d *amqp091.Delivery) map[string]string {
	out := map[string]string{}
	for name, value := range map[string]string{
		headerEncoding: d.ContentEncoding, headerCorrelation: d.CorrelationId, headerReplyTo: d.ReplyTo,
		headerType: d.Type, headerAppID: d.AppId, headerUserID: d.UserId, headerExchange: d.Exchange,
	} {
		if value != "" {
			out[name] = value
		}
	}
	if d.Priority > 0 {
		out[headerPriority] = strconv.Itoa(int(d.Priority))
	}
	return out
}

// deliveries is how often the message was delivered at least, this time included.
func deliveries(d *amqp091.Delivery) int64 {
	if n, ok := integer(d.Headers[deliveryCount]); ok && n >= 0 && n < math.MaxInt64 {
		return n + 1
	}
	if d.Redelivered {
		return 2
	}
	return 1
}

func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int32:
		return int64(n), true
	case int16:
		return int64(n), true
	case int8:
		return int64(n), true
	case byte:
		return int64(n), true
	case uint16:
		return int64(n), true
	case uint32:
		return int64(n), true
	}
	return 0, false
}

// pairs are the headers that came, in ascending order of names. Those whose name
// stands for a property are none: the property says it.
func pairs(d *amqp091.Delivery) []mapping.Pair {
	out := make([]mapping.Pair, 0, len(d.Headers))
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		switch name {
		case deliveryCount, acquiredCount, headerCorrelation, headerReplyTo, headerType, headerAppID, headerUserID, headerPriority,
			headerExchange, headerTimestamp:
			continue
		}
		out = append(out, mapping.Pair{Name: name, Value: text(d.Headers[name])})
	}
	return out
}

// text is a value of a headers table as a header has it: strings and bytes as they
// are, numbers in decimal, times as RFC 3339, nothing as the empty text, tables and
// arrays as JSON.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp091.Decimal:
		return decimal(v)
	case amqp091.Table, []any:
		encoded, err := json.Marshal(plain(v))
		if err != nil { // what plain returns can be encoded
			return fmt.Sprint(v)
		}
		return string(encoded)
	}
	if n, ok := integer(value); ok {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprint(value)
}

// plain is a value as JSON has it: numbers stay numbers.
func plain(value any) any {
	switch v := value.(type) {
	case nil, bool:
		return v
	case amqp091.Table:
		out := make(map[string]any, len(v))
		for name, inner := range v {
			out[name] = plain(inner)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = plain(inner)
		}
		return out
	}
	if n, ok := integer(value); ok {
		return n
	}
	written := text(value)
	switch v := value.(type) {
	case amqp091.Decimal:
		return json.Number(written)
	case float32:
		return finite(float64(v), written)
	case float64:
		return finite(v, written)
	}
	return written
}

// finite is a number, or its name for one that JSON has no number for.
func finite(v float64, written string) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return written
	}
	return v
}

// decimal writes a number with Scale digits behind its point.
func decimal(d amqp091.Decimal) string {
	digits, sign := strconv.FormatInt(int64(d.Value), 10), ""
	if rest, negative := strings.CutPrefix(digits, "-"); negative {
		digits, sign = rest, "-"
	}
	scale := int(d.Scale)
	if scale == 0 {
		return sign + digits
	}
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}
