package main

import (
	"errors"
	"log/slog"

	"gobridge"
	"gobridge/config"
)

// kafkaBroker is a connection.
type kafkaBroker struct{}

func openKafka(*config.Kafka, *slog.Logger) (broker, error) { return kafkaBroker{}, nil }

func (kafkaBroker) Close() error { return nil }

func (kafkaBroker) receiver(string, config.Source) (gobridge.Receiver, error) {
	return nil, errors.New("not there yet")
}

func (kafkaBroker) sender(string, string, config.Binding) (gobridge.Sender, error) {
	return nil, errors.New("not there yet")
}
