package main

import (
	"errors"
	"log/slog"

	"gobridge"
	"gobridge/config"
)

// amqpBroker is a connection.
type amqpBroker struct{}

func openAMQP(*config.AMQP, *slog.Logger) (broker, error) { return amqpBroker{}, nil }

func (amqpBroker) Close() error { return nil }

func (amqpBroker) receiver(string, config.Source) (gobridge.Receiver, error) {
	return nil, errors.New("not there yet")
}

func (amqpBroker) sender(string, string, config.Binding) (gobridge.Sender, error) {
	return nil, errors.New("not there yet")
}
