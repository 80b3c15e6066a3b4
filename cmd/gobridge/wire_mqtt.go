package main

import (
	"errors"
	"log/slog"

	"gobridge"
	"gobridge/config"
)

// mqttBroker is a connection.
type mqttBroker struct{}

func openMQTT(*config.MQTT, *slog.Logger) (broker, error) { return mqttBroker{}, nil }

func (mqttBroker) Close() error { return nil }

func (mqttBroker) receiver(string, config.Source) (gobridge.Receiver, error) {
	return nil, errors.New("not there yet")
}

func (mqttBroker) sender(string, string, config.Binding) (gobridge.Sender, error) {
	return nil, errors.New("not there yet")
}
