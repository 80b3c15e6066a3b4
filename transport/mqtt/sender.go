package mqtt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

// Text computes something of a message.
type Text = func(*messaging.Envelope) (string, error)

// SenderOptions are those of a destination.
type SenderOptions struct {
	// ClientID begins the client's ID; something random goes behind it, so that several
	// processes do not throw each other out.
	ClientID string
	// Topic is where to publish, or TopicFrom computes it: one of them.
	Topic     string
	TopicFrom Text
	// QoS is 0, 1 or 2. With 0 nothing confirms that a message has arrived: what the
	// broker does not get is lost.
	QoS byte
	// Retain has the broker keep the last message of each topic.
	Retain bool
	// Format is how messages go out.
	Format mapping.Format
	// Headers are further user properties, by name, in the place of the message's own
	// headers of that name. One that is computed as empty is left out.
	Headers map[string]Text
	// Timeout is how long the broker may take to confirm; 10 s when zero.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Second

// Sender publishes to a topic.
type Sender struct {
	publisher *publisher
	options   SenderOptions
	headers   []computed
}

type computed struct {
	name  string
	value Text
}

var (
	_ gobridge.BatchSender = (*Sender)(nil)
	_ gobridge.Carrier     = (*Sender)(nil)
	_ gobridge.Connector   = (*Sender)(nil)
)

// eventsOwn are the attributes that the message gives an event.
var eventsOwn = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "subject": true, "time": true, "data": true,
	"datacontenttype": true, "dataschema": true, "partitionkey": true,
}

// Bounds of a batch.
const (
	maxBatch      = 256
	maxBatchBytes = 4 << 20
)

// Sender makes a sender.
func (c *Connection) Sender(options SenderOptions) (*Sender, error) {
	s := &Sender{options: options}
	if (options.Topic == "") == (options.TopicFrom == nil) {
		return nil, errors.New("mqtt: give either a topic or what computes it")
	}
	if options.TopicFrom == nil {
		if err := checkTopic(options.Topic); err != nil {
			return nil, fmt.Errorf("mqtt: %w", err)
		}
	}
	if err := checkText(options.ClientID); err != nil || options.ClientID == "" {
		return nil, fmt.Errorf("mqtt: client ID %q: it is text that is not empty", options.ClientID)
	}
	if options.Timeout == 0 {
		s.options.Timeout = defaultTimeout
	}
	if options.QoS > 2 {
		return nil, fmt.Errorf("mqtt: QoS is %d; it is 0, 1 or 2", options.QoS)
	}
	for _, name := range slices.Sorted(maps.Keys(options.Headers)) {
		if err := checkText(name); err != nil {
			return nil, fmt.Errorf("mqtt: the name of user property %q %w", name, err)
		}
		if name == "" || strings.HasPrefix(strings.ToLower(name), "gobridge-") {
			return nil, fmt.Errorf("mqtt: user property %q: names that begin with gobridge- are its own, and none is empty", name)
		}
		if name == "specversion" || options.Format != mapping.Plain && eventsOwn[name] {
			return nil, fmt.Errorf("mqtt: user property %q is an attribute of a CloudEvent, which only the message says", name)
		}
		s.headers = append(s.headers, computed{name, options.Headers[name]})
	}
	s.publisher = newPublisher(c, options.ClientID+"-"+randomID())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publishers = append(c.publishers, s.publisher)
	return s, nil
}

// topic is where a message goes.
func (s *Sender) topic(e *messaging.Envelope) (string, error) {
	if s.options.TopicFrom == nil {
		return s.options.Topic, nil
	}
	topic, err := s.options.TopicFrom(e)
	if err != nil {
		return "", fmt.Errorf("compute the topic: %w", err)
	}
	return topic, checkTopic(topic)
}

// BatchLimits has one record of a key in a batch: a broker may refuse an earlier
// one and take a later one.
func (s *Sender) BatchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: maxBatch, MaxBytes: maxBatchBytes, OnePerKey: true}
}

// Carry refuses what MQTT, or the broker as it was last heard, can't carry.
func (s *Sender) Carry(e *messaging.Envelope) error {
	p, err := s.encode(&gobridge.Delivery{Envelope: *e}, time.Now())
	if err != nil {
		return err
	}
	return tooLarge(p, int(s.publisher.connection.limit.Load()))
}

// tooLarge reports a packet beyond what the broker takes (section 3.2.2.3.6), or
// beyond what MQTT can have (section 1.5.5).
func tooLarge(p *packets.Publish, granted int) error {
	const most = 1<<28 - 1
	limit, whose := most, "MQTT can have"
	if granted > 0 && granted < most {
		limit, whose = granted, "the broker takes"
	}
	if size := packetSize(p); size > limit {
		return fmt.Errorf("the packet has %d bytes, %d of them payload; %s %d", size, len(p.Payload), whose, limit)
	}
	return nil
}

// Send publishes the deliveries side by side and waits for the broker's answers.
func (s *Sender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	out := make([]error, len(batch))
	ctx, cancel := context.WithTimeoutCause(ctx, s.options.Timeout, fmt.Errorf("not confirmed within %s", s.options.Timeout))
	defer cancel()
	o, err := s.publisher.use(ctx)
	if err == nil {
		err = s.suits(&o.link.terms)
	}
	if err != nil {
		for i := range out {
			out[i] = gobridge.Unavailable(fmt.Errorf("publish: %w", err))
		}
		return out
	}
	var all []*packets.Publish
	var at []int // of all, in batch
	now := time.Now()
	for i := range batch {
		p, err := s.encode(&batch[i], now)
		if err == nil {
			err = tooLarge(p, o.link.terms.maxPacket)
		}
		if err != nil {
			out[i] = gobridge.Permanent(fmt.Errorf("publish: %w", err))
			continue
		}
		all, at = append(all, p), append(at, i)
	}
	if len(all) == 0 {
		return out
	}
	answers, sent, err := o.publish(ctx, all)
	for i, a := range answers {
		out[at[i]] = s.answer(all[i].Topic, a, i < sent, err, o)
	}
	return out
}

// suits reports what the broker does not offer that this sender needs.
func (s *Sender) suits(t *terms) error {
	switch {
	case s.options.QoS > t.maxQoS:
		return fmt.Errorf("the broker takes QoS %d at most, not %d", t.maxQoS, s.options.QoS)
	case s.options.Retain && !t.retains:
		return errors.New("the broker keeps no retained messages")
	}
	return nil
}

// answer is what became of one publish; err is what ended the wait for it.
func (s *Sender) answer(topic string, a answer, sent bool, err error, o *outgoing) error {
	computed := s.options.TopicFrom != nil
	if a.there {
		return outcome(a.code, fmt.Errorf("publish to %s: %w", topic, &codeError{code: a.code, said: a.said}), computed)
	}
	err = fmt.Errorf("publish to %s: %w", topic, err)
	if code, guilty := condemns(err); guilty && o.lone(1) {
		return outcome(code, err, computed)
	}
	if !sent && !o.wire.over() {
		// The broker had no room for it, which is not the message's fault.
		return gobridge.Unavailable(err)
	}
	return err
}

// where says in a few words what is published to.
func (s *Sender) where() string {
	if s.options.TopicFrom != nil {
		return "computed topics"
	}
	return "topic " + s.options.Topic
}

// Connect connects under an ID that nobody else has, and publishes nothing.
func (s *Sender) Connect(ctx context.Context) (string, error) {
	p := s.publisher
	look := newPublisher(p.connection, p.connection.options.ClientID+"-check-"+randomID())
	defer look.stop()
	o, err := look.connect(ctx)
	if err != nil {
		return "", err
	}
	defer o.link.goodbye()
	if err := s.suits(&o.link.terms); err != nil {
		return "", err
	}
	limit := ""
	if n := o.link.terms.maxPacket; n > 0 {
		limit = fmt.Sprintf(", packets of at most %d bytes", n)
	}
	return fmt.Sprintf("publishes to %s at %s, QoS %d%s (whether it may shows with the first message)",
		s.where(), o.link.at, s.options.QoS, limit), nil
}
