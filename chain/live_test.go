package chain

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"gobridge/internal/faultproxy"
	"gobridge/internal/testbroker"
)

// The three bridges. So many attempts are allowed that nothing ends as a dead letter,
// which would rightly let a key's tail go on.
const (
	fromNATS = `version: 1
store: STORE
lease_term: 1s
connections:
  in:  { nats: { servers: "nats://%s" } }
  out: { amqp: { addresses: %q, username: %q, password: %q } }
routes:
  first:
    source: { nats: { connection: in, stream: chain-in, consumer: chain, declare: true } }
    ordering_key: payload.key
    bindings:
      next:
        amqp: { connection: out, queue: chain-1 }
        retry: { attempts: 100000, backoff: 10ms..300ms }
`
	fromAMQP = `version: 1
store: STORE
lease_term: 1s
connections:
  in:  { amqp: { addresses: %q, username: %q, password: %q } }
  out: { mqtt: { url: "mqtt://%s", client_id: chain-2 } }
routes:
  second:
    source: { amqp: { connection: in, queue: chain-1 } }
    bindings:
      next:
        mqtt: { connection: out, topic: chain/2 }
        retry: { attempts: 100000, backoff: 10ms..300ms }
`
	fromMQTT = `version: 1
store: STORE
lease_term: 1s
connections:
  in:  { mqtt: { url: "mqtt://%s", client_id: chain-3 } }
  out: { nats: { servers: "nats://%s" } }
routes:
  third:
    source: { mqtt: { connection: in, topics: [chain/2] } }
    bindings:
      next:
        nats: { connection: out, subject: chain-out, stream: chain-out }
        retry: { attempts: 100000, backoff: 10ms..300ms }
`
)

// row is the chain of processes with the proxies between them.
type row struct {
	t       *testing.T
	rng     *rand.Rand
	tally   *tally
	bridges []*bridged
	links   []*faultproxy.Proxy
	deck    []func()
	done    map[string]int // faults by their kind
}

// live returns the address of a real broker, or skips the test and says how to run it.
func live(t *testing.T, name string) string {
	t.Helper()
	address := os.Getenv(name)
	if address == "" {
		t.Skipf("%s names no broker: run this by scripts/brokers-live.sh", name)
	}
	return address
}

// TestLiveChainOfKilledProcesses sends messages through three processes and four hops
// over real brokers, NATS, RabbitMQ, MQTT and NATS again, while processes are
// killed and connections broken.
func TestLiveChainOfKilledProcesses(t *testing.T) {
	natsURL, amqpURL, mqttURL := live(t, "GOBRIDGE_NATS_URL"), live(t, "GOBRIDGE_AMQP_URL"), live(t, "GOBRIDGE_MQTT_URL")
	began := time.Now()
	r := &row{t: t, rng: seeded(t), tally: newTally(setting(t, "CHAIN_MESSAGES", 8000), 1000, 100), done: map[string]int{}}
	in, out := testbroker.UseNATS(t, natsURL), testbroker.UseNATS(t, natsURL)
	queueIn, queueOut := testbroker.UseAMQP(t, amqpURL), testbroker.UseAMQP(t, amqpURL)
	topicIn, topicOut := testbroker.UseMQTT(t, mqttURL), testbroker.UseMQTT(t, mqttURL)
	for _, b := range []testbroker.Broker{in, queueIn, queueOut, topicIn, topicOut, out} {
		r.links = append(r.links, b.Proxy())
	}
	in.Make(t, "chain-in")
	queueIn.Make(t, "chain-1")
	out.Make(t, "chain-out")
	out.Watch(t, "chain-out", r.tally.arrive)

	user, password := login(t, amqpURL)
	r.bridges = []*bridged{
		newBridge(t, "the first bridge", fmt.Sprintf(fromNATS, in.Address(), queueIn.Address(), user, password)),
		newBridge(t, "the second bridge", fmt.Sprintf(fromAMQP, queueOut.Address(), user, password, topicIn.Address())),
		newBridge(t, "the third bridge", fmt.Sprintf(fromMQTT, topicOut.Address(), out.Address())),
	}
	// A topic keeps nothing for a session that is not there yet.
	eventually(t, "the third bridge has subscribed", func() bool {
		topicIn.Put(t, "chain/2", r.tally.message(-1))
		_, _, probes := r.tally.count()
		return probes > 0
	})

	faults := max(24, r.tally.messages/160)
	for i := range faults {
		in.Put(t, "chain-in", r.tally.slice(r.tally.messages*i/faults, r.tally.messages*(i+1)/faults)...)
		r.pause(150 * time.Millisecond) // in the midst of what was put
		r.fault()
	}
	r.tally.await(t, r.logs)
	for _, b := range r.bridges {
		b.mustRun()
		if b.kills == 0 {
			t.Errorf("%s was never killed", b.name)
		}
		b.stop()
	}
	arrived, repeats, _ := r.tally.count()
	t.Logf("%d of %d messages of %d keys arrived, %d repeats, in %s; faults: %v; kills: %d, %d and %d", arrived, r.tally.messages,
		r.tally.keys, repeats, time.Since(began).Round(time.Second), r.done, r.bridges[0].kills, r.bridges[1].kills, r.bridges[2].kills)
}

func login(t *testing.T, address string) (user, password string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ = u.User.Password()
	return u.User.Username(), password
}

// pause lets things go on for a random time.
func (r *row) pause(most time.Duration) { time.Sleep(time.Duration(r.rng.Int64N(int64(most)))) }

// fault brings one about: every process is killed and every connection cut before
// the first of them is again.
func (r *row) fault() {
	if len(r.deck) == 0 {
		r.deck = r.shuffled()
	}
	next := r.deck[0]
	r.deck = r.deck[1:]
	next()
}

func (r *row) shuffled() []func() {
	var deck []func()
	for _, b := range r.bridges {
		deck = append(deck, func() {
			r.done["kill"]++
			b.mustRun()
			b.kill()
			r.pause(500 * time.Millisecond)
			b.start()
		})
	}
	for _, l := range r.links {
		deck = append(deck, func() {
			r.done["cut"]++
			l.Cut()
		})
	}
	some := func() *faultproxy.Proxy { return r.links[r.rng.IntN(len(r.links))] }
	direction := func() faultproxy.Direction { return faultproxy.Direction(r.rng.IntN(2)) }
	deck = append(deck, func() {
		r.done["cut in the middle"]++
		l, d := some(), direction()
		l.CutAfter(d, 2000+r.rng.Int64N(60_000))
		l.Cut()
		r.pause(time.Second)
		l.CutAfter(d, -1)
		l.Cut() // of those that were made meanwhile, some end later
	}, func() {
		r.done["stall"]++
		l := some()
		l.Stall(true)
		r.pause(time.Second)
		l.Stall(false)
	}, func() {
		r.done["half close"]++
		some().HalfClose(direction())
	})
	r.rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// logs is the end of what each bridge has logged.
func (r *row) logs() string {
	var out strings.Builder
	for _, b := range r.bridges {
		out.WriteString("; the log of " + b.name + ":" + b.book.tail())
	}
	return out.String()
}
