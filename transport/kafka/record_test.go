package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
)

// TestTimestampsOfAnyUnit: a producer that counts in microseconds where Kafka has
// milliseconds makes no dead letters of good messages.
func TestTimestampsOfAnyUnit(t *testing.T) {
	right := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		at     time.Time
		want   time.Time
		header string
	}{
		"milliseconds": {right, right, ""},
		"microseconds": {time.UnixMilli(right.UnixMicro()), time.Time{}, "1777636800000000"},
		"none":         {time.UnixMilli(-1), time.Time{}, ""},
	} {
		in := incoming(&kgo.Record{Topic: "t", Value: []byte("x"), Timestamp: c.at}, [16]byte{1}, ByKey)
		if err := (gobridge.Limits{}).CheckEnvelope(&in.Envelope); err != nil || in.Reject != nil {
			t.Errorf("%s: no outbox would take it: %v, %v", name, err, in.Reject)
		}
		if !in.Envelope.CreatedAt.Equal(c.want) || in.Envelope.Headers[HeaderTimestamp] != c.header {
			t.Errorf("%s: created at %s, timestamp %q", name, in.Envelope.CreatedAt, in.Envelope.Headers[HeaderTimestamp])
		}
	}
}
