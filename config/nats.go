package config

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// NATS is a connection.
type NATS struct {
	Servers     []NATSServer `config:"servers,required" least:"1" single:"true" example:"nats://n1:4222" doc:"The servers, any of which will do, or a list of them: all by ws and wss, or none. Those that a server tells of are not used: list them all."`
	TLS         *ClientTLS   `config:"tls" doc:"Encrypt; {} for the system's roots."`
	TLSFirst    Switch       `config:"tls_first" default:"false" doc:"Begin with TLS before the server has said anything, for servers with handshake_first."`
	Auth        *NATSAuth    `config:"auth" doc:"Who connects. Secrets in files are read anew with every connection."`
	Domain      string       `config:"domain" example:"hub" doc:"The domain of JetStream, for servers that are leaf nodes."`
	InboxPrefix string       `config:"inbox_prefix" default:"_INBOX" doc:"What the subjects of answers begin with, for accounts that may not subscribe to the usual ones."`
}

// NATSAuth is who connects.
type NATSAuth struct {
	User        *NATSUser `config:"user" one:"way to authenticate" doc:"A user and a password."`
	Token       *Secret   `config:"token" one:"way to authenticate" example:"${file:secrets/nats}" doc:"A token."`
	Credentials string    `config:"credentials" one:"way to authenticate" example:"secrets/gobridge.creds" doc:"A file with a JWT and its seed, as nsc makes it."`
	NKey        string    `config:"nkey" one:"way to authenticate" example:"secrets/gobridge.nk" doc:"A file with the seed of an NKey."`
}

// NATSUser is a user.
type NATSUser struct {
	Name     string `config:"name,required" example:"gobridge" doc:"The user's name."`
	Password Secret `config:"password,required" example:"${file:secrets/nats}" doc:"The user's password."`
}

// NATSSource takes messages.
type NATSSource struct {
	Connection ConnectionName `config:"connection,required" doc:"The connection, by its name."`
	Stream     string         `config:"stream,required" example:"ORDERS" doc:"The stream, which has to be there."`
	Consumer   string         `config:"consumer,required" example:"gobridge-orders" doc:"The durable pull consumer, which no other route and nobody else uses. It acknowledges explicitly and has no max_deliver."`
	Declare    Switch         `config:"declare" default:"false" doc:"Make the consumer if it is not there, with explicit acknowledgement, no max_deliver, max_ack_pending 1000, and subjects, start and ack_wait. One that is there is left as it is. The stream is never made."`
	Subjects   []string       `config:"subjects" example:"[orders.eu.>]" doc:"The subjects of the stream that are consumed, wildcards included; all when absent. A consumer that is there must have the same."`
	Start      string         `config:"start" enum:"all,new" default:"all" doc:"Where a consumer that is made begins: all with the first message of the stream, new with the next one that is published."`
	AckWait    Duration       `config:"ack_wait" default:"10s" doc:"Of a consumer that is made: after what time the server delivers again what it has heard nothing of. While the outbox takes nothing it is told that the work is in progress."`
	Shared     Switch         `config:"shared" default:"false" doc:"Let several processes consume side by side. Messages have no order then. Otherwise one process consumes, and another takes over when it is gone."`
}

// NATSBinding sends messages.
type NATSBinding struct {
	Connection  ConnectionName      `config:"connection,required" doc:"The connection, by its name."`
	Subject     string              `config:"subject" one:"subject" example:"orders.accepted" doc:"The subject to publish to."`
	SubjectFrom *TextExpr           `config:"subject_from" one:"subject" example:"\"orders.\" + payload.country" doc:"An expression for the subject. A message on which it fails, or for which it gives no subject to publish to, is rejected."`
	JetStream   Switch              `config:"jetstream" default:"true" doc:"Publish into a stream, which confirms each message. With false a message counts as delivered when the server has read it, and gets to those who subscribe at that moment at most once."`
	Stream      string              `config:"stream" example:"ORDERS" doc:"The stream that must have the subject: another one refuses the message, and the destination is down. Any stream will do when absent."`
	Format      string              `config:"format" enum:"plain,cloudevents,cloudevents_structured" default:"plain" doc:"How messages go out: plain is the payload with headers beside it, cloudevents a CloudEvent in binary mode, cloudevents_structured one in JSON."`
	Headers     map[string]TextExpr `config:"headers" keys:"header" doc:"Further headers, each by an expression for its value, in the place of the message's own of that name. An empty one is left out."`
	Timeout     Duration            `config:"timeout" default:"10s" doc:"How long a confirmation may take."`
}

func (s *NATSSource) describe() string {
	return "nats stream " + s.Stream + " by consumer " + s.Consumer + " of " + string(s.Connection)
}

func (b *NATSBinding) describe() string {
	subject := b.Subject
	if b.SubjectFrom != nil {
		subject = b.SubjectFrom.Source
	}
	return "nats subject " + subject + " by " + string(b.Connection)
}

// NATSServer is the address of a server.
type NATSServer string

func (s *NATSServer) parse(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.User != nil:
		return errors.New("has a user in it, which belongs under auth")
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "":
		return errors.New("is not the URL of a NATS server")
	case u.Port() != "" && !isPort(u.Port()):
		return errors.New("has a port that is not from 1 to 65535")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || strings.Contains(text, ","):
		return errors.New("has more than a host and a port")
	}
	*s = NATSServer(text)
	return nil
}

func (NATSServer) kind() kind {
	return kind{
		Name:    "NATS server",
		Doc:     "A URL with nats, tls, ws or wss, a host and a port, 4222 when absent.",
		Pattern: `^(nats|tls|ws|wss)://[^@/]+/?$`,
		Hint:    "write a URL like nats://n1:4222; user and password stand under auth",
		Secret:  true, // somebody may have put a password in
	}
}

// checkNATS reports what is wrong between the fields of routes.
func (d *decoder) checkNATS(c *Config) {
	taken := map[string]string{} // by connection, stream and consumer
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[route]
		if s := r.Source.NATS; s != nil && s.Consumer != "" {
			where := join("routes", route) + ".source.nats.consumer"
			key := string(s.Connection) + " " + s.Stream + " " + s.Consumer
			if other, ok := taken[key]; ok {
				d.reportAt(d.at[where], where, "give each route a consumer of its own",
					"consumer %s is that of route %s, too: each message would go to one of them", quote(s.Consumer), other)
			}
			taken[key] = route
		}
		for _, binding := range slices.Sorted(maps.Keys(r.Bindings)) {
			if n := r.Bindings[binding].NATS; n != nil && !bool(n.JetStream) && n.Stream != "" {
				where := join(join("routes", route)+".bindings", binding) + ".nats.stream"
				d.reportAt(d.at[where], where, "take one of them out", "a stream is given, and jetstream is false")
			}
		}
	}
}
