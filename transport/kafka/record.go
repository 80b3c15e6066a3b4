package kafka

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// Headers of a message that tell what only Kafka tells apart. A sender to Kafka
// turns them back; their value is "true".
const (
	// HeaderNullValue says that a record has no value, which is not the same as an
	// empty one: a tombstone, where the topic is compacted.
	HeaderNullValue = "kafka-null-value"
	// HeaderEmptyKey says that a record has a key, an empty one.
	HeaderEmptyKey = "kafka-empty-key"
)

// HeaderTimestamp has a record's timestamp as it came, where that is no time from
// 1970 to 2261 in milliseconds: producers that count in microseconds make such.
const HeaderTimestamp = "kafka-timestamp"

// lastTime is beyond the times that an envelope can have.
var lastTime = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	headerContentType = "content-type" // CloudEvents Kafka binding 1.0.2, section 3.2.1
	headerOrderingKey = messaging.HeaderOrderingKey
	isSo              = "true"
)

// protocol has the prefix of CloudEvents attributes (Kafka binding 1.0.2, section
// 3.2.3.1).
var protocol = mapping.Protocol{CloudEvents: "ce_"}

// Order is what messages of a source must keep their order within.
type Order int

// The orders.
const (
	// ByKey keeps the order of messages with the same key.
	ByKey Order = iota
	// ByPartition keeps the order of everything in a partition.
	ByPartition
)

// incoming makes a message of a record.
func incoming(r *kgo.Record, topicID [16]byte, order Order) gobridge.Incoming {
	m := mapping.Message{Payload: r.Value, Pairs: make([]mapping.Pair, 0, len(r.Headers))}
	typed := false
	for _, h := range r.Headers {
		if !typed && strings.EqualFold(h.Key, headerContentType) {
			m.ContentType, typed = string(h.Value), true
			continue
		}
		m.Pairs = append(m.Pairs, mapping.Pair{Name: h.Key, Value: string(h.Value)})
	}
	e, err := protocol.Decode(m)
	if e.ID == "" {
		e.ID = place(r, topicID)
	}
	if e.Subject == "" {
		e.Subject = r.Topic
	}
	switch stamp := r.Timestamp; {
	case !e.CreatedAt.IsZero() || stamp.UnixMilli() <= 0:
	case stamp.Before(lastTime):
		e.CreatedAt = stamp.UTC()
	default:
		note(&e, HeaderTimestamp, strconv.FormatInt(stamp.UnixMilli(), 10))
	}
	if e.OrderingKey == "" {
		e.OrderingKey = string(r.Key)
	}
	if order == ByPartition {
		e.OrderingKey = r.Topic + "/" + strconv.Itoa(int(r.Partition))
	}
	if r.Value == nil {
		note(&e, HeaderNullValue, isSo)
	}
	if r.Key != nil && len(r.Key) == 0 {
		note(&e, HeaderEmptyKey, isSo)
	}
	return gobridge.Incoming{Envelope: e, Reject: err}
}

func note(e *messaging.Envelope, name, value string) {
	if e.Headers == nil {
		e.Headers = messaging.Headers{}
	}
	e.Headers[name] = value
}

// place is the identity of a record whose producer gave it none.
func place(r *kgo.Record, topicID [16]byte) string {
	if topicID != ([16]byte{}) {
		return fmt.Sprintf("kafka/%s/%d/%d", base64.RawURLEncoding.EncodeToString(topicID[:]), r.Partition, r.Offset)
	}
	topic := r.Topic
	if len(topic) > 128 { // an ID has its bound too
		digest := sha256.Sum256([]byte(topic))
		topic = hex.EncodeToString(digest[:])
	}
	return fmt.Sprintf("kafka/%s/%d/%d/%d", topic, r.Partition, r.Offset, r.Timestamp.UnixMilli())
}

// record makes a record of a delivery.
func (s *Sender) record(d *gobridge.Delivery) (*kgo.Record, error) {
	e := &d.Envelope
	topic, err := s.topicOf(e)
	if err != nil {
		return nil, err
	}
	key, err := s.keyOf(e)
	if err != nil {
		return nil, err
	}
	tombstone := len(e.Payload) == 0 && e.Headers[HeaderNullValue] == isSo
	format := s.options.Format
	if tombstone && format == mapping.Structured {
		format = mapping.Binary // an event in JSON would be a value
	}
	m, err := protocol.Encode(d, format)
	if err != nil {
		return nil, err
	}
	r := &kgo.Record{Topic: topic, Key: key, Headers: make([]kgo.RecordHeader, 0, len(m.Pairs)+len(s.names)+1)}
	if !tombstone {
		r.Value = m.Payload
		if r.Value == nil {
			r.Value = []byte{} // nil would be a tombstone
		}
	}
	add := func(name, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	if m.ContentType != "" {
		add(headerContentType, m.ContentType)
	}
	for _, p := range m.Pairs {
		switch {
		case p.Name == HeaderNullValue && tombstone, p.Name == HeaderEmptyKey && key != nil && len(key) == 0:
			continue // said by the record
		case p.Name == headerOrderingKey && format == mapping.Plain && p.Value == string(key):
			continue // said by the key
		case s.options.Headers[p.Name] != nil:
			continue // the binding's own come below
		}
		add(p.Name, p.Value)
	}
	for _, name := range s.names {
		value, err := s.options.Headers[name](e)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		if value != "" {
			add(name, value)
		}
	}
	return r, nil
}

// keyOf is the record's key: nil for none.
func (s *Sender) keyOf(e *messaging.Envelope) ([]byte, error) {
	key := e.OrderingKey
	if s.options.KeyFrom != nil {
		var err error
		if key, err = s.options.KeyFrom(e); err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
	}
	if key == "" && e.Headers[HeaderEmptyKey] != isSo {
		return nil, nil
	}
	return []byte(key), nil
}

func (s *Sender) topicOf(e *messaging.Envelope) (string, error) {
	if s.options.TopicFrom == nil {
		return s.options.Topic, nil
	}
	topic, err := s.options.TopicFrom(e)
	if err == nil {
		err = CheckTopic(topic)
	}
	if err != nil {
		return "", fmt.Errorf("topic: %w", err)
	}
	return topic, nil
}

// CheckTopic returns what is wrong with the name of a topic (org.apache.kafka
// Topic.validate: 1 to 249 letters, digits, dots, underscores and hyphens).
func CheckTopic(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name of the topic is empty")
	case len(name) > 249:
		return fmt.Errorf("the name of the topic has %d characters; the limit is 249", len(name))
	case name == "." || name == "..":
		return fmt.Errorf("%q is no name of a topic", name)
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("%q is no name of a topic: it has letters, digits, '.', '_' and '-' only", name)
		}
	}
	return nil
}

// size is how many bytes a batch with only this record has, uncompressed, at most
// (Kafka protocol, record batch of version 2).
func size(r *kgo.Record) int {
	const overhead = 70 // of the batch, and what says how long it is
	n := 1 + 1 + 1 + varint(len(r.Key)) + len(r.Key) + varint(len(r.Value)) + len(r.Value) + varint(len(r.Headers))
	for _, h := range r.Headers {
		n += varint(len(h.Key)) + len(h.Key) + varint(len(h.Value)) + len(h.Value)
	}
	return overhead + varint(n) + n
}

// varint is how many bytes a length has, in zigzag encoding.
func varint(n int) int {
	size := 1
	for n >= 64 {
		n >>= 7
		size++
	}
	return size
}

func names(headers map[string]func(*messaging.Envelope) (string, error)) []string {
	return slices.Sorted(maps.Keys(headers))
}
