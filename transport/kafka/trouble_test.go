package kafka

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logged connects with a log.
func (f *fake) logged(t *testing.T) (*Connection, *lockedBuffer) {
	log := &lockedBuffer{}
	conn := f.connect(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	return conn, log
}

// inPartition produces to a partition.
func (f *fake) inPartition(t *testing.T, topic string, n int32, value string, options ...kgo.Opt) {
	t.Helper()
	by := f.past(t, append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer by.Close()
	if err := by.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: n, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// The library drops a partition whose offset it was refused, for good. The source does
// not.
func TestPartitionWhoseOffsetIsRefused(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 2, nil)
	for n := range int32(2) {
		f.inPartition(t, topic, n, fmt.Sprint(n))
	}
	f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: topic, Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: 2})
	conn, log := f.logged(t)
	conn.renew = 200 * time.Millisecond
	o := &outbox{}
	receive(t, conn, o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	eventually(t, "the arrival of both", func() bool {
		return slices.Contains(o.payloads(), "0") && slices.Contains(o.payloads(), "1")
	})
	if !strings.Contains(log.String(), "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("the log does not say why: %s", log.String())
	}
}

// A batch that is too large when it is decompressed stops its partition, and nothing
// says that the source goes on.
func TestBatchThatIsTooLarge(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 2, nil)
	f.inPartition(t, topic, 0, strings.Repeat("x", 900_000), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	conn, log := f.logged(t)
	conn.renew = 200 * time.Millisecond
	conn.extra = append(conn.extra, kgo.MaxDecompressBatchBytes(100_000))
	o := &outbox{}
	receive(t, conn, o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	eventually(t, "word of it, again", func() bool { return strings.Count(log.String(), "a partition is not consumed") > 1 })
	for i := range 5 {
		f.inPartition(t, topic, 1, fmt.Sprint(i))
		eventually(t, "what is in the other partition", func() bool { return slices.Contains(o.payloads(), fmt.Sprint(i)) })
	}
	if strings.Contains(log.String(), "goes on") {
		t.Errorf("the log says that the source goes on: %s", log.String())
	}
	if !strings.Contains(log.String(), "topic="+topic+" partition=0") {
		t.Errorf("the log does not say where it is: %s", log.String())
	}
}

// One topic that is refused does not fill the log for as long as another is consumed.
func TestTroubleIsSaidOnce(t *testing.T) {
	f := startFake(t)
	good, bad := f.topic(t, 1, nil), f.topic(t, 1, nil)
	refused := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: bad, Err: kerr.TopicAuthorizationFailed, Count: -1})
	conn, log := f.logged(t)
	o := &outbox{}
	receive(t, conn, o, ReceiverOptions{Topics: []string{good, bad}, Group: good})
	for i := 0; i < 5 || refused.Hits() < 5; i++ {
		f.inPartition(t, good, 0, fmt.Sprint(i))
		eventually(t, "the arrival of the other's", func() bool { return slices.Contains(o.payloads(), fmt.Sprint(i)) })
	}
	if n := strings.Count(log.String(), "TOPIC_AUTHORIZATION_FAILED"); n != 1 || strings.Contains(log.String(), "goes on") {
		t.Errorf("it was said %d times: %s", n, log.String())
	}
	refused.Remove()
	f.inPartition(t, bad, 0, "late")
	eventually(t, "the arrival of what was refused", func() bool { return slices.Contains(o.payloads(), "late") })
	eventually(t, "word of it", func() bool { return strings.Contains(log.String(), "the source goes on") })
}
