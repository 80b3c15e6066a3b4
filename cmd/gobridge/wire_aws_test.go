package main

import (
	"bytes"
	"strings"
	"testing"

	"gobridge/config"
	"gobridge/internal/fakeaws"
)

func TestAWSIsConnectedTo(t *testing.T) {
	s := fakeaws.Start()
	defer s.Close()
	s.CreateQueue("orders.fifo")
	topic := s.CreateTopic("news")
	c, err := config.Parse(config.Input{Name: "b.yaml", Data: []byte(`
version: 1
store: { memory: {} }
connections:
  aws: { aws: { region: eu-central-1, endpoint: "` + s.URL() + `", keys: { access_key: a, secret_key: s } } }
routes:
  orders:
    source: { sqs: { connection: aws, queue: orders.fifo } }
    bindings:
      billing: { sqs: { connection: aws, queue: billing.fifo } }
      choice:  { sqs: { connection: aws, queue_from: subject, attributes: { kind: subject } } }
      news:    { sns: { connection: aws, topic: "` + topic + `" } }
`)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := connectAll(t.Context(), c, &out); err == nil || !strings.Contains(err.Error(), "1 of 4 endpoints") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{
		"connect orders: ok      takes messages off queue orders.fifo, a FIFO queue in Region eu-central-1, about 0 messages waiting",
		"connect orders/billing: MISSING queue billing.fifo: ",
		"connect orders/choice: ok      sends to queues that messages choose",
		"connect orders/news: ok      publishes to topic news, a standard topic, which keeps no order",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
	s.CreateQueue("billing.fifo")
	out.Reset()
	if err := connectAll(t.Context(), c, &out); err != nil {
		t.Errorf("error %v\n%s", err, out.String())
	}
}

func TestAWSThatCannotBe(t *testing.T) {
	c, err := config.Parse(config.Input{Name: "b.yaml", Data: []byte(`
version: 1
store: { memory: {} }
connections: { aws: { aws: { region: eu-central-1 } } }
routes:
  orders:
    source: { sqs: { connection: aws, queue: "or ders" } }
    bindings: { news: { sns: { connection: aws, topic: "arn:aws:sns:us-east-1:123456789012:t" } } }
`)})
	if err != nil {
		t.Fatal(err)
	}
	err = checkParts(c)
	if err == nil || !strings.Contains(err.Error(), `queue "or ders"`) || !strings.Contains(err.Error(), "it is in Region us-east-1") {
		t.Errorf("error %v", err)
	}
}
