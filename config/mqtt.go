package config

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// MQTT is a connection.
type MQTT struct {
	URL       []MQTTURL  `config:"url,required" least:"1" single:"true" example:"mqtts://plant:8883" doc:"The broker's address, or a list of addresses that are tried in turn and lead to the same sessions. It speaks MQTT 5."`
	ClientID  string     `config:"client_id" default:"gobridge" example:"gw-plant-7" doc:"What the client IDs begin with. A source has this, a dash and its route; a destination has this, its route, its own name and something random. At one broker no two bridges have the same."`
	Username  *Secret    `config:"username" example:"gw" doc:"The user. A file (${file:PATH}) is read anew with every connection."`
	Password  *Secret    `config:"password" example:"${file:secrets/mqtt}" doc:"The password. A file (${file:PATH}) is read anew with every connection."`
	TLS       *ClientTLS `config:"tls" doc:"Whom to trust and who to be, for mqtts and wss; the system's roots and nobody when absent."`
	MaxPacket Size       `config:"max_packet_size" example:"128KiB" doc:"The largest packet, payload and all, that the broker takes, for one that has a limit and does not announce it. A larger message is refused for good, where the broker might only close the connection."`
	KeepAlive Duration   `config:"keep_alive" default:"30s" doc:"After how long a silent connection counts as broken, 1s to 18h."`
}

// MQTTSource takes messages.
type MQTTSource struct {
	Connection     ConnectionName `config:"connection,required" doc:"The connection, by its name."`
	Topics         []string       `config:"topics,required" least:"1" example:"[plant/+/sensor/#]" doc:"The topic filters to subscribe to. The topic becomes the message's subject."`
	QoS            int            `config:"qos" min:"0" max:"2" default:"1" doc:"The quality of service of the subscriptions. With 0, and for messages that were published with 0, nothing is kept while the bridge is down, and what comes while the outbox takes nothing can be lost. 2 spares repeats between publisher and broker, and costs a second round trip."`
	ClientID       string         `config:"client_id" doc:"The client ID, which names the session at the broker; that of the connection, a dash and the route when absent. Another one is another session, and what the broker keeps for the old one stays there."`
	SessionExpiry  Duration       `config:"session_expiry" default:"7d" doc:"How long the broker keeps the session, with what is published meanwhile, while the bridge is down."`
	ReceiveMaximum int            `config:"receive_maximum" min:"1" max:"65535" default:"1000" doc:"How many messages may have come and not be stored yet. A broker may have a lower bound of its own, 20 by default in some."`
	Share          string         `config:"share" example:"gobridge" doc:"The group of a shared subscription: all processes take messages side by side, each by a client ID with the machine's name behind it, and messages have no order. When absent, one process takes all, in order, and another takes over when it is gone."`
	Retained       string         `config:"retained" enum:"take,ignore" default:"take" doc:"Retained messages, which a broker sends once a subscription is new: take takes them as any other, ignore leaves them out."`
	IDProperty     string         `config:"id_property" example:"message-id" doc:"The user property that has the producer's own ID of a message, in its case. Without it, and without gobridge-id and CloudEvents, messages have no ID of their own, and those that were being stored when the bridge crashed come twice."`
}

// MQTTBinding sends messages.
type MQTTBinding struct {
	Connection ConnectionName      `config:"connection,required" doc:"The connection, by its name."`
	Topic      string              `config:"topic" one:"topic" example:"plant/alarms" doc:"The topic to publish to."`
	TopicFrom  *TextExpr           `config:"topic_from" one:"topic" example:"\"plant/\" + payload.site + \"/alarms\"" doc:"An expression for the topic. A message on which it fails, or for which it gives no topic to publish to, is rejected."`
	QoS        int                 `config:"qos" min:"0" max:"2" default:"1" doc:"The quality of service. With 0 nothing confirms that the broker has a message, and some are lost. 2 lets subscribers take at 2; between the bridge and the broker repeats are as possible as with 1."`
	Retain     Switch              `config:"retain" default:"false" doc:"Have the broker keep the last message of each topic for those who subscribe later."`
	Format     string              `config:"format" enum:"plain,cloudevents,cloudevents_structured" default:"plain" doc:"How messages go out: plain is the payload with user properties beside it, cloudevents a CloudEvent in binary mode, cloudevents_structured one in JSON."`
	Headers    map[string]TextExpr `config:"headers" keys:"header" doc:"Further user properties, each by an expression for its value, in the place of the message's header of that name. An empty one is left out."`
	Timeout    Duration            `config:"timeout" default:"10s" doc:"How long the broker may take to confirm."`
}

func (s *MQTTSource) describe() string {
	return "mqtt topics " + strings.Join(s.Topics, ", ") + " of " + string(s.Connection)
}

func (b *MQTTBinding) describe() string {
	topic := b.Topic
	if b.TopicFrom != nil {
		topic = b.TopicFrom.Source
	}
	return "mqtt topic " + topic + " by " + string(b.Connection)
}

// MQTTURL is the address of a broker.
type MQTTURL string

func (m *MQTTURL) parse(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.User != nil:
		return errors.New("has a user in it, which belongs under username and password")
	case !slices.Contains([]string{"mqtt", "mqtts", "ws", "wss"}, u.Scheme) || u.Hostname() == "":
		return errors.New("is not the URL of an MQTT broker")
	case u.Port() != "" && !isPort(u.Port()):
		return errors.New("has a port that is not from 1 to 65535")
	}
	*m = MQTTURL(text)
	return nil
}

func (MQTTURL) kind() kind {
	return kind{
		Name:    "MQTT URL",
		Doc:     "A URL with mqtt, mqtts, ws or wss, a host, a port unless it is 1883, 8883, 80 or 443, and for a websocket the path.",
		Pattern: `^(mqtt|mqtts|ws|wss)://[^@]+$`,
		Hint:    "write a URL like mqtts://plant:8883; user and password stand beside it",
		Secret:  true, // somebody may have put a password in
	}
}

// checkMQTT reports routes with one client ID at one connection: each would throw the
// other out.
func (d *decoder) checkMQTT(c *Config) {
	type user struct {
		connection ConnectionName
		clientID   string
		shared     bool // with the machine's name behind it
	}
	taken := map[user]string{}
	for _, given := range []bool{false, true} { // where there is a field to point at comes last
		for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
			s := c.Routes[route].Source.MQTT
			if s == nil || (s.ClientID != "") != given {
				continue
			}
			u := user{s.Connection, s.ClientID, s.Share != ""}
			if m := c.Connections[string(s.Connection)].MQTT; !given && m != nil {
				u.clientID = m.ClientID + "-" + route
			}
			where := join("routes", route) + ".source.mqtt.client_id"
			if other, ok := taken[u]; ok {
				d.reportAt(d.at[where], where, "give each route a client ID of its own",
					"client ID %s is that of route %s, too: a broker lets in one client of an ID", quote(u.clientID), other)
			}
			taken[u] = route
		}
	}
}
