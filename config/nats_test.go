package config_test

import (
	"strings"
	"testing"
	"time"

	"gobridge/config"
)

const natsFile = `
version: 1
store: { memory: {} }
connections:
  hub:
    nats:
      servers: nats://n1:4222
      auth: { user: { name: gw, password: "${HUNTER}" } }
routes:
  r:
    source: { nats: { connection: hub, stream: ORDERS, consumer: gobridge, declare: true } }
    bindings:
      b: { nats: { connection: hub, subject_from: '"out." + payload.country', headers: { x-kind: subject } } }
`

func TestNATS(t *testing.T) {
	c, err := parse(t, natsFile)
	if err != nil {
		t.Fatal(err)
	}
	conn := c.Connections["hub"].NATS
	if len(conn.Servers) != 1 || conn.InboxPrefix != "_INBOX" || conn.TLSFirst || conn.TLS != nil {
		t.Errorf("connection %+v", conn)
	}
	if password, err := conn.Auth.User.Password.Again(); password != "hunter2hunter2" || err != nil {
		t.Errorf("password %q, %v", password, err)
	}
	s := c.Routes["r"].Source.NATS
	if !s.Declare || s.Shared || s.Start != "all" || time.Duration(s.AckWait) != 10*time.Second {
		t.Errorf("source %+v", s)
	}
	b := c.Routes["r"].Bindings["b"].NATS
	if !b.JetStream || b.Format != "plain" || time.Duration(b.Timeout) != 10*time.Second || b.Headers["x-kind"].Eval == nil {
		t.Errorf("binding %+v", b)
	}
	if got := c.Routes["r"].Source.Describe(); got != "nats stream ORDERS by consumer gobridge of hub" {
		t.Errorf("source: %s", got)
	}
}

func TestNATSThatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"a password in a URL", "nats://n1:4222", `"nats://u:hunter2@n1"`, "has a user in it, which belongs under auth"},
		{"another protocol", "nats://n1:4222", "http://n1", "is not the URL of a NATS server"},
		{"two servers in one", "nats://n1:4222", `"nats://n1:4222,nats://n2"`, "has more than a host and a port"},
		{"no auth", `{ user: { name: gw, password: "${HUNTER}" } }`, "{}", "way to authenticate"},
		{"a switch that is none", "declare: true", "declare: yes please", "expected a boolean, found a string"},
		{"an integer for a switch", "declare: true", "declare: 1", "expected a boolean, found an integer"},
		{"a subject and an expression", "subject_from:", "subject: x, subject_from:", "there is one subject here"},
		{"a stream without JetStream", "subject_from:", "jetstream: false, stream: S, subject_from:", "a stream is given, and jetstream is false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(t, strings.Replace(natsFile, c.from, c.to, 1))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	two := natsFile + `  other:
    source: { nats: { connection: hub, stream: ORDERS, consumer: gobridge } }
    bindings: { b: { stdout: {} } }
`
	if _, err := parse(t, two); err == nil || !strings.Contains(err.Error(), "is that of route other, too") {
		t.Errorf("two routes with one consumer: %v", err)
	}
}

func TestSwitchIsRead(t *testing.T) {
	for text, want := range map[string]config.Switch{"true": true, "false": false, `"${EMPTY}true"`: true} {
		c, err := parse(t, strings.Replace(natsFile, "declare: true", "declare: "+text, 1))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Routes["r"].Source.NATS.Declare; got != want {
			t.Errorf("%s is read as %v", text, got)
		}
	}
}
