package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// sayAgain is how often the same failure is told of.
	sayAgain = time.Minute
	// firstRenewal is after how long a partition that failed and has given nothing since
	// makes the member join anew, and lastRenewal what that grows to, by doubling.
	firstRenewal = time.Minute
	lastRenewal  = 16 * time.Minute
)

// errRenew says that a partition gives nothing until the client begins anew: the
// library drops a partition of which it could not learn where it begins, and one with
// a batch that it can't read.
var errRenew = errors.New("it has given nothing since")

// troubles are what is wrong with the partitions of a member, as its polls tell. One
// that fails is tried again by the library and fails again soon, or is dropped.
type troubles struct {
	log   *slog.Logger
	seen  *watch
	renew time.Duration
	open  map[partition]failure
	said  map[string]time.Time // when a failure was told of, by its text
	told  bool                 // of one, and not yet that the source goes on
}

type failure struct {
	err  error
	last time.Time
}

func newTroubles(log *slog.Logger, seen *watch, renew time.Duration) *troubles {
	return &troubles{log: log, seen: seen, renew: renew, open: map[partition]failure{}, said: map[string]time.Time{}}
}

// poll polls, and not for ever if something is wrong.
func (t *troubles) poll(ctx context.Context, client *kgo.Client) kgo.Fetches {
	if len(t.open) == 0 {
		return client.PollRecords(ctx, takeRecords)
	}
	ctx, cancel := context.WithTimeout(ctx, t.renew/2)
	defer cancel()
	return client.PollRecords(ctx, takeRecords)
}

// look takes up what a poll brought, which is handed over already. It reports whether
// something failed; its error says that the client has to begin anew.
func (t *troubles) look(fetches kgo.Fetches, g *group) (failed bool, err error) {
	now := time.Now()
	var lost *kgo.ErrDataLoss
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		at := partition{p.Topic, p.Partition}
		switch {
		case p.Err == nil && len(p.Records) > 0:
			delete(t.open, at)
			delete(t.open, partition{}) // of the group as a whole
		case p.Err == nil || p.Topic == "" && errors.Is(p.Err, context.DeadlineExceeded): // that of poll
		case isRecreated(p.Err):
			err = fmt.Errorf("%w: topic %s, partition %d: %w", errRecreated, p.Topic, p.Partition, p.Err)
		case errors.As(p.Err, &lost): // the library goes on with what is there
			t.say(at, p.Err, now)
		default:
			failed = true
			t.open[at] = failure{p.Err, now}
			t.say(at, p.Err, now)
		}
	})
	if err != nil {
		return true, err
	}
	for at, f := range t.open {
		if now.Sub(f.last) < t.renew {
			continue
		}
		if g.turn(at) != 0 {
			return true, fmt.Errorf("%w: topic %s, partition %d: %w", errRenew, at.topic, at.number, f.err)
		}
		delete(t.open, at)
	}
	if t.told && len(t.open) == 0 {
		t.told = false
		t.log.Info("the source goes on")
	}
	return failed, nil
}

// waited says that there was no poll for a while.
func (t *troubles) waited(d time.Duration) {
	for at, f := range t.open {
		f.last = f.last.Add(d)
		t.open[at] = f
	}
}

// say tells of a failure, if nobody was told of the same just now.
func (t *troubles) say(at partition, err error, now time.Time) {
	err = t.seen.explain(err)
	text := err.Error()
	if last, ok := t.said[text]; ok && now.Sub(last) < sayAgain {
		return
	}
	if len(t.said) >= takeRecords { // texts of brokers
		clear(t.said)
	}
	t.said[text], t.told = now, true
	if at.topic == "" {
		t.log.Warn("the source has trouble", "error", err)
		return
	}
	t.log.Warn("the source has trouble", "topic", at.topic, "partition", at.number, "error", err)
}
