package nats_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	server "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
	"gobridge/internal/faultproxy"
	"gobridge/transport/nats"
)

func proxy(t testing.TB, b *broker) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Start(b.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func unacknowledged(t testing.TB, js jetstream.JetStream) int {
	t.Helper()
	c, err := js.Consumer(t.Context(), "S", "c")
	if err != nil {
		return -1
	}
	return c.CachedInfo().NumAckPending
}

// TestWhatIsReplacedWhileItWaits: messages that the stream has dropped while they were
// waiting here do not hide others that were lost on their way.
func TestWhatIsReplacedWhileItWaits(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 })
	declared(t, js, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour })
	each := func(from, to, key int) {
		for i := from; i < to; i++ {
			publish(t, js, fmt.Sprintf("S.%d", key+i-from), i, i+1)
		}
	}
	p := proxy(t, b)
	o := &outbox{gate: make(chan struct{})}
	receive(t, connect(t, "nats://"+p.Addr(), nil), o, options())
	each(0, 10, 0)
	eventually(t, "a take", func() bool { return o.waiting() > 0 && unacknowledged(t, js) == 10 })
	each(10, 20, 0) // in the place of the first ones
	eventually(t, "the delivery of what replaced them", func() bool { return unacknowledged(t, js) == 10 })
	passed := func() int64 { return p.Counts().FromServer }
	for before := int64(-1); before != passed(); time.Sleep(50 * time.Millisecond) {
		before = passed()
	}
	p.StallFrom(faultproxy.FromServer, true)
	each(20, 25, 20)
	eventually(t, "the loss of some", func() bool { return unacknowledged(t, js) == 15 })
	p.Cut()
	p.StallFrom(faultproxy.FromServer, false)
	eventually(t, "another connection", func() bool { return p.Counts().Accepted > 1 && p.Counts().Live > 0 })
	each(25, 30, 25)
	close(o.gate)
	eventually(t, "the arrival of all", func() bool { return slices.Contains(o.payloads(), "29") && len(o.ids()) >= 20 })
	var firsts []string
	for _, x := range o.payloads() {
		if !slices.Contains(firsts, x) {
			firsts = append(firsts, x)
		}
	}
	if got := last(firsts, 10); !slices.Equal(got, numbers(20, 30)) {
		t.Errorf("the last ones came as %v, want %v", got, numbers(20, 30))
	}
}

// TestAStreamThatHasLostItsEnd: a server that went down without having written
// everything counts again from where it was, for other messages.
func TestAStreamThatHasLostItsEnd(t *testing.T) {
	b := startBroker(t, nil)
	_, js := dial(t, b.url())
	makeStream(t, js, "S", func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
	o := &outbox{}
	receive(t, connect(t, b.url(), nil), o, options())
	publish(t, js, "S.x", 0, 5)
	o.await(t, numbers(0, 5))
	eventually(t, "the acknowledgement of all", func() bool { return unacknowledged(t, js) == 0 })

	kept := filepath.Join(t.TempDir(), "kept")
	b.stop()
	if err := os.CopyFS(kept, os.DirFS(b.options.StoreDir)); err != nil {
		t.Fatal(err)
	}
	b.start()
	gate := make(chan struct{})
	o.mu.Lock()
	o.gate = gate
	o.mu.Unlock()
	put := func(payload string) {
		eventually(t, "a stream that takes messages", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := js.Publish(ctx, "S.x", []byte(payload))
			return err == nil
		})
	}
	put("lost in the stream")
	eventually(t, "a take", func() bool { return o.waiting() == 1 && unacknowledged(t, js) == 1 })
	b.stop()
	if err := os.RemoveAll(b.options.StoreDir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(b.options.StoreDir, os.DirFS(kept)); err != nil {
		t.Fatal(err)
	}
	b.start()
	put("another")
	eventually(t, "the delivery of the other", func() bool { return unacknowledged(t, js) == 1 })
	close(gate)
	o.await(t, append(numbers(0, 5), "lost in the stream", "another"))
	eventually(t, "the acknowledgement of all", func() bool { return unacknowledged(t, js) == 0 })
	if n := len(o.ids()); n != 7 {
		t.Errorf("%d IDs for 7 messages", n)
	}
}

// TestAServerThatReadsNothing keeps nobody for long, and what is said to be delivered
// when it reads again is there.
func TestAServerThatReadsNothing(t *testing.T) {
	for _, core := range []bool{false, true} {
		t.Run(fmt.Sprintf("core %v", core), func(t *testing.T) {
			b := startBroker(t, nil)
			nc, js := dial(t, b.url())
			makeStream(t, js, "S", nil)
			p := proxy(t, b)
			conn := connect(t, "nats://"+p.Addr(), nil)
			s := sender(t, conn, nats.SenderOptions{Subject: "S.x", Core: core, Timeout: 500 * time.Millisecond})
			if _, err := send(t, s, delivery("b", "first", "x")); err != nil {
				t.Fatal(err)
			}
			sub, err := nc.SubscribeSync("S.x")
			if err != nil {
				t.Fatal(err)
			}
			if err := sub.SetPendingLimits(-1, -1); err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			p.StallFrom(faultproxy.FromClient, true)
			var mu sync.Mutex
			delivered := map[string]bool{}
			var sends sync.WaitGroup
			for i := range 2 {
				sends.Go(func() {
					batch := make([]gobridge.Delivery, 100)
					for j := range batch {
						batch[j] = delivery("b", fmt.Sprintf("%d-%d", i, j), string(make([]byte, 128<<10)))
					}
					for k, err := range s.Send(t.Context(), batch) {
						if err == nil {
							mu.Lock()
							delivered[batch[k].Envelope.ID] = true
							mu.Unlock()
						}
					}
				})
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				sends.Wait()
			}()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Errorf("after %s a send of half a second has not ended", patience)
			}
			p.StallFrom(faultproxy.FromClient, false)
			<-ended
			eventually(t, "another send", func() bool { _, err := send(t, s, delivery("b", "last", "x")); return err == nil })
			for {
				m, err := sub.NextMsg(patience)
				if err != nil {
					t.Fatal(err)
				}
				if id := m.Header.Get("gobridge-id"); id == "last" {
					break
				} else {
					delete(delivered, id)
				}
			}
			if len(delivered) > 0 {
				t.Errorf("%d messages are said to be delivered, and nobody got them", len(delivered))
			}
		})
	}
}

// TestAnInboxPrefixBelowTheUsualOne is what accounts with their own part of it use.
func TestAnInboxPrefixBelowTheUsualOne(t *testing.T) {
	b := startBroker(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "gw", Password: "x", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.gw.>"}},
		}}}
	})
	conn := connect(t, b.url(), func(o *nats.Options) {
		asGateway(o)
		o.InboxPrefix = "_INBOX.gw"
	})
	s := sender(t, conn, nats.SenderOptions{SubjectFrom: subjectOf})
	d := delivery("b", "1", "x")
	d.Envelope.Subject = "nobody.has.it"
	if _, err := send(t, s, d); err == nil || !slices.Contains([]string{"nats: no response from stream"}, lastCause(err)) {
		t.Errorf("%v, want the answer that no stream has the subject", err)
	}
}

func lastCause(err error) string {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err.Error()
		}
		err = inner.Unwrap()
	}
}
