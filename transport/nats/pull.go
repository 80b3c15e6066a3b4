package nats

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pullTime is how long a request for messages stands.
	pullTime = 30 * time.Second
	// idleHeartbeat is how often the server says that it is there while it has
	// nothing to deliver.
	idleHeartbeat = 5 * time.Second
)

// pull asks a consumer for messages, one request at a time (NATS ADR-13). The
// client's own ways of doing so lose what is on its way when they end.
type pull struct {
	nc       *client.Conn
	subject  string // to ask at
	inbox    string
	sub      *client.Subscription
	messages chan *client.Msg
	limits   jetstream.ConsumerConfig

	left  int // messages that the request may still bring
	got   int // that it has brought
	large bool
	heard time.Time
}

// pullRequest is the request as the server has it.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	NoWait    bool          `json:"no_wait,omitempty"`
	Expires   time.Duration `json:"expires,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
}

// begin subscribes to what will be asked for.
func (p *pull) begin(nc *client.Conn, subject string, info *jetstream.ConsumerInfo) error {
	*p = pull{
		nc: nc, subject: subject, inbox: nc.NewInbox(), limits: info.Config, heard: time.Now(),
		// Room for a request and what the server says beside: it is never full.
		messages: make(chan *client.Msg, 4*maxBatch),
	}
	sub, err := nc.ChanSubscribe(p.inbox, p.messages)
	if err != nil {
		return fmt.Errorf("subscribe to the consumer's deliveries: %w", err)
	}
	p.sub = sub
	return nil
}

// ask asks for up to n messages: those that are there, or those that come within a while.
func (p *pull) ask(n int, noWait bool) error {
	if p.limits.MaxRequestBatch > 0 {
		n = min(n, p.limits.MaxRequestBatch)
	}
	request := pullRequest{Batch: n, MaxBytes: maxBytes, NoWait: noWait}
	if p.limits.MaxRequestMaxBytes > 0 {
		request.MaxBytes = min(request.MaxBytes, p.limits.MaxRequestMaxBytes)
	}
	if p.large {
		request.Batch, request.MaxBytes = 1, p.limits.MaxRequestMaxBytes
	}
	if !noWait {
		request.Expires = pullTime
		if most := p.limits.MaxRequestExpires; most > 0 {
			request.Expires = min(request.Expires, most)
		}
		if request.Expires > 2*idleHeartbeat {
			request.Heartbeat = idleHeartbeat
		}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := p.nc.PublishRequest(p.subject, p.inbox, body); err != nil {
		return fmt.Errorf("ask for messages: %w", err)
	}
	p.left, p.got, p.heard = request.Batch, 0, time.Now()
	return nil
}

// came counts a message.
func (p *pull) came(size int) {
	p.heard = time.Now()
	p.left = max(0, p.left-1)
	p.got++
	p.large = p.large && size > maxBytes
}

// silent reports whether the server should have said something.
func (p *pull) silent() bool {
	return p.left > 0 && time.Since(p.heard) > 3*idleHeartbeat
}

// status is what the server says of a request.
type status struct {
	code int
	text string
}

// statusOf returns what the server says, zero if this is a message.
func statusOf(m *client.Msg) status {
	value := m.Header.Get("Status")
	if value == "" || len(m.Data) > 0 || strings.HasPrefix(m.Reply, "$JS.ACK.") {
		return status{}
	}
	code, err := strconv.Atoi(value)
	if err != nil {
		return status{}
	}
	return status{code, m.Header.Get("Description")}
}

// answered takes up what the server says of the request. An error says that the
// consumer has to be looked at again.
func (p *pull) answered(s status) error {
	p.heard = time.Now()
	text := strings.ToLower(s.text)
	switch {
	case s.code == 100:
		return nil // a heartbeat
	case s.code == 404 || s.code == 408 || strings.Contains(text, "batch completed"):
		p.left = 0
		return nil
	case strings.Contains(text, "exceeds maxbytes"):
		p.large = p.got == 0
		if p.large && p.limits.MaxRequestMaxBytes > 0 {
			return fmt.Errorf("the next message is larger than the consumer's max_bytes of a request, %d; make it larger", p.limits.MaxRequestMaxBytes)
		}
		p.left = 0
		return nil
	case s.code == 503:
		return errors.New("nobody answers for the consumer: it or its stream is gone, or has no leader just now")
	}
	return fmt.Errorf("the server ended the request for messages: %d %s", s.code, s.text)
}

// end unsubscribes and returns what has come, what was on its way included.
func (p *pull) end() iter.Seq[*client.Msg] {
	if p.sub != nil {
		_ = p.sub.Unsubscribe()
		if !p.nc.IsClosed() {
			_ = p.nc.FlushTimeout(flushTime)
		}
		p.sub = nil
	}
	p.left = 0
	return func(yield func(*client.Msg) bool) {
		for {
			select {
			case m := <-p.messages:
				if !yield(m) {
					return
				}
			default:
				return
			}
		}
	}
}
