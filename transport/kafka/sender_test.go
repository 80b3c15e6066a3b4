package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

func newSender(t *testing.T, conn *Connection, options SenderOptions) *Sender {
	t.Helper()
	s, err := conn.Sender(options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t *testing.T, s *Sender, envelopes ...messaging.Envelope) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	batch := make([]gobridge.Delivery, len(envelopes))
	for i, e := range envelopes {
		batch[i] = gobridge.Delivery{Envelope: e, Route: "orders", Binding: "lake", Partition: "orders/lake/0", Attempt: 2, Seq: 7, Token: gobridge.Token{Version: 3}}
	}
	return s.Send(ctx, batch)
}

func outcomes(errs []error) []gobridge.Outcome {
	out := make([]gobridge.Outcome, len(errs))
	for i, err := range errs {
		out[i], _ = gobridge.Classify(err)
	}
	return out
}

// The vectors are those of the Java client's own test of murmur2 (UtilsTest), of
// which the partition is the hash without its sign, modulo the partitions.
func TestKeysAreInThePartitionsOfTheJavaClient(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 7, nil)
	hashes := map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	}
	s := newSender(t, f.connect(t), SenderOptions{Topic: topic})
	for key := range hashes {
		if errs := send(t, s, messaging.Envelope{ID: key, OrderingKey: key}); errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	got := f.all(t, topic)
	if len(got) != len(hashes) {
		t.Fatalf("%d records, want %d", len(got), len(hashes))
	}
	for _, r := range got {
		if want := (hashes[string(r.Key)] & 0x7fffffff) % 7; r.Partition != want {
			t.Errorf("key %q is in partition %d, want %d", r.Key, r.Partition, want)
		}
	}
}

func TestWhatOfAMessageBecomesARecord(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	text := func(s string) func(*messaging.Envelope) (string, error) {
		return func(*messaging.Envelope) (string, error) { return s, nil }
	}
	conn := f.connect(t)
	plain := newSender(t, conn, SenderOptions{Topic: topic, Headers: map[string]func(*messaging.Envelope) (string, error){"x-region": text("eu")}})
	keyed := newSender(t, conn, SenderOptions{TopicFrom: text(topic), KeyFrom: func(e *messaging.Envelope) (string, error) { return e.Subject, nil }})
	event := newSender(t, conn, SenderOptions{Topic: topic, Format: mapping.Structured})
	e := messaging.Envelope{
		ID: "m-1", Subject: "order.placed", OrderingKey: "k\xff", ContentType: "application/json", Payload: []byte(`{"n":1}`),
		Headers: messaging.Headers{"x-region": "us", "x-bytes": "\x00\xfe", messaging.HeaderTraceParent: "00-1"},
	}
	null := messaging.Envelope{ID: "m-2", OrderingKey: "k", Headers: messaging.Headers{HeaderNullValue: "true"}}
	for _, s := range []struct {
		sender *Sender
		e      messaging.Envelope
	}{
		{plain, e}, {keyed, e}, {plain, null}, {event, null}, {plain, messaging.Envelope{ID: "m-3"}},
		{plain, messaging.Envelope{ID: "m-4", Headers: messaging.Headers{HeaderEmptyKey: "true"}}},
		{plain, messaging.Envelope{ID: "m-5", Payload: []byte("x"), Headers: messaging.Headers{HeaderNullValue: "true"}}},
		{event, messaging.Envelope{ID: "m-6", Subject: "s", ContentType: "application/json", Payload: []byte(`{"n":2}`)}},
	} {
		if errs := send(t, s.sender, s.e); errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	got := f.all(t, topic)
	headers := func(i int) map[string]string {
		out := map[string]string{}
		for _, h := range got[i].Headers {
			if _, twice := out[h.Key]; twice {
				t.Errorf("record %d has %s twice", i, h.Key)
			}
			out[h.Key] = string(h.Value)
		}
		return out
	}
	if r := got[0]; string(r.Key) != "k\xff" || string(r.Value) != `{"n":1}` {
		t.Errorf("got %q %q", r.Key, r.Value)
	}
	if h, want := headers(0), map[string]string{
		"content-type": "application/json", "gobridge-id": "m-1", "gobridge-subject": "order.placed", "x-region": "eu", "x-bytes": "\x00\xfe", "traceparent": "00-1",
		"gobridge-route": "orders", "gobridge-binding": "lake", "gobridge-partition": "orders/lake/0", "gobridge-seq": "7", "gobridge-token-version": "3", "gobridge-attempt": "2",
	}; !maps.Equal(h, want) {
		t.Errorf("headers\n got %q\nwant %q", h, want)
	}
	if r := got[1]; string(r.Key) != "order.placed" || headers(1)["gobridge-ordering-key"] != "k\xff" {
		t.Errorf("with a key of its own: %q, %q", r.Key, headers(1))
	}
	for i, what := range map[int]string{2: "plain", 3: "structured"} {
		if r := got[i]; r.Value != nil || string(r.Key) != "k" || headers(i)[HeaderNullValue] != "" {
			t.Errorf("%s: the tombstone is %q, want no value and no header that says so", what, r.Value)
		}
	}
	if r := got[4]; r.Key != nil || r.Value == nil {
		t.Errorf("without a key and payload: key %v, value %v; want none and an empty one", r.Key, r.Value)
	}
	if r := got[5]; r.Key == nil {
		t.Error("an empty key is no key")
	}
	if r := got[6]; string(r.Value) != "x" {
		t.Errorf("a payload that is there was taken for a tombstone: %q", r.Value)
	}
	if headers(7)["content-type"] != "application/cloudevents+json" && !strings.HasPrefix(headers(7)["content-type"], "application/cloudevents+json;") {
		t.Errorf("an event in JSON has the content type %q", headers(7)["content-type"])
	}
	// And back again.
	for i, want := range map[int]messaging.Envelope{0: e, 1: e} {
		back := incoming(got[i], [16]byte{1}, ByKey).Envelope
		if back.ID != want.ID || back.OrderingKey != want.OrderingKey || back.Subject != want.Subject {
			t.Errorf("record %d comes back as %+v", i, back)
		}
	}
}

// One that the broker refuses is refused alone, though it shared a batch.
func TestOneRecordThatIsRefused(t *testing.T) {
	f := startFake(t)

	topic := f.topic(t, 1, map[string]string{"max.message.bytes": "2000"})
	s := newSender(t, f.connect(t), SenderOptions{Topic: topic, Compression: "none"})
	size := func(id string, n int) messaging.Envelope {
		return messaging.Envelope{ID: id, OrderingKey: id, Payload: bytes.Repeat([]byte(id), n)}
	}
	errs := send(t, s, size("a", 1000), size("b", 3000), size("c", 1000), size("d", 2<<20), size("e", 10))
	want := []gobridge.Outcome{gobridge.OutcomeDelivered, gobridge.OutcomePermanent, gobridge.OutcomeDelivered, gobridge.OutcomePermanent, gobridge.OutcomeDelivered}
	if got := outcomes(errs); !slices.Equal(got, want) {
		t.Fatalf("got %v: %v", got, errs)
	}
	var ids []string
	for _, r := range f.all(t, topic) {
		ids = append(ids, idOf(r))
	}
	slices.Sort(ids)
	if !slices.Equal(slices.Compact(ids), []string{"a", "c", "e"}) {
		t.Errorf("there are %q", ids)
	}
}

func TestTopicThatIsNotThere(t *testing.T) {
	f := startFake(t)
	s := newSender(t, f.connect(t), SenderOptions{Topic: "later"})
	e := messaging.Envelope{ID: "m", OrderingKey: "k"}
	wantUnavailable(t, send(t, s, e)[0], "later", "UNKNOWN_TOPIC_OR_PARTITION")
	for range 2 { // made, and made again
		if err := f.CreateTopic("later", 1, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a delivery", func() bool { return send(t, s, e)[0] == nil })
		if n := len(f.all(t, "later")); n == 0 {
			t.Errorf("it was answered as delivered, and the topic is empty")
		}
		if err := f.DeleteTopic("later"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFront(t *testing.T) {
	f := startFake(t)
	conn := f.connect(t)
	failing := func(*messaging.Envelope) (string, error) { return "", errors.New("no such field") }
	odd := func(e *messaging.Envelope) (string, error) { return e.Subject, nil }
	for name, c := range map[string]struct {
		options SenderOptions
		e       messaging.Envelope
		want    string // empty if nothing speaks against it
	}{
		"fits":            {SenderOptions{Topic: "t"}, messaging.Envelope{ID: "m", Payload: make([]byte, 900_000)}, ""},
		"payload":         {SenderOptions{Topic: "t"}, messaging.Envelope{ID: "m", Payload: make([]byte, 1_000_000)}, "the limit is 1000000"},
		"headers":         {SenderOptions{Topic: "t", MaxMessageBytes: 2048}, messaging.Envelope{ID: "m", Headers: messaging.Headers{"x": strings.Repeat("x", 2000)}}, "the limit is 2048"},
		"topic fails":     {SenderOptions{TopicFrom: failing}, messaging.Envelope{ID: "m"}, "topic: no such field"},
		"topic is none":   {SenderOptions{TopicFrom: odd}, messaging.Envelope{ID: "m", Subject: "a b"}, `"a b" is no name of a topic`},
		"topic is empty":  {SenderOptions{TopicFrom: odd}, messaging.Envelope{ID: "m"}, "is empty"},
		"topic is long":   {SenderOptions{TopicFrom: odd}, messaging.Envelope{ID: "m", Subject: strings.Repeat("a", 250)}, "250 characters; the limit is 249"},
		"key fails":       {SenderOptions{Topic: "t", KeyFrom: failing}, messaging.Envelope{ID: "m"}, "key: no such field"},
		"header fails":    {SenderOptions{Topic: "t", Headers: map[string]func(*messaging.Envelope) (string, error){"x": failing}}, messaging.Envelope{ID: "m"}, "header x: no such field"},
		"event has no ID": {SenderOptions{Topic: "t", Format: mapping.Binary}, messaging.Envelope{ID: "\x00"}, "ID"},
	} {
		s := newSender(t, conn, c.options)
		err := s.Carry(&c.e)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if c.want != "" && !strings.Contains(c.want, "limit is ") { // nobody asked before: it is refused for good
			if got := outcomes(send(t, s, c.e)); got[0] != gobridge.OutcomePermanent {
				t.Errorf("%s: sent all the same, it has the outcome %d", name, got[0])
			}
		}
	}
}

// What passes the front door fits, with all that is added for the delivery.
func TestWhatFitsIsDelivered(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	s := newSender(t, f.connect(t), SenderOptions{Topic: topic, MaxMessageBytes: 20_000, Compression: "none"})
	n := 10_000
	for ; s.Carry(&messaging.Envelope{ID: "m", OrderingKey: "k", Payload: make([]byte, n+1)}) == nil; n++ {
	}
	name := strings.Repeat("r", 64)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := s.Send(ctx, []gobridge.Delivery{{
		Envelope: messaging.Envelope{ID: "m", OrderingKey: "k", Payload: make([]byte, n)}, Route: name, Binding: name,
		Partition: gobridge.Partition(name + "/" + name + "/255.256"), Attempt: 1 << 30, Redrives: 1 << 30, Seq: 1 << 62, Token: gobridge.Token{Version: 1 << 62},
	}})
	if errs[0] != nil {
		t.Errorf("the front door lets %d bytes in, and they don't fit: %v", n, errs[0])
	}
}

func TestWhatAnswersMean(t *testing.T) {
	for _, c := range []struct {
		err  error
		want gobridge.Outcome
	}{
		{nil, gobridge.OutcomeDelivered},
		{kerr.MessageTooLarge, gobridge.OutcomePermanent},
		{fmt.Errorf("%w (uncompressed_bytes=7)", kerr.MessageTooLarge), gobridge.OutcomePermanent},
		{kerr.RecordListTooLarge, gobridge.OutcomePermanent},
		{kerr.InvalidRecord, gobridge.OutcomePermanent},
		{kerr.InvalidTimestamp, gobridge.OutcomePermanent},
		{kerr.InvalidTopicException, gobridge.OutcomePermanent},
		{kerr.ThrottlingQuotaExceeded, gobridge.OutcomeUnavailable},
		{kerr.UnknownTopicOrPartition, gobridge.OutcomeUnavailable},
		{kerr.UnknownTopicID, gobridge.OutcomeUnavailable},
		{kerr.TopicAuthorizationFailed, gobridge.OutcomeUnavailable},
		{kerr.ClusterAuthorizationFailed, gobridge.OutcomeUnavailable},
		{kerr.SaslAuthenticationFailed, gobridge.OutcomeUnavailable},
		{kerr.NotEnoughReplicas, gobridge.OutcomeUnavailable},
		{kerr.NotEnoughReplicasAfterAppend, gobridge.OutcomeUnavailable},
		{kerr.LeaderNotAvailable, gobridge.OutcomeUnavailable},
		{kerr.NotLeaderForPartition, gobridge.OutcomeUnavailable},
		{kerr.RequestTimedOut, gobridge.OutcomeUnavailable},
		{kerr.KafkaStorageError, gobridge.OutcomeUnavailable},
		{kgo.ErrClientClosed, gobridge.OutcomeUnavailable},
		{kgo.ErrRecordRetries, gobridge.OutcomeUnavailable},
		{context.DeadlineExceeded, gobridge.OutcomeUnavailable},
		{context.Canceled, gobridge.OutcomeUnavailable},
		{errors.New("unable to dial"), gobridge.OutcomeUnavailable},
		{errClosed, gobridge.OutcomeUnavailable},
		{kerr.CorruptMessage, gobridge.OutcomeTransient},
		{kerr.UnknownServerError, gobridge.OutcomeTransient},
		{kerr.OutOfOrderSequenceNumber, gobridge.OutcomeTransient},
	} {
		if got, _ := gobridge.Classify(outcome("t", false, c.err)); got != c.want {
			t.Errorf("%v: got %d, want %d", c.err, got, c.want)
		}
		want := c.want // for a message that names its topic itself
		if errors.Is(c.err, kerr.UnknownTopicOrPartition) || errors.Is(c.err, kerr.TopicAuthorizationFailed) {
			want = gobridge.OutcomeTransient
		}
		if got, _ := gobridge.Classify(outcome("t", true, c.err)); got != want {
			t.Errorf("%v, the topic being the message's: got %d, want %d", c.err, got, want)
		}
	}
}

// What other sends have on connections that are reset is delivered all the same.
func TestResetHitsOthersWithoutLoss(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 4, nil)
	s := newSender(t, f.connect(t), SenderOptions{Topic: topic})
	s.settle = time.Millisecond
	if errs := send(t, s, messaging.Envelope{ID: "first"}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	f.proxy.Stall(true)
	other := make(chan []error, 1)
	go func() {
		other <- s.Send(t.Context(), []gobridge.Delivery{{Envelope: messaging.Envelope{ID: "other", OrderingKey: "o"}}})
	}()
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan []error, 1)
	go func() {
		given <- s.Send(ctx, []gobridge.Delivery{{Envelope: messaging.Envelope{ID: "given up", OrderingKey: "g"}}})
	}()
	eventually(t, "both on their way", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.many.client.BufferedProduceRecords() == 2
	})
	cancel()
	wantUnavailable(t, (<-given)[0], "may have arrived")
	wantUnavailable(t, (<-other)[0])
	f.proxy.Stall(false)
	for _, id := range []string{"other", "given up"} {
		if errs := send(t, s, messaging.Envelope{ID: id, OrderingKey: id[:1]}); errs[0] != nil {
			t.Error(errs[0])
		}
	}
}

func TestClosedConnection(t *testing.T) {
	f := startFake(t)
	conn := f.connect(t)
	topic := f.topic(t, 1, nil)
	s := newSender(t, conn, SenderOptions{Topic: topic})
	if errs := send(t, s, messaging.Envelope{ID: "m"}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	_ = conn.Close()
	wantUnavailable(t, send(t, s, messaging.Envelope{ID: "m"})[0])
	if _, err := conn.Sender(SenderOptions{Topic: topic}); err == nil {
		t.Error("a closed connection makes a sender")
	}
}

// What Carry lets in, the broker takes, whatever there is to tell of the delivery.
func TestLargestRecordThatIsCarried(t *testing.T) {
	f := startFake(t)
	const limit = 3000
	topic := f.topic(t, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
	conn := f.connect(t)
	name := strings.Repeat("r", 64)
	for _, format := range []mapping.Format{mapping.Plain, mapping.Binary, mapping.Structured} {
		s := newSender(t, conn, SenderOptions{Topic: topic, Compression: "none", MaxMessageBytes: limit, Format: format})
		e := messaging.Envelope{ID: strings.Repeat("i", 200), OrderingKey: "k", ContentType: "application/json", Headers: messaging.Headers{"x-a": "b"}}
		for n := limit; ; n-- {
			e.Payload = fmt.Appendf(nil, "%q", strings.Repeat("x", n))
			if s.Carry(&e) == nil {
				break
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := s.Send(ctx, []gobridge.Delivery{{
			Envelope: e, Route: name, Binding: name, Partition: gobridge.NewShard(name, name, 255, 256),
			Attempt: 1 << 30, Redrives: 1 << 30, Token: gobridge.Token{Version: 1 << 62}, Seq: 1 << 62,
		}})[0]; err != nil {
			t.Errorf("%s with a payload of %d bytes: %v", format, len(e.Payload), err)
		}
	}
}
