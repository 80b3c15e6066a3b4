package nats_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge/bridge"
	"gobridge/internal/faultproxy"
	"gobridge/store/sqlite"
	"gobridge/transport/nats"
	"gobridge/transporttest"
)

// live returns the address of a real server, which scripts/nats-live.sh starts, and
// what controls it.
func live(t testing.TB) (address string, node func(what string)) {
	t.Helper()
	url := os.Getenv("GOBRIDGE_NATS_URL")
	if url == "" {
		t.Skip("no real server: run it through scripts/nats-live.sh")
	}
	control := os.Getenv("GOBRIDGE_NATS_NODE")
	return strings.TrimPrefix(url, "nats://"), func(what string) {
		t.Helper()
		if control == "" {
			t.Skip("GOBRIDGE_NATS_NODE is not set: the server can't be stopped")
		}
		if out, err := exec.CommandContext(context.Background(), control, what).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", what, err, out)
		}
	}
}

func TestLiveSource(t *testing.T) {
	address, _ := live(t)
	transporttest.RunSource(t, func(t testing.TB) transporttest.Source { return source(t, address, nil) })
}

func TestLiveDestination(t *testing.T) {
	address, _ := live(t)
	transporttest.RunSender(t, func(t testing.TB) transporttest.Destination { return destination(t, address) })
}

// night is a bridge from one stream to another in bad times.
type night struct {
	t         *testing.T
	js        jetstream.JetStream
	proxy     *faultproxy.Proxy
	confirmed [nightKeys]int // how many messages of a key its stream has confirmed
}

const (
	nightKeys  = 8
	nightTime  = 10 * time.Second
	nightLarge = 100 // every so many messages of a key one is larger than the other stream takes
)

// TestLiveNight stops, kills and cuts everything under load: what the first stream
// has confirmed arrives in the second, each key in its order, but for what is too
// large for it, which becomes dead letters.
func TestLiveNight(t *testing.T) {
	address, node := live(t)
	_, js := dial(t, "nats://"+address)
	file := func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage }
	makeStream(t, js, "NIGHTIN", file)
	makeStream(t, js, "NIGHTOUT", func(c *jetstream.StreamConfig) {
		file(c)
		c.MaxMsgSize = 10 << 10
	})
	n := &night{t: t, js: js, proxy: startProxy(t, address)}
	store, stop := n.bridge()
	n.load(node)
	n.check(store)
	stop()
	for _, name := range []string{"NIGHTIN", "NIGHTOUT"} {
		if err := js.DeleteStream(context.Background(), name); err != nil {
			t.Error(err)
		}
	}
}

// bridge runs a whole bridge whose connections go through the proxy.
func (n *night) bridge() (store *sqlite.Store, stop func()) {
	t := n.t
	conn := connect(t, "nats://"+n.proxy.Addr(), nil)
	out := sender(t, conn, nats.SenderOptions{Subject: "NIGHTOUT.x", Stream: "NIGHTOUT", Timeout: 5 * time.Second})
	in, err := conn.Receiver(nats.ReceiverOptions{Stream: "NIGHTIN", Consumer: "c", Declare: true, AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	store, err = sqlite.OpenFile(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bridge.New(store, bridge.Options{LeaseTerm: 30 * time.Second, Routes: []bridge.Route{{
		Name: "night", Bindings: []bridge.Binding{{
			Name: "out", Sender: out, Retry: bridge.Retry{MinBackoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, Attempts: 1000},
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		if err := b.Route("night").Receive(ctx, in); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return store, stop
}

// load publishes while everything goes wrong.
func (n *night) load(node func(string)) {
	ended := make(chan struct{})
	var producers sync.WaitGroup
	for key := range nightKeys {
		producers.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(5 * time.Millisecond): // so that it is done soon afterwards
				}
				if n.publish(key, n.confirmed[key]) {
					n.confirmed[key]++
				}
			}
		})
	}
	faults := []func(){
		n.proxy.Cut,
		func() { n.proxy.CutAfter(faultproxy.FromClient, 20_000); n.proxy.Cut() }, // in the middle of a batch, or of acknowledgements
		func() { n.proxy.CutAfter(faultproxy.FromServer, 50_000) },                // in the middle of deliveries and confirmations
		func() {
			n.proxy.CutAfter(faultproxy.FromClient, -1)
			n.proxy.CutAfter(faultproxy.FromServer, -1)
			n.proxy.Cut()
		},
		func() { node("kill"); node("start") },
		func() {
			n.proxy.StallFrom(faultproxy.FromServer, true)
			time.Sleep(300 * time.Millisecond)
			n.proxy.StallFrom(faultproxy.FromServer, false)
		},
		func() { node("stop"); time.Sleep(200 * time.Millisecond); node("start") },
	}
	for began, i := time.Now(), 0; time.Since(began) < nightTime; i++ {
		time.Sleep(400 * time.Millisecond)
		faults[i%len(faults)]()
	}
	close(ended)
	producers.Wait()
	n.proxy.CutAfter(faultproxy.FromClient, -1)
	n.proxy.CutAfter(faultproxy.FromServer, -1)
	n.proxy.Cut()
}

func large(number int) bool { return number%nightLarge == nightLarge-1 }

func (n *night) publish(key, number int) bool {
	m := client.NewMsg("NIGHTIN.x")
	m.Data = fmt.Appendf(nil, "%d %d ", key, number)
	if large(number) {
		m.Data = append(m.Data, make([]byte, 20<<10)...)
	}
	m.Header.Set("gobridge-ordering-key", fmt.Sprint(key))
	// Its identity, for the stream may have it though it has not confirmed it.
	m.Header.Set("gobridge-id", fmt.Sprint(key, "-", number))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := n.js.PublishMsg(ctx, m)
	return err == nil
}

// check waits for all that was confirmed, and looks at the order of each key.
func (n *night) check(store *sqlite.Store) {
	t := n.t
	consumer, err := n.js.OrderedConsumer(t.Context(), "NIGHTOUT", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var next [nightKeys]int // the lowest number that has not come
	repeats, total, tooLarge := 0, 0, 0
	for key := range n.confirmed {
		total += n.confirmed[key]
		tooLarge += n.confirmed[key] / nightLarge
	}
	complete := func() bool {
		for key := range next {
			for large(next[key]) {
				next[key]++
			}
			if next[key] < n.confirmed[key] {
				return false
			}
		}
		return true
	}
	deadline := time.Now().Add(60 * time.Second)
	for !complete() {
		if time.Now().After(deadline) {
			t.Fatalf("a minute later only %v of %v have come", next, n.confirmed)
		}
		batch, err := consumer.Fetch(500, jetstream.FetchMaxWait(200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			var key, number int
			if _, err := fmt.Sscanf(string(m.Data()), "%d %d", &key, &number); err != nil {
				t.Fatal(err)
			}
			for large(next[key]) {
				next[key]++
			}
			switch {
			case number < next[key]:
				repeats++
			case number > next[key]:
				t.Fatalf("of key %d message %d came when it was %d's turn", key, number, next[key])
			default:
				next[key]++
			}
		}
	}
	dead := func() int {
		stats, err := store.Stats(t.Context(), "night/out/0")
		if err != nil {
			t.Fatal(err)
		}
		return int(stats[0].Dead)
	}
	eventually(t, fmt.Sprintf("%d dead letters of what is too large", tooLarge), func() bool { return dead() >= tooLarge })
	t.Logf("%d messages confirmed, %d of them too large; all others arrived in order, %d repeats", total, tooLarge, repeats)
}
