package config_test

import (
	"strings"
	"testing"
	"time"
)

const mqttFile = `
version: 1
store: { memory: {} }
connections:
  plant: { mqtt: { url: "mqtts://plant:8883", username: gw, password: "${HUNTER}" } }
routes:
  a:
    source: { mqtt: { connection: plant, topics: [plant/+/sensor/#], qos: 0, id_property: MessageID } }
    bindings:
      out: { mqtt: { connection: plant, topic_from: '"alarms/" + payload.site', retain: true, headers: { x-kind: subject } } }
  b:
    source: { mqtt: { connection: plant, topics: [other], client_id: one } }
    bindings:
      out: { mqtt: { connection: plant, topic: alarms } }
`

func TestMQTT(t *testing.T) {
	c, err := parse(t, mqttFile)
	if err != nil {
		t.Fatal(err)
	}
	conn := c.Connections["plant"].MQTT
	if len(conn.URL) != 1 || conn.ClientID != "gobridge" || time.Duration(conn.KeepAlive) != 30*time.Second {
		t.Errorf("connection %+v", conn)
	}
	if password, err := conn.Password.Again(); password != "hunter2hunter2" || err != nil {
		t.Errorf("password %q, %v", password, err)
	}
	s := c.Routes["a"].Source.MQTT
	if s.QoS != 0 || s.IDProperty != "MessageID" || s.ReceiveMaximum != 1000 || s.Retained != "take" || time.Duration(s.SessionExpiry) != 7*24*time.Hour {
		t.Errorf("source %+v", s)
	}
	if q := c.Routes["b"].Source.MQTT.QoS; q != 1 {
		t.Errorf("QoS %d without one, want 1", q)
	}
	out := c.Routes["a"].Bindings["out"].MQTT
	if !out.Retain || out.QoS != 1 || out.Format != "plain" || out.Headers["x-kind"].Eval == nil || time.Duration(out.Timeout) != 10*time.Second {
		t.Errorf("binding %+v", out)
	}
	if got := c.Routes["a"].Source.Describe(); got != "mqtt topics plant/+/sensor/# of plant" {
		t.Errorf("source: %s", got)
	}
	if got := c.Routes["b"].Bindings["out"].Describe(); got != "mqtt topic alarms by plant" {
		t.Errorf("binding: %s", got)
	}
}

func TestMQTTThatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"a password in a URL", "mqtts://plant:8883", "mqtts://u:hunter2@plant", "has a user in it, which belongs under username and password"},
		{"another protocol", "mqtts://plant:8883", "tcp://plant:1883", "is not the URL of an MQTT broker"},
		{"a port that is none", "mqtts://plant:8883", "mqtts://plant:0", "has a port that is not from 1 to 65535"},
		{"a QoS that is none", "qos: 0", "qos: 3", "out of bounds"},
		{"no topic", "topics: [other]", "topics: []", "topics"},
		{"two topics to publish to", "topic_from:", "topic: x, topic_from:", "there is one topic here"},
		{"a client ID that another route has by its name", "client_id: one", "client_id: gobridge-a", `client ID "gobridge-a" is that of route a, too`},
		{"one client ID twice", "qos: 0", "qos: 0, client_id: one", `client ID "one" is that of route a, too`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(t, strings.Replace(mqttFile, c.from, c.to, 1))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}
