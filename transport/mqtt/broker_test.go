package mqtt_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/eclipse/paho.golang/packets"
)

// broker is an MQTT 5 broker in memory that keeps to the letter where the standard
// leaves no choice, above all to the order of what it sends again, and that answers
// as a test tells it to. Its packets are coded by the client library.
type broker struct {
	t      testing.TB
	listen net.Listener
	closed sync.WaitGroup

	written atomic.Int64

	mu        sync.Mutex
	sessions  map[string]*session
	peers     map[*peer]bool
	published []*packets.Publish // by clients, in order
	connects  []*packets.Connect
	retained  map[string]*packets.Publish

	// What a test can change; nil and zero for what a broker does that is content.
	greet     func(*packets.Connect) *packets.Connack
	grant     func(filter string) byte
	onPublish func(*packets.Publish) verdict
	greeting  packets.Properties // of every CONNACK
	mute      bool               // answers no ping
	pings     int
	forgets   bool // keeps no session
}

// verdict is what becomes of a publish.
type verdict struct {
	code       byte
	disconnect byte
	silent     bool
}

// session is what a broker keeps of a client.
type session struct {
	filters  map[string]packets.SubOptions
	most     int // its Receive Maximum
	next     uint16
	waiting  []*packets.Publish
	inflight []*packets.Publish // sent and not acknowledged, in order
	peer     *peer
}

// peer is one connection.
type peer struct {
	b    *broker
	conn net.Conn
	s    *session
	out  chan packets.Packet
	end  chan struct{}
	once sync.Once
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, listen: listen, sessions: map[string]*session{}, peers: map[*peer]bool{}, retained: map[string]*packets.Publish{}}
	b.closed.Go(b.accept)
	t.Cleanup(func() {
		_ = listen.Close()
		b.cut()
		b.closed.Wait()
	})
	return b
}

func (b *broker) url() string { return "mqtt://" + b.listen.Addr().String() }

func (b *broker) accept() {
	for {
		conn, err := b.listen.Accept()
		if err != nil {
			return
		}
		p := &peer{b: b, conn: conn, out: make(chan packets.Packet, 1<<17), end: make(chan struct{})}
		b.mu.Lock()
		b.peers[p] = true
		b.mu.Unlock()
		b.closed.Go(p.write)
		b.closed.Go(p.read)
	}
}

// cut breaks every connection.
func (b *broker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.peers {
		p.close()
	}
}

// set changes something under the lock.
func (b *broker) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// left is how many messages the client has not acknowledged.
func (b *broker) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[client]
	if s == nil {
		return 0
	}
	return len(s.waiting) + len(s.inflight)
}

// subscribed reports whether the client has a subscription.
func (b *broker) subscribed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[client]
	return s != nil && len(s.filters) > 0
}

// connected is how many connections have begun with a CONNECT.
func (b *broker) connected() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.connects)
}

// sent is how many packets have been written to clients.
func (b *broker) sent() int { return int(b.written.Load()) }

func (b *broker) got() []*packets.Publish {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.published)
}

// publish puts messages in as if a client had published them.
func (b *broker) publish(all ...*packets.Publish) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range all {
		b.route(p)
	}
}

func (b *broker) route(p *packets.Publish) {
	if p.Retain {
		b.retained[p.Topic] = p
	}
	for _, s := range b.sessions {
		for filter, options := range s.filters {
			if filterTakes(filter, p.Topic) && !strings.HasPrefix(filter, "$share/") {
				s.add(p, options, false)
				break
			}
		}
	}
}

func (s *session) add(p *packets.Publish, options packets.SubOptions, retained bool) {
	if p.Properties == nil {
		p.Properties = &packets.Properties{}
	}
	copied := *p
	copied.QoS, copied.Retain, copied.Duplicate = min(p.QoS, options.QoS), retained, false
	if copied.QoS == 0 {
		if s.peer != nil {
			s.peer.out <- &copied
		}
		return
	}
	s.waiting = append(s.waiting, &copied)
	s.pump()
}

// pump sends what the Receive Maximum allows.
func (s *session) pump() {
	for s.peer != nil && len(s.waiting) > 0 && len(s.inflight) < s.most {
		p := s.waiting[0]
		s.waiting = s.waiting[1:]
		if s.next++; s.next == 0 {
			s.next = 1
		}
		p.PacketID = s.next
		s.inflight = append(s.inflight, p)
		s.peer.out <- p
	}
}

// filterTakes matches a filter without wildcards but a last #, and + for a level.
func filterTakes(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	for i := range f {
		if f[i] == "#" {
			return true
		}
		if i >= len(t) || f[i] != "+" && f[i] != t[i] {
			return false
		}
	}
	return len(f) == len(t)
}

func (p *peer) close() {
	p.once.Do(func() {
		close(p.end)
		_ = p.conn.Close()
	})
}

func (p *peer) write() {
	for {
		select {
		case packet := <-p.out:
			if _, err := packet.WriteTo(p.conn); err != nil {
				p.close()
				return
			}
			p.b.written.Add(1)
			if _, last := packet.(*packets.Disconnect); last {
				p.close()
				return
			}
		case <-p.end:
			return
		}
	}
}

func (p *peer) read() {
	defer func() {
		p.close()
		p.b.mu.Lock()
		defer p.b.mu.Unlock()
		delete(p.b.peers, p)
		if p.s != nil && p.s.peer == p {
			p.s.peer = nil
		}
	}()
	for {
		received, err := packets.ReadPacket(p.conn)
		if err != nil {
			return
		}
		p.b.mu.Lock()
		select {
		case <-p.end: // taken over: what it had sent before is not looked at
			p.b.mu.Unlock()
			return
		default:
		}
		goOn := p.take(received)
		p.b.mu.Unlock()
		if !goOn {
			return
		}
	}
}

// take handles a packet under the broker's lock.
func (p *peer) take(received *packets.ControlPacket) bool {
	switch r := received.Content.(type) {
	case *packets.Connect:
		return p.connect(r)
	case *packets.Publish:
		return p.publish(r)
	case *packets.Pubrel:
		p.out <- &packets.Pubcomp{PacketID: r.PacketID, Properties: &packets.Properties{}}
	case *packets.Subscribe:
		p.subscribe(r)
	case *packets.Puback:
		return p.acknowledged(r.PacketID, 1)
	case *packets.Pubrec:
		if !p.acknowledged(r.PacketID, 2) {
			return false
		}
		p.out <- &packets.Pubrel{PacketID: r.PacketID, Properties: &packets.Properties{}}
	case *packets.Pingreq:
		p.b.pings++
		if !p.b.mute {
			p.out <- &packets.Pingresp{}
		}
	case *packets.Disconnect:
		return false
	}
	return true
}

// acknowledged ends a message. Those of a client come in the order of the messages.
func (p *peer) acknowledged(id uint16, qos byte) bool {
	s := p.s
	if len(s.inflight) == 0 || s.inflight[0].PacketID != id || s.inflight[0].QoS != qos {
		p.b.t.Errorf("acknowledgement of %d out of order", id)
		return false
	}
	s.inflight = s.inflight[1:]
	s.pump()
	return true
}

func (p *peer) connect(c *packets.Connect) bool {
	b := p.b
	b.connects = append(b.connects, c)
	if b.greet != nil {
		if ack := b.greet(c); ack != nil {
			p.out <- ack
			return true // the client closes
		}
	}
	s := b.sessions[c.ClientID]
	if s != nil && s.peer != nil { // MQTT 5, section 3.1.4
		s.peer.out <- &packets.Disconnect{ReasonCode: 0x8E, Properties: &packets.Properties{}}
		s.peer = nil
	}
	present := s != nil && !c.CleanStart && !b.forgets
	if !present {
		s = &session{filters: map[string]packets.SubOptions{}}
		b.sessions[c.ClientID] = s
	}
	s.peer, p.s, s.most = p, s, 65535
	if c.Properties != nil && c.Properties.ReceiveMaximum != nil {
		s.most = int(*c.Properties.ReceiveMaximum)
	}
	greeting := b.greeting
	p.out <- &packets.Connack{SessionPresent: present, Properties: &greeting}
	for _, sent := range s.inflight {
		again := *sent
		again.Duplicate = true
		p.out <- &again
	}
	s.pump()
	return true
}

func (p *peer) subscribe(r *packets.Subscribe) {
	ack := &packets.Suback{PacketID: r.PacketID, Properties: &packets.Properties{}}
	var fresh []packets.SubOptions
	for _, f := range r.Subscriptions {
		code := f.QoS
		if p.b.grant != nil {
			code = p.b.grant(f.Topic)
		}
		ack.Reasons = append(ack.Reasons, code)
		if code >= 0x80 {
			continue
		}
		if _, there := p.s.filters[f.Topic]; !there && f.RetainHandling < 2 {
			fresh = append(fresh, f)
		}
		p.s.filters[f.Topic] = f
	}
	p.out <- ack
	for _, f := range fresh {
		for topic, kept := range p.b.retained {
			if filterTakes(f.Topic, topic) {
				p.s.add(kept, f, true)
			}
		}
	}
}

func (p *peer) publish(r *packets.Publish) bool {
	v := verdict{}
	if p.b.onPublish != nil {
		v = p.b.onPublish(r)
	}
	switch {
	case v.disconnect != 0:
		p.out <- &packets.Disconnect{ReasonCode: v.disconnect, Properties: &packets.Properties{}}
		return true
	case v.silent:
		return true
	}
	if v.code < 0x80 {
		p.b.published = append(p.b.published, r)
		copied := *r
		p.b.route(&copied)
	}
	switch r.QoS {
	case 1:
		p.out <- &packets.Puback{PacketID: r.PacketID, ReasonCode: v.code, Properties: &packets.Properties{}}
	case 2:
		p.out <- &packets.Pubrec{PacketID: r.PacketID, ReasonCode: v.code, Properties: &packets.Properties{}}
	}
	return true
}
