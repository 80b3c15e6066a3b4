package amqp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gobridge"
	"gobridge/internal/clienttls"
	"gobridge/internal/fakeamqp"
	"gobridge/messaging"
	"gobridge/transport/amqp"
)

// TestPasswordThatChanges: it is read at each connection, and no error shows it.
func TestPasswordThatChanges(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		var password atomic.Value
		password.Store("hunter2")
		c := r.connect(t, func(o *amqp.Options) {
			o.Password = func() (string, error) { return password.Load().(string), nil }
		})
		s := sender(t, c, amqp.SenderOptions{RoutingKey: q})
		err := send(t, s, messaging.Envelope{})[0]
		wantOutcome(t, "wrong password", err, gobridge.OutcomeUnavailable, "password")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows it: %v", err)
		}
		password.Store(r.pass)
		eventually(t, "a delivery", func() bool { return send(t, s, messaging.Envelope{})[0] == nil })
	})
}

func TestSecretThatCannotBeRead(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	c := r.connect(t, func(o *amqp.Options) {
		o.Password = func() (string, error) { return "", errors.New("no such file") }
	})
	s := sender(t, c, amqp.SenderOptions{RoutingKey: "q"})
	wantOutcome(t, "no password", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "password: no such file")
}

func TestVirtualHostThatIsNotThere(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		s := sender(t, r.connect(t, func(o *amqp.Options) { o.VHost = "none" }), amqp.SenderOptions{RoutingKey: "q"})
		wantOutcome(t, "no such host", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "vhost none not found")
	})
}

// TestNodeThatIsDown: the other one does.
func TestNodeThatIsDown(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a port on which nothing listens
	if err != nil {
		t.Fatal(err)
	}
	down := listener.Addr().String()
	_ = listener.Close()
	for range 8 { // wherever it begins
		c := r.connect(t, func(o *amqp.Options) { o.Addresses = []string{down, r.proxy.Addr()} })
		s := sender(t, c, amqp.SenderOptions{RoutingKey: q})
		wantOutcome(t, "one of two", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
	}
	c := r.connect(t, func(o *amqp.Options) { o.Addresses = []string{down} })
	s := sender(t, c, amqp.SenderOptions{RoutingKey: q})
	wantOutcome(t, "none", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "connect to "+down)
}

// TestSilentServer: heartbeats find a connection that is dead, and another follows.
func TestSilentServer(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	c := r.connect(t, func(o *amqp.Options) { o.Heartbeat = time.Second })
	box, _ := receive(t, c, amqp.ReceiverOptions{Queue: q})
	r.put(t, q, publishings(messaging.Envelope{ID: "1"})...)
	box.await(t, 1)
	accepted := r.proxy.Counts().Accepted
	r.proxy.Stall(true)
	eventually(t, "another connection", func() bool { return r.proxy.Counts().Accepted > accepted })
	r.proxy.Stall(false)
	r.put(t, q, publishings(messaging.Envelope{ID: "2"})...)
	eventually(t, "the next message", func() bool {
		all := box.all()
		return all[len(all)-1].Envelope.ID == "2"
	})
}

// TestCloseOfAStalledConnection ends in spite of a server that answers nothing.
func TestCloseOfAStalledConnection(t *testing.T) {
	r := newRig(t, fakeamqp.Options{})
	q := r.queue(t)
	c := r.connect(t)
	s := sender(t, c, amqp.SenderOptions{RoutingKey: q})
	_, stop := receive(t, c, amqp.ReceiverOptions{Queue: q})
	wantOutcome(t, "before", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
	r.proxy.Stall(true)
	done := make(chan []error, 1)
	go func() { done <- send(t, s, messaging.Envelope{Payload: make([]byte, 16<<20)}) }()
	stop()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	wantOutcome(t, "in flight", (<-done)[0], gobridge.OutcomeUnavailable, "")
	r.proxy.Stall(false)
}

// TestCertificates: a server with a certificate, and a client that logs in by its
// own, which is renewed.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	r := newRigTLS(t, ca)
	files := &clienttls.Options{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client-key.pem")}
	ca.issue(t, dir, "client")
	external := func(o *amqp.Options) {
		o.Username, o.Password, o.External, o.TLS = nil, nil, true, files
	}
	s := sender(t, r.connect(t, external), amqp.SenderOptions{RoutingKey: "q", DropUnroutable: true})
	wantOutcome(t, "by certificate", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
	ca.issue(t, dir, "client")
	r.fake.Cut()
	eventually(t, "a delivery with the renewed certificate", func() bool { return send(t, s, messaging.Envelope{})[0] == nil })

	plain := func(o *amqp.Options) { o.TLS = &clienttls.Options{CA: files.CA} }
	s = sender(t, r.connect(t, plain), amqp.SenderOptions{RoutingKey: "q", DropUnroutable: true})
	wantOutcome(t, "by password", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeDelivered, "")
	s = sender(t, r.connect(t, func(o *amqp.Options) { o.TLS = &clienttls.Options{} }), amqp.SenderOptions{RoutingKey: "q"})
	wantOutcome(t, "authority that is not trusted", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "tls: ")
	s = sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: "q"})
	wantOutcome(t, "no encryption", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "log in")
}

func TestExternalNeedsAServerThatKnowsIt(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	ca.issue(t, dir, "client")
	broker, err := fakeamqp.Start(fakeamqp.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.server(t)}, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	c, err := amqp.New(amqp.Options{Addresses: []string{broker.Addr()}, External: true, TLS: &clienttls.Options{
		CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client-key.pem"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s := sender(t, c, amqp.SenderOptions{RoutingKey: "q"})
	wantOutcome(t, "not offered", send(t, s, messaging.Envelope{})[0], gobridge.OutcomeUnavailable, "rabbitmq_auth_mechanism_ssl")
}

func TestConnectionOptionsAreChecked(t *testing.T) {
	ok := amqp.Options{Addresses: []string{"localhost:5672"}, Username: fixed("u"), Password: fixed("p")}
	for want, change := range map[string]func(*amqp.Options){
		"":                          func(*amqp.Options) {},
		"no addresses":              func(o *amqp.Options) { o.Addresses = nil },
		`address "localhost"`:       func(o *amqp.Options) { o.Addresses = []string{"localhost"} },
		"heartbeat 500ms":           func(o *amqp.Options) { o.Heartbeat = 500 * time.Millisecond },
		"no credentials":            func(o *amqp.Options) { o.Password = nil },
		"external beside a user":    func(o *amqp.Options) { o.External = true },
		"needs tls":                 func(o *amqp.Options) { o.External, o.Username, o.Password = true, nil, nil },
		"tls: read ca":              func(o *amqp.Options) { o.TLS = &clienttls.Options{CA: "nowhere.pem"} },
		"virtual host has 256 byte": func(o *amqp.Options) { o.VHost = strings.Repeat("v", 256) },
	} {
		o := ok
		change(&o)
		c, err := amqp.New(o)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", der)
	return &authority{cert, key}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) sign(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if cert, err = x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key); err != nil {
		t.Fatal(err)
	}
	if key, err = x509.MarshalPKCS8PrivateKey(own); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// issue writes a certificate and its key.
func (a *authority) issue(t *testing.T, dir, name string) {
	t.Helper()
	cert, key := a.sign(t, name)
	writePEM(t, filepath.Join(dir, name+".pem"), "CERTIFICATE", cert)
	writePEM(t, filepath.Join(dir, name+"-key.pem"), "PRIVATE KEY", key)
}

func (a *authority) server(t *testing.T) tls.Certificate {
	t.Helper()
	cert, key := a.sign(t, "server")
	private, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: private}
}

// newRigTLS starts a fake broker that encrypts, without a client of the test's own.
func newRigTLS(t *testing.T, a *authority) *rig {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	broker, err := fakeamqp.Start(fakeamqp.Options{TLS: &tls.Config{
		Certificates: []tls.Certificate{a.server(t)}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	r := &rig{fake: broker, direct: broker.Addr(), user: "guest", pass: "guest"}
	r.proxied(t)
	return r
}
