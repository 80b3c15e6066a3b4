package httpsource_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/store/sqlite"
	"gobridge/transport/httpsource"
)

// A batch goes through the real engine: in order, once, and not at all when there
// is no room for all of it.
func TestBatchThroughTheEngine(t *testing.T) {
	store, err := sqlite.OpenFile(t.Context(), t.TempDir()+"/outbox.db", sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	const events = 200
	var mu sync.Mutex
	var got []string
	arrived := make(chan struct{})
	sender := gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(d.Envelope.Payload))
		if len(got) == events {
			close(arrived)
		}
		return nil
	})
	b, err := bridge.New(store, bridge.Options{
		Routes: []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{Name: "crm", Sender: sender, MaxOutboxDepth: 2 * events}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, httpsource.Options{})
	publish := httpsource.Publish(b.Route("orders").Publish)
	if err := s.Handle("/orders", httpsource.RouteOptions{Publish: publish}, publish.Accept); err != nil {
		t.Fatal(err)
	}
	batch := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, ceJSON(fmt.Sprint(n, "-", i), fmt.Sprintf(`,"partitionkey":"k","data":%d`, i)))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	problem(t, post(s, batch(2*events+1), "Content-Type", batchType), 503)
	if w := post(s, batch(events), "Content-Type", batchType); w.Code != 202 {
		t.Fatalf("answer %d %s", w.Code, w.Body)
	}
	if w := post(s, batch(events), "Content-Type", batchType); w.Code != 200 {
		t.Fatalf("answer %d %s to the same batch", w.Code, w.Body)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	select {
	case <-arrived:
	case <-time.After(30 * time.Second):
		t.Error("not all arrived")
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(got) != events {
		t.Errorf("%d deliveries, want %d", len(got), events)
	}
	for i, payload := range got {
		if payload != fmt.Sprint(i) {
			t.Fatalf("delivery %d is %s", i, payload)
		}
	}
}
