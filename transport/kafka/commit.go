package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataPrefix begins what is kept with a committed offset: the ID of the topic
// that it is an offset of. An offset can outlive its topic, and would leave out
// messages of another topic that is made under the name. If the group began at the
// end, partitionsPrefix goes before how many partitions the topic had then: by that,
// one that was added is told from one that another member has not committed yet.
const (
	metadataPrefix   = "gobridge topic "
	partitionsPrefix = " partitions "
)

// remark is what is kept with a committed offset.
type remark struct {
	topicID    [16]byte // zero if it is not known
	partitions int32    // when the group began at the end, zero if it did not
}

func (n remark) String() string {
	text := metadataPrefix + base64.RawURLEncoding.EncodeToString(n.topicID[:])
	if n.partitions > 0 {
		text += partitionsPrefix + strconv.Itoa(int(n.partitions))
	}
	return text
}

// readRemark reads what was kept with an offset, the zero remark if others committed it.
func readRemark(metadata string) remark {
	text, ours := strings.CutPrefix(metadata, metadataPrefix)
	encoded, count, began := strings.Cut(text, partitionsPrefix)
	id, err := base64.RawURLEncoding.DecodeString(encoded)
	if !ours || err != nil || len(id) != 16 {
		return remark{}
	}
	n := remark{topicID: [16]byte(id)}
	if partitions, err := strconv.ParseInt(count, 10, 32); began && err == nil && partitions > 0 {
		n.partitions = int32(partitions)
	}
	return n
}

// errNothing says that there is nothing left to commit.
var errNothing = errors.New("nothing to commit")

// keepCommitting commits now and then until ctx ends.
func (g *group) keepCommitting(ctx context.Context, client *kgo.Client) {
	ticker := time.NewTicker(commitEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.commit(ctx, client)
		case <-ctx.Done():
			return
		}
	}
}

// commit commits what is durable and has not been committed. What fails is tried
// again next time, or comes again.
func (g *group) commit(ctx context.Context, client *kgo.Client) {
	g.committing.Lock()
	defer g.committing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	sent := map[partition]position{}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	g.mu.Lock()
	for p, at := range g.durable {
		if !at.committed {
			sent[p] = at
			if offsets[p.topic] == nil {
				offsets[p.topic] = map[int32]kgo.EpochOffset{}
			}
			offsets[p.topic][p.number] = at.next
		}
	}
	g.mu.Unlock()
	if len(sent) == 0 {
		return
	}
	var failed error
	client.CommitOffsetsSync(kgo.PreCommitFnContext(ctx, func(r *kmsg.OffsetCommitRequest) error { return g.prepare(r, sent) }), offsets,
		func(_ *kgo.Client, asked *kmsg.OffsetCommitRequest, r *kmsg.OffsetCommitResponse, err error) {
			failed = g.settle(sent, asked, r, err)
		})
	switch {
	case failed == nil:
		g.trouble = ""
	case g.trouble != failed.Error() && ctx.Err() == nil:
		g.trouble = failed.Error()
		g.log.Warn("offsets were not committed; it is tried again", "error", failed)
	}
}

// prepare is called just before a commit, which may have waited for a rebalance. A
// partition that went to another member meanwhile is taken out.
func (g *group) prepare(r *kmsg.OffsetCommitRequest, sent map[partition]position) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	topics := r.Topics[:0]
	for _, topic := range r.Topics {
		kept := topic.Partitions[:0]
		for _, p := range topic.Partitions {
			key := partition{topic.Topic, p.Partition}
			if _, ours := g.durable[key]; !ours {
				delete(sent, key)
				continue
			}
			if n := (remark{sent[key].topicID, g.began[topic.Topic]}); n != (remark{}) {
				p.Metadata = kmsg.StringPtr(n.String())
			}
			kept = append(kept, p)
		}
		if topic.Partitions = kept; len(kept) > 0 {
			topics = append(topics, topic)
		}
	}
	if r.Topics = topics; len(topics) == 0 {
		return errNothing
	}
	return nil
}

// settle notes what has been committed.
func (g *group) settle(sent map[partition]position, asked *kmsg.OffsetCommitRequest, r *kmsg.OffsetCommitResponse, err error) error {
	if err != nil {
		if errors.Is(err, errNothing) {
			return nil
		}
		return err
	}
	names := map[[16]byte]string{}
	for _, topic := range asked.Topics {
		names[topic.TopicID] = topic.Topic
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, topic := range r.Topics {
		name := topic.Topic
		if name == "" { // as from version 10 on
			name = names[topic.TopicID]
		}
		for _, p := range topic.Partitions {
			key := partition{name, p.Partition}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				errs = append(errs, fmt.Errorf("%s, partition %d: %w", name, p.Partition, err))
				continue
			}
			if at, ours := g.durable[key]; ours && at == sent[key] {
				at.committed = true
				g.durable[key] = at
			}
		}
	}
	return errors.Join(errs...)
}

// fetched decides where partitions begin otherwise than at the offset that was
// committed: where that is of a topic that is gone, and, if the group begins at the
// end, where there is none.
func (g *group) fetched(ctx context.Context, client *kgo.Client, r *kmsg.OffsetFetchResponse) error {
	topics, err := g.topics(ctx, client)
	if err != nil {
		return err
	}
	starts := map[partition]kgo.Offset{}
	began := map[string]int32{}
	var without []partition
	remade := map[string]bool{}
	for name, now := range topics {
		remade[name] = g.known.remadeAs(name, now.topicID)
	}
	for _, group := range r.Groups {
		for _, topic := range group.Topics {
			name := topic.Topic
			for n, now := range topics {
				if name == "" && now.topicID == topic.TopicID { // as from version 10 on
					name = n
				}
			}
			now := topics[name]
			for _, p := range topic.Partitions {
				key := partition{name, p.Partition}
				was := remark{}
				if p.Metadata != nil {
					was = readRemark(*p.Metadata)
				}
				switch {
				case p.ErrorCode != 0:
				case p.Offset < 0 && remade[name]:
					starts[key] = kgo.NewOffset().AtStart()
				case p.Offset < 0:
					without = append(without, key)
				case was.topicID != [16]byte{} && now.topicID != [16]byte{} && now.topicID != was.topicID:
					g.log.Warn("the committed offset is that of a topic that is gone; the new one is consumed from its beginning",
						"topic", name, "partition", p.Partition)
					starts[key] = kgo.NewOffset().AtStart()
				case was.partitions > 0:
					began[name] = was.partitions
				}
			}
		}
	}
	g.mu.Lock()
	maps.Copy(g.began, began)
	g.mu.Unlock()
	if g.fromEnd && len(without) > 0 {
		if err := g.beginAtEnd(ctx, client, without, topics, starts); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.starts = starts
	return nil
}

// beginAtEnd sets starts for those partitions that begin at their end: all of a topic
// of which the group has no offset, and what was there of a topic when the group began.
// The ends are committed before anything is consumed: what comes while nobody runs
// is not left out. A partition that was added later begins at its start.
func (g *group) beginAtEnd(ctx context.Context, client *kgo.Client, all []partition, topics map[string]remark, starts map[partition]kgo.Offset) error {
	admin := kadm.NewClient(client)
	commits, err := admin.FetchOffsets(ctx, g.name)
	if err != nil {
		return err
	}
	listed, err := admin.ListCommittedOffsets(ctx, slices.Sorted(maps.Keys(topics))...)
	if err != nil {
		return err
	}
	ends := map[partition]position{}
	began := map[string]int32{}
	for _, p := range all {
		end, ok := listed.Lookup(p.topic, p.number)
		if !ok || end.Err != nil {
			return fmt.Errorf("the broker does not tell where %s, partition %d, ends (%v)", p.topic, p.number, end.Err) //nolint:errorlint // nil, too
		}
		now := topics[p.topic]
		if now.partitions == 0 {
			return fmt.Errorf("the broker does not tell how many partitions %s has", p.topic)
		}
		if n := partitionsAtBeginning(now, commits[p.topic]); p.number < n {
			began[p.topic] = n
			ends[p] = position{next: kgo.EpochOffset{Epoch: -1, Offset: end.Offset}, topicID: now.topicID}
			starts[p] = kgo.NewOffset().At(end.Offset)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	g.mu.Lock()
	maps.Copy(g.began, began)
	maps.Copy(g.durable, ends)
	g.mu.Unlock()
	g.commit(ctx, client)
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range ends {
		if !g.durable[p].committed {
			return fmt.Errorf("the end of %s, partition %d, was not committed", p.topic, p.number)
		}
	}
	return nil
}

// partitionsAtBeginning is how many partitions a topic had when the group began at its
// end: as many as now if that is only now, and zero if that is not known.
func partitionsAtBeginning(now remark, commits map[int32]kadm.OffsetResponse) int32 {
	if len(commits) == 0 {
		return now.partitions
	}
	for _, c := range commits {
		if was := readRemark(c.Metadata); was.topicID == now.topicID && was.partitions > 0 {
			return was.partitions
		}
	}
	return 0
}

// adjust begins partitions where fetched has decided.
func (g *group) adjust(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, at := range g.starts {
		if _, there := offsets[p.topic][p.number]; there {
			offsets[p.topic][p.number] = at
		}
	}
	g.starts = nil
	return offsets, nil
}

// topics asks for the IDs that this member's topics have now, and how many partitions.
func (g *group) topics(ctx context.Context, client *kgo.Client) (map[string]remark, error) {
	out := map[string]remark{}
	g.mu.Lock()
	for p := range g.mine {
		out[p.topic] = remark{}
	}
	g.mu.Unlock()
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	request.Topics = []kmsg.MetadataRequestTopic{}
	for name := range out {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	for _, topic := range response.Topics {
		if topic.Topic != nil && topic.ErrorCode == 0 {
			out[*topic.Topic] = remark{topic.TopicID, int32(len(topic.Partitions))} //nolint:gosec // a partition's number is one
		}
	}
	return out, nil
}
