package config

import (
	"maps"
	"slices"
	"strings"

	"gobridge/internal/spelling"
)

// Connection is a broker or cloud that sources and destinations share.
type Connection struct {
	Kafka *Kafka `config:"kafka" one:"kind of connection" doc:"A Kafka cluster, or one that speaks its protocol."`
	NATS  *NATS  `config:"nats" one:"kind of connection" doc:"NATS servers."`
	MQTT  *MQTT  `config:"mqtt" one:"kind of connection" doc:"An MQTT 5 broker."`
	AMQP  *AMQP  `config:"amqp" one:"kind of connection" doc:"A RabbitMQ server, or another that speaks AMQP 0-9-1."`
	AWS   *AWS   `config:"aws" one:"kind of connection" doc:"An AWS account, for SQS and SNS."`
}

// kind returns the name of the field that is set.
func (c Connection) kind() string {
	switch {
	case c.Kafka != nil:
		return "kafka"
	case c.NATS != nil:
		return "nats"
	case c.MQTT != nil:
		return "mqtt"
	case c.AMQP != nil:
		return "amqp"
	case c.AWS != nil:
		return "aws"
	}
	return ""
}

// ClientTLS is how a connection is encrypted.
type ClientTLS struct {
	CA         string `config:"ca" example:"tls/ca.pem" doc:"The roots to trust, a PEM file; the system's when absent. Files are relative to the working directory and read anew with every connection."`
	Cert       string `config:"cert" example:"tls/client.pem" doc:"The client's certificate chain, a PEM file, for mutual TLS."`
	Key        string `config:"key" example:"tls/client-key.pem" doc:"The client's private key, a PEM file, for mutual TLS."`
	ServerName string `config:"server_name" doc:"The name that the server's certificate must have; the host that is dialled when absent."`
}

// Connection names the connection that a source uses, and its kind; empty for
// one that needs none.
func (s Source) Connection() (name, kind string) {
	switch {
	case s.Kafka != nil:
		return string(s.Kafka.Connection), "kafka"
	case s.NATS != nil:
		return string(s.NATS.Connection), "nats"
	case s.MQTT != nil:
		return string(s.MQTT.Connection), "mqtt"
	case s.AMQP != nil:
		return string(s.AMQP.Connection), "amqp"
	case s.SQS != nil:
		return string(s.SQS.Connection), "aws"
	}
	return "", ""
}

// Connection names the connection that a destination uses, and its kind; empty
// for one that needs none.
func (b Binding) Connection() (name, kind string) {
	switch {
	case b.Kafka != nil:
		return string(b.Kafka.Connection), "kafka"
	case b.NATS != nil:
		return string(b.NATS.Connection), "nats"
	case b.MQTT != nil:
		return string(b.MQTT.Connection), "mqtt"
	case b.AMQP != nil:
		return string(b.AMQP.Connection), "amqp"
	case b.SQS != nil:
		return string(b.SQS.Connection), "aws"
	case b.SNS != nil:
		return string(b.SNS.Connection), "aws"
	}
	return "", ""
}

// Describe says in a few words what a source on a connection consumes.
func (s Source) Describe() string {
	switch {
	case s.Kafka != nil:
		return s.Kafka.describe()
	case s.NATS != nil:
		return s.NATS.describe()
	case s.MQTT != nil:
		return s.MQTT.describe()
	case s.AMQP != nil:
		return s.AMQP.describe()
	case s.SQS != nil:
		return s.SQS.describe()
	}
	return ""
}

// Describe says in a few words where a destination on a connection is.
func (b Binding) Describe() string {
	switch {
	case b.Kafka != nil:
		return b.Kafka.describe()
	case b.NATS != nil:
		return b.NATS.describe()
	case b.MQTT != nil:
		return b.MQTT.describe()
	case b.AMQP != nil:
		return b.AMQP.describe()
	case b.SQS != nil:
		return b.SQS.describe()
	case b.SNS != nil:
		return b.SNS.describe()
	}
	return ""
}

// checkConnections reports references to connections that are not there, or of
// another kind.
func (d *decoder) checkConnections(c *Config) {
	check := func(name, kind, field, where string) {
		if name == "" {
			return // none, or reported
		}
		at := where + "." + field + ".connection"
		connection, ok := c.Connections[name]
		if !ok {
			hint := "name it under connections"
			if guess := spelling.Nearest(name, slices.Sorted(maps.Keys(c.Connections))); guess != "" {
				hint = "did you mean " + guess + "?"
			}
			d.reportAt(d.at[at], at, hint, "there is no connection %s", quote(name))
			return
		}
		if have := connection.kind(); have != kind && have != "" {
			d.reportAt(d.at[at], at, "name one of kind "+kind, "connection %s is of kind %s, not %s", quote(name), have, kind)
		}
	}
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[route]
		where := join("routes", route)
		name, kind := r.Source.Connection()
		check(name, kind, fieldOf(kind, r.Source.SQS != nil, false), where+".source")
		for _, binding := range slices.Sorted(maps.Keys(r.Bindings)) {
			b := r.Bindings[binding]
			name, kind := b.Connection()
			check(name, kind, fieldOf(kind, b.SQS != nil, b.SNS != nil), join(where+".bindings", binding))
		}
	}
}

// fieldOf returns the field under which a source or destination stands.
func fieldOf(kind string, sqs, sns bool) string {
	switch {
	case sqs:
		return "sqs"
	case sns:
		return "sns"
	}
	return strings.ToLower(kind)
}
