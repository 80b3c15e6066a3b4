//go:build unix

package chain

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gobridge/bridge"
	"gobridge/internal/testbroker"
	"gobridge/store/sqlite"
)

// pairs are what is measured, from where to where. MQTT and SQS have benchmarks of
// their own, with brokers that are fast enough, beside their transports.
var pairs = []string{"nats nats", "kafka kafka", "amqp amqp", "amqp nats", "kafka amqp", "nats kafka"}

// Of the messages: how many keys, how large, and how many a second when it is about
// how long they take.
const (
	benchKeys    = 500
	benchPad     = 200
	benchRate    = 200
	benchSeconds = 4
)

// BenchmarkPairs moves messages from broker to broker, all in this process: by the
// bridge, each through an outbox on disk, and by a loop of the client libraries alone
// that publishes what it consumes and acknowledges what is confirmed. For both it
// reports how many come through in a second when all are put in at once, the
// processor time that one costs, broker and all, and the 99th percentile of how long
// one takes at a steady rate.
//
//	go test -run - -bench Pairs -benchtime 10000x ./chain
func BenchmarkPairs(b *testing.B) {
	for _, pair := range pairs {
		from, to, _ := strings.Cut(pair, " ")
		b.Run(from+"-"+to, func(b *testing.B) {
			if b.N == 1 {
				return // the package testing tries it once, before what is asked for
			}
			loop := newMoved(b, ends[from], ends[to], byLoop)
			bridged := newMoved(b, ends[from], ends[to], byBridge)
			loopRate, loopCPU := loop.burst(b)
			rate, cpu := bridged.burst(b)
			loopP99, p99 := loop.steady(b), bridged.steady(b)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(loopRate, "loop-msg/s")
			b.ReportMetric(rate, "msg/s")
			b.ReportMetric(loopRate/rate, "times-slower")
			b.ReportMetric(micro(loopCPU)/float64(b.N), "loop-cpu-us/msg")
			b.ReportMetric(micro(cpu)/float64(b.N), "cpu-us/msg")
			b.ReportMetric(micro(loopP99)/1000, "loop-p99-ms")
			b.ReportMetric(micro(p99)/1000, "p99-ms")
		})
	}
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// moved is a way from one broker to another.
type moved struct {
	from testbroker.Broker

	mu      sync.Mutex
	sent    map[int]time.Time // of those that have not arrived
	took    []time.Duration
	arrived chan struct{} // has an entry when sent is empty
	next    int
}

// newMoved starts both brokers and what moves messages between them.
func newMoved(b *testing.B, from, to end, how func(b *testing.B, from, to end, in, out string) (stop func())) *moved {
	b.Helper()
	m := &moved{from: from.start(b), sent: map[int]time.Time{}, arrived: make(chan struct{}, 1)}
	out := to.start(b)
	m.from.Make(b, "in")
	out.Make(b, "out")
	out.Watch(b, "out", m.arrive)
	b.Cleanup(how(b, from, to, m.from.Address(), out.Address()))
	for listening := false; !listening; { // of what nobody listens to, some is gone
		m.forget()
		m.put(b, 1)
		listening = m.empty(200 * time.Millisecond)
	}
	return m
}

// message is one to be moved.
func (m *moved) message() testbroker.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := newTally(1, benchKeys, benchPad)
	out := t.message(m.next)
	m.sent[m.next] = time.Now()
	m.next++
	return out
}

// put puts messages in.
func (m *moved) put(b *testing.B, n int) {
	b.Helper()
	messages := make([]testbroker.Message, n)
	for i := range messages {
		messages[i] = m.message()
	}
	m.from.Put(b, "in", messages...)
}

func (m *moved) arrive(got testbroker.Message) {
	var said content
	if json.Unmarshal(got.Body, &said) != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, open := m.sent[said.N]
	if !open {
		return
	}
	m.took = append(m.took, time.Since(at))
	delete(m.sent, said.N)
	if len(m.sent) == 0 {
		select {
		case m.arrived <- struct{}{}:
		default:
		}
	}
}

// empty waits until all has arrived, and reports false if that takes too long.
func (m *moved) empty(most time.Duration) bool {
	deadline := time.After(most)
	for {
		m.mu.Lock()
		left := len(m.sent)
		m.mu.Unlock()
		if left == 0 {
			return true
		}
		select {
		case <-m.arrived:
		case <-deadline:
			return false
		}
	}
}

func (m *moved) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = nil
	clear(m.sent)
}

// burst puts b.N messages in at once, and returns how many arrive in a second and
// how much processor time they cost.
func (m *moved) burst(b *testing.B) (rate float64, cpu time.Duration) {
	b.Helper()
	began, used := time.Now(), ownCPU(b)
	m.put(b, b.N)
	if !m.empty(5 * time.Minute) {
		b.Fatal("not all messages have arrived")
	}
	return float64(b.N) / time.Since(began).Seconds(), ownCPU(b) - used
}

// steady puts messages in at a steady rate, and returns the 99th percentile of how
// long one takes.
func (m *moved) steady(b *testing.B) time.Duration {
	b.Helper()
	m.forget()
	tick := time.NewTicker(time.Second / benchRate)
	defer tick.Stop()
	for range benchRate * benchSeconds {
		<-tick.C
		m.put(b, 1)
	}
	if !m.empty(time.Minute) {
		b.Fatal("not all messages have arrived")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.took)
	return m.took[len(m.took)*99/100]
}

// ownCPU is the processor time that this process has used.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func byLoop(b *testing.B, from, to end, in, out string) func() {
	b.Helper()
	send, stopSending := to.publish(b, out)
	stopConsuming := from.consume(b, in, send)
	return func() {
		stopConsuming()
		stopSending()
	}
}

func byBridge(b *testing.B, from, to end, in, out string) func() {
	b.Helper()
	store := must(sqlite.OpenFile(b.Context(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Options{}))(b)
	receiver, source := from.receiver(b, in)
	sender, destination := to.sender(b, out)
	engine := must(bridge.New(store, bridge.Options{
		Logger: slog.New(slog.DiscardHandler),
		Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{{Name: "b", Sender: sender}}}},
	}))(b)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = engine.Run(ctx) })
	running.Go(func() { _ = engine.Route("r").Receive(ctx, receiver) })
	return func() {
		cancel()
		running.Wait()
		_ = source.Close()
		_ = destination.Close()
		_ = store.Close()
	}
}
