package main

import (
	"errors"
	"log/slog"

	"gobridge"
	"gobridge/config"
)

// awsBroker is a connection.
type awsBroker struct{}

func openAWS(*config.AWS, *slog.Logger) (broker, error) { return awsBroker{}, nil }

func (awsBroker) Close() error { return nil }

func (awsBroker) receiver(string, config.Source) (gobridge.Receiver, error) {
	return nil, errors.New("not there yet")
}

func (awsBroker) sender(string, string, config.Binding) (gobridge.Sender, error) {
	return nil, errors.New("not there yet")
}
