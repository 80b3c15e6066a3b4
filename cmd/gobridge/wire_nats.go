package main

import (
	"log/slog"
	"time"

	"gobridge"
	"gobridge/config"
	"gobridge/internal/mapping"
	"gobridge/transport/nats"
)

// natsBroker is a connection.
type natsBroker struct {
	*nats.Connection
	log *slog.Logger
}

func openNATS(c *config.NATS, log *slog.Logger) (broker, error) {
	options := nats.Options{
		TLS: clientTLS(c.TLS), TLSFirst: bool(c.TLSFirst), Domain: c.Domain, InboxPrefix: c.InboxPrefix, Logger: log,
	}
	for _, s := range c.Servers {
		options.Servers = append(options.Servers, string(s))
	}
	if a := c.Auth; a != nil {
		if a.User != nil {
			options.User, options.Password = a.User.Name, a.User.Password.Again
		}
		if a.Token != nil {
			options.Token = a.Token.Again
		}
		options.Credentials, options.NKey = a.Credentials, a.NKey
	}
	conn, err := nats.New(options)
	if err != nil {
		return nil, err
	}
	return natsBroker{conn, log}, nil
}

func (b natsBroker) receiver(route string, source config.Source) (gobridge.Receiver, error) {
	s := source.NATS
	return b.Receiver(nats.ReceiverOptions{
		Stream: s.Stream, Consumer: s.Consumer, Declare: bool(s.Declare), Subjects: s.Subjects, Start: s.Start,
		AckWait: time.Duration(s.AckWait), Shared: bool(s.Shared), Logger: b.log.With("route", route),
	})
}

func (b natsBroker) sender(_, _ string, binding config.Binding) (gobridge.Sender, error) {
	s := binding.NATS
	format, err := mapping.ParseFormat(s.Format)
	if err != nil {
		return nil, err
	}
	options := nats.SenderOptions{
		Subject: s.Subject, Core: !bool(s.JetStream), Stream: s.Stream, Format: format, Timeout: time.Duration(s.Timeout),
	}
	if s.SubjectFrom != nil {
		options.SubjectFrom = s.SubjectFrom.Eval
	}
	if len(s.Headers) > 0 {
		options.Headers = make(map[string]nats.Text, len(s.Headers))
		for name, value := range s.Headers {
			options.Headers[name] = value.Eval
		}
	}
	return b.Sender(options)
}
