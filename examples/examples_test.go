// Package examples_test runs each example as it stands, with brokers in this process
// in place of those that its environment variables name by default.
package examples_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge/internal/fakeaws"
	"gobridge/internal/testbinary"
	"gobridge/internal/testbroker"
)

func TestMain(m *testing.M) { testbinary.Main(m) }

// token is what posts orders.
const token = "a-token-of-the-examples-test-0123"

// order is what goes through the examples.
const order = `{"customer_id":"ann","country":"de","total":12.5}`

// patience bounds the wait for something that is sure to happen.
const patience = 60 * time.Second

func eventually(t *testing.T, what string, log *output, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for this: %s; the bridge says:\n%s", patience, what, log)
		}
	}
}

// output is what a process has written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// binary is gobridge with arguments, in a folder of its own.
func binary(dir string, env []string, args ...string) (*exec.Cmd, *output) {
	out := &output{}
	c := exec.Command(testbinary.Path(), args...)
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	c.Env = append(os.Environ(), append(env, "ORDERS_TOKEN="+token, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s")...)
	return c, out
}

// run validates an example, asks whether all that it needs is there, and runs it
// until the test ends: it must end with status 0 then.
func run(t *testing.T, name string, env ...string) *output {
	t.Helper()
	file, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, args := range [][]string{{"validate", file}, {"validate", "--connect", file}} {
		c, out := binary(dir, env, args...)
		if err := c.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	c, out := binary(dir, env, "run", file)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		defer time.AfterFunc(patience, func() { _ = c.Process.Kill() }).Stop()
		if err := c.Wait(); err != nil {
			t.Errorf("it ended with %v:\n%s", err, out)
		}
	})
	return out
}

// arrivals keeps what has arrived somewhere.
type arrivals struct {
	mu  sync.Mutex
	all []testbroker.Message
}

func (a *arrivals) add(m testbroker.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, m)
}

// has reports whether a message has arrived.
func (a *arrivals) has(key, body string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.all {
		if m.Key == key && string(m.Body) == body {
			return true
		}
	}
	return false
}

// hook is a webhook server.
func hook(t *testing.T) (url string, got *arrivals) {
	t.Helper()
	got = &arrivals{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			got.add(testbroker.Message{Key: r.Header.Get("Gobridge-Ordering-Key"), Body: body})
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// amazon is SQS and SNS, with the environment that leads there.
func amazon(t *testing.T) (s *fakeaws.Server, env []string) {
	t.Helper()
	s = fakeaws.Start()
	t.Cleanup(s.Close)
	return s, []string{"AWS_ENDPOINT_URL=" + s.URL()}
}

// received takes what there is off a queue.
func received(t *testing.T, s *fakeaws.Server, queue string) []testbroker.Message {
	t.Helper()
	idle := &http.Transport{}
	defer idle.CloseIdleConnections()
	client := sqs.New(sqs.Options{
		Region: fakeaws.Region, BaseEndpoint: aws.String(s.URL()), HTTPClient: &http.Client{Transport: idle},
		Credentials: credentials.NewStaticCredentialsProvider("a", "s", ""),
	})
	found, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: found.QueueUrl, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameMessageGroupId},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []testbroker.Message
	for _, m := range answer.Messages {
		out = append(out, testbroker.Message{Key: m.Attributes["MessageGroupId"], Body: []byte(*m.Body)})
	}
	return out
}

// freeAddress is an address on loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// post posts the order until it is accepted.
func post(t *testing.T, address string, log *output) {
	t.Helper()
	eventually(t, "the order is accepted", log, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/orders", strings.NewReader(order))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", "order-1")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false // it does not listen yet
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusAccepted
	})
	http.DefaultClient.CloseIdleConnections()
}

// publish publishes to a topic until it has arrived: a topic keeps nothing for
// somebody who has not subscribed yet.
func publish(t *testing.T, b *testbroker.MQTT, topic, body string, log *output, arrived func() bool) {
	t.Helper()
	eventually(t, "what was published to "+topic+" has arrived", log, func() bool {
		b.Put(t, topic, testbroker.Message{Body: []byte(body)})
		return arrived()
	})
}

func TestMQTTToKafka(t *testing.T) {
	plant, events, lake := testbroker.StartMQTT(t), testbroker.StartKafka(t), &arrivals{}
	events.Make(t, "telemetry")
	events.Watch(t, "telemetry", lake.add)
	log := run(t, "mqtt-to-kafka.yaml", "MQTT_URL=mqtt://"+plant.Address(), "KAFKA_BROKER="+events.Address())
	const reading = `{"temp":21.5}`
	publish(t, plant, "plant/north/telemetry/temp", reading, log, func() bool { return lake.has("north", reading) })
}

func TestHTTPToSQS(t *testing.T) {
	cloud, env := amazon(t)
	cloud.CreateQueue("orders.fifo")
	address := freeAddress(t)
	log := run(t, "http-to-sqs.yaml", append(env, "LISTEN="+address)...)
	post(t, address, log)
	eventually(t, "the queue has the order", log, func() bool { return cloud.Left("orders.fifo") == 1 })
	if got := received(t, cloud, "orders.fifo"); len(got) != 1 || got[0].Key != "ann" || string(got[0].Body) != order {
		t.Errorf("the queue has %q, want the order in group ann", got)
	}
}

func TestAMQPToNATS(t *testing.T) {
	rabbit, hub, regions := testbroker.StartAMQP(t), testbroker.StartNATS(t), &arrivals{}
	rabbit.Make(t, "orders")
	hub.Stream(t, "ORDERS", "orders.*")
	hub.Watch(t, "ORDERS", regions.add)
	log := run(t, "amqp-to-nats.yaml", "AMQP_ADDRESS="+rabbit.Address(), "NATS_URL=nats://"+hub.Address())
	rabbit.Put(t, "orders", testbroker.Message{Body: []byte(order)})
	eventually(t, "the stream has the order", log, func() bool { return regions.has("ann", order) })
}

func TestKafkaToWebhook(t *testing.T) {
	events := testbroker.StartKafka(t)
	events.Make(t, "orders")
	url, crm := hook(t)
	log := run(t, "kafka-to-webhook.yaml", "KAFKA_BROKER="+events.Address(), "HOOK_URL="+url)
	const free = `{"customer_id":"ann","total":0}`
	events.Put(t, "orders", testbroker.Message{Key: "ann", Body: []byte(free)}, testbroker.Message{Key: "ann", Body: []byte(order)})
	eventually(t, "the CRM has the order", log, func() bool { return crm.has("ann", order) })
	if crm.has("ann", free) {
		t.Error("the CRM got what its filter leaves out")
	}
}

func TestNATSToSNS(t *testing.T) {
	hub := testbroker.StartNATS(t)
	hub.Stream(t, "ORDERS", "orders.>")
	cloud, env := amazon(t)
	topic := cloud.CreateTopic("orders.fifo")
	log := run(t, "nats-to-sns.yaml", append(env, "NATS_URL=nats://"+hub.Address(), "TOPIC="+topic)...)
	hub.Put(t, "orders.ann", testbroker.Message{Body: []byte(order)})
	eventually(t, "the topic has the order", log, func() bool { return len(cloud.Published(topic)) == 1 })
	got := cloud.Published(topic)[0]
	if got.Body != order || got.Group != "ann" || got.Attributes["country"] != "de" {
		t.Errorf("the topic has %+v, want the order in group ann with the attribute country", got)
	}
}

func TestPlant(t *testing.T) {
	plant, events, lake := testbroker.StartMQTT(t), testbroker.StartKafka(t), &arrivals{}
	events.Make(t, "telemetry")
	events.Watch(t, "telemetry", lake.add)
	cloud, env := amazon(t)
	cloud.CreateQueue("billing.fifo")
	alarmURL, alarms := hook(t)
	crmURL, crm := hook(t)
	address := freeAddress(t)
	log := run(t, "plant.yaml", append(env, "MQTT_URL=mqtt://"+plant.Address(), "KAFKA_BROKER="+events.Address(),
		"LISTEN="+address, "ALARM_URL="+alarmURL, "CRM_URL="+crmURL)...)

	const fine, hot = `{"temp":21.5}`, `{"temp":93.5}`
	for _, reading := range []string{fine, hot} {
		publish(t, plant, "plant/north/sensor/7", reading, log, func() bool { return lake.has("north", reading) })
	}
	eventually(t, "those on call have the alarm", log, func() bool { return alarms.has("north", hot) })
	if alarms.has("north", fine) {
		t.Error("those on call got a reading that is fine")
	}
	post(t, address, log)
	eventually(t, "queue and CRM have the order", log, func() bool {
		return crm.has("ann", order) && cloud.Left("billing.fifo") == 1
	})
}

func TestREADMENamesEveryExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		if !strings.Contains(string(readme), "| ["+file+"]("+file+") |") {
			t.Errorf("README.md has no line for %s", file)
		}
	}
}
