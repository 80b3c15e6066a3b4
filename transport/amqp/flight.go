package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
)

// lingerLimit is how long a broker may leave a publish without an answer after its
// time is over: then the connection is cut, unless the broker has said that it
// takes nothing just now.
const lingerLimit = 20 * time.Second

// maxIdle is how many channels are kept for the next sends.
const maxIdle = 64

// errPending stands for an answer that is not there yet.
var errPending = errors.New("not answered")

// flight is one send. It goes on after Send has answered for it only to make sure
// that nothing of it becomes visible later.
type flight struct {
	sender   *Sender
	messages []outgoing
	done     chan struct{}

	mu      sync.Mutex
	errs    []error // one for each delivery of the batch
	session *session
}

func (f *flight) set(index int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs[index] = err
}

// fail gives the messages that have no answer yet this one.
func (f *flight) fail(messages []outgoing, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range messages {
		if f.errs[o.index] == errPending { //nolint:errorlint // this very value
			f.errs[o.index] = err
		}
	}
}

// overdue is the answer for what was not confirmed in time.
func (f *flight) overdue(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := fmt.Errorf("%s: not confirmed: %w", f.sender.what, ctx.Err())
	if f.session != nil {
		if reason, blocked := f.session.blocked(); blocked {
			return gobridge.RetryAfter(blockedWait, fmt.Errorf("%w; the broker takes no messages for now: %s", err, reason))
		}
	}
	return err
}

// abandon answers for a send that the broker has not answered, and sees to it that
// the sender publishes nothing before this one can't become visible any more.
func (f *flight) abandon(ctx context.Context) []error {
	s := f.sender
	first := s.lingering.Add(1) == 1
	late := f.overdue(ctx)
	f.mu.Lock()
	out := slices.Clone(f.errs)
	f.mu.Unlock()
	for i, err := range out {
		if err == errPending { //nolint:errorlint // this very value
			out[i] = late
		}
	}
	if first {
		s.log.Warn("the broker does not answer; nothing more is published before it does", "error", late.Error())
	}
	if !s.conn.start(func() {
		defer s.lingering.Add(-1)
		f.linger()
	}) {
		<-f.done // the connection is closed, which ends it
		s.lingering.Add(-1)
	}
	return out
}

// linger waits for the end of the flight, and cuts the connection if the broker is
// silent for too long. One that has told it takes nothing keeps what was sent to it
// and goes on with it later: it is waited for.
func (f *flight) linger() {
	ticker := time.NewTicker(lingerLimit / 20)
	defer ticker.Stop()
	for silent := 0; ; silent++ {
		select {
		case <-f.done:
			return
		case <-ticker.C:
		}
		f.mu.Lock()
		s := f.session
		f.mu.Unlock()
		if s == nil {
			continue
		}
		if _, blocked := s.blocked(); blocked {
			silent = 0
		}
		if silent >= 20 {
			s.cut()
		}
	}
}

// run publishes.
func (f *flight) run(ctx context.Context) {
	defer close(f.done)
	what := f.sender.what
	s, err := f.sender.conn.publishing.get(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = gobridge.Unavailable(err)
		}
		f.fail(f.messages, err)
		return
	}
	f.mu.Lock()
	f.session = s
	f.mu.Unlock()
	if reason, blocked := s.blocked(); blocked {
		f.fail(f.messages, gobridge.RetryAfter(blockedWait, fmt.Errorf("%s: the broker takes no messages for now: %s", what, reason)))
		return
	}
	rest := f.fitting(s.amqp.Config.FrameSize)
	// A channel that a missing exchange closes takes no others with it: each exchange
	// has one of its own.
	for len(rest) > 0 {
		var group, others []outgoing
		for _, o := range rest {
			if o.exchange == rest[0].exchange {
				group = append(group, o)
			} else {
				others = append(others, o)
			}
		}
		f.publishAll(ctx, s, group)
		rest = others
	}
}

// fitting returns the messages whose headers the broker's bound of a frame leaves
// room for, and answers for the others.
func (f *flight) fitting(limit int) []outgoing {
	out := make([]outgoing, 0, len(f.messages))
	for _, o := range f.messages {
		if o.size > limit {
			f.set(o.index, gobridge.Permanent(fmt.Errorf("%s: the headers and properties have %d bytes; an AMQP frame of this broker has %d (frame_max)",
				f.sender.what, o.size, limit)))
			continue
		}
		out = append(out, o)
	}
	return out
}

// publishAll publishes messages of one exchange, and once more what a message that
// was too large took with it.
func (f *flight) publishAll(ctx context.Context, s *session, group []outgoing) {
	what := f.sender.what
	for len(group) > 0 {
		if ctx.Err() != nil {
			f.fail(group, f.overdue(ctx))
			return
		}
		p, err := f.channel(s)
		if err == nil {
			err = f.publish(ctx, s, p, group)
		}
		if err == nil {
			if ctx.Err() != nil {
				f.fail(group, f.overdue(ctx))
			}
			return
		}
		err = fmt.Errorf("%s: %w", what, explain(err))
		limit, large := sizeLimit(err)
		left := slices.DeleteFunc(slices.Clone(group), func(o outgoing) bool {
			if large && int64(len(o.publishing.Body)) > limit {
				f.set(o.index, gobridge.Permanent(err))
				return true
			}
			return !f.pending(o.index)
		})
		if len(left) == len(group) || !large {
			f.fail(left, f.sender.outcome(err))
			return
		}
		group = left
	}
}

func (f *flight) pending(index int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs[index] == errPending //nolint:errorlint // this very value
}

// channel returns a channel on which the exchange has been declared, if it is to be.
func (f *flight) channel(s *session) (*publisher, error) {
	p, err := s.publisher()
	if err != nil {
		return nil, err
	}
	o := &f.sender.options
	wanted := [2]string{o.Exchange, o.DeclareExchange}
	if o.DeclareExchange != "" && !p.declared[wanted] {
		if err := p.ch.ExchangeDeclare(o.Exchange, o.DeclareExchange, true, false, false, false, nil); err != nil {
			_ = p.ch.Close() // most often it is closed already
			return nil, fmt.Errorf("declare exchange %s: %w", o.Exchange, explain(err))
		}
		p.declared[wanted] = true
	}
	return p, nil
}

// publish publishes on a channel and sets the answers that come. It returns why there
// are no others; nil with answers missing means that ctx has ended, and that the
// server has read all that was published, or is gone.
func (f *flight) publish(ctx context.Context, s *session, p *publisher, group []outgoing) error {
	confirms := make([]*amqp091.DeferredConfirmation, 0, len(group))
	var failed error
	for i := range group {
		if ctx.Err() != nil {
			break
		}
		o := &group[i]
		c, err := p.ch.PublishWithDeferredConfirm(o.exchange, o.key, !f.sender.options.DropUnroutable, false, o.publishing)
		if failed = err; err != nil {
			break // the channel is closed, or will be
		}
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		select {
		case <-c.Done():
			continue
		case <-ctx.Done():
		}
		break
	}
	open := len(confirms) == len(group) && !slices.ContainsFunc(confirms, unanswered)
	if !open && !p.ch.IsClosed() {
		_ = p.ch.Close() // returns when the server has read all before it, or is gone
		f.answer(group, confirms, p.returned())
		return failed
	}
	closed := p.ch.IsClosed()
	f.answer(group, confirms, p.returned())
	if closed {
		return closure(p.closes)
	}
	// A refusal is no reason to give the channel up.
	for i, c := range confirms {
		if !c.Acked() && f.pending(group[i].index) {
			f.set(group[i].index, fmt.Errorf("%s: the broker refused it (nack): a queue is full, or could not store it", f.sender.what))
		}
	}
	s.release(p)
	return nil
}

func unanswered(c *amqp091.DeferredConfirmation) bool {
	select {
	case <-c.Done():
		return false
	default:
		return true
	}
}

// answer sets the answers to what was confirmed. The server returns a message before
// it confirms it.
func (f *flight) answer(group []outgoing, confirms []*amqp091.DeferredConfirmation, returned map[string]amqp091.Return) {
	for i, c := range confirms {
		if !c.Acked() {
			continue
		}
		o := &group[i]
		r, back := returned[o.publishing.MessageId]
		if !back {
			f.set(o.index, nil)
			continue
		}
		err := fmt.Errorf("%s: no queue gets what is published to exchange %q with routing key %q (%s): bind one, or set mandatory to false",
			f.sender.what, o.exchange, o.key, r.ReplyText)
		if !f.sender.chosen {
			err = gobridge.Unavailable(err)
		}
		f.set(o.index, err)
	}
}

// publisher is a channel that confirms, used by one flight at a time.
type publisher struct {
	ch       *amqp091.Channel
	closes   chan *amqp091.Error
	returns  chan amqp091.Return
	declared map[[2]string]bool // exchanges with their types
}

// publisher returns an idle channel, or opens one.
func (s *session) publisher() (*publisher, error) {
	s.mu.Lock()
	for len(s.idle) > 0 {
		p := s.idle[len(s.idle)-1]
		s.idle = s.idle[:len(s.idle)-1]
		if !p.ch.IsClosed() {
			s.mu.Unlock()
			return p, nil
		}
	}
	s.mu.Unlock()
	ch, err := s.amqp.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	p := &publisher{
		ch:       ch,
		closes:   ch.NotifyClose(make(chan *amqp091.Error, 1)),
		returns:  ch.NotifyReturn(make(chan amqp091.Return, batchRecords)), // one each at most
		declared: map[[2]string]bool{},
	}
	if err := ch.Confirm(false); err != nil {
		_ = ch.Close()
		return nil, fmt.Errorf("have publishes confirmed: %w", err)
	}
	return p, nil
}

// release keeps a channel for the next flight.
func (s *session) release(p *publisher) {
	s.mu.Lock()
	kept := len(s.idle) < maxIdle
	if kept {
		s.idle = append(s.idle, p)
	}
	s.mu.Unlock()
	if !kept {
		_ = p.ch.Close()
	}
}

// returned are the messages that came back, by message-id.
func (p *publisher) returned() map[string]amqp091.Return {
	out := map[string]amqp091.Return{}
	for {
		select {
		case r, ok := <-p.returns:
			if !ok {
				return out
			}
			r.Body = nil
			out[r.MessageId] = r
		default:
			return out
		}
	}
}
