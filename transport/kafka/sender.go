package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

const (
	defaultMaxMessage = 1_000_000
	minMaxMessage     = 1024
	maxMaxMessage     = 64 << 20
	// batchRecords bounds a batch: what shares one request to each broker.
	batchRecords = 500
	batchBytes   = 4 << 20
	// deliveryBytes are set aside for the headers that tell of a delivery, which
	// are not known before the message is stored.
	deliveryBytes = 640
	// recordRetries is how often a record is tried again by the library if it is sure
	// not to have arrived: for some seconds.
	recordRetries = 5
	// settleTime is how long a send whose time is over waits for records of which
	// the client can still say what becomes.
	settleTime = 2 * time.Second
)

// Compressions are the ways to compress.
var compressions = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// SenderOptions configure a [Sender]. Topic or TopicFrom is required.
type SenderOptions struct {
	// Topic is where to produce to. TopicFrom gives it for each message instead.
	Topic     string
	TopicFrom func(*messaging.Envelope) (string, error)
	// KeyFrom gives the record's key; the message's ordering key when nil. An empty
	// one is no key.
	KeyFrom func(*messaging.Envelope) (string, error)
	// Headers give further record headers, by name; an empty one is left out. They
	// take the place of the message's own of the same name. None is gobridge's own,
	// an attribute of CloudEvents, or the content type.
	Headers map[string]func(*messaging.Envelope) (string, error)
	// Format says how what is beside the payload is written.
	Format mapping.Format
	// MaxMessageBytes is the largest record, with key and headers, uncompressed; from
	// 1 KiB to 64 MiB, 1,000,000 bytes when zero. A topic takes 1,048,588 bytes
	// unless max.message.bytes says otherwise.
	MaxMessageBytes int
	// Compression is none, gzip, snappy, lz4 or zstd; snappy when empty.
	Compression string
}

// Sender produces each delivery as a record. It is safe for concurrent use.
type Sender struct {
	conn    *Connection
	options SenderOptions
	names   []string // of options.Headers
	settle  time.Duration

	mu     sync.Mutex
	closed bool
	many   *producer // batches records
	single *producer // sends each record in a batch of its own
}

// Sender makes a sender. It connects when it is first used.
func (c *Connection) Sender(options SenderOptions) (*Sender, error) {
	if (options.Topic == "") == (options.TopicFrom == nil) {
		return nil, errors.New("kafka: a sender needs either a topic or an expression for it")
	}
	if options.TopicFrom == nil {
		if err := CheckTopic(options.Topic); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
	}
	if options.MaxMessageBytes == 0 {
		options.MaxMessageBytes = defaultMaxMessage
	}
	if n := options.MaxMessageBytes; n < minMaxMessage || n > maxMaxMessage {
		return nil, fmt.Errorf("kafka: messages of up to %d bytes; it can be %d to %d", n, minMaxMessage, maxMaxMessage)
	}
	if options.Compression == "" {
		options.Compression = "snappy"
	}
	if _, ok := compressions[options.Compression]; !ok {
		return nil, fmt.Errorf("kafka: compression %q; there are none, gzip, snappy, lz4 and zstd", options.Compression)
	}
	for name := range options.Headers {
		if lower := strings.ToLower(name); name == "" || lower == headerContentType || strings.HasPrefix(lower, "gobridge-") || strings.HasPrefix(lower, protocol.CloudEvents) {
			return nil, fmt.Errorf("kafka: the header %q is not free to be set", name)
		}
	}
	s := &Sender{conn: c, options: options, names: names(options.Headers), settle: settleTime}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("kafka: %w", errClosed)
	}
	c.senders = append(c.senders, s)
	return s, nil
}

// BatchLimits implements [gobridge.BatchSender]. Of one key there is one record in
// a batch: the library refuses some records by itself, and those behind them would
// overtake.
func (s *Sender) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: batchRecords, MaxBytes: batchBytes, OnePerKey: true}
}

// Carry implements [gobridge.Carrier].
func (s *Sender) Carry(envelope *messaging.Envelope) error {
	r, err := s.record(&gobridge.Delivery{Envelope: *envelope})
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	if n := size(r) + deliveryBytes + len(envelope.ID); n > s.options.MaxMessageBytes {
		return fmt.Errorf("kafka: as a record it has up to %d bytes, with key and headers; the limit is %d (max_message_bytes)",
			n, s.options.MaxMessageBytes)
	}
	return nil
}

// Send implements [gobridge.Sender]. It returns when no record of the batch is on
// its way any more, which can be a few seconds after the end of ctx.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	errs := make([]error, len(batch))
	records := make([]*kgo.Record, len(batch))
	for i := range batch {
		r, err := s.record(&batch[i])
		if err != nil {
			errs[i] = gobridge.Permanent(fmt.Errorf("kafka: %w", err))
			continue
		}
		records[i] = r
	}
	s.produce(ctx, &s.many, records, errs)
	// One record that the broker refuses fails all that were in a batch with it.
	// Each of them gets one of its own, which shows whose fault it was.
	for i, err := range errs {
		if records[i] == nil || !blamesRecord(err) {
			continue
		}
		one, answer := []*kgo.Record{again(records[i])}, make([]error, 1)
		s.produce(ctx, &s.single, one, answer)
		errs[i] = answer[0]
	}
	for i, r := range records {
		if r != nil {
			errs[i] = outcome(r.Topic, s.options.TopicFrom != nil, errs[i])
		}
	}
	return errs
}

// again is a record to be sent anew: the library keeps notes in one.
func again(r *kgo.Record) *kgo.Record {
	return &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
}

// produce sends records, nil ones aside, and sets the errors of those that fail.
func (s *Sender) produce(ctx context.Context, which **producer, records []*kgo.Record, errs []error) {
	p, err := s.producer(which)
	waiting := sync.WaitGroup{}
	for i, r := range records {
		switch {
		case r == nil:
		case err != nil:
			errs[i] = err
		default:
			waiting.Add(1)
			p.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
				errs[i] = p.seen.explain(err)
				waiting.Done()
			})
		}
	}
	done := make(chan struct{})
	go func() {
		waiting.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		timer := time.NewTimer(s.settle)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			// What became of some records cannot be known. They must not be sent
			// any more once this has returned.
			s.drop(p)
			<-done
		}
	}
	s.forgetTopics(p, records, errs)
}

// forgetTopics makes the client learn anew what topics are that have been deleted
// and made again: it never takes up their new ID by itself.
func (s *Sender) forgetTopics(p *producer, records []*kgo.Record, errs []error) {
	seen := map[string]bool{}
	for i, r := range records {
		if r != nil && isRecreated(errs[i]) && !seen[r.Topic] {
			seen[r.Topic] = true
			p.client.PurgeTopicsFromProducing(r.Topic)
		}
	}
}

// producer is a client for one life: from the first record to a reset.
type producer struct {
	client *kgo.Client
	seen   *watch
	once   sync.Once
}

func (p *producer) close() { p.once.Do(p.client.Close) }

// producer returns the client that which points to, or makes it.
func (s *Sender) producer(which **producer) (*producer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if *which != nil {
		return *which, nil
	}
	options := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProduceRequestTimeout(produceTime),
		kgo.ProducerBatchMaxBytes(int32(s.options.MaxMessageBytes)), //nolint:gosec // checked by Connection.Sender
		kgo.ProducerBatchCompression(compressions[s.options.Compression]),
		kgo.ProducerLinger(0),
		kgo.RecordRetries(recordRetries),
		kgo.UnknownTopicRetries(1),
		// By key as the Java client: murmur2. Without a key, wherever it is quick.
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(64<<10, true, true, nil)),
	}
	if n := 2 * s.options.MaxMessageBytes; n > 100<<20 {
		options = append(options, kgo.BrokerMaxWriteBytes(int32(n))) //nolint:gosec // at most 128 MiB
	}
	if which == &s.single {
		options = append(options, kgo.MaxBufferedRecords(1))
	}
	seen := &watch{}
	client, err := s.conn.client(true, seen, options...)
	if err != nil {
		return nil, err
	}
	*which = &producer{client: client, seen: seen}
	return *which, nil
}

// drop ends a client and fails all that it has; the next send makes another.
func (s *Sender) drop(p *producer) {
	s.mu.Lock()
	if s.many == p {
		s.many = nil
	}
	if s.single == p {
		s.single = nil
	}
	s.mu.Unlock()
	s.conn.log.Warn("a send had no answer in time; its connections to Kafka are reset, and what else was on them is sent again")
	p.close()
}

func (s *Sender) close() {
	s.mu.Lock()
	s.closed = true
	many, single := s.many, s.single
	s.mu.Unlock()
	for _, p := range []*producer{many, single} {
		if p != nil {
			p.close()
		}
	}
}
