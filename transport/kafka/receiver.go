package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/internal/pause"
)

const (
	// takeRecords and takeBytes bound what is handed over in one take.
	takeRecords = 500
	takeBytes   = 4 << 20
	// What the client fetches ahead: as much from each of a few brokers at a time.
	// A batch that is larger comes all the same.
	fetchBytes          = 4 << 20
	fetchPartitionBytes = 1 << 20
	fetchBrokers        = 10
	// fetchWait is how long a broker waits for something to answer a fetch with. A
	// partition that joins meanwhile waits along.
	fetchWait = 500 * time.Millisecond
	// commitEvery is how often what has become durable is committed.
	commitEvery = time.Second
	// revokePatience is how long a take may go on when one of its partitions is to
	// go to another member; well below the group's time for a rebalance (60 s).
	revokePatience = 5 * time.Second
	// leaveTime bounds the last commit, and again the leaving of the group after it.
	leaveTime = 3 * time.Second
	// errorPause is the least time between two polls that gave nothing but errors.
	errorPause = 250 * time.Millisecond
)

// ReceiverOptions configure a [Receiver]. Topics and Group are required.
type ReceiverOptions struct {
	Topics []string
	// Group is the consumer group, whose members share the partitions, and whose
	// offsets say what has been consumed.
	Group string
	// FromEnd begins a topic of which the group has no offset at its end, which is
	// committed then, instead of its beginning.
	FromEnd bool
	// Order is what messages must keep their order within.
	Order Order
}

// Receiver consumes topics as a member of a group. Partitions are spread over the
// members, and so over processes, without harm to the order in each.
type Receiver struct {
	conn    *Connection
	options ReceiverOptions
	known   topicIDs
}

// topicIDs are those that a receiver has seen its topics have, and those of topics
// that took the place of others under their eyes. The broker forgets the offsets of a
// topic that is deleted.
type topicIDs struct {
	mu     sync.Mutex
	latest map[string][16]byte
	remade map[[16]byte]bool
}

// remadeAs takes note of a topic's ID, and reports whether the topic was another before.
func (k *topicIDs) remadeAs(topic string, id [16]byte) bool {
	if id == [16]byte{} {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.latest == nil {
		k.latest, k.remade = map[string][16]byte{}, map[[16]byte]bool{}
	}
	if was, seen := k.latest[topic]; seen && was != id {
		delete(k.remade, was)
		k.remade[id] = true
	}
	k.latest[topic] = id
	return k.remade[id]
}

// Receiver makes a receiver. It connects when it runs.
func (c *Connection) Receiver(options ReceiverOptions) (*Receiver, error) {
	if len(options.Topics) == 0 {
		return nil, errors.New("kafka: a receiver needs a topic")
	}
	for _, topic := range options.Topics {
		if err := CheckTopic(topic); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
	}
	if options.Group == "" {
		return nil, errors.New("kafka: a receiver needs a consumer group")
	}
	return &Receiver{conn: c, options: options}, nil
}

// Receive implements [gobridge.Receiver].
func (r *Receiver) Receive(ctx context.Context, take gobridge.Take) error {
	renew := r.conn.renew
	for ctx.Err() == nil {
		began := time.Now()
		err := r.member(ctx, take, renew)
		if time.Since(began) > 4*renew {
			renew = r.conn.renew // it had worked
		}
		switch {
		case errors.Is(err, errRecreated):
			r.conn.log.Warn("a topic was deleted; if it is made again, it is consumed from its beginning", "group", r.options.Group, "error", err)
		case errors.Is(err, errRenew):
			r.conn.log.Warn("a partition is not consumed; the group is joined anew", "group", r.options.Group, "error", err)
			renew = min(2*renew, lastRenewal)
		default:
			return err
		}
	}
	return nil
}

// errRecreated says that the client has to learn anew what a topic is.
var errRecreated = errors.New("the topic has another ID")

// member takes part in the group until ctx ends or the client can't go on. A partition
// that fails and gives nothing for the time of renew makes it end, too.
func (r *Receiver) member(ctx context.Context, take gobridge.Take, renew time.Duration) error {
	g := newGroup(r, take)
	seen := &watch{}
	client, err := r.conn.client(false, seen, r.consumer(g)...)
	if err != nil {
		return err
	}
	var commits sync.WaitGroup
	within, stop := context.WithCancel(ctx)
	commits.Go(func() {
		r.lookForTopics(within, client)
		g.keepCommitting(within, client)
	})
	defer func() {
		stop()
		commits.Wait()
		r.leave(ctx, client)
	}()
	wrong := newTroubles(g.log, seen, renew)
	for ctx.Err() == nil {
		fetches := wrong.poll(ctx, client)
		batch := r.messages(g, fetches)
		client.AllowRebalance() // no partition went or came since they were polled
		if ctx.Err() != nil {
			return nil
		}
		began := time.Now()
		if err := g.hand(ctx, batch); err != nil {
			return nil // it is that of ctx
		}
		wrong.waited(time.Since(began))
		if fetches.IsClientClosed() {
			return errClosed
		}
		failed, err := wrong.look(fetches, g)
		if err != nil {
			return err
		}
		if failed && len(batch) == 0 {
			pause.For(ctx, errorPause)
		}
	}
	return nil
}

// lookForTopics says which topics are not there: the library waits for them in
// silence.
func (r *Receiver) lookForTopics(ctx context.Context, client *kgo.Client) {
	topics, err := kadm.NewClient(client).ListTopics(ctx, r.options.Topics...)
	if err != nil {
		return // polling says so, too
	}
	for _, topic := range topics.Sorted() {
		if topic.Err != nil {
			r.conn.log.Warn("a topic can't be consumed; the source waits for it", "group", r.options.Group, "topic", topic.Topic, "error", topic.Err)
		}
	}
}

// consumer are the client's options.
func (r *Receiver) consumer(g *group) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup(r.options.Group),
		kgo.ConsumeTopics(r.options.Topics...),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), // unless [group.fetched] says otherwise
		// If the offset that comes next is gone, nothing that is there is left out.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.MaxConcurrentFetches(fetchBrokers),
		kgo.BlockRebalanceOnPoll(),
		kgo.DisableAutoCommit(), // [group.commit] does it
		kgo.OnPartitionsAssigned(g.assigned),
		kgo.OnPartitionsRevoked(g.revoked),
		kgo.OnPartitionsLost(g.lost),
		kgo.OnOffsetsFetched(g.fetched),
		kgo.AdjustFetchOffsetsFn(g.adjust),
	}
}

// leave commits what is durable, leaves the group and ends the client.
func (r *Receiver) leave(ctx context.Context, client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*leaveTime)
	defer cancel()
	// It commits in [group.revoked]; what isn't committed comes again.
	if err := client.LeaveGroupContext(ctx); err != nil {
		r.conn.log.Warn("the group could not be left; its partitions go to others only when the broker misses this member, after 45 s",
			"group", r.options.Group, "error", err)
	}
	client.Close()
}

// message is what becomes of a record.
type message struct {
	from  partition
	turn  int      // in which the partition was assigned
	after position // how far the partition is durable once it is
	in    gobridge.Incoming
}

// messages makes messages of what was fetched of this member's partitions, those of
// each in their order.
func (r *Receiver) messages(g *group, fetches kgo.Fetches) []message {
	out := make([]message, 0, fetches.NumRecords())
	fetches.EachTopic(func(t kgo.FetchTopic) {
		t.EachPartition(func(p kgo.FetchPartition) {
			from := partition{t.Topic, p.Partition}
			turn := g.turn(from)
			if turn == 0 {
				return // it has gone to another member
			}
			for _, record := range p.Records {
				out = append(out, message{
					from: from, turn: turn,
					after: position{next: kgo.EpochOffset{Epoch: record.LeaderEpoch, Offset: record.Offset + 1}, topicID: t.TopicID},
					in:    incoming(record, t.TopicID, r.options.Order),
				})
			}
		})
	})
	return out
}
