package main

import (
	"log/slog"
	"time"

	"gobridge"
	"gobridge/config"
	"gobridge/internal/mapping"
	"gobridge/messaging"
	"gobridge/transport/amqp"
)

// amqpBroker is a connection.
type amqpBroker struct {
	*amqp.Connection
	log *slog.Logger
}

func openAMQP(c *config.AMQP, log *slog.Logger) (broker, error) {
	options := amqp.Options{
		VHost: c.VHost, External: bool(c.External), TLS: clientTLS(c.TLS), Heartbeat: time.Duration(c.Heartbeat), Logger: log,
	}
	for _, a := range c.Addresses {
		options.Addresses = append(options.Addresses, string(a))
	}
	if c.Username != nil && c.Password != nil {
		options.Username, options.Password = c.Username.Again, c.Password.Again
	}
	conn, err := amqp.New(options)
	if err != nil {
		return nil, err
	}
	return amqpBroker{conn, log}, nil
}

func (b amqpBroker) receiver(route string, source config.Source) (gobridge.Receiver, error) {
	s := source.AMQP
	options := amqp.ReceiverOptions{
		Queue: s.Queue, Prefetch: s.Prefetch, Shared: bool(s.Shared), Logger: b.log.With("route", route),
	}
	if s.Dedupe == "none" {
		options.Dedupe = amqp.ByNothing
	}
	if q := s.Declare; q != nil {
		options.Declare = &amqp.Queue{Classic: q.Type == "classic", AllActive: !bool(q.SingleActive)}
		for _, to := range q.Bindings {
			options.Declare.Bindings = append(options.Declare.Bindings, amqp.Binding{Exchange: to.Exchange, RoutingKey: to.RoutingKey})
		}
	}
	return b.Receiver(options)
}

func (b amqpBroker) sender(route, name string, binding config.Binding) (gobridge.Sender, error) {
	s := binding.AMQP
	format, err := mapping.ParseFormat(s.Format)
	if err != nil {
		return nil, err
	}
	options := amqp.SenderOptions{
		Exchange: s.Exchange, RoutingKey: s.RoutingKey, Format: format, DropUnroutable: !bool(s.Mandatory),
		MaxMessageSize: int64(s.MaxMessageSize), Logger: b.log.With("route", route, "binding", name),
	}
	if s.ExchangeFrom != nil {
		options.ExchangeFrom = s.ExchangeFrom.Eval
	}
	switch {
	case s.Queue != "":
		options.RoutingKey = s.Queue
	case s.RoutingKeyFrom != nil:
		options.RoutingKeyFrom = s.RoutingKeyFrom.Eval
	case s.RoutingKey == "":
		options.RoutingKeyFrom = func(e *messaging.Envelope) (string, error) { return e.Subject, nil }
	}
	if s.Declare != nil {
		options.DeclareExchange = s.Declare.Type
	}
	if len(s.Headers) > 0 {
		options.Headers = make(map[string]amqp.Text, len(s.Headers))
		for header, value := range s.Headers {
			options.Headers[header] = value.Eval
		}
	}
	return b.Sender(options)
}
