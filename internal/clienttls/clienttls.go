// Package clienttls makes the TLS configuration of a client of a broker from PEM
// files. Files are read anew by each [Options.Load], so that a client which loads
// before it connects takes up renewed certificates without a restart.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Options say whom to trust and who to be. The zero value trusts the system's
// roots and shows no certificate.
type Options struct {
	// CA is a PEM file of the roots to trust, instead of the system's.
	CA string
	// Cert and Key are PEM files of the client's certificate chain and private key,
	// for mutual TLS: both or none.
	Cert, Key string
	// ServerName, unless empty, is the name that the server's certificate must have;
	// otherwise it is the host that is dialled.
	ServerName string
}

// Load reads the files. The configuration is the caller's own.
func (o Options) Load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if (o.Cert == "") != (o.Key == "") {
		return nil, errors.New("tls: a client certificate needs both cert and key")
	}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("tls: read ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls: ca %s has no PEM certificate", o.CA)
		}
	}
	if o.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("tls: client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
