package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"gobridge"
	"gobridge/config"
	"gobridge/internal/mapping"
	"gobridge/transport/mqtt"
)

// mqttBroker is a connection.
type mqttBroker struct {
	*mqtt.Connection
	clientID string
}

func openMQTT(c *config.MQTT, log *slog.Logger) (broker, error) {
	options := mqtt.Options{ClientID: c.ClientID, KeepAlive: time.Duration(c.KeepAlive), MaxPacket: int(c.MaxPacket), Logger: log}
	for _, u := range c.URL {
		options.URLs = append(options.URLs, string(u))
	}
	if c.Username != nil {
		options.Username = c.Username.Again
	}
	if c.Password != nil {
		options.Password = c.Password.Again
	}
	options.TLS = clientTLS(c.TLS)
	connection, err := mqtt.New(options)
	if err != nil {
		return nil, err
	}
	return mqttBroker{connection, c.ClientID}, nil
}

func (b mqttBroker) receiver(route string, source config.Source) (gobridge.Receiver, error) {
	s := source.MQTT
	clientID := s.ClientID
	if clientID == "" {
		clientID = b.clientID + "-" + route
	}
	if s.Share != "" {
		machine, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("the machine's name, for the client ID: %w", err)
		}
		clientID += "-" + machine
	}
	return b.Receiver(mqtt.ReceiverOptions{
		Topics:         s.Topics,
		ClientID:       clientID,
		QoS:            byte(s.QoS),
		SessionExpiry:  time.Duration(s.SessionExpiry),
		ReceiveMaximum: uint16(s.ReceiveMaximum),
		Share:          s.Share,
		IgnoreRetained: s.Retained == "ignore",
		IDProperty:     s.IDProperty,
	})
}

func (b mqttBroker) sender(route, name string, binding config.Binding) (gobridge.Sender, error) {
	m := binding.MQTT
	format, err := mapping.ParseFormat(m.Format)
	if err != nil {
		return nil, err
	}
	options := mqtt.SenderOptions{
		ClientID: b.clientID + "-" + route + "-" + name,
		Topic:    m.Topic,
		QoS:      byte(m.QoS),
		Retain:   bool(m.Retain),
		Format:   format,
		Timeout:  time.Duration(m.Timeout),
		Headers:  map[string]mqtt.Text{},
	}
	if m.TopicFrom != nil {
		options.TopicFrom = m.TopicFrom.Eval
	}
	for name, value := range m.Headers {
		options.Headers[name] = value.Eval
	}
	return b.Sender(options)
}
