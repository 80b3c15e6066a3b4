// Package kafka consumes topics of Kafka as a member of a consumer group, and
// produces to topics.
//
// # What travels
//
// A record's value is the payload, byte for byte, and its key the ordering key.
// Beside them go, as record headers, content-type, the message's own headers and
// what gobridge says of the message and the delivery (gobridge-id and so on, see
// docs/transports/kafka.md). CloudEvents are read in both modes of their Kafka
// binding, and written if the sender is told so. Two things that Kafka tells
// apart and a message does not are kept as headers of the message, and turned back
// by a sender: kafka-null-value says that there was no value (a tombstone), and
// kafka-empty-key that the key was there and empty.
//
// # Identity
//
// A message has the ID that gobridge-dedupe-id, gobridge-id or a CloudEvent's
// source and id give it; otherwise that of its place: topic ID, partition and
// offset. A topic that is deleted and made again has another topic ID (KIP-516),
// and so other messages. A broker that has no topic IDs (before 3.1) gives the
// topic's name, and the record's timestamp is part of the place instead.
//
// # Order
//
// What is in one partition is handed over in its order. A receiver hands over one
// batch at a time, in which partitions are mixed. A sender chooses the partition
// by the record's key as the Java client does (murmur2), so that one key is in one
// partition for as long as the topic's number of partitions stays.
//
// # Acknowledgement
//
// An offset is committed after the take of all before it has returned nil, and at
// no other time. When a partition is to go to another member, a take that has some
// of it may end within a bound; then it is broken off, the group goes on, and the
// next member begins at what is durable.
//
// A delivery is acknowledged by all replicas in sync. A sender is idempotent, so
// that what it sends again by itself is stored once and in order. When the time of
// a send is over and nobody knows what became of a record, the sender's
// connections are reset before the send returns: no record that was given up is
// sent any more, and none overtakes what comes after it. Sends that shared the
// connections fail with it, and their records may arrive twice.
//
// # What answers mean
//
//	MESSAGE_TOO_LARGE, INVALID_RECORD,        permanent, if the record was alone in its
//	INVALID_TIMESTAMP, RECORD_LIST_TOO_LARGE  batch; otherwise it is sent again alone
//	INVALID_TOPIC_EXCEPTION                   permanent
//	UNKNOWN_TOPIC_OR_PARTITION,               the message's own if it gives the topic,
//	TOPIC_AUTHORIZATION_FAILED                unavailable otherwise
//	THROTTLING_QUOTA_EXCEEDED                 the broker asks to slow down
//	no connection, TLS, authentication,       unavailable: it is not the message's
//	cluster authorization, no leader, too     fault
//	few replicas, storage errors, no answer
//	anything else                             transient: it may work later
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge/internal/clienttls"
	"gobridge/internal/pause"
)

const (
	// maxDialTime bounds connecting with the TLS handshake.
	maxDialTime = 10 * time.Second
	// requestTime bounds the wait for an answer, beyond what the request itself
	// asks the broker to wait. With it a produce request has an answer, or its
	// connection ends, within 15 seconds, well below the engine's 30 for a send.
	requestTime = 5 * time.Second
	// produceTime bounds the broker's wait for its replicas.
	produceTime = 10 * time.Second
	// The waits between two tries to reach a broker.
	minBackoff = 100 * time.Millisecond
	maxBackoff = time.Second
	// maxDecompressed bounds what a batch may decompress to.
	maxDecompressed = 128 << 20
)

// Options configure a [Connection]. Brokers is required.
type Options struct {
	// Brokers are addresses to begin with, as host:port; the cluster tells the others.
	Brokers []string
	// ClientID is what brokers call this client in logs and quotas; gobridge when empty.
	ClientID string
	// TLS encrypts; nil is plain text.
	TLS *clienttls.Options
	// SASL authenticates; nil does not.
	SASL *SASL
	// Logger; nil discards.
	Logger *slog.Logger
}

// Connection is a Kafka cluster with the credentials for it. Each receiver and
// each sender has connections of its own: a consumer group knows its members by
// theirs, and a sender that resets its own must not break those of others. It is
// safe for concurrent use.
type Connection struct {
	options Options
	log     *slog.Logger
	// revoke, renew and extra are for tests, which wait less.
	revoke time.Duration
	renew  time.Duration
	extra  []kgo.Opt

	mu      sync.Mutex
	closed  bool
	senders []*Sender
}

// New checks the options, and connects to nothing.
func New(options Options) (*Connection, error) {
	if len(options.Brokers) == 0 {
		return nil, errors.New("kafka: no broker; give at least one as host:port")
	}
	for _, address := range options.Brokers {
		host, port, err := net.SplitHostPort(address)
		n, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || host == "" || bad != nil || n == 0 {
			return nil, fmt.Errorf("kafka: the broker %q is not host:port", address)
		}
	}
	if options.TLS != nil {
		if _, err := options.TLS.Load(); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
	}
	if options.SASL != nil {
		if err := options.SASL.check(); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
	}
	if options.ClientID == "" {
		options.ClientID = "gobridge"
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Connection{options: options, log: options.Logger, revoke: revokePatience, renew: firstRenewal}, nil
}

// Close ends the connections of all senders. Receivers end with their contexts.
func (c *Connection) Close() error {
	c.mu.Lock()
	c.closed = true
	senders := c.senders
	c.senders = nil
	c.mu.Unlock()
	for _, s := range senders {
		s.close()
	}
	return nil
}

var errClosed = errors.New("the connection is closed")

// client makes a client of the library, which connects when it is first used. One
// that is to be reset discards with its connections what they have not sent. Seen
// watches it.
func (c *Connection) client(reset bool, seen *watch, options ...kgo.Opt) (*kgo.Client, error) {
	dial := &dialer{tls: c.options.TLS, reset: reset}
	all := []kgo.Opt{
		kgo.SeedBrokers(c.options.Brokers...),
		kgo.ClientID(c.options.ClientID),
		kgo.Dialer(dial.dial),
		kgo.RequestTimeoutOverhead(requestTime),
		kgo.RetryBackoffFn(func(failures int) time.Duration { return pause.Backoff(failures, minBackoff, maxBackoff) }),
		kgo.MetadataMinAge(time.Second),
		kgo.MetadataMaxAge(time.Minute),
		kgo.MaxDecompressBatchBytes(maxDecompressed),
		kgo.DisableClientMetrics(),
		kgo.WithHooks(seen),
		kgo.WithLogger(logger{c.log}),
	}
	if c.options.SASL != nil {
		all = append(all, kgo.SASL(c.options.SASL.mechanism()))
	}
	all = append(all, options...)
	all = append(all, c.extra...)
	client, err := kgo.NewClient(all...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return client, nil
}

// dialer connects, with what the TLS files have at that moment.
type dialer struct {
	tls   *clienttls.Options
	reset bool
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, maxDialTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok && d.reset {
		// Closing resets: the system must not go on trying to deliver what was
		// written to a connection that has been given up.
		_ = tcp.SetLinger(0)
	}
	if d.tls == nil {
		return conn, nil
	}
	config, err := d.tls.Load()
	if err != nil {
		conn.Close()
		return nil, err
	}
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			conn.Close()
			return nil, err
		}
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", address, err)
	}
	return secure, nil
}

// logger passes on what the library calls errors; what it calls warnings it
// repeats by itself and deals with.
type logger struct{ log *slog.Logger }

func (logger) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l logger) Log(level kgo.LogLevel, message string, pairs ...any) {
	to := slog.LevelDebug
	if level == kgo.LogLevelError {
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, "the Kafka client reports", append([]any{"report", message}, pairs...)...)
}
