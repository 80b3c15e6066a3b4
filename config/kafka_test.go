package config_test

import (
	"strings"
	"testing"
)

const kafkaFile = `
version: 1
store: { memory: {} }
connections:
  events: { kafka: { brokers: "k1:9093", tls: {}, sasl: { scram-sha-512: { username: gw, password: "${HUNTER}" } } } }
  tokens: { kafka: { brokers: [k1:9093, "[::1]:9093"], sasl: { oauthbearer: { token: "${HUNTER}" } } } }
routes:
  a:
    source: { kafka: { connection: events, topics: [orders, returns], group: gobridge-a, start: latest, order: partition } }
    bindings:
      lake: { kafka: { connection: events, topic_from: '"lake-" + payload.site', key_from: payload.id, headers: { x-kind: subject }, max_message_bytes: 2MiB } }
  b:
    source: { kafka: { connection: events, topics: orders, group: gobridge-b } }
    bindings:
      lake: { kafka: { connection: tokens, topic: lake } }
`

func TestKafka(t *testing.T) {
	c, err := parse(t, kafkaFile)
	if err != nil {
		t.Fatal(err)
	}
	conn := c.Connections["events"].Kafka
	if len(conn.Brokers) != 1 || conn.ClientID != "gobridge" || conn.TLS == nil || conn.SASL.ScramSHA512.Username != "gw" {
		t.Errorf("connection %+v", conn)
	}
	if password, err := conn.SASL.ScramSHA512.Password.Again(); password != "hunter2hunter2" || err != nil {
		t.Errorf("password %q, %v", password, err)
	}
	if s := c.Routes["a"].Source.Kafka; s.Start != "latest" || s.Order != "partition" || len(s.Topics) != 2 {
		t.Errorf("source %+v", s)
	}
	if s := c.Routes["b"].Source.Kafka; s.Start != "earliest" || s.Order != "key" || len(s.Topics) != 1 {
		t.Errorf("source %+v", s)
	}
	if b := c.Routes["a"].Bindings["lake"].Kafka; b.TopicFrom == nil || b.KeyFrom == nil || b.MaxMessageBytes != 2<<20 || b.Headers["x-kind"].Eval == nil {
		t.Errorf("binding %+v", b)
	}
	if b := c.Routes["b"].Bindings["lake"].Kafka; b.Format != "plain" || b.MaxMessageBytes != 1_000_000 || b.Compression != "snappy" {
		t.Errorf("binding %+v", b)
	}
	if got := c.Routes["a"].Source.Describe(); got != "kafka topics orders, returns of events as group gobridge-a" {
		t.Errorf("source: %s", got)
	}
	if got := c.Routes["b"].Bindings["lake"].Describe(); got != "kafka topic lake by tokens" {
		t.Errorf("binding: %s", got)
	}
}

func TestKafkaThatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"no broker", `brokers: "k1:9093"`, "brokers: []", "brokers"},
		{"a URL", `brokers: "k1:9093"`, `brokers: "kafka://k1:9093"`, "is not the address of a broker"},
		{"a port that is none", `brokers: "k1:9093"`, `brokers: "k1:0"`, "has a port that is not from 1 to 65535"},
		{"two mechanisms", "scram-sha-512:", `plain: { username: u, password: p }, scram-sha-512:`, "there is one mechanism here"},
		{"another mechanism", "scram-sha-512:", "scram-sha-1:", "did you mean scram-sha-"},
		{"no password", `username: gw, password: "${HUNTER}"`, "username: gw", "password is missing"},
		{"no group", "topics: orders, group: gobridge-b", "topics: orders", "group is missing"},
		{"one group twice", "gobridge-b", "gobridge-a", `group "gobridge-a" is that of route a, too`},
		{"two topics to produce to", "topic_from:", "topic: x, topic_from:", "there is one topic here"},
		{"too large a limit", "2MiB", "65MiB", "68157440 bytes are out of bounds"},
		{"too small a limit", "2MiB", "1000", "1000 bytes are out of bounds"},
		{"another start", "start: latest", "start: now", "earliest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(t, strings.Replace(kafkaFile, c.from, c.to, 1))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}
