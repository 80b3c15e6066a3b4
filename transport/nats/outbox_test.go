package nats_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	server "github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
	"gobridge/transport/nats"
)

// outbox is a take that keeps what it gets.
type outbox struct {
	mu   sync.Mutex
	got  []gobridge.Incoming
	gate chan struct{} // takes wait until it is closed
	held int           // with a take that waits
}

func (o *outbox) take(ctx context.Context, batch []gobridge.Incoming) error {
	o.mu.Lock()
	gate := o.gate
	o.held += len(batch)
	o.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held -= len(batch)
	o.got = append(o.got, batch...)
	return nil
}

func (o *outbox) payloads() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]string, len(o.got))
	for i := range o.got {
		out[i] = string(o.got[i].Envelope.Payload)
	}
	return out
}

func (o *outbox) ids() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string]bool{}
	for i := range o.got {
		out[o.got[i].Envelope.ID] = true
	}
	return out
}

func (o *outbox) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

// receive runs a receiver, again when it gives up, as the engine does, until stop is
// called, which returns what it ended with.
func receive(t testing.TB, conn *nats.Connection, o *outbox, options nats.ReceiverOptions) (stop func() error) {
	t.Helper()
	r, err := conn.Receiver(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			err := r.Receive(ctx, o.take)
			if ctx.Err() != nil {
				done <- err
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("it does not end")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// publish publishes the numbers from..to-1.
func publish(t testing.TB, js jetstream.JetStream, subject string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := js.PublishAsync(subject, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("the stream does not confirm")
	}
}

func numbers(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// await waits for the numbers, which come in this order and no others.
func (o *outbox) await(t testing.TB, want []string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the arrival of %d messages", len(want)), func() bool { return len(o.payloads()) >= len(want) })
	if got := o.payloads(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func options() nats.ReceiverOptions {
	return nats.ReceiverOptions{Stream: "S", Consumer: "c", Declare: true, AckWait: time.Second}
}

// lose pulls n messages of a consumer, with every second one acknowledged if told
// so, and is gone, as a process that was killed.
func lose(t testing.TB, url string, n int, acknowledge bool) {
	t.Helper()
	nc, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	request := fmt.Appendf(nil, `{"batch":%d}`, n)
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.c", sub.Subject, request); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if acknowledge && i%2 == 1 {
			if err := m.AckSync(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func declared(t testing.TB, js jetstream.JetStream, set func(*jetstream.ConsumerConfig)) jetstream.Consumer {
	t.Helper()
	config := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: -1}
	if set != nil {
		set(&config)
	}
	c, err := js.CreateConsumer(t.Context(), "S", config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// noReset lets nobody reset a consumer, as with a server that can't.
func noReset(o *server.Options) {
	o.Users = []*server.User{
		{Username: "test", Password: "x"},
		{Username: "gw", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.RESET.>"}}}},
	}
	o.NoAuthUser = "test"
}

func asGateway(o *nats.Options) {
	o.User, o.Password = "gw", func() (string, error) { return "x", nil }
}
