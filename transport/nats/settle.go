package nats

import (
	"context"
	"fmt"
	"time"
)

// settling waits for what was delivered to somebody who is gone. It is for servers
// whose consumers can't be reset.
type settling struct {
	timer *time.Timer
	began time.Time
	wait  time.Duration // after which the server delivers again
	asked time.Time
	most  int // the fewest that were missing
}

// due returns the channel of the timer, nil for never.
func (s *settling) due() <-chan time.Time {
	if s.timer == nil {
		return nil
	}
	return s.timer.C
}

// begin has the first look made at once.
func (s *settling) begin(wait time.Duration) {
	*s = settling{timer: time.NewTimer(0), began: time.Now(), wait: wait}
}

// pausing is the time between two looks, longer as time goes by.
func (s *settling) pausing() time.Duration {
	return min(max(time.Since(s.began)/4, 20*time.Millisecond), time.Second)
}

// settle looks what is missing and asks for it. While something is, later messages
// that come in its place stay in hand.
func (in *intake) settle(ctx context.Context) error {
	s := &in.settling
	if in.pull.left > 0 {
		s.timer.Reset(s.pausing())
		return nil // the answer is on its way
	}
	ask, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	info, err := in.consumer.Info(ask)
	if err != nil {
		return fmt.Errorf("look at the consumer: %w", err)
	}
	missing := info.NumAckPending - in.pending(info)
	overdue := time.Since(s.began) > 3*s.wait
	switch {
	case missing <= 0:
		in.settled = true
	case overdue:
		in.r.log.Error("messages that were delivered elsewhere do not come back, so somebody else consumes with this consumer; "+
			"going on without them, and without order", "stream", in.r.options.Stream, "consumer", in.r.options.Consumer, "missing", missing)
		in.settled, in.loose = true, true
	case s.asked.IsZero() || missing < s.most || time.Since(s.asked) > s.wait:
		// Redeliveries that are due come before anything else. What is not due yet
		// is not asked for again before it is, for other messages would come instead.
		s.asked, s.most = time.Now(), missing
		if err := in.pull.ask(min(missing, maxBatch), true); err != nil {
			return err
		}
		s.timer.Reset(s.pausing())
	default:
		s.timer.Reset(s.pausing())
	}
	return nil
}
