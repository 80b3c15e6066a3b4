package amqp_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
	"gobridge/messaging"
	"gobridge/transport/amqp"
	"gobridge/transporttest"
)

// live skips a test unless there is a real server (scripts/amqp-live.sh starts one).
func live(t *testing.T) {
	t.Helper()
	if os.Getenv("GOBRIDGE_AMQP_URL") == "" {
		t.Skip("GOBRIDGE_AMQP_URL names no server; scripts/amqp-live.sh starts one")
	}
}

func TestLiveReceiver(t *testing.T) {
	live(t)
	transporttest.RunSource(t, func(t testing.TB) transporttest.Source { return source(t, liveRig(t)) })
}

func TestLiveSender(t *testing.T) {
	live(t)
	transporttest.RunSender(t, func(t testing.TB) transporttest.Destination {
		d := destination(t, liveRig(t))
		d.TooLarge = 5 << 20 // the script lets 4 MiB in
		return d
	})
}

// node has the script of scripts/amqp-live.sh control the server.
func node(t testing.TB, what string) {
	t.Helper()
	script := os.Getenv("GOBRIDGE_AMQP_NODE")
	if script == "" {
		t.Fatal("GOBRIDGE_AMQP_NODE names no script that controls the server")
	}
	if out, err := exec.Command(script, what).CombinedOutput(); err != nil { //nolint:gosec // our own script, with bounds of its own
		t.Fatalf("%s %s: %v: %s", script, what, err, out)
	}
}

// TestLiveBlockedBroker: an alarm for memory.
func TestLiveBlockedBroker(t *testing.T) {
	live(t)
	r := liveRig(t)
	t.Cleanup(func() { node(t, "unblock") })
	blockedBroker(t, r, func() { node(t, "block") }, func() { node(t, "unblock") })
}

// TestLiveRestarts publishes and consumes while the server is killed, stopped and
// cut off: everything that was delivered arrives, first deliveries in their order.
func TestLiveRestarts(t *testing.T) {
	live(t)
	r := liveRig(t)
	// A quorum queue of a single node of RabbitMQ 3.10 has no leader after a kill, for
	// longer than a test can wait.
	in := r.queue(t, amqp091.Table{})
	c := r.connect(t)
	box, _ := receive(t, c, amqp.ReceiverOptions{Queue: in})
	s := sender(t, c, amqp.SenderOptions{RoutingKey: in})

	const keys, each = 20, 150
	var delivered atomic.Int64
	var producers sync.WaitGroup
	for k := range keys {
		producers.Go(func() {
			for n := range each {
				e := messaging.Envelope{ID: fmt.Sprintf("%d-%d", k, n), OrderingKey: fmt.Sprint(k), Payload: fmt.Appendf(nil, "%d %d", k, n)}
				for deadline := time.Now().Add(2 * time.Minute); ; {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					err := s.Send(ctx, deliveries(e))[0]
					cancel()
					if err == nil {
						delivered.Add(1)
						break
					}
					if outcome, _ := gobridge.Classify(err); outcome == gobridge.OutcomePermanent || time.Now().After(deadline) {
						t.Error(err)
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(5 * time.Millisecond) // so that there is load while the server goes
			}
		})
	}
	wait := func(n int64) {
		eventually(t, fmt.Sprint(n, " deliveries"), func() bool { return delivered.Load() >= n || t.Failed() })
	}
	wait(200)
	r.proxy.Cut()
	wait(500)
	node(t, "kill")
	node(t, "start")
	wait(1200)
	r.proxy.Stall(true)
	time.Sleep(4 * time.Second) // more than the heartbeats allow
	r.proxy.Stall(false)
	wait(2000)
	node(t, "stop")
	node(t, "start")
	producers.Wait()
	r.dial(t) // the test's own client went with the server
	seen := map[string]int{}
	eventually(t, "the arrival of all", func() bool {
		clear(seen)
		for _, m := range box.all() {
			key, n := 0, 0
			if _, err := fmt.Sscan(string(m.Envelope.Payload), &key, &n); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprint(key)
			if n > seen[name] {
				t.Fatalf("key %d: %d came before %d", key, n, seen[name])
			}
			seen[name] = max(seen[name], n+1)
		}
		total := 0
		for _, n := range seen {
			total += n
		}
		return total == keys*each
	})
	t.Logf("%d messages, taken %d times", keys*each, len(box.all()))
	ch := r.channel(t)
	state, err := ch.QueueDeclarePassive(in, true, false, false, false, nil)
	if err != nil || state.Messages != 0 {
		t.Errorf("the queue has %+v, %v", state, err)
	}
}
