package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/internal/pause"
)

// partition is a partition of a topic.
type partition struct {
	topic  string
	number int32
}

// group is this member's part of a consumer group: which partitions it has, the
// take that runs, and what is to be committed. The library calls assigned, revoked
// and lost one at a time, beside hand.
type group struct {
	name     string
	fromEnd  bool
	known    *topicIDs
	take     gobridge.Take
	patience time.Duration
	log      *slog.Logger

	mu      sync.Mutex
	turns   int               // assignments so far
	mine    map[partition]int // the turn in which a partition was assigned
	running *handover
	durable map[partition]position
	starts  map[partition]kgo.Offset // where partitions that were assigned last begin
	began   map[string]int32         // partitions of topics when the group began at their ends

	committing sync.Mutex // one commit at a time
	trouble    string     // with the last commit; under committing
}

// position is how far a partition is durable.
type position struct {
	next      kgo.EpochOffset
	topicID   [16]byte
	committed bool
}

// handover is a take that runs.
type handover struct {
	of     map[partition]bool
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended and what is durable is noted
}

func newGroup(r *Receiver, take gobridge.Take) *group {
	return &group{
		name: r.options.Group, fromEnd: r.options.FromEnd, known: &r.known, take: take, patience: r.conn.revoke,
		log:  r.conn.log.With("group", r.options.Group),
		mine: map[partition]int{}, durable: map[partition]position{}, began: map[string]int32{},
	}
}

func (g *group) assigned(_ context.Context, _ *kgo.Client, all map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turns++
	each(all, func(p partition) { g.mine[p] = g.turns })
}

// turn is that in which the partition was assigned, 0 if this member has not got it.
func (g *group) turn(p partition) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mine[p]
}

// revoked gives partitions back: with what is durable committed, and nothing else.
func (g *group) revoked(ctx context.Context, client *kgo.Client, all map[string][]int32) {
	g.withdraw(all, g.patience)
	g.commit(ctx, client)
	g.forget(all)
}

// lost gives up partitions that somebody else may have by now.
func (g *group) lost(_ context.Context, _ *kgo.Client, all map[string][]int32) {
	g.withdraw(all, 0)
	g.forget(all)
}

func (g *group) forget(all map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	each(all, func(p partition) { delete(g.durable, p) })
}

func each(all map[string][]int32, f func(partition)) {
	for topic, numbers := range all {
		for _, n := range numbers {
			f(partition{topic, n})
		}
	}
}

// withdraw ends the handing over of messages of the partitions, and returns when
// no take has any. One that runs has that long to end by itself.
func (g *group) withdraw(all map[string][]int32, patience time.Duration) {
	g.mu.Lock()
	affected := false
	each(all, func(p partition) {
		delete(g.mine, p)
		affected = affected || g.running != nil && g.running.of[p]
	})
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

// hand hands over the messages, in bounded takes one after the other, and notes
// what is durable, to be committed. It returns an error only when ctx has ended.
func (g *group) hand(ctx context.Context, batch []message) error {
	for len(batch) > 0 {
		n := bounded(batch)
		if err := g.handPart(ctx, batch[:n]); err != nil {
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
func (g *group) handPart(ctx context.Context, part []message) error {
	for {
		batch, run, within := g.begin(ctx, part)
		if len(batch) == 0 {
			return nil
		}
		err := g.run(within, run, batch)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if within.Err() == nil { // against its contract; not to be a busy loop
			pause.For(ctx, errorPause)
		}
	}
}

// run is one take. It is ended by a panic, too: the members of the group wait for it.
func (g *group) run(ctx context.Context, run *handover, batch []message) error {
	defer g.end(run)
	in := make([]gobridge.Incoming, len(batch))
	for i := range batch {
		in[i] = batch[i].in
	}
	err := g.take(ctx, in)
	if err == nil {
		g.note(batch)
	}
	return err
}

// begin registers a take of those messages whose partitions this member still has. A
// partition that went and came back is not still there: it begins anew, and what was
// left out in between would be overtaken.
func (g *group) begin(ctx context.Context, part []message) ([]message, *handover, context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	batch := make([]message, 0, len(part))
	of := map[partition]bool{}
	for _, m := range part {
		if g.mine[m.from] == m.turn {
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

// note keeps how far the partitions are durable now.
func (g *group) note(batch []message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range batch {
		g.durable[m.from] = m.after
	}
}
