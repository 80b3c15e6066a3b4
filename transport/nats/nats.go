// Package nats consumes from streams of NATS JetStream and publishes to subjects
// of NATS, with or without JetStream.
//
// # A message in NATS
//
// The subject is the message's subject unless gobridge-subject says another. The
// body is the payload. Headers (NATS ADR-4) carry the rest, as the package
// gobridge/internal/mapping has it:
//
//	content-type             the payload's media type
//	gobridge-*               gobridge's own fields, percent-encoded
//	ce-*                     attributes of a CloudEvent, percent-encoded (CloudEvents
//	                         NATS binding, section 3.1.3)
//	traceparent, tracestate  the trace context
//	any other                the message's own headers
//
// A header of the message stands by itself if its name is a token in lower case and
// its value has no control characters and no spaces at its ends; the others, and
// those whose name means something to NATS (nats-*, status, description), go
// together into gobridge-headers. What comes in has its names in lower case.
//
// # Source
//
// A durable pull consumer with explicit acknowledgement. Messages are handed over
// in the order of the stream: what the server has delivered to nobody who lives (a
// connection that broke, a process that was killed) is waited for, or asked for
// again, before anything later is handed over. A message is acknowledged when the
// outbox holds it, without waiting for the server to confirm: an acknowledgement
// that is lost lets the message come again, and it is known as a duplicate. While
// the outbox takes nothing the server is told that the work is in progress.
//
// The ID of a message is gobridge-dedupe-id, else gobridge-id, else source and id
// of the CloudEvent, else stream/sequence/time, the time being when the stream
// stored it, in nanoseconds: so a stream that was deleted and made again gives
// other IDs. Nats-Msg-Id is no identity: it holds within the duplicate window of
// the stream alone, and the stream has seen to that.
//
// # Destination
//
// With JetStream a message is delivered when the stream has confirmed it. Its
// Nats-Msg-Id is route, binding, the delivery's deduplication ID and a digest of the
// content: for a repeat within the stream's duplicate window the stream answers that
// it is one, and that is a delivery. Neither another binding's copy in the same stream
// nor another message under the same ID is one.
// Without JetStream a message is delivered when the server has read it: whoever
// subscribes gets it at most once, and nobody gets it who is not there.
//
// Publishing into a stream is answered as follows:
//
//	confirmed, also as a duplicate                  delivered
//	larger than max_payload, the stream's           permanent: this message will
//	max_msg_size, or headers beyond 64 KiB          never be taken
//	stream full, sealed or offline, another stream  unavailable, whatever the message
//	than expected, permission denied, no stream
//	has the subject, any other error of the API
//	the same ID is being stored just now, the       transient: it may work later
//	subject has its most messages, no confirmation
//	in time, the connection broke
//	too many requests                               the server asks to slow down
//
// Where the subject is an expression, that no stream has it or that it is forbidden
// is the message's own failure, and transient.
package nats

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"gobridge/internal/clienttls"
)

// Options say where the servers are and who connects. Servers is required.
type Options struct {
	// Servers are URLs like nats://host:4222, tls://host:4222 or ws://host:80, any of
	// which will do. They have no user and no password.
	Servers []string

	// Name is what the servers call the client; "gobridge" when empty.
	Name string

	// TLS, unless nil, is how connections are encrypted. Its files are read with
	// every connection, as are the secrets below.
	TLS *clienttls.Options
	// TLSFirst starts TLS before the server has said anything.
	TLSFirst bool

	// At most one of User, Token, Credentials and NKey is given.

	// User and Password authenticate.
	User     string
	Password func() (string, error)
	// Token authenticates.
	Token func() (string, error)
	// Credentials is a file with a JWT and its seed (.creds).
	Credentials string
	// NKey is a file with an NKey's seed.
	NKey string

	// Domain, unless empty, is the domain of JetStream that is used.
	Domain string
	// InboxPrefix begins the subjects of answers; "_INBOX" when empty.
	InboxPrefix string

	// Logger is told of connections that come and go; nil for nobody.
	Logger *slog.Logger
}

// maxSecretFile bounds a file of credentials, in bytes.
const maxSecretFile = 64 << 10

// check returns what is wrong with the options.
func (o *Options) check() error {
	if len(o.Servers) == 0 {
		return errors.New("nats: no servers; give one like nats://localhost:4222")
	}
	for _, s := range o.Servers {
		if err := checkServer(s); err != nil {
			return err
		}
		if websocket(s) != websocket(o.Servers[0]) {
			return fmt.Errorf("nats: servers %s and %s: all are websockets (ws, wss), or none is", o.Servers[0], s)
		}
	}
	ways := 0
	for _, given := range []bool{o.User != "", o.Token != nil, o.Credentials != "", o.NKey != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("nats: more than one of user, token, credentials and nkey; give one of them")
	case o.User == "" && o.Password != nil:
		return errors.New("nats: a password without a user")
	case o.TLSFirst && o.TLS == nil:
		return errors.New("nats: tls_first without tls")
	}
	if err := checkName("domain", o.Domain, true); err != nil {
		return err
	}
	if o.InboxPrefix != "" {
		if err := checkPrefix(o.InboxPrefix); err != nil {
			return fmt.Errorf("nats: inbox_prefix %w", err)
		}
	}
	_, err := o.secrets()
	return err
}

// websocket reports whether a server is reached by one.
func websocket(server string) bool { return strings.HasPrefix(server, "ws") }

// checkServer checks the URL of a server.
func checkServer(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("nats: a server is no URL; one is like nats://localhost:4222")
	case u.User != nil:
		return fmt.Errorf("nats: server %s has a user in its URL; give user and password beside it", u.Redacted())
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "":
		return fmt.Errorf("nats: server %q; it is like nats://localhost:4222 (or tls, ws, wss)", raw)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("nats: server %q has more than a host and a port", raw)
	}
	return nil
}

// checkName checks a name that becomes a token of a subject: of a stream, a
// consumer, a domain.
func checkName(what, name string, mayBeEmpty bool) error {
	const most = 255
	switch {
	case name == "" && mayBeEmpty:
		return nil
	case name == "":
		return fmt.Errorf("nats: %s is empty", what)
	case len(name) > most:
		return fmt.Errorf("nats: %s has %d bytes; %d are possible", what, len(name), most)
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(".*>/\\", c) >= 0 {
			return fmt.Errorf(`nats: %s %q has %q, which no such name has (NATS ADR-6)`, what, name, c)
		}
	}
	return nil
}

// secrets reads what authenticates and encrypts, as options of the client.
func (o *Options) secrets() ([]client.Option, error) {
	var out []client.Option
	if o.TLS != nil {
		config, err := o.TLS.Load()
		if err != nil {
			return nil, err
		}
		out = append(out, client.Secure(config))
		if o.TLSFirst {
			out = append(out, client.TLSHandshakeFirst())
		}
	}
	switch {
	case o.User != "":
		password := ""
		if o.Password != nil {
			var err error
			if password, err = o.Password(); err != nil {
				return nil, fmt.Errorf("nats password: %w", err)
			}
		}
		out = append(out, client.UserInfo(o.User, password))
	case o.Token != nil:
		token, err := o.Token()
		if err != nil {
			return nil, fmt.Errorf("nats token: %w", err)
		}
		out = append(out, client.Token(token))
	case o.Credentials != "":
		data, err := readSecret(o.Credentials)
		if err != nil {
			return nil, fmt.Errorf("nats credentials: %w", err)
		}
		if _, err := nkeys.ParseDecoratedNKey(data); err != nil {
			return nil, fmt.Errorf("nats credentials: %s has no seed: %w", o.Credentials, err)
		}
		out = append(out, client.UserCredentialBytes(data))
	case o.NKey != "":
		nkey, err := nkeyOption(o.NKey)
		if err != nil {
			return nil, err
		}
		out = append(out, nkey)
	}
	return out, nil
}

func nkeyOption(path string) (client.Option, error) {
	data, err := readSecret(path)
	if err != nil {
		return nil, fmt.Errorf("nats nkey: %w", err)
	}
	pair, err := nkeys.ParseDecoratedNKey(data)
	if err != nil {
		return nil, fmt.Errorf("nats nkey: %s has no seed: %w", path, err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("nats nkey: %s: %w", path, err)
	}
	return client.Nkey(public, pair.Sign), nil
}

func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecretFile {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, maxSecretFile)
	}
	return os.ReadFile(path)
}

// shown are the servers as errors and findings have them.
func (o *Options) shown() string { return strings.Join(o.Servers, ", ") }

// dial times.
const (
	connectTime  = 5 * time.Second // for TCP, and again for the rest
	pingInterval = 10 * time.Second
	pingsMissed  = 2
	writeTime    = 5 * time.Second // in which the server reads something
	writePiece   = 64 << 10
)

// newDialer returns the TCP dialer. An idle peer is found out by the pings of NATS.
func newDialer() net.Dialer { return net.Dialer{Timeout: connectTime, KeepAlive: -1} }
