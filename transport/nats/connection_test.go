package nats_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	server "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"gobridge"
	"gobridge/internal/clienttls"
	"gobridge/transport/nats"
)

// reaches reports how a sender fares on a connection.
func reaches(t testing.TB, conn *nats.Connection) error {
	t.Helper()
	_, err := send(t, sender(t, conn, nats.SenderOptions{Subject: "x", Core: true}), delivery("b", "1", "x"))
	return err
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// user makes the seed and the public key of a user.
func user(t testing.TB) (seed []byte, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	if seed, err = pair.Seed(); err != nil {
		t.Fatal(err)
	}
	if public, err = pair.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return seed, public
}

// rotates checks a way to authenticate: with the first secret, then after the server
// has changed to the second, at first without and then with that.
func rotates(t *testing.T, before, after func(*server.Options), set func(*nats.Options), change func()) {
	t.Helper()
	b := startBroker(t, before)
	log := &lines{}
	conn := connect(t, b.url(), func(o *nats.Options) {
		set(o)
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	if err := reaches(t, conn); err != nil {
		t.Fatalf("with the first secret: %v", err)
	}
	b.stop()
	after(&b.options)
	b.start()
	eventually(t, "being refused with the old secret", func() bool {
		err := reaches(t, conn)
		outcome, _ := gobridge.Classify(err)
		return outcome == gobridge.OutcomeUnavailable && strings.Contains(err.Error(), "Authorization Violation")
	})
	change()
	eventually(t, "being let in with the new secret", func() bool { return reaches(t, conn) == nil })
	if log.has("hunter") {
		t.Error("a secret was logged")
	}
}

func TestPasswordsRotate(t *testing.T) {
	var password atomic.Value
	password.Store("hunter1")
	as := func(password string) func(*server.Options) {
		return func(o *server.Options) { o.Username, o.Password = "gw", password }
	}
	rotates(t, as("hunter1"), as("hunter2"), func(o *nats.Options) {
		o.User, o.Password = "gw", func() (string, error) { return password.Load().(string), nil }
	}, func() { password.Store("hunter2") })
}

func TestTokensRotate(t *testing.T) {
	var token atomic.Value
	token.Store("hunter1")
	as := func(token string) func(*server.Options) { return func(o *server.Options) { o.Authorization = token } }
	rotates(t, as("hunter1"), as("hunter2"), func(o *nats.Options) {
		o.Token = func() (string, error) { return token.Load().(string), nil }
	}, func() { token.Store("hunter2") })
}

func TestNKeysRotate(t *testing.T) {
	first, firstKey := user(t)
	second, secondKey := user(t)
	path := filepath.Join(t.TempDir(), "gw.nk")
	writeFile(t, path, first)
	as := func(key string) func(*server.Options) {
		return func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: key}} }
	}
	rotates(t, as(firstKey), as(secondKey), func(o *nats.Options) { o.NKey = path }, func() { writeFile(t, path, second) })
}

func TestCredentialsRotate(t *testing.T) {
	operator, err := nkeys.CreateOperator()
	if err != nil {
		t.Fatal(err)
	}
	operatorKey, _ := operator.PublicKey()
	account, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	accountKey, _ := account.PublicKey()
	claims := jwt.NewOperatorClaims(operatorKey)
	system, _ := nkeys.CreateAccount()
	systemKey, _ := system.PublicKey()
	claims.SystemAccount = systemKey
	encoded, err := claims.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := jwt.DecodeOperatorClaims(encoded)
	if err != nil {
		t.Fatal(err)
	}
	issued := func(key string, revoked ...string) string {
		a := jwt.NewAccountClaims(key)
		for _, u := range revoked {
			a.Revoke(u)
		}
		text, err := a.Encode(operator)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	creds := func() (file []byte, key string) {
		seed, key := user(t)
		text, err := jwt.NewUserClaims(key).Encode(account)
		if err != nil {
			t.Fatal(err)
		}
		file, err = jwt.FormatUserConfig(text, seed)
		if err != nil {
			t.Fatal(err)
		}
		return file, key
	}
	first, firstKey := creds()
	second, _ := creds()
	path := filepath.Join(t.TempDir(), "gw.creds")
	writeFile(t, path, first)
	as := func(revoked ...string) func(*server.Options) {
		return func(o *server.Options) {
			o.TrustedOperators, o.SystemAccount, o.JetStream = []*jwt.OperatorClaims{trusted}, systemKey, false
			resolver := &server.MemAccResolver{}
			_ = resolver.Store(accountKey, issued(accountKey, revoked...))
			_ = resolver.Store(systemKey, issued(systemKey))
			o.AccountResolver = resolver
		}
	}
	rotates(t, as(), as(firstKey), func(o *nats.Options) { o.Credentials = path }, func() { writeFile(t, path, second) })
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate for 127.0.0.1 and clients, and its key, in PEM.
func (a *authority) issue(t testing.TB) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: plain})
}

// serveTLS makes a server ask for certificates of an authority.
func serveTLS(t testing.TB, a *authority, first bool) func(*server.Options) {
	t.Helper()
	cert, key := a.issue(t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return func(o *server.Options) {
		o.TLS, o.TLSHandshakeFirst, o.TLSVerify = true, first, true
		o.TLSConfig = &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, MinVersion: tls.VersionTLS12,
		}
	}
}

func TestCertificatesRotate(t *testing.T) {
	for name, first := range map[string]bool{"after the server's greeting": false, "first": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := clienttls.Options{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
			write := func(a *authority) {
				cert, key := a.issue(t)
				writeFile(t, files.CA, a.pem)
				writeFile(t, files.Cert, cert)
				writeFile(t, files.Key, key)
			}
			old, renewed := newAuthority(t), newAuthority(t)
			write(old)
			b := startBroker(t, serveTLS(t, old, first))
			conn := connect(t, b.url(), func(o *nats.Options) { o.TLS, o.TLSFirst = &files, first })
			if err := reaches(t, conn); err != nil {
				t.Fatal(err)
			}
			b.stop()
			serveTLS(t, renewed, first)(&b.options)
			b.start()
			eventually(t, "a refusal", func() bool {
				err := reaches(t, conn)
				outcome, _ := gobridge.Classify(err)
				return outcome == gobridge.OutcomeUnavailable && strings.Contains(err.Error(), "certificate")
			})
			write(renewed)
			eventually(t, "a connection with the renewed certificates", func() bool { return reaches(t, conn) == nil })
		})
	}
}

func TestNobodyThere(t *testing.T) {
	conn := connect(t, "nats://127.0.0.1:1", nil)
	err := reaches(t, conn)
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v, want it unavailable with the reason", err)
	}
}

func TestOneOfSeveralServersWillDo(t *testing.T) {
	b := startBroker(t, nil)
	conn := connect(t, "nats://127.0.0.1:1", func(o *nats.Options) { o.Servers = append(o.Servers, b.url()) })
	if err := reaches(t, conn); err != nil {
		t.Error(err)
	}
}

// TestClosedWhileConnecting has a server that accepts and says nothing.
func TestClosedWhileConnecting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn := connect(t, "nats://"+l.Addr().String(), nil)
	s := sender(t, conn, nats.SenderOptions{Subject: "x"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Send(ctx, []gobridge.Delivery{delivery("b", "1", "x")})[0] }()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	cancel()
	if outcome, _ := gobridge.Classify(<-done); outcome != gobridge.OutcomeUnavailable {
		t.Error("a send whose time ended before there was a connection is not unavailable")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := reaches(t, conn); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after the end: %v", err)
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	secret := func() (string, error) { return "x", nil }
	servers := []string{"nats://n1:4222"}
	empty := filepath.Join(t.TempDir(), "empty")
	writeFile(t, empty, nil)
	for want, o := range map[string]nats.Options{
		"no servers":                   {},
		"has a user in its URL":        {Servers: []string{"nats://u:hunter2@n1"}},
		"is no URL":                    {Servers: []string{"nats://u:hunter2@n1:x y"}},
		"it is like nats://":           {Servers: []string{"http://n1"}},
		"more than a host":             {Servers: []string{"nats://n1/x"}},
		"more than one of":             {Servers: servers, User: "u", Token: secret},
		"password without a user":      {Servers: servers, Password: secret},
		"tls_first without tls":        {Servers: servers, TLSFirst: true},
		"no such file":                 {Servers: servers, Credentials: "/nowhere/x.creds"},
		"has no seed":                  {Servers: servers, NKey: empty},
		"needs both cert and key":      {Servers: servers, TLS: &clienttls.Options{Cert: "x"}},
		"nats: domain":                 {Servers: servers, Domain: "a.b"},
		"nats: inbox_prefix":           {Servers: servers, InboxPrefix: "a.>"},
		"or none is":                   {Servers: []string{"nats://n1", "wss://n2"}},
		"nats password: not to be had": {Servers: servers, User: "u", Password: func() (string, error) { return "", errors.New("not to be had") }},
	} {
		_, err := nats.New(o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

func TestInboxPrefixAndDomain(t *testing.T) {
	b := startBroker(t, func(o *server.Options) {
		o.JetStreamDomain = "hub"
		o.Users = []*server.User{
			{Username: "test", Password: "x"},
			{Username: "gw", Password: "x", Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"answers.>"}}}},
		}
		o.NoAuthUser = "test"
	})
	_, js := dial(t, b.url())
	makeStream(t, js, "S", nil)
	conn := connect(t, b.url(), func(o *nats.Options) {
		asGateway(o)
		o.Domain, o.InboxPrefix = "hub", "answers"
	})
	o := &outbox{}
	receive(t, conn, o, options())
	s := sender(t, conn, nats.SenderOptions{Subject: "S.x"})
	if _, err := send(t, s, delivery("b", "1", "0")); err != nil {
		t.Fatal(err)
	}
	o.await(t, numbers(0, 1))
}

// TestTheLeastPermissions has the table of docs/transports/nats.md.
func TestTheLeastPermissions(t *testing.T) {
	source := []string{"$JS.API.CONSUMER.INFO.S.c", "$JS.API.CONSUMER.MSG.NEXT.S.c", "$JS.ACK.S.c.>"}
	for name, c := range map[string]struct {
		publish []string
		declare bool
	}{
		"a source":                    {source, false},
		"one that may reset":          {append([]string{"$JS.API.CONSUMER.RESET.S.c"}, source...), false},
		"one that makes its consumer": {append([]string{"$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.S.c", "$JS.API.CONSUMER.CREATE.S.c.>"}, source...), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, func(o *server.Options) {
				o.Users = []*server.User{{Username: "test", Password: "x"}, {Username: "gw", Password: "x", Permissions: &server.Permissions{
					Publish:   &server.SubjectPermission{Allow: c.publish},
					Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
				}}}
				o.NoAuthUser = "test"
			})
			_, js := dial(t, b.url())
			makeStream(t, js, "S", nil)
			publish(t, js, "S.x", 0, 20)
			if !c.declare {
				declared(t, js, nil)
				lose(t, b.url(), 5, false)
			}
			r := options()
			r.Declare = c.declare
			if c.declare {
				r.Subjects = []string{"S.x"}
			}
			o := &outbox{}
			receive(t, connect(t, b.url(), asGateway), o, r)
			o.await(t, numbers(0, 20))
			eventually(t, "the acknowledgement of all", func() bool {
				consumer, err := js.Consumer(t.Context(), "S", "c")
				return err == nil && consumer.CachedInfo().NumAckPending == 0
			})
		})
	}
}
