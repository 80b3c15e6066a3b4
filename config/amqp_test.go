package config_test

import (
	"strings"
	"testing"
	"time"

	"gobridge/config"
)

const amqpFile = `
version: 1
store: { memory: {} }
connections:
  rabbit:
    amqp:
      addresses: [rabbit1:5672, "[::1]:5673"]
      username: gw
      password: "${HUNTER}"
routes:
  r:
    source:
      amqp:
        connection: rabbit
        queue: orders
        declare: { bindings: [{ exchange: events, routing_key: "order.#" }, { exchange: all }] }
    bindings:
      b: { amqp: { connection: rabbit, exchange: out, routing_key_from: '"out." + payload.country', headers: { x-kind: subject }, declare: {} } }
      q: { amqp: { connection: rabbit, queue: work, mandatory: false, max_message_size: 1MiB } }
`

func TestAMQP(t *testing.T) {
	c, err := parse(t, amqpFile)
	if err != nil {
		t.Fatal(err)
	}
	conn := c.Connections["rabbit"].AMQP
	if len(conn.Addresses) != 2 || conn.VHost != "/" || time.Duration(conn.Heartbeat) != 10*time.Second || conn.TLS != nil || bool(conn.External) {
		t.Errorf("connection %+v", conn)
	}
	if password, err := conn.Password.Again(); password != "hunter2hunter2" || err != nil {
		t.Errorf("password %q, %v", password, err)
	}
	s := c.Routes["r"].Source.AMQP
	if s.Prefetch != 1000 || s.Dedupe != "message_id" || bool(s.Shared) || s.Declare.Type != "quorum" || !bool(s.Declare.SingleActive) ||
		len(s.Declare.Bindings) != 2 || s.Declare.Bindings[0] != (config.AMQPRoute{Exchange: "events", RoutingKey: "order.#"}) {
		t.Errorf("source %+v %+v", s, s.Declare)
	}
	b := c.Routes["r"].Bindings["b"].AMQP
	if !bool(b.Mandatory) || b.Format != "plain" || b.MaxMessageSize != 128<<20 || b.Headers["x-kind"].Eval == nil || b.Declare.Type != "topic" {
		t.Errorf("binding %+v", b)
	}
	if q := c.Routes["r"].Bindings["q"].AMQP; bool(q.Mandatory) || q.MaxMessageSize != 1<<20 || q.Declare != nil {
		t.Errorf("binding %+v", q)
	}
	for got, want := range map[string]string{
		c.Routes["r"].Source.Describe():        "amqp queue orders by rabbit",
		c.Routes["r"].Bindings["b"].Describe(): "amqp exchange out by rabbit",
		c.Routes["r"].Bindings["q"].Describe(): "amqp queue work by rabbit",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAMQPThatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"a URL", "rabbit1:5672", `"amqp://u:hunter2@rabbit1:5672"`, "is a URL, and not a host and a port"},
		{"no port", "rabbit1:5672", "rabbit1", "is not an address"},
		{"no host", "rabbit1:5672", `":5672"`, "has no host or no port"},
		{"no password", `password: "${HUNTER}"`, "", "there are no credentials"},
		{"a user and a certificate", "username: gw", "external: true\n      username: gw", "a user is given, and external is true"},
		{"external without a certificate", "username: gw\n      password: \"${HUNTER}\"", "external: true", "external needs a client certificate"},
		{"a heartbeat that is too short", "username: gw", "heartbeat: 100ms\n      username: gw", "100ms is not a number of seconds from 1s to 10m"},
		{"a prefetch that is too large", "queue: orders", "queue: orders\n        prefetch: 70000", "1 to 65535"},
		{"a long queue", "queue: orders", "queue: " + strings.Repeat("q", 256), "it has 256 bytes; AMQP allows 255"},
		{"a long pattern", "order.#", strings.Repeat("q", 256), "it has 256 bytes; AMQP allows 255"},
		{"shared, and one active", "queue: orders", "queue: orders\n        shared: true", "set single_active_consumer: false"},
		{"two places", "exchange: out", "exchange: out, queue: work", "there is one place to publish to here"},
		{"no place", "exchange: out, ", "", "place to publish to"},
		{"two routing keys", "exchange: out", "exchange: out, routing_key: k", "both routing_key and routing_key_from are given"},
		{"a queue and a key", "queue: work", "queue: work, routing_key: k", "a queue is given and a routing key"},
		{"a queue to declare", "queue: work", "queue: work, declare: {}", "only an exchange with a fixed name can be declared"},
		{"a type that is none", "declare: {} }", "declare: { type: magic } }", "topic, direct, fanout"},
	} {
		_, err := parse(t, strings.Replace(amqpFile, c.from, c.to, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a password: %v", c.name, err)
		}
	}
	two := amqpFile + "  s:\n    source: { amqp: { connection: rabbit, queue: orders } }\n    bindings: { b: { stdout: {} } }\n"
	if _, err := parse(t, two); err == nil || !strings.Contains(err.Error(), "queue \"orders\" is that of route r, too") {
		t.Errorf("two routes of a queue: %v", err)
	}
}
