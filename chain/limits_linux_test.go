package chain

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"gobridge/internal/testbroker"
)

// A destination that is down, and how many messages may wait for it.
const (
	dammed = `version: 1
store: STORE
lease_term: 1s
%s
routes:
  held:
    source: %s
    ordering_key: payload.key
    bindings:
      hook:
        webhook: { url: %q }
        max_outbox_depth: %d
        retry: { backoff: 10ms..300ms }
`
	maxDepth = 1000 // of those that are not being sent just then
)

// dam is a webhook server that is down until it is opened.
type dam struct {
	*httptest.Server
	open  atomic.Bool
	tries atomic.Int64 // while it was down
}

func newDam(t *testing.T, take func(testbroker.Message)) *dam {
	t.Helper()
	d := &dam{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.open.Load() {
			d.tries.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut off in the middle: nothing has arrived
		}
		take(testbroker.Message{Key: r.Header.Get("Gobridge-Ordering-Key"), Body: body})
	}))
	t.Cleanup(d.Close)
	return d
}

// source is where messages come from until everything is full.
type source struct {
	broker  testbroker.Broker
	place   string // to put to
	connect string // the configuration's connections
	config  string // the configuration's source
	// left is how many messages the broker still has, those that the bridge was given
	// and has not acknowledged included; nil where nobody can be asked.
	left func() int
}

// TestDestinationDownUntilAllIsFull is for NATS, with a server in this process.
func TestDestinationDownUntilAllIsFull(t *testing.T) {
	untilAllIsFull(t, natsSource(t, testbroker.StartNATS(t)))
}

func TestLiveDestinationDownUntilAllIsFull(t *testing.T) {
	t.Run("amqp", func(t *testing.T) {
		address := live(t, "GOBRIDGE_AMQP_URL")
		b := testbroker.UseAMQP(t, address)
		b.Make(t, "dammed")
		user, password := login(t, address)
		untilAllIsFull(t, source{
			broker: b, place: "dammed",
			connect: fmt.Sprintf("connections: { in: { amqp: { addresses: %q, username: %q, password: %q } } }", b.Address(), user, password),
			config:  "{ amqp: { connection: in, queue: dammed } }",
		})
	})
	t.Run("mqtt", func(t *testing.T) {
		b := testbroker.UseMQTT(t, live(t, "GOBRIDGE_MQTT_URL"))
		untilAllIsFull(t, source{
			broker: b, place: "dammed",
			connect: fmt.Sprintf("connections: { in: { mqtt: { url: \"mqtt://%s\", client_id: dammed } } }", b.Address()),
			config:  "{ mqtt: { connection: in, topics: [dammed] } }",
		})
	})
}

func natsSource(t *testing.T, b *testbroker.NATS) source {
	t.Helper()
	b.Make(t, "dammed")
	return source{
		broker: b, place: "dammed",
		connect: fmt.Sprintf("connections: { in: { nats: { servers: \"nats://%s\" } } }", b.Address()),
		config:  "{ nats: { connection: in, stream: dammed, consumer: c, declare: true } }",
		left: func() int {
			unread, unacknowledged := b.Unread(t, "dammed", "c")
			return unread + unacknowledged
		},
	}
}

// untilAllIsFull keeps a destination down until the outbox has what it may have and
// the source is held, goes on putting messages in, and opens it then.
func untilAllIsFull(t *testing.T, s source) {
	const messages, first, keys = 8000, 2000, 100
	tally := newTally(messages, keys, 1000)
	d := newDam(t, tally.arrive)
	b := newBridge(t, "the bridge", fmt.Sprintf(dammed, s.connect, s.config, d.URL, maxDepth))
	// A topic keeps nothing for a session that is not there yet.
	probes := 0
	eventually(t, "a message is stored", func() bool {
		s.broker.Put(t, s.place, tally.message(-1))
		probes++
		return b.waiting() > 0
	})

	s.broker.Put(t, s.place, tally.slice(0, first)...)
	eventually(t, "the outbox is full", func() bool { return b.waiting() >= maxDepth })
	before := b.plateau(d)
	s.broker.Put(t, s.place, tally.slice(first, messages)...)
	after := b.plateau(d)
	t.Logf("resident at the plateau: %d KiB with %d messages put in, %d KiB with %d (%.2f times)",
		before, first, after, messages, float64(after)/float64(before))
	if after*2 > before*3 {
		t.Errorf("the process has grown from %d to %d KiB while the source was held, more than half", before, after)
	}
	held := b.waiting()
	if held < maxDepth || held > maxDepth+maxDepth/2 {
		t.Errorf("%d messages wait in the outbox, want the %d that it may have, and few more", held, maxDepth)
	}
	if s.left != nil {
		if n, rest := s.left(), messages+probes-held; n < rest || n > rest+maxDepth {
			t.Errorf("the source has %d messages, want the %d that are not in the outbox, and few more", n, rest)
		}
	}

	d.open.Store(true)
	tally.await(t, b.book.tail)
	b.mustRun()
	b.stop()
	arrived, repeats, _ := tally.count()
	t.Logf("%d of %d messages arrived, %d repeats", arrived, messages, repeats)
}

// plateau waits until the destination has been tried some more times, and returns how
// much memory the process has then, in KiB: the least of several looks, for the
// collector of garbage comes and goes.
func (b *bridged) plateau(d *dam) (least int) {
	b.t.Helper()
	for range 5 {
		tried := d.tries.Load()
		eventually(b.t, "the destination is tried again", func() bool {
			b.mustRun()
			return d.tries.Load() > tried+1
		})
		if now := b.resident(); least == 0 || now < least {
			least = now
		}
	}
	return least
}

// waiting is how many messages wait, or are being tried, as the command says it.
func (b *bridged) waiting() int {
	b.t.Helper()
	var out bytes.Buffer
	command := binary("status", "--config", b.config, "--json")
	command.Stdout = &out
	_ = command.Run() // its status says how things stand
	var status struct {
		Bindings []struct{ Pending, Claimed int }
		Error    string
	}
	err := json.Unmarshal(out.Bytes(), &status)
	switch {
	case err != nil || len(status.Bindings) > 1:
		b.t.Fatalf("status says %s: %v", &out, err)
	case strings.HasPrefix(status.Error, "no outbox") || len(status.Bindings) == 0 && status.Error == "":
		return 0 // the bridge is not there yet
	case status.Error != "":
		b.t.Fatalf("status: %s", status.Error)
	}
	return status.Bindings[0].Pending + status.Bindings[0].Claimed
}

// resident is how much memory the process has, in KiB.
func (b *bridged) resident() int {
	b.t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", b.command.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(text)[0])
			if err != nil {
				b.t.Fatal(err)
			}
			return n
		}
	}
	b.t.Fatal("the system does not say how much memory the process has")
	return 0
}
