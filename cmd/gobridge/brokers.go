package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"

	"gobridge"
	"gobridge/config"
	"gobridge/internal/clienttls"
)

// broker is a connection of the configuration. Making one, its receivers and its
// senders connects to nothing yet and checks all that can be checked without. What
// they have in common lives until Close.
type broker interface {
	io.Closer
	// receiver makes the receiver of a route whose source uses this connection.
	receiver(route string, source config.Source) (gobridge.Receiver, error)
	// sender makes the sender of a binding that uses this connection.
	sender(route, binding string, b config.Binding) (gobridge.Sender, error)
}

// brokers are the connections by their names.
type brokers map[string]broker

// openBrokers makes the connections that are not there already: those are taken.
func openBrokers(c *config.Config, there brokers, log *slog.Logger) (brokers, error) {
	out, made := brokers{}, brokers{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Connections)) {
		if b, ok := there[name]; ok {
			out[name] = b
			continue
		}
		b, err := openBroker(c.Connections[name], log.With("connection", name))
		if err != nil {
			errs = append(errs, c.Wrong(err, "connections", name))
			continue
		}
		out[name], made[name] = b, b
	}
	if len(errs) > 0 {
		_ = made.Close()
		return nil, errors.Join(errs...)
	}
	return out, nil
}

//nolint:contextcheck,nolintlint // what is made connects later, with the contexts of its calls
func openBroker(c config.Connection, log *slog.Logger) (broker, error) {
	switch {
	case c.Kafka != nil:
		return openKafka(c.Kafka, log)
	case c.NATS != nil:
		return openNATS(c.NATS, log)
	case c.MQTT != nil:
		return openMQTT(c.MQTT, log)
	case c.AMQP != nil:
		return openAMQP(c.AMQP, log)
	default:
		return openAWS(c.AWS, log)
	}
}

// Close closes the connections.
func (b brokers) Close() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if err := b[name].Close(); err != nil {
			errs = append(errs, fmt.Errorf("close connection %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// receivers makes the receivers, by route, that are not there already: those are
// taken.
func (b brokers) receivers(c *config.Config, there map[string]gobridge.Receiver) (map[string]gobridge.Receiver, error) {
	out := map[string]gobridge.Receiver{}
	var errs []error
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		source := c.Routes[route].Source
		name, kind := source.Connection()
		if kind == "" {
			continue
		}
		if r, ok := there[route]; ok {
			out[route] = r
			continue
		}
		r, err := b[name].receiver(route, source)
		if err != nil {
			errs = append(errs, c.Wrong(err, "routes", route, "source"))
			continue
		}
		out[route] = r
	}
	return out, errors.Join(errs...)
}

// sender makes the sender of a binding that uses a connection, or is a webhook; nil for
// another one.
func (b brokers) sender(c *config.Config, route, binding string) (gobridge.Sender, error) {
	of := c.Routes[route].Bindings[binding]
	where := []string{"routes", route, "bindings", binding}
	var sender gobridge.Sender
	var err error
	switch name, kind := of.Connection(); {
	case kind != "":
		sender, err = b[name].sender(route, binding, of)
	case of.Webhook != nil:
		sender, err = newWebhook(of, c.Routes[route].Partitions)
		where = append(where, "webhook")
	}
	if err != nil {
		return nil, c.Wrong(err, where...)
	}
	return sender, nil
}

// clientTLS returns how a connection is encrypted, nil for not at all.
func clientTLS(c *config.ClientTLS) *clienttls.Options {
	if c == nil {
		return nil
	}
	return &clienttls.Options{CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName}
}
