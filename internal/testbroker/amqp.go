package testbroker

import (
	"context"
	"net/url"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge/internal/fakeamqp"
)

// AMQP is a RabbitMQ, or what speaks like one. Its places are queues.
type AMQP struct {
	proxied
	conn *amqp091.Connection
}

// StartAMQP runs a broker, for guest with the password guest.
func StartAMQP(t testing.TB) *AMQP {
	t.Helper()
	broker, err := fakeamqp.Start(fakeamqp.Options{})
	must(t, err)
	t.Cleanup(broker.Close)
	return UseAMQP(t, "amqp://guest:guest@"+broker.Addr()+"/")
}

// UseAMQP uses the broker at a URL.
func UseAMQP(t testing.TB, address string) *AMQP {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	conn, err := amqp091.Dial(address)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &AMQP{before(t, u.Host), conn}
}

func (a *AMQP) channel(t testing.TB) *amqp091.Channel {
	t.Helper()
	ch, err := a.conn.Channel()
	must(t, err)
	return ch
}

// Make makes a quorum queue.
func (a *AMQP) Make(t testing.TB, name string) {
	t.Helper()
	ch := a.channel(t)
	_, err := ch.QueueDelete(name, false, false, false)
	must(t, err)
	_, err = ch.QueueDeclare(name, true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum})
	must(t, err)
	must(t, ch.Close())
}

// Put publishes to a queue.
func (a *AMQP) Put(t testing.TB, queue string, messages ...Message) {
	t.Helper()
	ch := a.channel(t)
	must(t, ch.Confirm(false))
	confirms := make([]*amqp091.DeferredConfirmation, len(messages))
	for i, m := range messages {
		out := amqp091.Publishing{Body: m.Body, DeliveryMode: amqp091.Persistent}
		if m.Key != "" {
			out.Headers = amqp091.Table{headerKey: m.Key}
		}
		var err error
		confirms[i], err = ch.PublishWithDeferredConfirm("", queue, true, false, out)
		must(t, err)
	}
	for _, c := range confirms {
		if !c.Wait() {
			t.Fatalf("the broker refused a message for queue %s", queue)
		}
	}
	must(t, ch.Close())
}

// Watch consumes a queue.
func (a *AMQP) Watch(t testing.TB, queue string, f func(Message)) {
	t.Helper()
	ch := a.channel(t)
	deliveries, err := ch.ConsumeWithContext(context.Background(), queue, "", true, true, false, false, nil)
	must(t, err)
	var loop sync.WaitGroup
	loop.Go(func() {
		for d := range deliveries {
			key, _ := d.Headers[headerKey].(string)
			f(Message{key, d.Body})
		}
	})
	t.Cleanup(func() {
		_ = ch.Close()
		loop.Wait()
	})
}

// Ready is how many messages of a queue wait.
func (a *AMQP) Ready(t testing.TB, queue string) int {
	t.Helper()
	ch := a.channel(t)
	state, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	must(t, err)
	must(t, ch.Close())
	return state.Messages
}
