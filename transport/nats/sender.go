package nats

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/internal/percent"
	"gobridge/messaging"
)

const (
	// defaultTimeout is how long a confirmation may take.
	defaultTimeout = 10 * time.Second
	// sendRecords bounds what is published at once, and with it what waits for
	// confirmations.
	sendRecords = 256
	sendBytes   = 4 << 20
	// maxHeader is the most that a stream takes of headers, in bytes.
	maxHeader = 64<<10 - 1
)

// Text makes a text of a message.
type Text func(*messaging.Envelope) (string, error)

// SenderOptions configure a [Sender].
type SenderOptions struct {
	// Subject is where to publish to, or SubjectFrom says it for each message.
	Subject     string
	SubjectFrom Text

	// Core publishes without JetStream: a message is delivered when the server has
	// read it.
	Core bool
	// Stream, unless empty, is the stream that has to have the subject.
	Stream string

	// Format is how messages go out.
	Format mapping.Format
	// Headers are added to each message, in the place of its own of that name in any
	// case; one that is empty is left out.
	Headers map[string]Text

	// Timeout bounds one publication with its confirmation; 10 s when zero.
	Timeout time.Duration
}

// Sender publishes. It is safe for concurrent use.
type Sender struct {
	conn    *Connection
	options SenderOptions
}

// Sender makes a sender, or says what is wrong with the options.
func (c *Connection) Sender(options SenderOptions) (*Sender, error) {
	switch {
	case (options.Subject == "") == (options.SubjectFrom == nil):
		return nil, errors.New("nats: give a subject, or an expression for it")
	case options.Core && options.Stream != "":
		return nil, errors.New("nats: a stream is for JetStream alone")
	case options.Timeout < 0:
		return nil, errors.New("nats: timeout can't be negative")
	}
	if options.Subject != "" {
		if err := checkSubject(options.Subject); err != nil {
			return nil, fmt.Errorf("nats: subject %w", err)
		}
	}
	if err := checkName("stream", options.Stream, true); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(options.Headers)) {
		lower := strings.ToLower(name)
		if !headerName(name) || reserved(name) || strings.HasPrefix(lower, "gobridge-") || strings.HasPrefix(lower, "ce-") {
			return nil, fmt.Errorf("nats: header %q can't be set", name)
		}
	}
	if options.Timeout == 0 {
		options.Timeout = defaultTimeout
	}
	return &Sender{conn: c, options: options}, nil
}

// BatchLimits says that a batch has one record of a key: of two, a stream may take
// the later though it refuses the earlier.
func (s *Sender) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: sendRecords, MaxBytes: sendBytes, OnePerKey: true}
}

// Carry says what keeps a message from ever being published: its subject, its
// headers, or its size once a server has said what it takes.
func (s *Sender) Carry(e *messaging.Envelope) error {
	_, err := s.message(&gobridge.Delivery{Envelope: *e})
	return err
}

// message makes the message of a delivery, if the server can take it.
func (s *Sender) message(d *gobridge.Delivery) (*client.Msg, error) {
	o := &s.options
	m, err := encode(s.replacing(d), o.Format)
	if err != nil {
		return nil, err
	}
	m.Subject = o.Subject
	if o.SubjectFrom != nil {
		if m.Subject, err = o.SubjectFrom(&d.Envelope); err != nil {
			return nil, fmt.Errorf("subject: %w", err)
		}
		if err := checkSubject(m.Subject); err != nil {
			return nil, fmt.Errorf("subject %w", err)
		}
	}
	for name, text := range o.Headers {
		value, err := text(&d.Envelope)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		if !plain(value) {
			return nil, fmt.Errorf("header %s: its value has control characters or spaces at its ends, which no header of NATS has", name)
		}
		if value != "" {
			m.Header[name] = []string{value}
		}
	}
	if !o.Core {
		m.Header[msgID] = []string{repeatID(d)}
		if o.Stream != "" {
			m.Header[expectedStream] = []string{o.Stream}
		}
	}
	header := headerSize(m.Header)
	if !o.Core && header > maxHeader {
		return nil, fmt.Errorf("its headers have %d bytes; a stream takes %d", header, maxHeader)
	}
	if most, size := s.conn.maxPayload(), int64(header+len(m.Data)); most > 0 && size > most {
		return nil, fmt.Errorf("it has %d bytes with its headers; the server takes %d (max_payload)", size, most)
	}
	return m, nil
}

// replacing returns the delivery without the headers that are computed.
func (s *Sender) replacing(d *gobridge.Delivery) *gobridge.Delivery {
	computed := func(header, _ string) bool {
		for name := range s.options.Headers {
			if strings.EqualFold(name, header) {
				return true
			}
		}
		return false
	}
	less := *d
	if len(s.options.Headers) > 0 {
		less.Envelope.Headers = maps.Clone(d.Envelope.Headers)
		maps.DeleteFunc(less.Envelope.Headers, computed)
	}
	return &less
}

// repeatID is what a stream knows a repetition by. What differs in anything but the
// attempt is no repetition: another destination's copy, a redrive, and a message to
// which some producer gave the same ID.
func repeatID(d *gobridge.Delivery) string {
	hash := messaging.ContentHash(&d.Envelope)
	return d.Route + "/" + d.Binding + "/" + percent.Encode(d.DedupeID(), "/") + "/" + hex.EncodeToString(hash[:8])
}

// flight is a message on its way.
type flight struct {
	at     int // in the batch
	msg    *client.Msg
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Send publishes the batch and answers for each message.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	out := make([]error, len(batch))
	ctx, cancel := context.WithTimeoutCause(ctx, s.options.Timeout, fmt.Errorf("no confirmation in %s", s.options.Timeout))
	defer cancel()
	l, err := s.conn.get(ctx)
	if err != nil {
		for i := range out {
			out[i] = gobridge.Unavailable(err)
		}
		return out
	}
	flights := make([]flight, 0, len(batch))
	for i := range batch {
		m, err := s.message(&batch[i])
		if err != nil {
			out[i] = gobridge.Permanent(fmt.Errorf("publish: %w", err))
			continue
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil) // of all, in the end
		flights = append(flights, flight{i, m, ctx, cancel})
	}
	defer l.watch(func(subject string, err error) {
		for i := range flights {
			if flights[i].msg.Subject == subject {
				flights[i].cancel(err)
			}
		}
	})()
	if s.options.Core {
		s.publishCore(ctx, l, flights, out)
	} else {
		s.publish(l, flights, out)
	}
	return out
}

// publish publishes to streams, all at once, and waits for their confirmations.
func (s *Sender) publish(l *link, flights []flight, out []error) {
	var all sync.WaitGroup
	for i := range flights {
		f := &flights[i]
		all.Go(func() {
			// Without the client's own repetition: when it comes, this send may be over.
			_, err := l.js.PublishMsg(f.ctx, f.msg, jetstream.WithRetryAttempts(0))
			out[f.at] = s.answer(l, f, err)
		})
	}
	all.Wait()
}

// publishCore publishes and waits until the server has read it all.
func (s *Sender) publishCore(ctx context.Context, l *link, flights []flight, out []error) {
	for i := range flights {
		f := &flights[i]
		if err := l.nc.PublishMsg(f.msg); err != nil {
			out[f.at] = s.answer(l, f, err)
		}
	}
	err := l.nc.FlushWithContext(ctx)
	if err == nil {
		l.caughtUp(ctx)
	}
	for i := range flights {
		f := &flights[i]
		if out[f.at] == nil {
			failed := err
			if failed == nil && f.ctx.Err() != nil {
				failed = context.Canceled // for its cause
			}
			out[f.at] = s.answer(l, f, failed)
		}
	}
}

// answer says what became of a message.
func (s *Sender) answer(l *link, f *flight, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(f.ctx); cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err = cause
	}
	if errors.Is(err, client.ErrConnectionClosed) {
		err = fmt.Errorf("the connection broke before there was an answer: %w", l.reason())
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		err = fmt.Errorf("no stream has the subject: %w", err)
	}
	return outcome(fmt.Errorf("publish to %s: %w", shown(f.msg.Subject), err), s.options.SubjectFrom != nil)
}
