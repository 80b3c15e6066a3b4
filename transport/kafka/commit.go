package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataPrefix begins what is kept with a committed offset: the ID of the topic
// that it is an offset of. An offset can outlive its topic, and would leave out
// messages of another topic that is made under the name.
const metadataPrefix = "gobridge topic "

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
			if id := sent[key].topicID; id != [16]byte{} {
				p.Metadata = kmsg.StringPtr(metadataPrefix + base64.RawURLEncoding.EncodeToString(id[:]))
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
	ids, err := g.topicIDs(ctx, client)
	if err != nil {
		return err
	}
	starts := map[partition]kgo.Offset{}
	var without []partition
	for _, group := range r.Groups {
		for _, topic := range group.Topics {
			name := topic.Topic
			for n, id := range ids {
				if name == "" && id == topic.TopicID { // as from version 10 on
					name = n
				}
			}
			for _, p := range topic.Partitions {
				key := partition{name, p.Partition}
				was, known := topicOf(p.Metadata)
				switch now := ids[name]; {
				case p.ErrorCode != 0:
				case p.Offset < 0:
					without = append(without, key)
				case known && now != ([16]byte{}) && now != was:
					g.log.Warn("the committed offset is that of a topic that is gone; the new one is consumed from its beginning",
						"topic", name, "partition", p.Partition)
					starts[key] = kgo.NewOffset().AtStart()
				}
			}
		}
	}
	var ends map[partition]position
	if g.fromEnd && len(without) > 0 {
		if ends, err = g.ends(ctx, client, without, ids); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range without {
		if end, first := ends[p]; first {
			starts[p] = kgo.NewOffset().At(end.next.Offset)
			g.durable[p] = end // committed soon: what comes while nobody runs is not left out
		}
	}
	g.starts = starts
	return nil
}

// ends returns where those of the partitions end of whose topics the group has
// never consumed. A partition that was added to a topic later begins at its start.
func (g *group) ends(ctx context.Context, client *kgo.Client, all []partition, ids map[string][16]byte) (map[partition]position, error) {
	admin := kadm.NewClient(client)
	commits, err := admin.FetchOffsets(ctx, g.name)
	if err != nil {
		return nil, err
	}
	listed, err := admin.ListCommittedOffsets(ctx, slices.Sorted(maps.Keys(ids))...)
	if err != nil {
		return nil, err
	}
	out := map[partition]position{}
	for _, p := range all {
		end, ok := listed.Lookup(p.topic, p.number)
		if !ok || end.Err != nil {
			return nil, fmt.Errorf("the broker does not tell where %s, partition %d, ends (%v)", p.topic, p.number, end.Err) //nolint:errorlint // nil, too
		}
		if len(commits[p.topic]) == 0 {
			out[p] = position{next: kgo.EpochOffset{Epoch: -1, Offset: end.Offset}, topicID: ids[p.topic]}
		}
	}
	return out, nil
}

// topicOf reads the topic ID out of what is kept with an offset.
func topicOf(metadata *string) ([16]byte, bool) {
	if metadata == nil {
		return [16]byte{}, false
	}
	text, ours := strings.CutPrefix(*metadata, metadataPrefix)
	id, err := base64.RawURLEncoding.DecodeString(text)
	if !ours || err != nil || len(id) != 16 {
		return [16]byte{}, false
	}
	return [16]byte(id), true
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

// topicIDs asks for the IDs that this member's topics have now; the zero ID is none.
func (g *group) topicIDs(ctx context.Context, client *kgo.Client) (map[string][16]byte, error) {
	out := map[string][16]byte{}
	g.mu.Lock()
	for p := range g.mine {
		out[p.topic] = [16]byte{}
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
			out[*topic.Topic] = topic.TopicID
		}
	}
	return out, nil
}
