package bridge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// BenchmarkDrain delivers b.N records that lie in a memory store to a
// destination that takes no time.
func BenchmarkDrain(b *testing.B) {
	for _, keys := range []int{0, 1, 1000} {
		name := "no keys"
		if keys > 0 {
			name = fmt.Sprintf("%d keys", keys)
		}
		b.Run(name, func(b *testing.B) { benchmarkDrain(b, keys) })
	}
}

func benchmarkDrain(b *testing.B, keys int) {
	store := memory.New(memory.Options{})
	var sent atomic.Int64
	br, err := bridge.New(store, one(bridge.Binding{
		Sender: gobridge.HandlerFunc(func(context.Context, gobridge.Delivery) error { sent.Add(1); return nil }),
	}))
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 256)
	var all []messaging.Envelope
	for i := range b.N {
		e := messaging.Envelope{ID: fmt.Sprint(i), Payload: payload}
		if keys > 0 {
			e.OrderingKey = fmt.Sprint(i % keys)
		}
		if all = append(all, e); len(all) == 1000 || i == b.N-1 {
			if _, err := br.Route("r").Publish(context.Background(), all...); err != nil {
				b.Fatal(err)
			}
			all = all[:0]
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := br.Drain(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if int(sent.Load()) != b.N {
		b.Fatalf("%d of %d sent", sent.Load(), b.N)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
