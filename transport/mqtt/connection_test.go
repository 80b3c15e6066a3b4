package mqtt_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	mochipackets "github.com/mochi-mqtt/server/v2/packets"

	"gobridge"
	"gobridge/internal/clienttls"
	"gobridge/messaging"
	"gobridge/transport/mqtt"
)

// TestOldBroker: MQTT 3.1.1 refuses the version in its own way, or hangs up.
func TestOldBroker(t *testing.T) {
	for name, one := range map[string]struct {
		answer []byte
		want   string
	}{
		"refuses":  {[]byte{0x20, 2, 0, 1}, "the broker does not speak MQTT 5"},
		"hangs up": {nil, "does it speak MQTT 5"},
		"not MQTT": {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "connect to mqtt://"},
		"too long": {[]byte{0x30, 0xff, 0xff, 0xff, 0x7f}, "though it was told to send none above"},
	} {
		listen, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := listen.Accept()
			if err != nil {
				return
			}
			_, _ = packets.ReadPacket(conn)
			_, _ = conn.Write(one.answer)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}()
		_, err = sender(t, open(t, "mqtt://"+listen.Addr().String())).Connect(t.Context())
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v, want %q", name, err, one.want)
		}
		_ = listen.Close()
		<-done
	}
}

// TestCredentials are read with every connection, and shown nowhere.
func TestCredentials(t *testing.T) {
	b := newBroker(t)
	b.greet = func(c *packets.Connect) *packets.Connack {
		if c.Username != "gw" || string(c.Password) != "new-hunter2" {
			return &packets.Connack{ReasonCode: 0x86, Properties: &packets.Properties{}}
		}
		return nil
	}
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old-hunter2")
	j := &journal{}
	c := open(t, b.url(), j.keep, func(o *mqtt.Options) {
		o.Username = func() (string, error) { return "gw", nil }
		o.Password = func() (string, error) {
			text, err := os.ReadFile(file)
			return string(text), err
		}
	})
	(&collector{}).run(t, receiver(t, c))
	eventually(t, "a refusal", func() bool { return j.has("bad user name or password (0x86)") })
	write("new-hunter2")
	eventually(t, "a subscription", b.subscribed)
	if j.has("hunter2") {
		t.Error("a password is in the log")
	}

	broken := open(t, b.url(), func(o *mqtt.Options) { o.Password = func() (string, error) { return "", errors.New("no such file") } })
	if _, err := sender(t, broken).Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "read the password: no such file") {
		t.Errorf("a password that can't be read: %v", err)
	}
}

// TestSecondAddress: the addresses are tried in turn.
func TestSecondAddress(t *testing.T) {
	b := newBroker(t)
	c := open(t, "mqtt://127.0.0.1:1", func(o *mqtt.Options) { o.URLs = append(o.URLs, b.url()) })
	if err := errors.Join(deliver(t, sender(t, c), messaging.Envelope{ID: "a"})...); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*mqtt.Options){
		"there is no URL":                     func(o *mqtt.Options) { o.URLs = nil },
		`the URL's scheme is "tcp"`:           func(o *mqtt.Options) { o.URLs = []string{"tcp://b:1883"} },
		"the URL has no host":                 func(o *mqtt.Options) { o.URLs = []string{"mqtt://:1883"} },
		"the URL has a user":                  func(o *mqtt.Options) { o.URLs = []string{"mqtt://u:hunter2@b"} },
		"the URL has a path":                  func(o *mqtt.Options) { o.URLs = []string{"mqtt://b/topic"} },
		"the URL has a query":                 func(o *mqtt.Options) { o.URLs = []string{"mqtt://b?x=1"} },
		"TLS is configured, and no URL uses":  func(o *mqtt.Options) { o.TLS = &clienttls.Options{} },
		"tls: read ca":                        func(o *mqtt.Options) { o.URLs, o.TLS = []string{"mqtts://b"}, &clienttls.Options{CA: "/no/such/file"} },
		"keep alive is 100ms":                 func(o *mqtt.Options) { o.KeepAlive = 100 * time.Millisecond },
		"client ID \"\": it is text that is ": func(o *mqtt.Options) { o.ClientID = "" },
	} {
		options := mqtt.Options{URLs: []string{"mqtt://b"}, ClientID: "gw"}
		change(&options)
		if _, err := mqtt.New(options); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// everybody may do everything.
type everybody struct{ mochi.HookBase }

func (*everybody) ID() string { return "everybody" }
func (*everybody) Provides(b byte) bool {
	return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck
}

func (*everybody) OnConnectAuthenticate(*mochi.Client, mochipackets.Packet) bool { return true }
func (*everybody) OnACLCheck(*mochi.Client, string, bool) bool                   { return true }

// independent is a broker of another hand, with TLS and websockets.
func independent(t testing.TB, make func(listeners.Config) listeners.Listener, config *tls.Config) string {
	t.Helper()
	server := mochi.New(&mochi.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := server.AddHook(new(everybody), nil); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0") // its websockets do not tell the port that they took
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	if err := server.AddListener(make(listeners.Config{ID: "l", Address: address, TLSConfig: config})); err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return address
}

// TestWays goes through TCP, TLS with both sides' certificates and websockets, there
// and back, at a broker of another hand.
func TestWays(t *testing.T) {
	pem := newAuthority(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem.ca)
	pair, err := tls.X509KeyPair(pem.cert, pem.key)
	if err != nil {
		t.Fatal(err)
	}
	mutual := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	tcp := func(c listeners.Config) listeners.Listener { return listeners.NewTCP(c) }
	ws := func(c listeners.Config) listeners.Listener { return listeners.NewWebsocket(c) }
	files := &clienttls.Options{CA: pem.file(t, pem.ca), Cert: pem.file(t, pem.cert), Key: pem.file(t, pem.key)}
	for _, one := range []struct {
		scheme string
		make   func(listeners.Config) listeners.Listener
		server *tls.Config
		client *clienttls.Options
	}{
		{"mqtt", tcp, nil, nil},
		{"mqtts", tcp, mutual, files},
		{"ws", ws, nil, nil},
		{"wss", ws, mutual, files},
	} {
		t.Run(one.scheme, func(t *testing.T) {
			url := one.scheme + "://" + independent(t, one.make, one.server)
			if one.scheme[0] == 'w' {
				url += "/mqtt"
			}
			c := open(t, url, func(o *mqtt.Options) { o.TLS = one.client })
			r := receiver(t, c)
			eventually(t, "the broker's readiness", func() bool { _, err := r.Connect(t.Context()); return err == nil })
			k := &collector{}
			k.run(t, r)
			s := sender(t, c, func(o *mqtt.SenderOptions) { o.Topic = "in/x" })
			large := string(make([]byte, 100<<10))
			n := 0
			k.await(t, "a message", func(all []gobridge.Incoming) bool { // until it is subscribed
				if len(all) > 0 {
					return true
				}
				n++
				if err := errors.Join(deliver(t, s, messaging.Envelope{ID: fmt.Sprint(n), Payload: []byte(large)})...); err != nil {
					t.Error(err)
				}
				return false
			})
			if got := k.all()[0].Envelope; string(got.Payload) != large {
				t.Errorf("%d bytes came back, want %d", len(got.Payload), len(large))
			}
		})
	}
	t.Run("a stranger", func(t *testing.T) {
		url := "mqtts://" + independent(t, tcp, mutual)
		if _, err := sender(t, open(t, url)).Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("a broker whose certificate nobody vouches for: %v", err)
		}
	})
}
