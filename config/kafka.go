package config

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
)

// Kafka is a connection.
type Kafka struct {
	Brokers  []KafkaBroker `config:"brokers,required" least:"1" single:"true" example:"[k1:9093, k2:9093]" doc:"Brokers to begin with, or one; they tell of the others."`
	TLS      *ClientTLS    `config:"tls" doc:"Encrypt; {} for the system's roots."`
	SASL     *KafkaSASL    `config:"sasl" doc:"How to authenticate. Secrets in files are read anew with every connection."`
	ClientID string        `config:"client_id" default:"gobridge" doc:"What the brokers call this client in logs and quotas."`
}

// KafkaSASL is how to authenticate.
type KafkaSASL struct {
	Plain       *KafkaUser  `config:"plain" one:"mechanism" doc:"A username and a password, which go over the wire as they are: use it with tls."`
	ScramSHA256 *KafkaUser  `config:"scram-sha-256" one:"mechanism" doc:"A username and a password, by SCRAM with SHA-256."`
	ScramSHA512 *KafkaUser  `config:"scram-sha-512" one:"mechanism" doc:"A username and a password, by SCRAM with SHA-512."`
	OAuthBearer *KafkaToken `config:"oauthbearer" one:"mechanism" doc:"A token, which something else keeps fresh in its file."`
}

// KafkaUser is a user.
type KafkaUser struct {
	Username string `config:"username,required" example:"gobridge" doc:"The user's name."`
	Password Secret `config:"password,required" example:"${file:secrets/kafka}" doc:"The user's password."`
}

// KafkaToken is a token.
type KafkaToken struct {
	Token Secret `config:"token,required" example:"${file:secrets/kafka-token}" doc:"The token, as it is sent."`
}

// KafkaSource takes messages.
type KafkaSource struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
	Topics     []string       `config:"topics,required" least:"1" single:"true" example:"[orders, returns]" doc:"The topic, or a list of them."`
	Group      string         `config:"group,required" example:"gobridge-orders" doc:"The consumer group, which no other route and nobody else uses. Processes with the same file share its partitions."`
	Start      string         `config:"start" enum:"earliest,latest" default:"earliest" doc:"Where a topic begins of which the group has no offset: earliest with the first message that is there, latest with the next that comes."`
	Order      string         `config:"order" enum:"key,partition" default:"key" doc:"What keeps its order: messages with the same key, or everything in a partition, whatever its key. The route's ordering_key takes its place."`
}

// KafkaBinding sends messages.
type KafkaBinding struct {
	Connection      ConnectionName      `config:"connection,required" doc:"The connection, by its name."`
	Topic           string              `config:"topic" one:"topic" example:"orders" doc:"The topic, which has to be there."`
	TopicFrom       *TextExpr           `config:"topic_from" one:"topic" example:"\"orders-\" + payload.country" doc:"An expression for the topic. A message on which it fails, or for which it gives no name of a topic, is rejected."`
	KeyFrom         *TextExpr           `config:"key_from" example:"payload.customer_id" doc:"An expression for the record's key; the ordering key when absent. An empty one is no key. A message on which it fails is rejected."`
	Headers         map[string]TextExpr `config:"headers" keys:"header" doc:"Further record headers, each by an expression for its value. An empty one is left out."`
	Format          string              `config:"format" enum:"plain,cloudevents,cloudevents_structured" default:"plain" doc:"How messages go out: plain is the payload with headers beside it, cloudevents a CloudEvent in binary mode, cloudevents_structured one in JSON."`
	MaxMessageBytes Size                `config:"max_message_bytes" default:"1000000" doc:"The largest record with key and headers, from 1KiB to 64MiB; a message that would be larger is rejected. Not above what the topic takes (max.message.bytes)."`
	Compression     string              `config:"compression" enum:"none,gzip,snappy,lz4,zstd" default:"snappy" doc:"How records are compressed on their way and in the topic."`
}

func (s *KafkaSource) describe() string {
	what := "topic "
	if len(s.Topics) > 1 {
		what = "topics "
	}
	return "kafka " + what + strings.Join(s.Topics, ", ") + " of " + string(s.Connection) + " as group " + s.Group
}

func (b *KafkaBinding) describe() string {
	topic := b.Topic
	if b.TopicFrom != nil {
		topic = b.TopicFrom.Source
	}
	return "kafka topic " + topic + " by " + string(b.Connection)
}

// KafkaBroker is the address of a broker.
type KafkaBroker string

func (b *KafkaBroker) parse(text string) error {
	host, port, err := net.SplitHostPort(text)
	switch {
	case err != nil || host == "" || strings.Contains(host, "/"):
		return errors.New("is not the address of a broker")
	case !isPort(port):
		return errors.New("has a port that is not from 1 to 65535")
	}
	*b = KafkaBroker(text)
	return nil
}

func (KafkaBroker) kind() kind {
	return kind{
		Name:    "broker",
		Doc:     "A host and a port, as in k1:9093.",
		Pattern: `^[^/]+:[0-9]+$`,
		Hint:    "write host:port, like k1:9093; whether it is encrypted stands under tls",
	}
}

// The bounds of max_message_bytes.
const (
	minKafkaMessage = 1 << 10
	maxKafkaMessage = 64 << 20
)

// checkKafka reports what is wrong between the fields of routes, and bounds.
func (d *decoder) checkKafka(c *Config) {
	taken := map[string]string{} // by connection and group
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[route]
		if s := r.Source.Kafka; s != nil && s.Group != "" {
			where := join("routes", route) + ".source.kafka.group"
			key := string(s.Connection) + " " + s.Group
			if other, ok := taken[key]; ok {
				d.reportAt(d.at[where], where, "give each route a group of its own",
					"group %s is that of route %s, too: each message would go to one of them", quote(s.Group), other)
			}
			taken[key] = route
		}
		for _, binding := range slices.Sorted(maps.Keys(r.Bindings)) {
			b := r.Bindings[binding].Kafka
			if b == nil || b.MaxMessageBytes == 0 || minKafkaMessage <= b.MaxMessageBytes && b.MaxMessageBytes <= maxKafkaMessage {
				continue
			}
			where := join(join("routes", route)+".bindings", binding) + ".kafka.max_message_bytes"
			d.reportAt(d.at[where], where, "write 1KiB to 64MiB", "%d bytes are out of bounds", b.MaxMessageBytes)
		}
	}
}
