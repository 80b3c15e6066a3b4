package kafka

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
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/internal/clienttls"
	"gobridge/messaging"
)

// sendOne sends one message through a new sender of the connection.
func sendOne(t *testing.T, conn *Connection, topic string) error {
	t.Helper()
	s, err := conn.Sender(SenderOptions{Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Send(ctx, []gobridge.Delivery{{Envelope: messaging.Envelope{ID: messaging.NewID(), Payload: []byte("x")}}})[0]
}

func wantUnavailable(t *testing.T, err error, words ...string) {
	t.Helper()
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable {
		t.Errorf("got %v (outcome %d), want unavailable", err, outcome)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %q, which does not say %q", err, w)
		}
	}
}

func TestSASL(t *testing.T) {
	for _, mechanism := range []Mechanism{Plain, ScramSHA256, ScramSHA512} {
		t.Run(string(mechanism), func(t *testing.T) {
			f := startFake(t, kfake.EnableSASL(), kfake.Superuser(string(mechanism), "gw", "right horse"))
			topic := "given"
			var secret atomic.Value
			secret.Store("wrong")
			conn := f.connect(t, func(o *Options) {
				o.SASL = &SASL{Mechanism: mechanism, Username: "gw", Secret: func() (string, error) { return secret.Load().(string), nil }}
			})
			if err := f.CreateTopic(topic, 1, nil); err != nil {
				t.Fatal(err)
			}
			err := sendOne(t, conn, topic)
			wantUnavailable(t, err)
			if strings.Contains(err.Error(), "wrong") {
				t.Errorf("%q shows the password", err)
			}
			secret.Store("right horse") // as after a rotation, without a restart
			if err := sendOne(t, conn, topic); err != nil {
				t.Errorf("with the right password: %v", err)
			}
		})
	}
}

// A token goes as RFC 7628 has it; the fake has no OAUTHBEARER to say whether it
// is good.
func TestOAuthBearerSendsTheToken(t *testing.T) {
	s := SASL{Mechanism: OAuthBearer, Secret: func() (string, error) { return "tok.en", nil }}
	_, first, err := s.mechanism().Authenticate(t.Context(), "broker:9092")
	if err != nil || !strings.Contains(string(first), "auth=Bearer tok.en\x01") {
		t.Errorf("got %q, %v", first, err)
	}
	s.Secret = func() (string, error) { return "", errors.New("no such file") }
	if _, _, err := s.mechanism().Authenticate(t.Context(), "broker:9092"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a token: %v", err)
	}
}

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.issue(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// issue makes a certificate and its key, name.pem and name-key.pem.
func (a *authority) issue(t *testing.T, name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.Subject = pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, kind string, bytes []byte) {
		if err := os.WriteFile(a.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(name+".pem", "CERTIFICATE", der)
	write(name+"-key.pem", "PRIVATE KEY", raw)
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out, key
}

func TestMutualTLS(t *testing.T) {
	ca := newAuthority(t)
	ca.issue(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pair, err := tls.LoadX509KeyPair(ca.path("server.pem"), ca.path("server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	f := startFake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}),
		kfake.SeedTopics(1, "secure"))
	client := func(name string) *Connection {
		return f.connect(t, func(o *Options) {
			o.TLS = &clienttls.Options{CA: ca.path("ca.pem")}
			if name != "" {
				o.TLS.Cert, o.TLS.Key = ca.path(name+".pem"), ca.path(name+"-key.pem")
			}
		})
	}
	wantUnavailable(t, sendOne(t, client(""), "secure"))
	(&authority{dir: ca.dir}).issue(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}) // by itself
	conn := client("client")
	wantUnavailable(t, sendOne(t, conn, "secure"))
	ca.issue(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err := sendOne(t, conn, "secure"); err != nil {
		t.Errorf("with a renewed certificate: %v", err)
	}
	plain := f.connect(t)
	wantUnavailable(t, sendOne(t, plain, "secure"))
	stranger := f.connect(t, func(o *Options) { o.TLS = &clienttls.Options{} })
	wantUnavailable(t, sendOne(t, stranger, "secure"), "certificate")
}

func TestNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	conn, err := New(Options{Brokers: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	conn.extra = []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond), kgo.RecordRetries(1)}
	defer func() { _ = conn.Close() }()
	wantUnavailable(t, sendOne(t, conn, "any"), "refused")
}
