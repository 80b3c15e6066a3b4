package admin

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/operate"
)

// certify writes a certificate for this machine and its key.
func certify(t *testing.T, dir, name string) (cert, key string, root []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	root = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, text := range map[string][]byte{cert: root, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, root
}

func trusting(roots ...[]byte) *tls.Config {
	pool := x509.NewCertPool()
	for _, r := range roots {
		pool.AppendCertsFromPEM(r)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key, first := certify(t, dir, "first")
	w := newWorld(t, func(o *Options) { o.CertFile, o.KeyFile, o.Console = cert, key, pages })
	status := func(config *tls.Config) error {
		c, err := NewClient(ClientOptions{URL: w.url, Token: readToken, TLS: config})
		w.must(err)
		defer func() { _ = c.Close() }()
		_, err = c.Status(t.Context())
		return err
	}
	if err := status(trusting(first)); err != nil {
		t.Errorf("with its root: %v", err)
	}
	if err := status(nil); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with the system's roots: %v", err)
	}
	_, _, second := certify(t, dir, "second")
	if err := status(trusting(second)); err != nil {
		t.Errorf("a renewed certificate: %v", err)
	}
	w.must(os.WriteFile(key, []byte("half"), 0o600))
	if err := status(trusting(second)); err != nil {
		t.Errorf("while it is being renewed: %v", err)
	}
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(second), DisableKeepAlives: true}}
	response, err := browser.PostForm(w.url+"/login", url.Values{"token": {readToken}})
	w.must(err)
	response.Body.Close()
	if c := response.Header.Get("Set-Cookie"); !strings.Contains(c, "; Secure;") {
		t.Errorf("cookie %q", c)
	}
}

// TestAnImportOverHTTP2 sends more than the buffers between take, and is answered
// while it still sends.
func TestAnImportOverHTTP2(t *testing.T) {
	cert, key, root := certify(t, t.TempDir(), "one")
	w := newWorld(t, func(o *Options) { o.CertFile, o.KeyFile = cert, key })
	c, err := NewClient(ClientOptions{URL: w.url, Token: operateToken, TLS: trusting(root)})
	w.must(err)
	defer func() { _ = c.Close() }()
	line, err := operate.EncodeLetter(&gobridge.Record{Partition: crm, Binding: "crm", Envelope: messaging.Envelope{ID: "new", Payload: bytes.Repeat([]byte("p"), 1<<20)}})
	w.must(err)
	in, out := io.Pipe()
	told := make(chan struct{}, 100)
	go func() {
		for i := 0; i < 5; i++ {
			_, _ = out.Write(append(line, '\n'))
		}
		<-told // it says how far it is before it has read everything
		_, _ = out.Write(append(line, '\n'))
		_ = out.Close()
	}()
	report, err := c.Import(context.Background(), in, operate.Target{}, operate.Who{By: "a", Reason: "r"}, false, func(int) { told <- struct{}{} })
	if err != nil || report != (operate.ImportReport{Read: 6, Imported: 1, Held: 5}) {
		t.Errorf("%+v, %v", report, err)
	}
}
