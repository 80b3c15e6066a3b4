package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"gobridge"
	"gobridge/config"
	"gobridge/messaging"
)

// TestWebhookKeepsAsManyConnectionsAsSends: with all partitions at work, none is closed
// only to be made again.
func TestWebhookKeepsAsManyConnectionsAsSends(t *testing.T) {
	const partitions, concurrency = 4, 4
	var made atomic.Int64
	var together sync.WaitGroup // all requests of a round are there
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		together.Done()
		together.Wait()
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			made.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c, err := config.Load(write(t, fmt.Sprintf(`
version: 1
store: { memory: {} }
routes:
  r: { partitions: %d, source: { http: { path: /r } }, bindings: { b: { webhook: { url: %q }, concurrency: %d } } }
`, partitions, server.URL, concurrency)))
	if err != nil {
		t.Fatal(err)
	}
	brokers, err := openBrokers(c, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	sender, err := brokers.sender(c, "r", "b")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		together.Add(partitions * concurrency)
		var sends sync.WaitGroup
		for i := range partitions * concurrency {
			sends.Go(func() {
				if err := sender.Send(t.Context(), []gobridge.Delivery{{Envelope: messaging.Envelope{ID: fmt.Sprint(i)}}})[0]; err != nil {
					t.Error(err)
				}
			})
		}
		sends.Wait()
	}
	// One comes back into the pool a moment after its send has returned, and may be missed.
	if n := made.Load(); n > 2*partitions*concurrency {
		t.Errorf("%d connections were made for %d sends at a time", n, partitions*concurrency)
	}
}
