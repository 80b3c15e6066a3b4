package sqs_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	snsclient "github.com/aws/aws-sdk-go-v2/service/sns"
	client "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge"
	"gobridge/internal/awsclient"
	"gobridge/internal/fakeaws"
	"gobridge/internal/faultproxy"
	"gobridge/messaging"
	"gobridge/transport/sns"
	"gobridge/transport/sqs"
)

// live is an endpoint that is not our own, through a proxy.
type live struct {
	settings aws.Config
	conn     *sqs.Connection
	proxy    *faultproxy.Proxy
}

// liveEndpoint needs the endpoint that scripts/aws-live.sh starts.
func liveEndpoint(t *testing.T) *live {
	t.Helper()
	endpoint := os.Getenv("GOBRIDGE_AWS_ENDPOINT")
	if endpoint == "" {
		t.Skip("GOBRIDGE_AWS_ENDPOINT names no endpoint; scripts/aws-live.sh starts one")
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.Start(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	settings, closeIdle, err := awsclient.Load(awsclient.Options{
		Region: fakeaws.Region, Endpoint: endpoint, AccessKey: text("AKIAIOSFODNN7EXAMPLE"), SecretKey: text("secret"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeIdle)
	return &live{settings: settings, conn: connect(t, "http://"+proxy.Addr()), proxy: proxy}
}

// queue makes a queue for this test, and returns its name and ARN.
func (l *live) queue(t *testing.T, suffix string) (name, arn string) {
	t.Helper()
	c := client.NewFromConfig(l.settings)
	name = "q-" + messaging.NewID() + suffix
	in := &client.CreateQueueInput{QueueName: &name}
	if suffix == ".fifo" {
		in.Attributes = map[string]string{"FifoQueue": "true"}
	}
	out, err := c.CreateQueue(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.GetQueueAttributes(t.Context(), &client.GetQueueAttributesInput{QueueUrl: out.QueueUrl, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		t.Fatal(err)
	}
	return name, got.Attributes["QueueArn"]
}

// topic makes a FIFO topic that delivers to a queue.
func (l *live) topic(t *testing.T, queue string, raw bool) (arn string) {
	t.Helper()
	c := snsclient.NewFromConfig(l.settings)
	out, err := c.CreateTopic(t.Context(), &snsclient.CreateTopicInput{
		Name: aws.String("t-" + messaging.NewID() + ".fifo"), Attributes: map[string]string{"FifoTopic": "true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe(t.Context(), &snsclient.SubscribeInput{
		TopicArn: out.TopicArn, Protocol: aws.String("sqs"), Endpoint: &queue,
		Attributes: map[string]string{"RawMessageDelivery": fmt.Sprint(raw)},
	}); err != nil {
		t.Fatal(err)
	}
	return *out.TopicArn
}

var liveMessages = []messaging.Envelope{
	{ID: "order/1", Subject: "order.placed", OrderingKey: "k", ContentType: "application/json", Payload: []byte(`{"s":"ü"}`), Headers: messaging.Headers{"x": "1", "a b": "\x00"}},
	{ID: "2", OrderingKey: "k", Payload: []byte("\x00\xff")},
	{ID: "3", OrderingKey: "k"},
	{ID: "4", OrderingKey: "k", Payload: bytes.Repeat([]byte("x"), 150_000)},
}

// wantLive waits until the messages have come, whole, and in order if there is one.
func wantLive(t *testing.T, box *outbox, ordered bool) {
	t.Helper()
	eventually(t, "their arrival", func() bool { return len(box.all()) >= len(liveMessages) })
	for i, in := range box.all() {
		got, want := in.Envelope, messaging.Envelope{}
		for at, e := range liveMessages {
			if e.ID == got.ID && (at == i || !ordered) {
				want = e
			}
		}
		if want.ID == "" || got.Subject != want.Subject || got.OrderingKey != want.OrderingKey || got.ContentType != want.ContentType ||
			!bytes.Equal(got.Payload, want.Payload) || !maps.Equal(got.Headers, want.Headers) || in.Reject != nil {
			t.Errorf("message %d came as %+v, %v, want %+v", i, got, in.Reject, want)
		}
	}
}

func TestLiveQueues(t *testing.T) {
	l := liveEndpoint(t)
	for _, suffix := range []string{".fifo", ""} {
		t.Run("suffix "+suffix, func(t *testing.T) {
			queue, arn := l.queue(t, suffix)
			to, from := sender(t, l.conn, sqs.SenderOptions{Queue: arn}), receiver(t, l.conn, sqs.ReceiverOptions{Queue: queue})
			for _, c := range []gobridge.Connector{to, from} {
				if said, err := c.Connect(t.Context()); err != nil || !strings.Contains(said, queue) {
					t.Errorf("Connect says %q, %v", said, err)
				}
			}
			sendAll(t, to, liveMessages)
			sendAll(t, to, liveMessages[:suffixRepeats(suffix)]) // a FIFO queue knows them
			box := &outbox{}
			stop := receive(t, from, box.take)
			wantLive(t, box, suffix == ".fifo")
			stop()
			if n := len(box.all()); n != len(liveMessages) {
				t.Errorf("%d messages came", n)
			}
		})
	}
	missing := sender(t, l.conn, sqs.SenderOptions{Queue: "none-" + messaging.NewID()})
	if err := send(t, missing, deliveries(liveMessages[0])...)[0]; outcome(err) != gobridge.OutcomeUnavailable {
		t.Errorf("a queue that does not exist gave %v", err)
	}
}

// suffixRepeats is how many messages can be repeated without being there twice.
func suffixRepeats(suffix string) int {
	if suffix == ".fifo" {
		return len(liveMessages)
	}
	return 0
}

func TestLiveTopics(t *testing.T) {
	l := liveEndpoint(t)
	for _, raw := range []bool{true, false} {
		t.Run(fmt.Sprintf("raw %v", raw), func(t *testing.T) {
			queue, arn := l.queue(t, ".fifo")
			conn, err := sns.New(l.settings)
			if err != nil {
				t.Fatal(err)
			}
			to, err := conn.Sender(sns.SenderOptions{Topic: l.topic(t, arn, raw)})
			if err != nil {
				t.Fatal(err)
			}
			if said, err := to.Connect(t.Context()); err != nil || !strings.Contains(said, "FIFO topic") {
				t.Errorf("Connect says %q, %v", said, err)
			}
			sendAll(t, to, liveMessages)
			box := &outbox{}
			receive(t, receiver(t, l.conn, sqs.ReceiverOptions{Queue: queue}), box.take)
			wantLive(t, box, true)
		})
	}
}

// TestLiveNight breaks the connections of the sender only, and polls one at a time and
// shortly: moto looks only when a poll begins which groups are locked, and goes on with
// a poll whose connection is broken.
func TestLiveNight(t *testing.T) {
	l := liveEndpoint(t)
	straight := connect(t, os.Getenv("GOBRIDGE_AWS_ENDPOINT"))
	in, _ := l.queue(t, ".fifo")
	out, _ := l.queue(t, ".fifo")
	poll := func(queue string) *sqs.Receiver {
		return receiver(t, straight, sqs.ReceiverOptions{Queue: queue, Receivers: 1, Visibility: 3 * time.Second})
	}
	night{
		from: poll(in), to: sender(t, l.conn, sqs.SenderOptions{Queue: out}), proxy: l.proxy,
		producer: sender(t, straight, sqs.SenderOptions{Queue: in}), consumer: poll(out),
	}.run(t)
}
