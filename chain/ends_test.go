package chain

import (
	"context"
	"sync"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"gobridge"
	"gobridge/internal/testbroker"
	"gobridge/transport/amqp"
	"gobridge/transport/kafka"
	"gobridge/transport/nats"
)

// end is a kind of broker with what the benchmark needs of it: a source and a
// destination of gobridge, and the same with the client library alone.
type end struct {
	start    func(testing.TB) testbroker.Broker
	receiver func(b *testing.B, address string) (gobridge.Receiver, interface{ Close() error })
	sender   func(b *testing.B, address string) (gobridge.Sender, interface{ Close() error })
	// consume calls f with each message of the place "in" until it is stopped; ack
	// acknowledges it.
	consume func(b *testing.B, address string, f func(m testbroker.Message, ack func())) (stop func())
	// publish returns what publishes to the place "out"; done is called when the
	// broker has confirmed.
	publish func(b *testing.B, address string) (send func(m testbroker.Message, done func()), stop func())
}

const headerKey = "gobridge-ordering-key"

var ends = map[string]end{
	"nats": {
		start: func(t testing.TB) testbroker.Broker { return testbroker.StartNATS(t) },
		receiver: func(b *testing.B, address string) (gobridge.Receiver, interface{ Close() error }) {
			c := must(nats.New(nats.Options{Servers: []string{"nats://" + address}}))(b)
			return must(c.Receiver(nats.ReceiverOptions{Stream: "in", Consumer: "bridge", Declare: true}))(b), c
		},
		sender: func(b *testing.B, address string) (gobridge.Sender, interface{ Close() error }) {
			c := must(nats.New(nats.Options{Servers: []string{"nats://" + address}}))(b)
			return must(c.Sender(nats.SenderOptions{Subject: "out"}))(b), c
		},
		consume: consumeNATS, publish: publishNATS,
	},
	"kafka": {
		start: func(t testing.TB) testbroker.Broker { return testbroker.StartKafka(t) },
		receiver: func(b *testing.B, address string) (gobridge.Receiver, interface{ Close() error }) {
			c := must(kafka.New(kafka.Options{Brokers: []string{address}}))(b)
			return must(c.Receiver(kafka.ReceiverOptions{Topics: []string{"in"}, Group: "bridge"}))(b), c
		},
		sender: func(b *testing.B, address string) (gobridge.Sender, interface{ Close() error }) {
			c := must(kafka.New(kafka.Options{Brokers: []string{address}}))(b)
			return must(c.Sender(kafka.SenderOptions{Topic: "out"}))(b), c
		},
		consume: consumeKafka, publish: publishKafka,
	},
	"amqp": {
		start: func(t testing.TB) testbroker.Broker { return testbroker.StartAMQP(t) },
		receiver: func(b *testing.B, address string) (gobridge.Receiver, interface{ Close() error }) {
			c := must(amqp.New(guest(address)))(b)
			return must(c.Receiver(amqp.ReceiverOptions{Queue: "in"}))(b), c
		},
		sender: func(b *testing.B, address string) (gobridge.Sender, interface{ Close() error }) {
			c := must(amqp.New(guest(address)))(b)
			return must(c.Sender(amqp.SenderOptions{RoutingKey: "out"}))(b), c
		},
		consume: consumeAMQP, publish: publishAMQP,
	},
}

func consumeNATS(b *testing.B, address string, f func(testbroker.Message, func())) func() {
	conn := must(natsclient.Connect("nats://" + address))(b)
	consumer := must(must(jetstream.New(conn))(b).CreateConsumer(b.Context(), "in",
		jetstream.ConsumerConfig{Durable: "loop", AckPolicy: jetstream.AckExplicitPolicy}))(b)
	running := must(consumer.Consume(func(m jetstream.Msg) {
		f(testbroker.Message{Key: m.Headers().Get(headerKey), Body: m.Data()}, func() { _ = m.Ack() })
	}))(b)
	return func() {
		running.Stop()
		<-running.Closed()
		conn.Close()
	}
}

func publishNATS(b *testing.B, address string) (func(testbroker.Message, func()), func()) {
	conn := must(natsclient.Connect("nats://" + address))(b)
	js := must(jetstream.New(conn))(b)
	send := func(m testbroker.Message, done func()) {
		out := &natsclient.Msg{Subject: "out", Data: m.Body, Header: natsclient.Header{headerKey: {m.Key}}}
		confirmed, err := js.PublishMsgAsync(out)
		if err != nil {
			b.Error(err)
			return
		}
		go func() {
			<-confirmed.Ok()
			done()
		}()
	}
	return send, conn.Close
}

// consumeKafka commits when all that it has polled is acknowledged.
func consumeKafka(b *testing.B, address string, f func(testbroker.Message, func())) func() {
	client := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.DisableClientMetrics(), kgo.ConsumerGroup("loop"),
		kgo.ConsumeTopics("in"), kgo.DisableAutoCommit(), kgo.FetchMaxWait(100*time.Millisecond)))(b)
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			var open sync.WaitGroup
			client.PollRecords(ctx, 500).EachRecord(func(r *kgo.Record) {
				open.Add(1)
				f(testbroker.Message{Key: string(r.Key), Body: r.Value}, open.Done)
			})
			open.Wait()
			_ = client.CommitUncommittedOffsets(ctx)
		}
	})
	return func() {
		cancel()
		loop.Wait()
		client.Close()
	}
}

func publishKafka(b *testing.B, address string) (func(testbroker.Message, func()), func()) {
	client := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.DisableClientMetrics(), kgo.ProducerLinger(0)))(b)
	send := func(m testbroker.Message, done func()) {
		client.Produce(context.Background(), &kgo.Record{Topic: "out", Key: []byte(m.Key), Value: m.Body}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
			done()
		})
	}
	return send, client.Close
}

func channel(b *testing.B, address string) (*amqp091.Channel, func()) {
	conn := must(amqp091.Dial("amqp://guest:guest@" + address + "/"))(b)
	return must(conn.Channel())(b), func() { _ = conn.Close() }
}

func consumeAMQP(b *testing.B, address string, f func(testbroker.Message, func())) func() {
	ch, stop := channel(b, address)
	if err := ch.Qos(1000, 0, false); err != nil {
		b.Fatal(err)
	}
	deliveries := must(ch.ConsumeWithContext(context.Background(), "in", "", false, false, false, false, nil))(b)
	var loop sync.WaitGroup
	loop.Go(func() {
		for d := range deliveries {
			key, _ := d.Headers[headerKey].(string)
			f(testbroker.Message{Key: key, Body: d.Body}, func() { _ = d.Ack(false) })
		}
	})
	return func() {
		stop()
		loop.Wait()
	}
}

func publishAMQP(b *testing.B, address string) (func(testbroker.Message, func()), func()) {
	ch, stop := channel(b, address)
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	type sent struct {
		confirm *amqp091.DeferredConfirmation
		done    func()
	}
	pending := make(chan sent, 1000)
	var confirms sync.WaitGroup
	confirms.Go(func() {
		for s := range pending {
			if s.confirm.Wait() {
				s.done()
			}
		}
	})
	send := func(m testbroker.Message, done func()) {
		confirm, err := ch.PublishWithDeferredConfirm("", "out", true, false, amqp091.Publishing{
			Headers: amqp091.Table{headerKey: m.Key}, Body: m.Body, DeliveryMode: amqp091.Persistent,
		})
		if err != nil {
			b.Error(err)
			return
		}
		pending <- sent{confirm, done}
	}
	return send, func() {
		stop()
		close(pending)
		confirms.Wait()
	}
}
