package main

import (
	"log/slog"

	"gobridge"
	"gobridge/config"
	"gobridge/internal/mapping"
	"gobridge/messaging"
	"gobridge/transport/kafka"
)

// kafkaBroker is a connection.
type kafkaBroker struct{ *kafka.Connection }

func openKafka(c *config.Kafka, log *slog.Logger) (broker, error) {
	options := kafka.Options{ClientID: c.ClientID, TLS: clientTLS(c.TLS), SASL: kafkaSASL(c.SASL), Logger: log}
	for _, b := range c.Brokers {
		options.Brokers = append(options.Brokers, string(b))
	}
	connection, err := kafka.New(options)
	if err != nil {
		return nil, err
	}
	return kafkaBroker{connection}, nil
}

// kafkaSASL returns how to authenticate, nil for not at all.
func kafkaSASL(c *config.KafkaSASL) *kafka.SASL {
	if c == nil {
		return nil
	}
	if c.OAuthBearer != nil {
		return &kafka.SASL{Mechanism: kafka.OAuthBearer, Secret: c.OAuthBearer.Token.Again}
	}
	user, mechanism := c.Plain, kafka.Plain
	switch {
	case c.ScramSHA256 != nil:
		user, mechanism = c.ScramSHA256, kafka.ScramSHA256
	case c.ScramSHA512 != nil:
		user, mechanism = c.ScramSHA512, kafka.ScramSHA512
	}
	return &kafka.SASL{Mechanism: mechanism, Username: user.Username, Secret: user.Password.Again}
}

func (b kafkaBroker) receiver(_ string, source config.Source) (gobridge.Receiver, error) {
	s := source.Kafka
	options := kafka.ReceiverOptions{Topics: s.Topics, Group: s.Group, FromEnd: s.Start == "latest"}
	if s.Order == "partition" {
		options.Order = kafka.ByPartition
	}
	return b.Receiver(options)
}

func (b kafkaBroker) sender(_, _ string, binding config.Binding) (gobridge.Sender, error) {
	k := binding.Kafka
	format, err := mapping.ParseFormat(k.Format)
	if err != nil {
		return nil, err
	}
	options := kafka.SenderOptions{
		Topic:           k.Topic,
		Format:          format,
		MaxMessageBytes: int(k.MaxMessageBytes),
		Compression:     k.Compression,
		Headers:         map[string]func(*messaging.Envelope) (string, error){},
	}
	if k.TopicFrom != nil {
		options.TopicFrom = k.TopicFrom.Eval
	}
	if k.KeyFrom != nil {
		options.KeyFrom = k.KeyFrom.Eval
	}
	for name, value := range k.Headers {
		options.Headers[name] = value.Eval
	}
	return b.Sender(options)
}
