package mqtt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"gobridge"
	"gobridge/internal/pause"
)

// ReceiverOptions are those of a source.
type ReceiverOptions struct {
	// Topics are the topic filters to subscribe to.
	Topics []string
	// ClientID names the session at the broker, which keeps what is published while
	// nobody is connected. No other client may use it.
	ClientID string
	// QoS is that of the subscriptions: 0, 1 or 2. With 0 nothing is kept or sent again.
	QoS byte
	// SessionExpiry is how long the broker keeps the session while nobody is
	// connected, in whole seconds; for ever when it is longer than 136 years.
	SessionExpiry time.Duration
	// ReceiveMaximum is how many messages may be on their way and not durable: 1 to
	// 65,535, 1,000 when zero.
	ReceiveMaximum uint16
	// Share, unless empty, is the group of a shared subscription: each message goes to
	// one of its clients, in no order.
	Share string
	// IgnoreRetained leaves out what the broker retained before the subscription.
	IgnoreRetained bool
	// IDProperty names the user property that has the producer's own ID.
	IDProperty string
}

const defaultReceiveMaximum = 1000

// Receiver takes messages of topics.
type Receiver struct {
	connection *Connection
	options    ReceiverOptions
}

var (
	_ gobridge.Solo      = (*Receiver)(nil)
	_ gobridge.Connector = (*Receiver)(nil)
)

// Receiver makes a receiver.
func (c *Connection) Receiver(options ReceiverOptions) (*Receiver, error) {
	if err := checkFilters(options.Topics); err != nil {
		return nil, fmt.Errorf("mqtt: %w", err)
	}
	if err := checkGroup(options.Share); err != nil {
		return nil, fmt.Errorf("mqtt: %w", err)
	}
	if err := checkText(options.ClientID); err != nil || options.ClientID == "" {
		return nil, fmt.Errorf("mqtt: client ID %q: it is text that is not empty", options.ClientID)
	}
	if options.QoS > 2 {
		return nil, fmt.Errorf("mqtt: QoS is %d; it is 0, 1 or 2", options.QoS)
	}
	if options.ReceiveMaximum == 0 {
		options.ReceiveMaximum = defaultReceiveMaximum
	}
	return &Receiver{connection: c, options: options}, nil
}

// Solo reports whether one process at a time may receive: a broker lets in one
// client of an ID. The clients of a shared subscription have IDs of their own.
func (r *Receiver) Solo() bool { return r.options.Share == "" }

// Receive takes messages until ctx ends.
func (r *Receiver) Receive(ctx context.Context, take gobridge.Take) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	log := r.connection.log.With("client", r.options.ClientID)
	known := ""
	session := newIncoming(&r.options, func(topic string) {
		if topic != known {
			log.Warn("the broker sends what the route does not ask for; it is left out. The session has a subscription "+
				"of an earlier configuration: unsubscribe from it, or take another client_id", "topic", topic)
		}
		known = topic
	})
	finish := context.AfterFunc(ctx, session.finish)
	defer finish()
	handing := make(chan struct{})
	go func() {
		defer close(handing)
		if err := hand(ctx, session, take, log); err != nil {
			stop(err)
		}
	}()
	r.keep(ctx, session, handing)
	<-handing
	if cause := context.Cause(ctx); errors.Is(cause, errTake) {
		return cause
	}
	return nil
}

// errTake: take failed though it was not told to end.
var errTake = errors.New("mqtt: take failed")

// hand hands over what has come, one batch after the other.
func hand(ctx context.Context, session *incoming, take gobridge.Take, log *slog.Logger) error {
	for {
		batch := session.gather()
		if batch == nil {
			return nil
		}
		messages := make([]gobridge.Incoming, len(batch))
		for i, a := range batch {
			messages[i] = a.incoming
		}
		if err := take(ctx, messages); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it was told to end
			}
			return fmt.Errorf("%w: %w", errTake, err)
		}
		session.done(batch)
		if n := session.drops(); n > 0 {
			log.Warn("messages of QoS 0 came while there was no room, and are lost", "count", n)
		}
	}
}

// keep connects, and connects again, until ctx ends.
func (r *Receiver) keep(ctx context.Context, session *incoming, handing <-chan struct{}) {
	log := r.connection.log.With("client", r.options.ClientID)
	said := trouble{log: log}
	var tries schedule
	for before := false; ctx.Err() == nil; {
		on := &receiving{incoming: session}
		l, err := r.connection.connect(ctx, r.user(on))
		var wait time.Duration
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			wait = tries.failed()
			said.say("the source does not reach its broker", err, wait)
		} else {
			said.over()
			r.greet(l, before)
			before = true
			began := time.Now()
			if err = r.hold(ctx, on, l, handing); err == nil {
				return
			}
			if endedByAnother(err) {
				session.forget() // whoever it was may have acknowledged some
			}
			wait = tries.lost(time.Since(began), err)
			said.say("the source has lost its broker", err, wait)
			if tries.failures == thrownOut {
				log.Warn("connections keep ending as soon as they stand; so they do when another client has the same client ID")
			}
		}
		if !pause.For(ctx, wait) {
			return
		}
	}
}

// thrownOut is after how many short connections in a row it is said what else may be
// the reason: not every broker says that another client has taken over.
const thrownOut = 4

func endedByAnother(err error) bool {
	var code *codeError
	return errors.As(err, &code) && code.code == codeTakenOver
}

// user is the client that receives.
func (r *Receiver) user(on *receiving) user {
	return user{
		clientID:       r.options.ClientID,
		expiry:         expirySeconds(r.options.SessionExpiry),
		receiveMaximum: r.options.ReceiveMaximum,
		session:        on,
		waits:          on.isFull,
		unconfirmed:    on.unconfirmed,
		hooked:         func(w *wire) { on.wire = w },
	}
}

// expirySeconds is a session's expiry as the protocol has it, of which the largest
// means never (section 3.1.2.11.2).
func expirySeconds(d time.Duration) uint32 {
	return uint32(min(int64((d+time.Second-1)/time.Second), math.MaxUint32))
}

// greet logs what the broker says to a new connection.
func (r *Receiver) greet(l *link, before bool) {
	log := r.connection.log.With("client", r.options.ClientID)
	log.Info("the source is connected", "broker", l.at, "session_resumed", l.terms.resumed)
	if before && !l.terms.resumed {
		log.Warn("the broker has forgotten the session: what was published meanwhile has not been kept")
	}
	if asked := expirySeconds(r.options.SessionExpiry); l.terms.expiry < asked {
		log.Warn("the broker keeps the session for a shorter time than session_expiry says", "seconds", l.terms.expiry, "asked", asked)
	}
}

// hold subscribes, and waits for the end of the connection. It returns its reason,
// nil if it is this side's.
func (r *Receiver) hold(ctx context.Context, on *receiving, l *link, handing <-chan struct{}) error {
	subscribing, stop := context.WithCancel(ctx)
	subscribed := make(chan struct{})
	go func() {
		defer close(subscribed)
		r.subscribe(subscribing, l, on.isFull)
	}()
	defer func() {
		stop()
		<-subscribed
	}()
	select {
	case <-on.wire.ended:
		_ = on.ConnectionLost(nil) // the library hears of it when it reads or writes next
		stop()
		<-l.client.Done()
		return on.wire.why()
	case <-ctx.Done():
		// What take makes durable at the last moment is still acknowledged.
		stuck := time.AfterFunc(goodbyeTime, func() { on.wire.fail(errStuck) })
		<-handing
		stuck.Stop()
		stop()
		l.goodbye()
		return nil
	}
}

// Waits between two tries to subscribe to what was refused.
const (
	minSubscribeWait = 5 * time.Second
	maxSubscribeWait = 5 * time.Minute
)

// subscribe subscribes to all filters: to those that the session has still it changes
// nothing. Refused ones are logged and tried again.
func (r *Receiver) subscribe(ctx context.Context, l *link, full func() bool) {
	log := r.connection.log.With("client", r.options.ClientID)
	left := r.options.Topics
	for wait := minSubscribeWait; ; wait = min(2*wait, maxSubscribeWait) {
		refusals, err := r.ask(ctx, l, left, full)
		if err != nil {
			if ctx.Err() == nil {
				l.wire.fail(fmt.Errorf("subscribe: %w", err))
			}
			return
		}
		left = nil
		for _, f := range refusals {
			if f.qos < 0 {
				left = append(left, f.filter)
				log.Error("the broker refuses a subscription; it is tried again", "topic", f.filter, "error", f.err, "again_in", wait)
			} else {
				log.Warn("the broker grants a subscription less than was asked for", "topic", f.filter, "qos", f.qos)
			}
		}
		if len(left) == 0 || !pause.For(ctx, pause.Jittered(wait)) {
			return
		}
	}
}

// refusal is what a broker did not grant of a subscription.
type refusal struct {
	filter string
	qos    int // what it granted, below zero for nothing
	err    error
}

// ask subscribes to filters, and returns what was not granted.
func (r *Receiver) ask(ctx context.Context, l *link, filters []string, full func() bool) ([]refusal, error) {
	request := &paho.Subscribe{}
	for _, f := range filters {
		if r.options.Share != "" {
			f = "$share/" + r.options.Share + "/" + f
		}
		retained := byte(1) // those of a new subscription (section 3.8.3.1)
		if r.options.IgnoreRetained {
			retained = 2
		}
		request.Subscriptions = append(request.Subscriptions, paho.SubscribeOptions{Topic: f, QoS: r.options.QoS, RetainHandling: retained})
	}
	answer, err := answered(ctx, full, func(ctx context.Context) (*paho.Suback, error) { return l.client.Subscribe(ctx, request) })
	if answer == nil {
		return nil, err
	}
	if len(answer.Reasons) != len(filters) {
		return nil, fmt.Errorf("the broker gave %d answers for %d topic filters", len(answer.Reasons), len(filters))
	}
	var out []refusal
	for i, code := range answer.Reasons {
		switch {
		case code >= 0x80:
			e := &codeError{code: code}
			if answer.Properties != nil {
				e.said = answer.Properties.ReasonString
			}
			out = append(out, refusal{filters[i], -1, e})
		case code < r.options.QoS:
			out = append(out, refusal{filters[i], int(code), nil})
		}
	}
	return out, nil
}

// answered waits for the answer to a request, for connectTime at most. Time during
// which the connection is full, and not read, does not count: the answer may be behind
// messages for which there is no room.
func answered[T any](ctx context.Context, full func() bool, request func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for left := connectTime; left > 0; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if left -= time.Second; full() {
				left = connectTime
			}
		}
		stop(fmt.Errorf("no answer within %s", connectTime))
	})
	answer, err := request(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	stop(nil)
	watch.Wait()
	return answer, err
}

// Connect connects under an ID that nobody else has, and subscribes there for a
// moment, to see what is allowed: without a group, so that no message is taken from
// one, and without what is retained.
func (r *Receiver) Connect(ctx context.Context) (string, error) {
	look := &Receiver{connection: r.connection, options: r.options}
	look.options.Share, look.options.IgnoreRetained = "", true
	look.options.ClientID = r.connection.options.ClientID + "-check-" + randomID()
	look.options.SessionExpiry = 0
	session := newIncoming(&look.options, func(string) {})
	on := &receiving{incoming: session}
	u := look.user(on)
	u.clean = true
	l, err := look.connection.connect(ctx, u)
	if err != nil {
		return "", err
	}
	defer l.goodbye()
	defer session.finish()
	if r.options.Share != "" && !l.terms.shares {
		return "", errors.New("the broker has no shared subscriptions")
	}
	refusals, err := look.ask(ctx, l, r.options.Topics, session.isFull)
	if err != nil {
		return "", fmt.Errorf("subscribe: %w", err)
	}
	var errs []error
	for _, f := range refusals {
		if f.qos < 0 {
			errs = append(errs, fmt.Errorf("subscribe to %s: %w", f.filter, f.err))
		} else {
			errs = append(errs, fmt.Errorf("subscribe to %s: the broker grants QoS %d, not %d", f.filter, f.qos, r.options.QoS))
		}
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	group := ""
	if r.options.Share != "" {
		group = " shared by group " + r.options.Share
	}
	return fmt.Sprintf("takes %s%s at %s, QoS %d, as client %s", strings.Join(r.options.Topics, ", "), group, l.at, r.options.QoS, r.options.ClientID), nil
}
