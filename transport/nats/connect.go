package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Connect looks for the server and for the stream that has the subject. Whether
// the account may publish shows only when it does.
func (s *Sender) Connect(ctx context.Context) (string, error) {
	l, err := s.conn.get(ctx)
	if err != nil {
		return "", err
	}
	o := &s.options
	server := l.nc.ConnectedUrlRedacted()
	if o.Core {
		return fmt.Sprintf("publishes to %s at %s, without JetStream", s.subject(), server), nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer in %s", askTime))
	defer cancel()
	ctx, stop := l.api(ctx)
	defer stop()
	if o.Subject == "" {
		if o.Stream == "" {
			return fmt.Sprintf("publishes to %s at %s", s.subject(), server), nil
		}
		if _, err := l.js.Stream(ctx, o.Stream); err != nil {
			return "", fmt.Errorf("stream %s: %w", o.Stream, causeOf(ctx, err))
		}
		return fmt.Sprintf("publishes to %s of stream %s at %s", s.subject(), o.Stream, server), nil
	}
	stream, err := l.js.StreamNameBySubject(ctx, o.Subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "", fmt.Errorf("no stream at %s has the subject %s", server, o.Subject)
	case err != nil:
		return "", fmt.Errorf("stream of subject %s: %w", o.Subject, causeOf(ctx, err))
	case o.Stream != "" && stream != o.Stream:
		return "", fmt.Errorf("the subject %s is that of stream %s, not %s", o.Subject, stream, o.Stream)
	}
	return fmt.Sprintf("publishes to %s of stream %s at %s", o.Subject, stream, server), nil
}

func (s *Sender) subject() string {
	if s.options.Subject == "" {
		return "subjects by an expression"
	}
	return s.options.Subject
}

// causeOf returns why ctx ended, if it did.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
