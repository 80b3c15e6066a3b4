package faultproxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge/internal/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for something that is sure to happen, quiet how long
// a test looks for what must not happen.
const (
	patience = time.Minute
	quiet    = 50 * time.Millisecond
)

// upstream answers each line with its name and the line, until the client is done.
type upstream struct {
	name     string
	listener net.Listener
	conns    sync.WaitGroup

	mu    sync.Mutex
	lines []string
	ends  int // connections whose clients said that they were done
	cuts  int // connections that broke
}

func newUpstream(t *testing.T, name string) *upstream {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{name: name, listener: listener}
	u.conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			u.conns.Go(func() { u.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		u.conns.Wait()
	})
	return u
}

func (u *upstream) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		u.mu.Lock()
		switch {
		case errors.Is(err, io.EOF):
			u.ends++
		case err != nil:
			u.cuts++
		default:
			u.lines = append(u.lines, line)
		}
		u.mu.Unlock()
		if err != nil {
			return
		}
		fmt.Fprintf(conn, "%s %s", u.name, line)
	}
}

func (u *upstream) seen() (lines, ends, cuts int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.lines), u.ends, u.cuts
}

func start(t *testing.T, u *upstream) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Start(u.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// client is a connection through the proxy.
type client struct {
	*testing.T
	conn *net.TCPConn
	in   *bufio.Reader
}

func dial(t *testing.T, p *faultproxy.Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{t, conn.(*net.TCPConn), bufio.NewReader(conn)}
}

func (c *client) say(line string) {
	c.Helper()
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		c.Fatal(err)
	}
}

func (c *client) hear(want string) {
	c.Helper()
	if got, err := c.in.ReadString('\n'); got != want+"\n" {
		c.Fatalf("read %q (%v), want %q", got, err, want)
	}
}

// hearNothing expects that nothing comes for a while.
func (c *client) hearNothing() {
	c.Helper()
	c.deadline(quiet)
	if got, err := c.in.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.Fatalf("read %q (%v), want nothing", got, err)
	}
	c.deadline(patience)
}

func (c *client) deadline(d time.Duration) {
	c.Helper()
	if err := c.conn.SetDeadline(time.Now().Add(d)); err != nil {
		c.Fatal(err)
	}
}

// hearReset expects that the connection is reset, perhaps after some bytes.
func (c *client) hearReset() (before []byte) {
	c.Helper()
	before, err := io.ReadAll(c.in)
	if !errors.Is(err, syscall.ECONNRESET) {
		c.Fatalf("the connection ended with %v, want a reset", err)
	}
	return before
}

// wantReset expects that a new connection is reset, maybe before the client knows
// that it has it.
func wantReset(t *testing.T, p *faultproxy.Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection came to %v, want a reset", err)
	}
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for this: %s", patience, what)
		}
	}
}

func TestPassesBytesBothWays(t *testing.T) {
	u := newUpstream(t, "u")
	p := start(t, u)
	c := dial(t, p)
	c.say("one")
	c.hear("u one")
	c.say("two")
	c.hear("u two")
	want := faultproxy.Counts{Accepted: 1, Live: 1, FromClient: 8, FromServer: 12}
	await(t, fmt.Sprintf("the counts are %+v", want), func() bool { return p.Counts() == want })
	if err := c.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
		t.Errorf("the end of the connection: %q, %v", rest, err)
	}
	await(t, "the connection is forgotten", func() bool { return p.Counts().Live == 0 })
	if _, ends, cuts := u.seen(); ends != 1 || cuts != 0 {
		t.Errorf("the upstream saw %d ends and %d cuts, want an end", ends, cuts)
	}
}

func TestPassesMuchUnchanged(t *testing.T) {
	u := newUpstream(t, "u")
	c := dial(t, start(t, u))
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	done := make(chan error, 1)
	go func() {
		_, err := c.conn.Write(append(big, '\n'))
		done <- err
	}()
	got, err := c.in.ReadBytes('\n')
	if err != nil || !bytes.Equal(got, append([]byte("u "), append(big, '\n')...)) {
		t.Errorf("%d bytes came back (%v), not those that were sent", len(got), err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSetUpstream(t *testing.T) {
	first, second := newUpstream(t, "first"), newUpstream(t, "second")
	p := start(t, first)
	before := dial(t, p)
	before.say("x")
	before.hear("first x")
	p.SetUpstream(second.listener.Addr().String())
	after := dial(t, p)
	after.say("x")
	after.hear("second x")
	before.say("y")
	before.hear("first y")
}

func TestCut(t *testing.T) {
	u := newUpstream(t, "u")
	p := start(t, u)
	c, other := dial(t, p), dial(t, p)
	for _, c := range []*client{c, other} {
		c.say("x")
		c.hear("u x")
	}
	p.Cut()
	c.hearReset()
	other.hearReset()
	await(t, "the upstream sees both cuts", func() bool { _, _, cuts := u.seen(); return cuts == 2 })
	next := dial(t, p)
	next.say("x")
	next.hear("u x")
}

func TestCutAfter(t *testing.T) {
	u := newUpstream(t, "u")
	p := start(t, u)
	old := dial(t, p)
	old.say("x")
	old.hear("u x")

	p.CutAfter(faultproxy.FromClient, 6)
	c := dial(t, p)
	c.say("a")
	c.hear("u a")
	c.say("more than is left")
	c.hearReset()
	if lines, _, _ := u.seen(); lines != 2 {
		t.Errorf("the upstream saw %d lines, want the two before the limit", lines)
	}
	p.CutAfter(faultproxy.FromClient, -1)

	p.CutAfter(faultproxy.FromServer, 3)
	c = dial(t, p)
	c.say("a")
	if got := c.hearReset(); string(got) != "" && string(got) != "u a" {
		t.Errorf("before the reset came %q, want at most the 3 bytes", got)
	}
	if lines, _, _ := u.seen(); lines != 3 {
		t.Errorf("the upstream saw %d lines, want the third, too", lines)
	}
	p.CutAfter(faultproxy.FromServer, -1)

	for _, c := range []*client{old, dial(t, p)} {
		c.say("without a limit")
		c.hear("u without a limit")
	}
}

func TestHalfClose(t *testing.T) {
	u := newUpstream(t, "u")
	p := start(t, u)
	c := dial(t, p)
	c.say("x")
	c.hear("u x")
	p.HalfClose(faultproxy.FromServer)
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
		t.Errorf("the client read %q, %v, want the end", rest, err)
	}
	c.say("y")
	await(t, "the upstream still hears the client", func() bool { lines, _, _ := u.seen(); return lines == 2 })

	c = dial(t, p)
	c.say("x")
	c.hear("u x")
	p.HalfClose(faultproxy.FromClient)
	await(t, "the upstream reads the end of both", func() bool { _, ends, _ := u.seen(); return ends == 2 })
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
		t.Errorf("the client read %q, %v, want what the upstream has left to say, and its end", rest, err)
	}
}

func TestStall(t *testing.T) {
	u := newUpstream(t, "u")
	p := start(t, u)
	c := dial(t, p)
	c.say("x")
	c.hear("u x")
	p.Stall(true)
	c.say("y")
	fresh := dial(t, p)
	fresh.say("z")
	c.hearNothing()
	fresh.hearNothing()
	if lines, _, _ := u.seen(); lines != 1 {
		t.Errorf("the upstream saw %d lines, want none during the stall", lines)
	}
	p.Stall(false)
	c.hear("u y")
	fresh.hear("u z")
}

func TestStallOfAnswers(t *testing.T) {
	u := newUpstream(t, "u")
	p := start(t, u)
	p.StallFrom(faultproxy.FromServer, true)
	c := dial(t, p)
	c.say("x")
	await(t, "the request is carried out", func() bool { lines, _, _ := u.seen(); return lines == 1 })
	c.hearNothing()
	p.StallFrom(faultproxy.FromServer, false)
	c.hear("u x")
}

// TestStallPassesLate checks that a request whose client has given up arrives
// after the stall.
func TestStallPassesLate(t *testing.T) {
	u := newUpstream(t, "u")
	p := start(t, u)
	p.Stall(true)
	c := dial(t, p)
	c.say("late")
	_ = c.conn.Close()
	p.Stall(false)
	await(t, "what was sent arrives", func() bool { lines, _, _ := u.seen(); return lines == 1 })
}

func TestCutEndsAStall(t *testing.T) {
	p := start(t, newUpstream(t, "u"))
	p.Stall(true)
	c := dial(t, p)
	c.say("x")
	await(t, "the connection is there", func() bool { return p.Counts().Live == 1 })
	p.Cut()
	c.hearReset()
}

func TestDelay(t *testing.T) {
	p := start(t, newUpstream(t, "u"))
	p.Delay(time.Hour)
	c := dial(t, p)
	c.say("x")
	c.hearNothing()
	p.Delay(time.Nanosecond)
	next := dial(t, p)
	next.say("y")
	next.hear("u y")
}

func TestRefuse(t *testing.T) {
	p := start(t, newUpstream(t, "u"))
	old := dial(t, p)
	old.say("x")
	old.hear("u x")
	p.Refuse(true)
	wantReset(t, p)
	old.say("y")
	old.hear("u y")
	await(t, "one connection is counted as accepted and one as refused", func() bool {
		got := p.Counts()
		return got.Accepted == 1 && got.Refused == 1
	})
	p.Refuse(false)
	next := dial(t, p)
	next.say("z")
	next.hear("u z")
}

func TestUpstreamThatIsNotThere(t *testing.T) {
	u := newUpstream(t, "u")
	address := u.listener.Addr().String()
	_ = u.listener.Close()
	p, err := faultproxy.Start(address)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wantReset(t, p)
}

// TestCloseInTheMiddle closes a proxy that is being used and switched from many
// sides; goleak sees what stays behind.
func TestCloseInTheMiddle(t *testing.T) {
	p := start(t, newUpstream(t, "u"))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				conn, err := net.Dial("tcp", p.Addr())
				if err != nil {
					return
				}
				_ = conn.SetDeadline(time.Now().Add(10 * time.Millisecond))
				_, _ = io.WriteString(conn, "x\n")
				_, _ = conn.Read(make([]byte, 8))
				conn.Close()
			}
		})
	}
	for i := range 40 {
		p.Stall(i%3 == 0)
		p.Refuse(i%5 == 0)
		p.Delay(time.Duration(i%4) * time.Millisecond)
		p.CutAfter(faultproxy.Direction(i%2), int64(i%4-1))
		p.HalfClose(faultproxy.Direction(i % 2))
		p.Cut()
		_ = p.Counts()
	}
	p.Close()
	p.Close()
	group.Wait()
	if live := p.Counts().Live; live != 0 {
		t.Errorf("%d connections after Close", live)
	}
}
