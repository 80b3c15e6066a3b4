package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gobridge"
	"gobridge/messaging"
)

// outbox is what a receiver hands over to. Takes of messages that hold says are
// held wait for the end of their context.
type outbox struct {
	mu   sync.Mutex
	got  []gobridge.Incoming
	hold func(messaging.Envelope) bool
	held chan struct{} // told when a take waits
}

func (o *outbox) take(ctx context.Context, batch []gobridge.Incoming) error {
	o.mu.Lock()
	hold := o.hold
	o.mu.Unlock()
	for _, in := range batch {
		if hold != nil && hold(in.Envelope) {
			select {
			case o.held <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, batch...)
	return nil
}

func (o *outbox) all() []gobridge.Incoming {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got)
}

func (o *outbox) payloads() []string {
	var out []string
	for _, in := range o.all() {
		out = append(out, string(in.Envelope.Payload))
	}
	return out
}

// receive runs a receiver until the function returned is called.
func receive(t *testing.T, conn *Connection, o *outbox, options ReceiverOptions) (stop func()) {
	t.Helper()
	r, err := conn.Receiver(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Receive(ctx, o.take) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Receive ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("Receive has not ended")
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestWhatOfARecordBecomesAMessage(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	bytes := func(s string) []byte { return []byte(s) }
	f.produce(t,
		&kgo.Record{Topic: topic, Key: bytes("k\x00\xff"), Value: bytes("plain"), Timestamp: at, Headers: []kgo.RecordHeader{
			{Key: "Content-Type", Value: bytes("text/plain")}, {Key: "bytes", Value: bytes("\x00\xfe")}, {Key: "nil"}, {Key: "twice", Value: bytes("1")}, {Key: "twice", Value: bytes("2")},
		}},
		&kgo.Record{Topic: topic, Value: bytes("no key")},
		&kgo.Record{Topic: topic, Key: []byte{}, Value: bytes("empty key")},
		&kgo.Record{Topic: topic, Key: bytes("k"), Value: []byte{}},
		&kgo.Record{Topic: topic, Key: bytes("k")},
		&kgo.Record{Topic: topic, Value: bytes("own"), Headers: []kgo.RecordHeader{
			{Key: "gobridge-id", Value: bytes("m-1")}, {Key: "gobridge-subject", Value: bytes("s")}, {Key: "gobridge-ordering-key", Value: bytes("o")}, {Key: "gobridge-attempt", Value: bytes("3")},
		}},
		&kgo.Record{Topic: topic, Value: bytes("redriven"), Headers: []kgo.RecordHeader{{Key: "gobridge-id", Value: bytes("m-1")}, {Key: "gobridge-dedupe-id", Value: bytes("m-1~1")}}},
		&kgo.Record{Topic: topic, Key: bytes("k"), Value: bytes("binary event"), Headers: []kgo.RecordHeader{
			{Key: "ce_specversion", Value: bytes("1.0")}, {Key: "ce_id", Value: bytes("7")}, {Key: "ce_source", Value: bytes("/shop")}, {Key: "ce_type", Value: bytes("order.placed")},
		}},
		&kgo.Record{Topic: topic, Value: bytes(`{"specversion":"1.0","id":"8","source":"/shop","type":"order.placed","data":{"n":1}}`), Headers: []kgo.RecordHeader{
			{Key: "content-type", Value: bytes("application/cloudevents+json; charset=utf-8")},
		}},
		&kgo.Record{Topic: topic, Key: bytes("k"), Value: bytes("bad"), Headers: []kgo.RecordHeader{
			{Key: "gobridge-expires-at", Value: bytes("soon")}, {Key: "twice", Value: bytes("1")}, {Key: "twice", Value: bytes("2")}, {Key: "", Value: bytes("none")},
		}},
	)
	o := &outbox{}
	receive(t, f.connect(t), o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	eventually(t, "the arrival of all", func() bool { return len(o.all()) == 10 })
	got := o.all()
	place := func(offset int) string { return strings.TrimSuffix(got[0].Envelope.ID, "0") + fmt.Sprint(offset) }
	if !strings.HasPrefix(got[0].Envelope.ID, "kafka/") || strings.Contains(got[0].Envelope.ID, topic) {
		t.Errorf("the ID %q is not that of a place in a topic with an ID", got[0].Envelope.ID)
	}
	for i, want := range []messaging.Envelope{
		{ID: place(0), Subject: topic, OrderingKey: "k\x00\xff", ContentType: "text/plain", Payload: bytes("plain"), CreatedAt: at,
			Headers: messaging.Headers{"bytes": "\x00\xfe", "nil": "", "twice": "1,2"}},
		{ID: place(1), Subject: topic, Payload: bytes("no key")},
		{ID: place(2), Subject: topic, Payload: bytes("empty key"), Headers: messaging.Headers{"kafka-empty-key": "true"}},
		{ID: place(3), Subject: topic, OrderingKey: "k"},
		{ID: place(4), Subject: topic, OrderingKey: "k", Headers: messaging.Headers{"kafka-null-value": "true"}},
		{ID: "m-1", Subject: "s", OrderingKey: "o", Payload: bytes("own")},
		{ID: "m-1~1", Subject: topic, Payload: bytes("redriven")},
		{ID: "/shop 7", Subject: "order.placed", OrderingKey: "k", Payload: bytes("binary event"), Headers: messaging.Headers{
			"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order.placed"}},
		{ID: "/shop 8", Subject: "order.placed", ContentType: "application/json", Payload: bytes(`{"n":1}`), Headers: messaging.Headers{
			"ce-specversion": "1.0", "ce-id": "8", "ce-source": "/shop", "ce-type": "order.placed"}},
		{ID: place(9), Subject: topic, OrderingKey: "k", Payload: bytes("bad"), Headers: messaging.Headers{"gobridge-expires-at": "soon", "twice": "1,2"}},
	} {
		e := got[i].Envelope
		if e.ID != want.ID || e.Subject != want.Subject || e.OrderingKey != want.OrderingKey || e.ContentType != want.ContentType ||
			string(e.Payload) != string(want.Payload) || !maps.Equal(e.Headers, want.Headers) {
			t.Errorf("record %d\n got %+v\nwant %+v", i, e, want)
		}
		if !want.CreatedAt.IsZero() && !e.CreatedAt.Equal(want.CreatedAt) {
			t.Errorf("record %d is from %s, want %s", i, e.CreatedAt, want.CreatedAt)
		}
		if rejected := got[i].Reject != nil; rejected != (i == 9) {
			t.Errorf("record %d: %v", i, got[i].Reject)
		}
	}
}

func TestOrderWithinPartitions(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	f.produce(t, &kgo.Record{Topic: topic, Key: []byte("a"), Value: []byte("1")}, &kgo.Record{Topic: topic, Value: []byte("2")})
	o := &outbox{}
	receive(t, f.connect(t), o, ReceiverOptions{Topics: []string{topic}, Group: topic, Order: ByPartition})
	eventually(t, "the arrival of both", func() bool { return len(o.all()) == 2 })
	for _, in := range o.all() {
		if in.Envelope.OrderingKey != topic+"/0" {
			t.Errorf("ordering key %q, want that of the partition", in.Envelope.OrderingKey)
		}
	}
}

func TestWhereConsumingBegins(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	conn := f.connect(t)
	f.produce(t, &kgo.Record{Topic: topic, Value: []byte("before")})
	o := &outbox{}
	receive(t, conn, o, ReceiverOptions{Topics: []string{topic}, Group: "start"})
	eventually(t, "the arrival of what was there", func() bool { return len(o.all()) == 1 })

	options := ReceiverOptions{Topics: []string{topic}, Group: "end", FromEnd: true}
	run := func(want string) {
		t.Helper()
		o := &outbox{}
		stop := receive(t, conn, o, options)
		eventually(t, "the commit of all", func() bool { return f.left(topic, "end") == 0 })
		if want != "" {
			eventually(t, "the arrival of "+want, func() bool { return slices.Contains(o.payloads(), want) })
		}
		stop()
		if slices.Contains(o.payloads(), "before") {
			t.Error("a group that begins at the end got what was there before")
		}
	}
	run("")
	f.produce(t, &kgo.Record{Topic: topic, Value: []byte("while away")})
	run("while away")
	// The offset that is next is deleted meanwhile: what is there still comes.
	f.produce(t, &kgo.Record{Topic: topic, Value: []byte("gone")}, &kgo.Record{Topic: topic, Value: []byte("there")})
	if err := f.DeleteRecords(topic, 0, f.PartitionInfo(topic, 0).HighWatermark-1); err != nil {
		t.Fatal(err)
	}
	run("there")
	// So does what is in a partition that is added.
	if _, err := kadm.NewClient(f.direct).CreatePartitions(t.Context(), 1, topic); err != nil {
		t.Fatal(err)
	}
	by := f.past(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := by.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Value: []byte("added")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	run("added")
}

// Members that begin at the end together commit one after the other. To the later one
// a partition of its own must not look like one that was added.
func TestMembersThatBeginAtTheEndTogether(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 2, nil)
	conn := f.connect(t)
	conn.extra = append(conn.extra, kgo.MetadataMaxAge(time.Second)) // by which it finds the partition that is added
	for n := range int32(2) {
		f.inPartition(t, topic, n, "before")
	}
	options := ReceiverOptions{Topics: []string{topic}, Group: topic, FromEnd: true}
	o := &outbox{}
	stop := receive(t, conn, o, options)
	eventually(t, "the commit of both", func() bool { return f.left(topic, topic) == 0 })
	f.inPartition(t, topic, 0, "0")
	eventually(t, "an arrival", func() bool { return len(o.all()) == 1 })
	stop()
	// As if the other partition had been another member's, which has come to nothing yet.
	other := kadm.TopicsSet{}
	other.Add(topic, 1)
	if _, err := kadm.NewClient(f.direct).DeleteOffsets(t.Context(), topic, other); err != nil {
		t.Fatal(err)
	}
	f.inPartition(t, topic, 0, "1")
	stop = receive(t, conn, o, options)
	eventually(t, "the commit of both", func() bool { return f.left(topic, topic) == 0 })
	if _, err := kadm.NewClient(f.direct).CreatePartitions(t.Context(), 1, topic); err != nil {
		t.Fatal(err)
	}
	f.inPartition(t, topic, 2, "added")
	eventually(t, "the arrival of what is in an added partition", func() bool { return len(o.all()) >= 3 })
	stop()
	if got := o.payloads(); !slices.Equal(got, []string{"0", "1", "added"}) {
		t.Errorf("got %q", got)
	}
}

// The end is known to the broker before anything is consumed.
func TestBeginningAtTheEndIsCommittedFirst(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	f.inPartition(t, topic, 0, "before")
	refused := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: topic, Err: kerr.GroupAuthorizationFailed, Count: -1})
	o := &outbox{}
	receive(t, f.connect(t), o, ReceiverOptions{Topics: []string{topic}, Group: topic, FromEnd: true})
	eventually(t, "commits that fail", func() bool { return refused.Hits() > 1 })
	refused.Remove()
	eventually(t, "the commit", func() bool { return f.left(topic, topic) == 0 })
	f.inPartition(t, topic, 0, "after")
	eventually(t, "an arrival", func() bool { return len(o.all()) == 1 })
	if got := o.payloads(); !slices.Equal(got, []string{"after"}) {
		t.Errorf("got %q", got)
	}
}

// A topic that was deleted and made again has not been seen before, but the group has
// begun: nothing of the new one is left out, though the offsets went with the old one.
func TestTopicThatIsMadeAgainBeginsAtItsStart(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 2, nil)
	f.inPartition(t, topic, 0, "before")
	conn := f.connect(t)
	o := &outbox{}
	receive(t, conn, o, ReceiverOptions{Topics: []string{topic}, Group: topic, FromEnd: true})
	eventually(t, "the commit", func() bool { return f.left(topic, topic) == 0 })
	for round := range 2 {
		if err := f.DeleteTopic(topic); err != nil {
			t.Fatal(err)
		}
		if err := f.CreateTopic(topic, 2, nil); err != nil {
			t.Fatal(err)
		}
		for n := range int32(2) {
			f.inPartition(t, topic, n, fmt.Sprint("new ", round, n))
		}
		eventually(t, "the arrival of what is new", func() bool { return len(o.all()) >= 2*round+2 })
	}
	got := o.payloads()
	slices.Sort(got)
	if want := []string{"new 0 0", "new 0 1", "new 1 0", "new 1 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRemarks(t *testing.T) {
	for _, r := range []remark{{}, {topicID: [16]byte{1, 255}}, {topicID: [16]byte{7}, partitions: 12}, {partitions: 3}} {
		if got := readRemark(r.String()); got != r {
			t.Errorf("%q is read as %v, want %v", r, got, r)
		}
	}
	for _, others := range []string{"", "x", "gobridge topic x", "gobridge topic  partitions 3"} {
		if got := readRemark(others); got != (remark{}) {
			t.Errorf("%q is read as %v", others, got)
		}
	}
}

func TestTransactionsThatAreAbortedDoNotArrive(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	o := &outbox{}
	receive(t, f.connect(t), o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	producer := f.past(t, kgo.TransactionalID("t"))
	for i, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := producer.EndTransaction(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the arrival of what was committed", func() bool { return len(o.all()) > 0 })
	if got := o.payloads(); !slices.Equal(got, []string{"1"}) {
		t.Errorf("got %q, want only what was committed", got)
	}
}

// A take that waits for room does not hold the group up when a partition goes to
// another member, and nothing of it is committed.
func TestPartitionIsTakenAwayWhileTakeWaits(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 2, nil)
	conn := f.connect(t)
	conn.revoke = 50 * time.Millisecond
	for i := range 40 {
		f.produce(t, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i%10), Value: fmt.Appendf(nil, "%d %d", i%10, i/10)})
	}
	options := ReceiverOptions{Topics: []string{topic}, Group: topic}
	full := &outbox{held: make(chan struct{}, 1), hold: func(messaging.Envelope) bool { return true }}
	stop := receive(t, conn, full, options)
	<-full.held
	other := &outbox{}
	receive(t, conn, other, options)
	eventually(t, "the arrival of a partition at the new member", func() bool { return len(other.all()) > 0 })
	full.mu.Lock()
	full.hold = nil // there is room: what is held is tried again only if a take was broken off, or when it goes on
	full.mu.Unlock()
	stop() // it never had room
	eventually(t, "the arrival of all at the new member", func() bool { return len(other.all()) == 40 })
	newest := map[string]int{}
	for _, p := range other.payloads() {
		var key string
		var n int
		if _, err := fmt.Sscanf(p, "%s %d", &key, &n); err != nil || n != newest[key] {
			t.Fatalf("%q came, want number %d of its key", p, newest[key])
		}
		newest[key]++
	}
	eventually(t, "the commit of all", func() bool { return f.left(topic, topic) == 0 })
}

// What a member keeps when a partition goes to another comes from it, all of it,
// though the take was broken off.
func TestRestOfABrokenTakeIsTakenAgain(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 2, nil)
	conn := f.connect(t)
	conn.revoke = 50 * time.Millisecond
	for i := range 40 {
		f.produce(t, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)})
	}
	options := ReceiverOptions{Topics: []string{topic}, Group: topic}
	first := &outbox{held: make(chan struct{}, 1), hold: func(messaging.Envelope) bool { return true }}
	receive(t, conn, first, options)
	<-first.held
	first.mu.Lock()
	first.hold = nil // the take that waits is broken off; those after it are not held
	first.mu.Unlock()
	second := &outbox{}
	receive(t, conn, second, options)
	eventually(t, "the arrival of each message at one of the two", func() bool {
		seen := map[string]bool{}
		for _, p := range append(first.payloads(), second.payloads()...) {
			seen[p] = true
		}
		return len(seen) == 40
	})
	if len(second.all()) == 0 || len(first.all()) == 0 {
		t.Errorf("%d came to the first and %d to the second, want some to each", len(first.all()), len(second.all()))
	}
	eventually(t, "the commit of all", func() bool { return f.left(topic, topic) == 0 })
}
