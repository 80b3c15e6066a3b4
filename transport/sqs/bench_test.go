package sqs_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"gobridge"
	"gobridge/bridge"
	"gobridge/internal/awsclient"
	"gobridge/internal/fakeaws"
	"gobridge/store/sqlite"
	"gobridge/transport/sqs"
)

// BenchmarkBridge compares a bridge from queue to queue, with its outbox in SQLite,
// to a loop that receives, sends and deletes with the same client and as many
// goroutines, and reports how many times slower it is:
//
//	go test -run '^$' -bench Bridge -benchtime 5000x ./transport/sqs
func BenchmarkBridge(b *testing.B) {
	plain, _ := timed(b, func(s *fakeaws.Server) func() { return loop(b, s) })
	through, calls := timed(b, func(s *fakeaws.Server) func() { return bridged(b, s) })
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(n/plain.Seconds(), "loop-msg/s")
	b.ReportMetric(n/through.Seconds(), "msg/s")
	b.ReportMetric(through.Seconds()/plain.Seconds(), "times-slower")
	b.ReportMetric(n/float64(calls), "msg/send")
}

// timed is how long it takes until what start starts has moved b.N messages, and in
// how many sends.
func timed(b *testing.B, start func(*fakeaws.Server) (stop func())) (took time.Duration, sends int) {
	s := fakeaws.Start()
	defer s.Close()
	s.CreateQueue("in")
	s.CreateQueue("out")
	for i := range b.N {
		s.Put("in", "", "", fmt.Sprintf(`{"n":%d}`, i), "tenant", "t-"+strconv.Itoa(i%50))
	}
	began := time.Now()
	stop := start(s)
	defer stop()
	for s.Left("out") < b.N {
		time.Sleep(time.Millisecond)
	}
	return time.Since(began), s.Calls("SendMessageBatch")
}

const workers = 16

func loop(b *testing.B, s *fakeaws.Server) (stop func()) {
	config, closeIdle, err := awsclient.Load(awsclient.Options{Region: fakeaws.Region, Endpoint: s.URL(), AccessKey: text("a"), SecretKey: text("s")})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			c := client.NewFromConfig(config)
			in, out := s.URL()+"/0/in", s.URL()+"/0/out"
			for ctx.Err() == nil {
				got, err := c.ReceiveMessage(ctx, &client.ReceiveMessageInput{QueueUrl: &in, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"}})
				if err != nil || len(got.Messages) == 0 {
					continue
				}
				var send []types.SendMessageBatchRequestEntry
				var drop []types.DeleteMessageBatchRequestEntry
				for i, m := range got.Messages {
					id := aws.String(strconv.Itoa(i))
					send = append(send, types.SendMessageBatchRequestEntry{Id: id, MessageBody: m.Body, MessageAttributes: m.MessageAttributes})
					drop = append(drop, types.DeleteMessageBatchRequestEntry{Id: id, ReceiptHandle: m.ReceiptHandle})
				}
				if _, err := c.SendMessageBatch(ctx, &client.SendMessageBatchInput{QueueUrl: &out, Entries: send}); err == nil {
					_, _ = c.DeleteMessageBatch(ctx, &client.DeleteMessageBatchInput{QueueUrl: &in, Entries: drop})
				}
			}
		}()
	}
	return func() {
		cancel()
		for range workers {
			<-done
		}
		closeIdle()
	}
}

func bridged(b *testing.B, s *fakeaws.Server) (stop func()) {
	conn := connect(b, s.URL())
	store, err := sqlite.OpenFile(b.Context(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	engine, err := bridge.New(store, bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{{
		Name: "b", Sender: sender(b, conn, sqs.SenderOptions{Queue: "out"}), Concurrency: workers,
	}}}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 2)
	go func() { done <- engine.Run(ctx) }()
	go func() {
		var from gobridge.Receiver = receiver(b, conn, sqs.ReceiverOptions{Queue: "in", Receivers: 8})
		done <- engine.Route("r").Receive(ctx, from)
	}()
	return func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				b.Error(err)
			}
		}
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	}
}
