package kafka

import (
	"context"
	"fmt"
	"log/slog"
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
)

func TestTopicThatIsMadeAgain(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	o := &outbox{}
	receive(t, f.connect(t), o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	f.produce(t, &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte("same")})
	eventually(t, "the arrival of the first", func() bool { return len(o.all()) == 1 })
	if err := f.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	if err := f.CreateTopic(topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	fresh := f.past(t)
	if err := fresh.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte("same")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the arrival of the second", func() bool { return len(o.all()) == 2 })
	if got := o.all(); got[0].Envelope.ID == got[1].Envelope.ID {
		t.Errorf("messages of two topics of one name have one ID, %s: the second would pass for a repeat", got[0].Envelope.ID)
	}
}

// A take that panics ends the run, and holds up nobody.
func TestTakeThatPanics(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	f.produce(t, &kgo.Record{Topic: topic, Value: []byte("x")})
	r, err := f.connect(t).Receiver(ReceiverOptions{Topics: []string{topic}, Group: topic})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		_ = r.Receive(t.Context(), func(context.Context, []gobridge.Incoming) error { panic("no") })
	}()
	select {
	case v := <-ended:
		if v != "no" {
			t.Errorf("got %v", v)
		}
	case <-time.After(patience):
		t.Fatal("the receiver hangs")
	}
	if n := f.left(topic, topic); n != 1 {
		t.Errorf("%d messages are left, want 1: nothing was durable", n)
	}
}

// A committed offset can outlive its topic. It says nothing of another one that is
// made under the name.
func TestCommitThatIsOfATopicThatIsGone(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	conn := f.connect(t)
	options := ReceiverOptions{Topics: []string{topic}, Group: topic}
	f.produce(t, &kgo.Record{Topic: topic, Value: []byte("0")}, &kgo.Record{Topic: topic, Value: []byte("1")})
	o := &outbox{}
	stop := receive(t, conn, o, options)
	eventually(t, "the commit of both", func() bool { return f.left(topic, topic) == 0 })
	stop()
	commit := f.GroupInfo(topic).Commits[topic][0]
	if err := f.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	if err := f.CreateTopic(topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	fresh := f.past(t)
	for _, value := range []string{"new 0", "new 1", "new 2"} {
		if err := fresh.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var outlived kadm.Offsets
	outlived.Add(kadm.Offset{Topic: topic, Partition: 0, At: commit.Offset, LeaderEpoch: commit.LeaderEpoch, Metadata: commit.Metadata})
	if err := kadm.NewClient(fresh).CommitAllOffsets(t.Context(), topic, outlived); err != nil {
		t.Fatal(err)
	}
	next := &outbox{}
	receive(t, conn, next, options)
	eventually(t, "the arrival of what is new", func() bool { return len(next.all()) >= 3 })
	if got := next.payloads(); !slices.Equal(got, []string{"new 0", "new 1", "new 2"}) {
		t.Errorf("got %q", got)
	}
	eventually(t, "the commit of all", func() bool { return f.left(topic, topic) == 0 })
}

// A receiver ends when it is told to, though nothing passes to the broker and back
// and what is durable can't be committed. The broker does not know that it has left,
// and so others wait for its partitions: that is said.
func TestEndsWithoutTheBroker(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	log := &lockedBuffer{}
	conn := f.connect(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	o := &outbox{}
	stop := receive(t, conn, o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	f.produce(t, &kgo.Record{Topic: topic, Value: []byte("x")})
	eventually(t, "an arrival", func() bool { return len(o.all()) == 1 })
	f.proxy.Stall(true)
	stop()
	f.proxy.Stall(false)
	if !strings.Contains(log.String(), "the group could not be left") {
		t.Errorf("nobody was told that the group was not left; the log: %s", log)
	}
}

// A last commit that takes all of its time leaves time to leave the group: otherwise
// others would wait for the partitions until the broker misses this member.
func TestLeavesThoughTheLastCommitFails(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	conn := f.connect(t)
	refused := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: topic, Err: kerr.CoordinatorLoadInProgress, Count: -1})
	o := &outbox{}
	stop := receive(t, conn, o, ReceiverOptions{Topics: []string{topic}, Group: topic})
	f.produce(t, &kgo.Record{Topic: topic, Value: []byte("x")})
	eventually(t, "an arrival", func() bool { return len(o.all()) == 1 })
	stop()
	if refused.Hits() == 0 {
		t.Error("nothing was to be committed at the end")
	}
	if members := f.GroupInfo(topic).Members; len(members) != 0 {
		t.Errorf("the group has %d members after the end of the only one", len(members))
	}
}

func TestTopicThatComesLater(t *testing.T) {
	f := startFake(t)
	there := f.topic(t, 1, nil)
	f.produce(t, &kgo.Record{Topic: there, Value: []byte("there")})
	var log lockedBuffer
	conn := f.connect(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	o := &outbox{}
	receive(t, conn, o, ReceiverOptions{Topics: []string{there, "comes-later"}, Group: "g"})
	eventually(t, "the arrival of what is there", func() bool { return len(o.all()) == 1 })
	eventually(t, "word of what is not", func() bool { return strings.Contains(log.String(), "topic=comes-later") })
	if err := f.CreateTopic("comes-later", 1, nil); err != nil {
		t.Fatal(err)
	}
	f.produce(t, &kgo.Record{Topic: "comes-later", Value: []byte("later")})
	eventually(t, "the arrival of what came later", func() bool { return slices.Contains(o.payloads(), "later") })
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A partition that went to another member and came back begins anew. What had been
// polled of it before must not be handed over any more: some of it was left out.
func TestPartitionThatGoesAndComesBack(t *testing.T) {
	f := startFake(t)
	r, err := f.connect(t).Receiver(ReceiverOptions{Topics: []string{"t"}, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	o := &outbox{}
	g := newGroup(r, o.take)
	all := map[string][]int32{"t": {0, 1}}
	g.assigned(t.Context(), nil, all)
	var fetched kgo.Fetches
	for n := range int32(2) {
		fetched = append(fetched, kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{
			{Partition: n, Records: []*kgo.Record{{Topic: "t", Partition: n, Value: fmt.Append(nil, n)}}},
		}}}})
	}
	if n := len(r.messages(newGroup(r, o.take), fetched)); n != 0 {
		t.Errorf("%d messages of partitions that are another member's", n)
	}
	batch := r.messages(g, fetched)
	g.withdraw(map[string][]int32{"t": {0}}, 0)
	g.assigned(t.Context(), nil, map[string][]int32{"t": {0}})
	if err := g.hand(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if got := o.payloads(); !slices.Equal(got, []string{"1"}) {
		t.Errorf("got %q, want what is of the partition that stayed", got)
	}
	if _, there := g.durable[partition{"t", 0}]; there {
		t.Error("an offset would be committed that is none of this assignment's")
	}
}

// What is committed is committed once.
func TestIdleReceiverCommitsNothing(t *testing.T) {
	f := startFake(t)
	topic := f.topic(t, 1, nil)
	conn := f.connect(t)
	f.produce(t, &kgo.Record{Topic: topic, Value: []byte("x")})
	commits := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: topic, Observe: true, Count: -1})
	stop := receive(t, conn, &outbox{}, ReceiverOptions{Topics: []string{topic}, Group: topic})
	eventually(t, "the commit", func() bool { return f.left(topic, topic) == 0 })
	time.Sleep(2 * commitEvery) // for what must not happen
	stop()
	if n := commits.Hits(); n != 1 {
		t.Errorf("%d commits for one message", n)
	}
}
