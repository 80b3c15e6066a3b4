package sqs_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"gobridge/internal/awsclient"
	"gobridge/internal/fakeaws"
	"gobridge/messaging"
	"gobridge/transport/sns"
	"gobridge/transport/sqs"
)

// publisher publishes to a topic as our own destination does.
func publisher(t testing.TB, s *fakeaws.Server, topic string) *sns.Sender {
	t.Helper()
	config, closeIdle, err := awsclient.Load(awsclient.Options{
		Region: fakeaws.Region, Endpoint: s.URL(), AccessKey: text("AKIA"), SecretKey: text("secret"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeIdle)
	conn, err := sns.New(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := conn.Sender(sns.SenderOptions{Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// What is published comes through a queue as it was, with raw delivery and without.
func TestFromTopicToQueue(t *testing.T) {
	t.Parallel()
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprintf("raw %v", raw), func(t *testing.T) {
			s := server(t)
			s.CreateQueue("q.fifo")
			topic := s.CreateTopic("t.fifo")
			s.Subscribe(topic, "q.fifo", raw)
			all := []messaging.Envelope{
				{ID: "1", Subject: "order.placed", OrderingKey: "k", ContentType: "application/json", Payload: []byte(`{"n":1}`), Headers: messaging.Headers{"x": "1"}},
				{ID: "2", OrderingKey: "k", Payload: []byte("\x00\xff"), Headers: messaging.Headers{"x y": "\x00", "a": ""}},
				{ID: "3", Payload: nil},
			}
			for _, err := range send(t, publisher(t, s, topic), deliveries(all...)...) {
				if err != nil {
					t.Fatal(err)
				}
			}
			box := &outbox{}
			receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "q.fifo"}), box.take)
			eventually(t, "their arrival", func() bool { return len(box.all()) == len(all) })
			for _, in := range box.all() {
				got := in.Envelope
				var want messaging.Envelope
				for _, e := range all {
					if e.ID == got.ID {
						want = e
					}
				}
				if want.ID == "" || got.Subject != want.Subject || got.OrderingKey != want.OrderingKey || got.ContentType != want.ContentType ||
					!bytes.Equal(got.Payload, want.Payload) || !maps.Equal(got.Headers, want.Headers) || in.Reject != nil {
					t.Errorf("%+v came as %+v, %v", want, got, in.Reject)
				}
			}
		})
	}
}

const notified = `{"Type":"Notification","MessageId":"n-1","TopicArn":"arn:aws:sns:eu-central-1:123456789012:t","Subject":"s",` +
	`"Message":"hello","Timestamp":"2026-01-02T03:04:05.000Z","SignatureVersion":"1",` +
	`"MessageAttributes":{"b":{"Type":"Binary","Value":"AAE="},"n":{"Type":"Number","Value":"7"}}}`

func TestNotificationsOfOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		attributes []string
		keep       bool
		want       messaging.Envelope
	}{
		{"unwrapped", notified, nil, false, messaging.Envelope{
			ID: "n-1", Subject: "s", Payload: []byte("hello"), Headers: messaging.Headers{"b": "\x00\x01", "n": "7"},
		}},
		{"kept", notified, nil, true, messaging.Envelope{Payload: []byte(notified)}},
		{"with attributes beside it", notified, []string{"x", "1"}, false, messaging.Envelope{Payload: []byte(notified), Headers: messaging.Headers{"x": "1"}}},
		{"of another type", `{"Type":"SubscriptionConfirmation","MessageId":"1"}`, nil, false, messaging.Envelope{Payload: []byte(`{"Type":"SubscriptionConfirmation","MessageId":"1"}`)}},
		{"not of SNS", `{"Type":"Notification","Message":"x"}`, nil, false, messaging.Envelope{Payload: []byte(`{"Type":"Notification","Message":"x"}`)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := server(t)
			s.CreateQueue("q")
			id := s.Put("q", "", "", tt.body, tt.attributes...)
			box := &outbox{}
			receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "q", KeepEnvelopes: tt.keep}), box.take)
			eventually(t, "its arrival", func() bool { return len(box.all()) == 1 })
			if tt.want.ID == "" {
				tt.want.ID = id
			}
			got := box.all()[0].Envelope
			if got.ID != tt.want.ID || got.Subject != tt.want.Subject || string(got.Payload) != string(tt.want.Payload) || !maps.Equal(got.Headers, tt.want.Headers) {
				t.Errorf("it came as %+v, want %+v", got, tt.want)
			}
		})
	}
}
