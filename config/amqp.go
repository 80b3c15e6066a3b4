package config

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// AMQP is a connection.
type AMQP struct {
	Addresses []AMQPAddress `config:"addresses,required" least:"1" single:"true" example:"rabbit1:5672" doc:"The nodes of the cluster, any of which will do, or a list of them. The port is 5672 as a rule, and 5671 with TLS."`
	VHost     string        `config:"vhost" default:"/" example:"shop" doc:"The virtual host."`
	Username  *Secret       `config:"username" example:"gobridge" doc:"The user. A file (${file:PATH}) is read anew with every connection."`
	Password  *Secret       `config:"password" example:"${file:secrets/amqp}" doc:"The password. A file (${file:PATH}) is read anew with every connection."`
	External  Switch        `config:"external" default:"false" doc:"Log in by the client certificate of tls instead (SASL EXTERNAL), for which the server needs its plugin rabbitmq_auth_mechanism_ssl."`
	TLS       *ClientTLS    `config:"tls" doc:"Encrypt; {} for the system's roots."`
	Heartbeat Duration      `config:"heartbeat" default:"10s" doc:"After how long a silent connection counts as broken, in whole seconds, 1s to 10m."`
}

// AMQPSource takes messages.
type AMQPSource struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
	Queue      string         `config:"queue,required" example:"orders" doc:"The queue to consume. A routing key becomes the message's subject."`
	Prefetch   int            `config:"prefetch" min:"1" max:"65535" default:"1000" doc:"How many messages the broker hands out before it hears that the first is stored. It knows no bound in bytes: with large messages take a small number."`
	Shared     Switch         `config:"shared" default:"false" doc:"Let several processes consume side by side. Messages have no order then. Otherwise one process consumes, and another takes over when it is gone."`
	Dedupe     string         `config:"dedupe" enum:"message_id,none" default:"message_id" doc:"By what a message that is delivered again is known, if it has neither gobridge's own ID nor is a CloudEvent: the property message-id, or nothing. Take none if producers give the same message-id, app-id and content to different messages."`
	Declare    *AMQPQueue     `config:"declare" doc:"Make the queue and its bindings if they are not there; {} for a quorum queue. One that is there must be the same. When absent, nothing is made."`
}

// AMQPQueue is a queue that is made.
type AMQPQueue struct {
	Type         string      `config:"type" enum:"quorum,classic" default:"quorum" doc:"The type of the queue, which is durable. It can't be changed later."`
	SingleActive Switch      `config:"single_active_consumer" default:"true" doc:"Have the broker hand the messages to one consumer at a time. Set it to false for a shared queue."`
	Bindings     []AMQPRoute `config:"bindings" doc:"What the queue is bound to."`
}

// AMQPRoute binds a queue to an exchange.
type AMQPRoute struct {
	Exchange   string `config:"exchange,required" example:"events" doc:"The exchange, which has to be there."`
	RoutingKey string `config:"routing_key" example:"order.#" doc:"The key or pattern; the empty one when absent, for a fanout exchange."`
}

// AMQPBinding sends messages.
type AMQPBinding struct {
	Connection     ConnectionName      `config:"connection,required" doc:"The connection, by its name."`
	Exchange       string              `config:"exchange" one:"place to publish to" example:"events" doc:"The exchange to publish to."`
	ExchangeFrom   *TextExpr           `config:"exchange_from" one:"place to publish to" example:"\"events-\" + payload.country" doc:"An expression for the exchange. A message on which it fails is rejected."`
	Queue          string              `config:"queue" one:"place to publish to" example:"orders" doc:"The queue to publish to, through the default exchange."`
	RoutingKey     string              `config:"routing_key" example:"order.placed" doc:"The routing key. With an exchange it is the message's subject when neither this nor routing_key_from is given."`
	RoutingKeyFrom *TextExpr           `config:"routing_key_from" example:"\"order.\" + payload.country" doc:"An expression for the routing key. A message on which it fails is rejected."`
	Format         string              `config:"format" enum:"plain,cloudevents,cloudevents_structured" default:"plain" doc:"How messages go out: plain is the payload with headers beside it, cloudevents a CloudEvent in binary mode, cloudevents_structured one in JSON."`
	Headers        map[string]TextExpr `config:"headers" keys:"header" doc:"Further headers, each by an expression for its value. An empty one is left out."`
	Mandatory      Switch              `config:"mandatory" default:"true" doc:"A message that no queue gets is not delivered. With false it is, and gone."`
	MaxMessageSize Size                `config:"max_message_size" default:"128MiB" doc:"The largest payload that the broker takes, its max_message_size. A larger message is refused before it is sent."`
	Declare        *AMQPExchange       `config:"declare" doc:"Make the exchange if it is not there; {} for a topic exchange. One that is there must be of the same type. When absent, nothing is made."`
}

// AMQPExchange is an exchange that is made.
type AMQPExchange struct {
	Type string `config:"type" enum:"topic,direct,fanout,headers" default:"topic" doc:"The type of the exchange, which is durable. It can't be changed later."`
}

func (s *AMQPSource) describe() string {
	return "amqp queue " + s.Queue + " by " + string(s.Connection)
}

func (b *AMQPBinding) describe() string {
	switch {
	case b.ExchangeFrom != nil:
		return "amqp exchange " + b.ExchangeFrom.Source + " by " + string(b.Connection)
	case b.Exchange != "":
		return "amqp exchange " + b.Exchange + " by " + string(b.Connection)
	}
	return "amqp queue " + b.Queue + " by " + string(b.Connection)
}

// AMQPAddress is the address of a node.
type AMQPAddress string

func (a *AMQPAddress) parse(text string) error {
	var address Address
	switch err := address.parse(text); {
	case strings.Contains(text, "://"):
		return errors.New("is a URL, and not a host and a port")
	case err != nil:
		return err
	case strings.HasPrefix(text, ":") || strings.HasSuffix(text, ":0"):
		return errors.New("has no host or no port")
	}
	*a = AMQPAddress(text)
	return nil
}

func (AMQPAddress) kind() kind {
	return kind{
		Name:    "AMQP address",
		Doc:     "A host and a port, as in rabbit1:5672 or [::1]:5671.",
		Pattern: `^[^/]+:[0-9]+$`,
		Hint:    "write host:port, like rabbit1:5672; user, password and virtual host have fields of their own",
		Secret:  true, // somebody may have put a password in
	}
}

// maxAMQPName is the longest name of a queue or exchange, and routing key, in bytes.
const maxAMQPName = 255

// checkAMQP reports what is wrong between the fields of connections and routes.
func (d *decoder) checkAMQP(c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Connections)) {
		if a := c.Connections[name].AMQP; a != nil {
			d.checkAMQPConnection(a, join("connections", name)+".amqp")
		}
	}
	taken := map[string]string{} // routes by connection and queue
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[route]
		if s := r.Source.AMQP; s != nil {
			d.checkAMQPSource(s, route, taken)
		}
		for _, binding := range slices.Sorted(maps.Keys(r.Bindings)) {
			if b := r.Bindings[binding].AMQP; b != nil {
				d.checkAMQPBinding(b, join(join("routes", route)+".bindings", binding)+".amqp")
			}
		}
	}
}

func (d *decoder) checkAMQPConnection(a *AMQP, where string) {
	user := a.Username != nil || a.Password != nil
	switch {
	case bool(a.External) && user:
		d.reportAt(d.at[where+".external"], where+".external", "take one of them out", "a user is given, and external is true")
	case bool(a.External) && (a.TLS == nil || a.TLS.Cert == ""):
		d.reportAt(d.at[where+".external"], where+".external", "give tls.cert and tls.key", "external needs a client certificate")
	case !bool(a.External) && (a.Username == nil || a.Password == nil):
		d.reportAt(d.at[where], where, "give username and password, or external: true with a client certificate", "there are no credentials")
	}
	if h := time.Duration(a.Heartbeat); h > 0 && (h < time.Second || h > 10*time.Minute || h%time.Second != 0) {
		d.reportAt(d.at[where+".heartbeat"], where+".heartbeat", "write 1s to 10m", "%s is not a number of seconds from 1s to 10m", a.Heartbeat)
	}
	d.checkAMQPName(a.VHost, where+".vhost")
}

func (d *decoder) checkAMQPSource(s *AMQPSource, route string, taken map[string]string) {
	where := join("routes", route) + ".source.amqp"
	d.checkAMQPName(s.Queue, where+".queue")
	key := string(s.Connection) + " " + s.Queue
	if other, ok := taken[key]; ok && s.Queue != "" {
		d.reportAt(d.at[where+".queue"], where+".queue", "give each route a queue of its own",
			"queue %s is that of route %s, too: each message would go to one of them", quote(s.Queue), other)
	}
	taken[key] = route
	if s.Declare == nil {
		return
	}
	if bool(s.Shared) && bool(s.Declare.SingleActive) {
		at := where + ".declare"
		d.reportAt(d.at[at], at, "set single_active_consumer: false", "the queue is shared, and is to be declared with a single active consumer")
	}
	for _, b := range s.Declare.Bindings {
		d.checkAMQPName(b.Exchange, where+".declare.bindings")
		d.checkAMQPName(b.RoutingKey, where+".declare.bindings")
	}
}

func (d *decoder) checkAMQPBinding(b *AMQPBinding, where string) {
	d.checkAMQPName(b.Exchange, where+".exchange")
	d.checkAMQPName(b.Queue, where+".queue")
	d.checkAMQPName(b.RoutingKey, where+".routing_key")
	switch {
	case b.RoutingKey != "" && b.RoutingKeyFrom != nil:
		d.reportAt(d.at[where+".routing_key"], where+".routing_key", "take one of them out", "both routing_key and routing_key_from are given")
	case b.Queue != "" && (b.RoutingKey != "" || b.RoutingKeyFrom != nil):
		d.reportAt(d.at[where+".queue"], where+".queue", "take the routing key out", "a queue is given and a routing key, which the queue's name already is")
	}
	if b.Declare != nil && b.Exchange == "" {
		d.reportAt(d.at[where+".declare"], where+".declare", "give exchange", "only an exchange with a fixed name can be declared")
	}
}

// checkAMQPName reports a name that AMQP has no room for.
func (d *decoder) checkAMQPName(name, where string) {
	switch {
	case len(name) > maxAMQPName:
		d.reportAt(d.at[where], where, "", "it has %d bytes; AMQP allows %d", len(name), maxAMQPName)
	case !utf8.ValidString(name):
		d.reportAt(d.at[where], where, "", "it is not UTF-8")
	}
}
