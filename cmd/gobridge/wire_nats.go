package main

import (
	"errors"
	"log/slog"

	"gobridge"
	"gobridge/config"
)

// natsBroker is a connection.
type natsBroker struct{}

func openNATS(*config.NATS, *slog.Logger) (broker, error) { return natsBroker{}, nil }

func (natsBroker) Close() error { return nil }

func (natsBroker) receiver(string, config.Source) (gobridge.Receiver, error) {
	return nil, errors.New("not there yet")
}

func (natsBroker) sender(string, string, config.Binding) (gobridge.Sender, error) {
	return nil, errors.New("not there yet")
}
