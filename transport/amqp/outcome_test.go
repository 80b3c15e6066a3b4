package amqp

import (
	"errors"
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
)

func TestOutcome(t *testing.T) {
	const (
		transient   = gobridge.OutcomeTransient
		permanent   = gobridge.OutcomePermanent
		unavailable = gobridge.OutcomeUnavailable
	)
	large := "PRECONDITION_FAILED - message size 12 is larger than configured max size 10"
	for _, c := range []struct {
		code                   int
		reason                 string
		fixed, ownKey, ownBoth gobridge.Outcome
	}{
		{311, "CONTENT_TOO_LARGE", permanent, permanent, permanent},
		{320, "CONNECTION_FORCED", unavailable, unavailable, unavailable},
		{402, "INVALID_PATH", unavailable, unavailable, transient},
		{403, "ACCESS_REFUSED", unavailable, transient, transient},
		{404, "NOT_FOUND", unavailable, unavailable, transient},
		{405, "RESOURCE_LOCKED", unavailable, transient, transient},
		{406, "PRECONDITION_FAILED - else", unavailable, transient, transient},
		{406, large, permanent, permanent, permanent},
		{501, "FRAME_ERROR", transient, transient, transient},
		{504, "CHANNEL_ERROR", transient, transient, transient},
		{506, "RESOURCE_ERROR", unavailable, unavailable, unavailable},
		{530, "NOT_ALLOWED", unavailable, unavailable, unavailable},
		{541, "INTERNAL_ERROR", transient, transient, transient},
	} {
		err := fmt.Errorf("publish: %w", explain(&amqp091.Error{Code: c.code, Reason: c.reason, Server: true}))
		for i, want := range []gobridge.Outcome{c.fixed, c.ownKey, c.ownBoth} {
			if got, _ := gobridge.Classify(outcome(err, i > 1, i > 0)); got != want {
				t.Errorf("%d %s (%d): outcome %d, want %d", c.code, c.reason, i, got, want)
			}
		}
	}
	for _, err := range []error{errClosed, amqp091.ErrClosed, &amqp091.Error{Code: 501, Reason: "read: connection reset by peer"}, errors.New("write: broken pipe")} {
		if got, _ := gobridge.Classify(outcome(err, true, true)); got != unavailable {
			t.Errorf("%v: outcome %d, want unavailable", err, got)
		}
	}
	if limit, ok := sizeLimit(explain(&amqp091.Error{Code: 406, Reason: large, Server: true})); !ok || limit != 10 {
		t.Errorf("the broker's limit is %d, %v", limit, ok)
	}
}
