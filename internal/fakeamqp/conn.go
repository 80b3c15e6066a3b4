package fakeamqp

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// The types of frames, and what ends one.
const (
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8
	frameEnd       = 0xCE
)

// maxChannels is how many a connection may have, minFrame the smallest bound of a
// frame (AMQP 0-9-1, 1.4.2.6).
const (
	maxChannels = 2047
	minFrame    = 4096
)

// loginTime bounds the time until a connection is open; closeTime the wait for
// the answer to a close.
const (
	loginTime = 10 * time.Second
	closeTime = time.Second
)

// The states of a connection.
const (
	stateStart = iota
	stateTune
	stateOpen
	stateRunning
	stateClosing
)

// conn is a client. All but raw, done and wake are protected by the broker's mutex.
type conn struct {
	broker *Broker
	raw    net.Conn
	done   chan struct{} // closed when the connection has ended
	wake   chan struct{} // has one when there is something to write

	state     int
	user      string
	external  bool // a certificate was shown
	hasBlock  bool // the client understands connection.blocked
	hasCancel bool // and basic.cancel
	frameMax  uint32
	heartbeat time.Duration
	channels  map[uint16]*channel
	pending   []byte
	ended     bool
	finish    bool // end when all is written
	throttle  bool // read no more while publishers are blocked
}

func newConn(b *Broker, raw net.Conn) *conn {
	return &conn{
		broker: b, raw: raw, done: make(chan struct{}), wake: make(chan struct{}, 1),
		frameMax: minFrame, channels: map[uint16]*channel{},
	}
}

// run serves the client until it is gone.
func (c *conn) run() {
	defer c.leave()
	if c.broker.options.TLS != nil {
		encrypted := tls.Server(c.raw, c.broker.options.TLS)
		ctx, cancel := context.WithTimeout(context.Background(), loginTime)
		defer cancel()
		if encrypted.HandshakeContext(ctx) != nil {
			return
		}
		c.external = len(encrypted.ConnectionState().PeerCertificates) > 0
		c.broker.locked(func() { c.raw = encrypted })
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(loginTime))
	r := bufio.NewReaderSize(c.raw, 64<<10)
	var greeting [8]byte
	if _, err := io.ReadFull(r, greeting[:]); err != nil {
		return
	}
	if string(greeting[:]) != "AMQP\x00\x00\x09\x01" {
		_, _ = c.raw.Write([]byte("AMQP\x00\x00\x09\x01"))
		return
	}
	c.broker.running.Go(c.write)
	c.broker.locked(func() { c.start() })
	for {
		typ, number, payload, err := c.read(r)
		if err != nil {
			return
		}
		c.broker.locked(func() {
			if !c.ended && !c.finish {
				c.frame(typ, number, payload)
			}
		})
		if !c.wait() {
			return
		}
	}
}

func (b *Broker) locked(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// wait blocks a publisher while there is an alarm, and reports false if it is gone.
func (c *conn) wait() bool {
	var blocked chan struct{}
	c.broker.locked(func() {
		if c.throttle {
			blocked = c.broker.blocked
		}
	})
	if blocked == nil {
		return true
	}
	select {
	case <-blocked:
	case <-c.done:
		return false
	}
	c.broker.locked(func() {
		c.throttle = false
		if c.hasBlock {
			c.method(0, 10, 61, nil)
		}
	})
	return true
}

// read reads a frame.
func (c *conn) read(r io.Reader) (typ byte, number uint16, payload []byte, err error) {
	var frameMax uint32
	var idle time.Duration
	c.broker.locked(func() { frameMax, idle = c.frameMax, 2*c.heartbeat })
	if idle > 0 {
		_ = c.raw.SetReadDeadline(time.Now().Add(idle))
	}
	var head [7]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	typ, number = head[0], binary.BigEndian.Uint16(head[1:])
	size := binary.BigEndian.Uint32(head[3:])
	if size+8 > frameMax {
		c.broker.locked(func() {
			c.fail(501, fmt.Sprintf("FRAME_ERROR - frame of %d bytes, at most %d", size+8, frameMax), 0, 0)
		})
		<-c.done
		return 0, 0, nil, errors.New("too large")
	}
	payload = make([]byte, size+1)
	if _, err = io.ReadFull(r, payload); err != nil {
		return 0, 0, nil, err
	}
	if payload[size] != frameEnd {
		c.broker.locked(func() { c.fail(501, "FRAME_ERROR - no frame end", 0, 0) })
		<-c.done
		return 0, 0, nil, errors.New("no frame end")
	}
	return typ, number, payload[:size], nil
}

// write writes what is pending, and heartbeats, until the connection has ended.
func (c *conn) write() {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	last := time.Now()
	for {
		var data []byte
		var finish bool
		c.broker.locked(func() {
			data, c.pending, finish = c.pending, nil, c.finish
			if len(data) == 0 && c.heartbeat > 0 && time.Since(last) > c.heartbeat/2 {
				data = []byte{frameHeartbeat, 0, 0, 0, 0, 0, 0, frameEnd}
			}
		})
		if len(data) > 0 {
			if _, err := c.raw.Write(data); err != nil {
				c.broker.locked(c.cut)
				return
			}
			last = time.Now()
			continue
		}
		if finish {
			// The client closes when it has read that; what it sends is dropped.
			select {
			case <-time.After(closeTime):
			case <-c.done:
			}
			c.broker.locked(c.cut)
			return
		}
		select {
		case <-c.wake:
		case <-ticker.C:
		case <-c.done:
			return
		}
	}
}

func (c *conn) send(typ byte, number uint16, payload []byte) {
	c.pending = append(c.pending, out(nil).octet(typ).short(number).longstr(string(payload)).octet(frameEnd)...)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) method(number, class, method uint16, arguments out) {
	c.send(frameMethod, number, append(out(nil).short(class).short(method), arguments...))
}

// content sends a method with a message behind it, which has an x-delivery-count
// unless count is negative.
func (c *conn) content(number, class, method uint16, arguments out, m *message, count int64) {
	c.method(number, class, method, arguments)
	c.send(frameHeader, number, append(out(nil).short(60).short(0).longlong(uint64(len(m.body))), m.properties.encode(count)...))
	for rest := m.body; len(rest) > 0; {
		n := min(len(rest), int(c.frameMax)-8)
		c.send(frameBody, number, rest[:n])
		rest = rest[n:]
	}
}

// fail closes the connection with a reply code.
func (c *conn) fail(code uint16, text string, class, method uint16) {
	if c.state == stateClosing {
		return
	}
	c.state = stateClosing
	c.method(0, 10, 50, out(nil).short(code).shortstr(text).short(class).short(method))
	c.release()
	time.AfterFunc(closeTime, func() { c.broker.locked(c.cut) }) // should no answer come
}

// end ends the connection when everything is written.
func (c *conn) end() {
	c.finish = true
	c.release()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// cut resets the connection.
func (c *conn) cut() {
	if c.ended {
		return
	}
	c.ended = true
	close(c.done)
	raw := c.raw
	if encrypted, ok := raw.(*tls.Conn); ok {
		raw = encrypted.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok && !c.finish && c.state != stateClosing {
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
}

// leave is the end of a connection, whatever the reason.
func (c *conn) leave() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	c.cut()
	c.release()
	delete(c.broker.conns, c)
}

// release gives back what the channels hold.
func (c *conn) release() {
	for number, ch := range c.channels {
		delete(c.channels, number)
		ch.release()
	}
}

func (c *conn) start() {
	mechanisms := "PLAIN AMQPLAIN"
	if c.external {
		mechanisms += " EXTERNAL"
	}
	properties := map[string]any{"product": "fakeamqp", "version": "3.10.0", "capabilities": map[string]any{
		"publisher_confirms": true, "basic.nack": true, "consumer_cancel_notify": true, "connection.blocked": true,
		"authentication_failure_close": true,
	}}
	c.method(0, 10, 10, out(nil).octet(0).octet(9).table(properties).longstr(mechanisms).longstr("en_US"))
}

// frame handles a frame.
func (c *conn) frame(typ byte, number uint16, payload []byte) {
	switch {
	case typ != frameMethod && typ != frameHeader && typ != frameBody && typ != frameHeartbeat:
		c.fail(501, fmt.Sprintf("FRAME_ERROR - type %d", typ), 0, 0)
	case c.state == stateClosing && (typ != frameMethod || number != 0):
		return
	case typ == frameHeartbeat && (number != 0 || len(payload) != 0):
		c.fail(501, "FRAME_ERROR - a heartbeat has no channel and no payload", 0, 0)
	case typ == frameHeartbeat:
	case typ == frameMethod && len(payload) < 4:
		c.fail(501, "FRAME_ERROR - a method has four bytes", 0, 0)
	case typ == frameMethod && number == 0:
		a := args{b: payload}
		c.control(a.short(), a.short(), &a)
	case c.state != stateRunning:
		c.fail(503, "COMMAND_INVALID - the connection is not open", 0, 0)
	case number == 0:
		c.fail(504, "CHANNEL_ERROR - content on channel 0", 0, 0)
	case c.channels[number] != nil:
		c.channels[number].frame(typ, payload)
	case typ == frameMethod && binary.BigEndian.Uint32(payload) == 20<<16|10:
		a := args{b: payload[4:]}
		a.shortstr()
		if c.read0(&a, 20, 10) {
			c.channels[number] = newChannel(c, number)
			c.method(number, 20, 11, out(nil).longstr(""))
		}
	case typ == frameMethod && binary.BigEndian.Uint32(payload) == 20<<16|41: // close-ok of a channel that both sides closed
	default:
		c.fail(504, fmt.Sprintf("CHANNEL_ERROR - expected 'channel.open' on channel %d", number), 0, 0)
	}
}

// read0 reports whether arguments were read to their end, and fails otherwise.
func (c *conn) read0(a *args, class, method uint16) bool {
	if a.bad || len(a.b) > 0 {
		c.fail(501, fmt.Sprintf("FRAME_ERROR - cannot decode the arguments of method %d.%d", class, method), class, method)
		return false
	}
	return true
}

// control handles a method of the connection.
func (c *conn) control(class, method uint16, a *args) {
	switch {
	case class == 10 && method == 51 && c.state == stateClosing:
		c.finish = true
	case c.state == stateClosing:
	case class == 10 && method == 50:
		_, _, _, _ = a.short(), a.shortstr(), a.short(), a.short()
		if c.read0(a, class, method) {
			c.method(0, 10, 51, nil)
			c.end()
		}
	case class == 10 && method == 11 && c.state == stateStart:
		client, mechanism, response := a.table(), a.shortstr(), a.longstr()
		a.shortstr()
		if c.read0(a, class, method) {
			c.login(client, mechanism, response)
		}
	case class == 10 && method == 31 && c.state == stateTune:
		channels, frameMax, heartbeat := a.short(), a.long(), a.short()
		if !c.read0(a, class, method) {
			return
		}
		if channels == 0 || channels > maxChannels || frameMax < minFrame || frameMax > c.broker.options.FrameMax {
			c.end() // without a word, as RabbitMQ does
			return
		}
		c.frameMax, c.heartbeat, c.state = frameMax, time.Duration(heartbeat)*time.Second, stateOpen
	case class == 10 && method == 40 && c.state == stateOpen:
		host := a.shortstr()
		a.shortstr()
		a.bits(1)
		if !c.read0(a, class, method) {
			return
		}
		if host != "/" {
			c.fail(530, fmt.Sprintf("NOT_ALLOWED - vhost %s not found", host), class, method)
			return
		}
		c.state = stateRunning
		if c.heartbeat == 0 {
			_ = c.raw.SetReadDeadline(time.Time{})
		}
		c.method(0, 10, 41, out(nil).shortstr(""))
	default:
		c.fail(503, fmt.Sprintf("COMMAND_INVALID - method %d.%d on channel 0 in this state", class, method), class, method)
	}
}

// login checks who the client is.
func (c *conn) login(client map[string]any, mechanism, response string) {
	capabilities, _ := client["capabilities"].(map[string]any)
	c.hasBlock, _ = capabilities["connection.blocked"].(bool)
	c.hasCancel, _ = capabilities["consumer_cancel_notify"].(bool)
	ok := false
	switch mechanism {
	case "PLAIN":
		parts := strings.Split(response, "\x00")
		if len(parts) == 3 {
			password, known := c.broker.options.Users[parts[1]]
			c.user, ok = parts[1], known && password == parts[2]
		}
	case "EXTERNAL":
		ok = c.external
	}
	if told, _ := capabilities["authentication_failure_close"].(bool); !ok && told {
		c.fail(403, "ACCESS_REFUSED - Login was refused using authentication mechanism "+mechanism, 10, 11)
		return
	}
	if !ok { // a client that doesn't ask for more is not told (4.8 of the specification)
		c.end()
		return
	}
	c.state = stateTune
	c.method(0, 10, 30, out(nil).short(maxChannels).long(c.broker.options.FrameMax).short(uint16(c.broker.options.Heartbeat/time.Second))) //nolint:gosec // minutes
}
