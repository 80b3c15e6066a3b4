package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
	"gobridge/internal/pause"
)

// Bounds of what is asked for and handed over at once.
const (
	maxBatch = 500
	maxBytes = 4 << 20
)

// Answers to a delivery (NATS ADR-15).
var (
	ack        = []byte("+ACK")
	nak        = []byte("-NAK")
	inProgress = []byte("+WPI")
)

// errGap says that the server has delivered something that did not come here.
var errGap = errors.New("a delivery of the consumer went elsewhere")

// delivery is a message that is not acknowledged yet.
type delivery struct {
	seq   uint64    // in the stream
	at    time.Time // when the stream stored it
	reply string    // where to acknowledge it; empty once that is of no use
	size  int
	in    gobridge.Incoming
}

// intake is one run of a receiver. One goroutine owns it; a take runs beside.
//
// Its rule of order: nothing is handed over before everything that the server
// counts as delivered and not acknowledged is here, in hand. That holds as long as
// each delivery has the number after the one before, over the end of a session, too,
// if the next one finds no other number; where one is missing it has to be seen to.
type intake struct {
	r    *Receiver
	take gobridge.Take

	made   time.Time            // of the consumer
	hand   map[uint64]*delivery // what can be acknowledged, by its number in the stream
	queue  []*delivery          // to be handed over, in the stream's order
	taking []*delivery          // with take
	taken  chan error
	takes  context.Context
	cancel context.CancelFunc

	// Of the session.
	link     *link
	consumer jetstream.Consumer
	pull     pull
	number   uint64 // of the last delivery
	settled  bool   // see the rule of order
	loose    bool   // there is no order, for others have what is missing
	settling settling
}

func newIntake(ctx context.Context, r *Receiver, take gobridge.Take) *intake {
	in := &intake{r: r, take: take, hand: map[uint64]*delivery{}, taken: make(chan error, 1)}
	in.takes, in.cancel = context.WithCancel(ctx)
	return in
}

// session consumes until ctx ends or something is wrong.
func (in *intake) session(ctx context.Context, l *link) error {
	in.link = l
	if err := in.begin(ctx); err != nil {
		return err
	}
	defer in.leave()
	config := &in.consumer.CachedInfo().Config
	beat := time.NewTicker(min(ackWait(config)/3, idleHeartbeat))
	defer beat.Stop()
	for {
		in.handOver()
		if err := in.request(); err != nil {
			return err
		}
		var err error
		select {
		case <-ctx.Done():
			in.quiet(ctx)
			return nil
		case <-l.ended:
			return l.reason()
		case m := <-in.pull.messages:
			err = in.arrivals(m)
		case failed := <-in.taken:
			in.finished(failed)
		case <-beat.C:
			if in.pull.silent() {
				return errors.New("the server has fallen silent")
			}
			in.say(inProgress)
		case <-in.settling.due():
			err = in.settle(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// begin finds out how the consumer stands.
func (in *intake) begin(ctx context.Context) error {
	consumer, err := in.r.consumer(ctx, in.link, true)
	if err != nil {
		return err
	}
	info := consumer.CachedInfo()
	if in.r.options.Declare {
		if err := in.remember(ctx); err != nil {
			return err
		}
		in.r.reached(info.AckFloor.Stream)
	}
	if !info.Created.Equal(in.made) { // what is in hand has the numbers of another
		in.made, in.settled, in.loose = info.Created, false, false
		in.disown(0)
	}
	nothing := info.NumAckPending == 0 || in.r.options.Shared
	complete := in.settled && !in.loose && in.number == info.Delivered.Consumer
	in.consumer, in.number, in.settled = consumer, info.Delivered.Consumer, true
	if !nothing && !complete {
		in.settled = in.rewind(ctx)
	}
	in.settling = settling{}
	if !in.settled {
		in.settling.begin(longestWait(&info.Config))
	}
	return in.pull.begin(in.link.nc, in.r.nextSubject(), info)
}

// disown gives up to acknowledge what is in hand from a number on: the numbers are
// those of other messages now.
func (in *intake) disown(from uint64) {
	for seq, d := range in.hand {
		if seq >= from {
			d.reply = ""
			delete(in.hand, seq)
		}
	}
}

// pending returns how much of what is in hand the server can be waiting for: a purge
// acknowledges what it takes out.
func (in *intake) pending(info *jetstream.ConsumerInfo) int {
	n := 0
	for seq := range in.hand {
		if seq > info.AckFloor.Stream {
			n++
		}
	}
	return n
}

// remember notes which stream it is, for a consumer that has to be made again.
func (in *intake) remember(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	stream, err := in.link.js.Stream(ctx, in.r.options.Stream)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", in.r.options.Stream, err)
	}
	info := stream.CachedInfo()
	in.r.seen(info.Created, info.State.LastSeq)
	return nil
}

// rewind has the server begin again behind what is acknowledged (NATS ADR-60), and
// reports whether it did. Servers before 2.14 can't, and do not even answer.
func (in *intake) rewind(ctx context.Context) bool {
	if !resets(in.link.nc.ConnectedServerVersion()) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ctx, stop := in.link.api(ctx)
	defer stop()
	if _, err := in.link.js.ResetConsumer(ctx, in.r.options.Stream, in.r.options.Consumer); err != nil {
		in.r.log.Debug("the consumer is not reset", "error", err)
		return false
	}
	in.number = 0
	in.queue = slices.DeleteFunc(in.queue, func(d *delivery) bool {
		if d.reply == "" {
			return false
		}
		delete(in.hand, d.seq) // it comes again
		return true
	})
	return true
}

// resets reports whether a server of a version can reset consumers.
func resets(version string) bool {
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || err != nil {
		return false
	}
	return major > 2 || major == 2 && minor >= 14
}

// handOver starts a take of what is there, unless one runs.
func (in *intake) handOver() {
	if in.taking != nil || len(in.queue) == 0 || !in.settled {
		return
	}
	n, bytes := 0, 0
	for n < len(in.queue) && n < maxBatch && (n == 0 || bytes+in.queue[n].size <= maxBytes) {
		bytes += in.queue[n].size
		n++
	}
	in.taking = in.queue[:n:n]
	in.queue = in.queue[n:]
	batch := make([]gobridge.Incoming, n)
	for i, d := range in.taking {
		batch[i] = d.in
	}
	go func() { in.taken <- in.take(in.takes, batch) }()
}

// finished takes up what became of a take.
func (in *intake) finished(err error) {
	if err == nil {
		for _, d := range in.taking {
			if d.reply == "" {
				continue
			}
			in.answer(d, ack)
			delete(in.hand, d.seq)
			if !in.loose {
				in.r.reached(d.seq)
			}
		}
	} else { // it has been told to end
		in.queue = slices.Concat(in.taking, in.queue)
	}
	in.taking = nil
}

// answer says something of a delivery to the server. What gets lost is made good by
// another delivery.
func (in *intake) answer(d *delivery, what []byte) {
	if d.reply != "" && in.link != nil {
		_ = in.link.nc.Publish(d.reply, what)
	}
}

// say says it of all that is in hand, in the stream's order.
func (in *intake) say(what []byte) {
	for _, some := range [][]*delivery{in.taking, in.queue} {
		for _, d := range some {
			in.answer(d, what)
		}
	}
}

// request asks for the next batch when the one before is with take.
func (in *intake) request() error {
	if in.pull.left > 0 || !in.settled || len(in.queue) > 0 {
		return nil
	}
	return in.pull.ask(maxBatch, false)
}

// arrivals takes up a message and all that have come behind it.
func (in *intake) arrivals(m *client.Msg) error {
	gap := false
	for {
		if answer := statusOf(m); answer.code != 0 {
			if err := in.pull.answered(answer); err != nil {
				return err
			}
		} else if in.arrived(m) {
			gap = true // what has come behind it is taken up all the same
		}
		select {
		case m = <-in.pull.messages:
			continue
		default:
		}
		if gap {
			return errGap
		}
		return nil
	}
}

// arrived takes up a message, and reports whether a delivery before it went elsewhere.
func (in *intake) arrived(m *client.Msg) (gap bool) {
	meta, err := m.Metadata()
	if err != nil {
		in.r.log.Error("what came is no delivery of a consumer", "subject", m.Subject, "error", err)
		return false
	}
	size := len(m.Data) + headerSize(m.Header)
	in.pull.came(size)
	gap = meta.Sequence.Consumer != in.number+1 && !in.r.options.Shared
	in.number = meta.Sequence.Consumer
	in.settled = in.settled && !gap
	seq := meta.Sequence.Stream
	switch d := in.hand[seq]; {
	case d == nil:
	case d.at.Equal(meta.Timestamp): // again
		d.reply = m.Reply
		return gap
	default: // the stream has lost its end, and counts from there again
		in.disown(seq)
		in.r.back(seq - 1)
	}
	d := &delivery{seq: seq, at: meta.Timestamp, reply: m.Reply, size: size, in: incoming(m, meta)}
	in.hand[seq] = d
	at := len(in.queue)
	for at > 0 && in.queue[at-1].seq > seq && in.queue[at-1].reply != "" {
		at--
	}
	in.queue = slices.Insert(in.queue, at, d)
	return gap
}

// quiet waits until all that the server has delivered is here, for a while: what is
// on its way when the subscription ends gets lost in the server, and is delivered
// again only after the consumer's ack_wait.
func (in *intake) quiet(ctx context.Context) {
	if in.r.options.Shared {
		return // what others have can't be told from what is on its way
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	for in.pull.left > 0 {
		info, err := in.consumer.Info(ctx)
		if err != nil {
			return
		}
		select {
		case m := <-in.pull.messages:
			if in.arrivals(m) != nil {
				return
			}
			continue
		default:
		}
		full := info.Config.MaxAckPending > 0 && info.NumAckPending >= info.Config.MaxAckPending
		if info.NumAckPending <= in.pending(info) && (info.NumPending == 0 || full) {
			return
		}
		pause.For(ctx, 5*time.Millisecond)
	}
}

// leave ends the session's subscription and takes up what is on its way.
func (in *intake) leave() {
	for m := range in.pull.end() {
		if statusOf(m).code == 0 {
			in.arrived(m)
		}
	}
}

// end gives everything back that is not durable.
func (in *intake) end() {
	in.cancel()
	if in.taking != nil {
		in.finished(<-in.taken)
	}
	if in.link == nil {
		return
	}
	in.say(nak)
	in.link.flush()
}
