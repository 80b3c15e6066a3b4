package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
)

// partition is a partition of a topic.
type partition struct {
	topic  string
	number int32
}

// group is this member's part of a consumer group: which partitions it has, and
// the take that runs. The library calls assigned, revoked and withdraw one at a
// time, beside hand.
type group struct {
	take     gobridge.Take
	patience time.Duration

	mu      sync.Mutex
	mine    map[partition]bool
	running *handover
}

// handover is a take that runs.
type handover struct {
	of     map[partition]bool
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended and what is durable is marked
}

func (g *group) assigned(all map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, numbers := range all {
		for _, n := range numbers {
			g.mine[partition{topic, n}] = true
		}
	}
}

// revoked gives partitions back: with what is durable committed, and nothing else.
func (g *group) revoked(ctx context.Context, client *kgo.Client, all map[string][]int32) {
	g.withdraw(all, g.patience)
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	_ = client.CommitMarkedOffsets(ctx) // what isn't committed comes again
}

// withdraw ends the handing over of messages of the partitions, and returns when
// no take has any. One that runs has that long to end by itself.
func (g *group) withdraw(all map[string][]int32, patience time.Duration) {
	g.mu.Lock()
	affected := false
	for topic, numbers := range all {
		for _, n := range numbers {
			delete(g.mine, partition{topic, n})
			affected = affected || g.running != nil && g.running.of[partition{topic, n}]
		}
	}
	running := g.running
	g.mu.Unlock()
	if !affected {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-running.done:
		return
	case <-timer.C:
	}
	running.cancel()
	<-running.done
}

// hand hands over the messages, in bounded takes one after the other, and marks
// what is durable to be committed. It returns an error only when ctx has ended.
func (g *group) hand(ctx context.Context, client *kgo.Client, batch []message) error {
	for len(batch) > 0 {
		n := bounded(batch)
		if err := g.handPart(ctx, client, batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// bounded is how many messages go into one take.
func bounded(batch []message) int {
	bytes := 0
	for n := range batch {
		bytes += gobridge.EnvelopeSize(&batch[n].in.Envelope)
		if n == takeRecords || n > 0 && bytes > takeBytes {
			return n
		}
	}
	return len(batch)
}

// handPart hands over what is still this member's. A take that was broken off for
// one partition's sake is repeated for the others.
func (g *group) handPart(ctx context.Context, client *kgo.Client, part []message) error {
	for {
		batch, run, within := g.begin(ctx, part)
		if len(batch) == 0 {
			return nil
		}
		err := g.run(within, client, run, batch)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if within.Err() == nil { // against its contract; not to be a busy loop
			pause(ctx, errorPause)
		}
	}
}

// run is one take. It is ended by a panic, too: the members of the group wait for it.
func (g *group) run(ctx context.Context, client *kgo.Client, run *handover, batch []message) error {
	defer g.end(run)
	in := make([]gobridge.Incoming, len(batch))
	for i := range batch {
		in[i] = batch[i].in
	}
	err := g.take(ctx, in)
	if err == nil {
		client.MarkCommitOffsets(marks(batch))
	}
	return err
}

// begin registers a take of those messages whose partitions this member has.
func (g *group) begin(ctx context.Context, part []message) ([]message, *handover, context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	batch := make([]message, 0, len(part))
	of := map[partition]bool{}
	for _, m := range part {
		if g.mine[m.from] {
			batch = append(batch, m)
			of[m.from] = true
		}
	}
	if len(batch) == 0 {
		return nil, nil, nil
	}
	within, cancel := context.WithCancel(ctx)
	g.running = &handover{of: of, cancel: cancel, done: make(chan struct{})}
	return batch, g.running, within
}

func (g *group) end(run *handover) {
	run.cancel()
	g.mu.Lock()
	g.running = nil
	g.mu.Unlock()
	close(run.done)
}

// marks are the offsets after the last message of each partition.
func marks(batch []message) map[string]map[int32]kgo.EpochOffset {
	out := map[string]map[int32]kgo.EpochOffset{}
	for _, m := range batch {
		if out[m.from.topic] == nil {
			out[m.from.topic] = map[int32]kgo.EpochOffset{}
		}
		out[m.from.topic][m.from.number] = m.mark
	}
	return out
}
