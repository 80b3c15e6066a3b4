package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

const (
	openConsoles = 100
	consolePairs = 5
	// consoleMessages is what is delivered in a run.
	consoleMessages = 60_000
)

// BenchmarkHundredConsoles delivers what waits to a webhook, alone and with a hundred
// consoles open on the overview, in pairs of runs of the real binary on this machine,
// the browsers' side included. It reports the rates' medians and that of their ratios.
func BenchmarkHundredConsoles(b *testing.B) {
	for range b.N {
		var alone, watched, ratios []float64
		for pair := range consolePairs {
			var rates [2]float64
			for i := range 2 {
				with := (i + pair) % 2 // now the one first, now the other
				rates[with] = deliver(b, with*openConsoles)
			}
			alone, watched, ratios = append(alone, rates[0]), append(watched, rates[1]), append(ratios, rates[1]/rates[0])
			b.Logf("pair %d: %.0f messages/s alone, %.0f with %d consoles: %.3f", pair+1, rates[0], rates[1], openConsoles, rates[1]/rates[0])
		}
		b.ReportMetric(median(alone), "msg/s-alone")
		b.ReportMetric(median(watched), "msg/s-watched")
		b.ReportMetric(median(ratios), "ratio")
	}
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// deliver returns how many messages a second are delivered while so many look.
func deliver(b *testing.B, consoles int) float64 {
	b.Helper()
	r := newRig(b)
	preload(r)
	r.file("b.yaml", r.text(r.admin))
	p := r.start("gobridge run b.yaml")
	ctx, leave := context.WithCancel(b.Context())
	var people sync.WaitGroup
	var live atomic.Int64
	for range consoles {
		people.Go(func() { watch(ctx, "http://"+r.admin, &live) })
	}
	r.eventually("the consoles are open", func() bool { return live.Load() == int64(consoles) })
	if status, out := r.run(`gobridge resume orders/crm --yes --reason "go"`); status != 0 {
		b.Fatal(out)
	}
	r.eventually("everything arrives", func() bool {
		r.dest.mu.Lock()
		defer r.dest.mu.Unlock()
		return len(r.dest.got) == consoleMessages
	})
	leave()
	people.Wait()
	p.kill()
	r.dest.mu.Lock()
	defer r.dest.mu.Unlock()
	return consoleMessages / r.dest.last.Sub(r.dest.first).Seconds()
}

// preload puts messages of a thousand keys into an outbox whose binding is paused.
func preload(r *rig) {
	r.Helper()
	store, err := sqlite.OpenFile(r.Context(), filepath.Join(r.dir, "outbox.db"), sqlite.Options{})
	r.must(err)
	r.must(store.SetControl(r.Context(), gobridge.Control{Kind: gobridge.Pause, Route: "orders", Binding: "crm", Reason: "not yet"}))
	const batch = 1000
	for n := 0; n < consoleMessages; n += batch {
		records := make([]gobridge.Record, batch)
		for i := range records {
			records[i] = gobridge.Record{Partition: crm, Binding: "crm", Envelope: messaging.Envelope{
				ID: fmt.Sprintf("m-%d", n+i), OrderingKey: fmt.Sprintf("k-%d", i), Payload: make([]byte, 200),
			}}
		}
		r.must(store.Persist(r.Context(), records))
	}
	r.must(store.Close())
}

// watch is a browser with the overview open until ctx ends: it keeps a stream, opens
// it again when that has ended, and comes again later when there are too many.
func watch(ctx context.Context, server string, live *atomic.Int64) {
	jar, _ := cookiejar.New(nil) // it never fails
	client := &http.Client{Jar: jar, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	if logIn(ctx, client, server) != nil {
		return
	}
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/", nil)
		if err != nil {
			return
		}
		request.Header.Set("Accept", "text/event-stream")
		response, err := client.Do(request)
		if err != nil {
			continue
		}
		if response.StatusCode == http.StatusOK {
			live.Add(1)
			_, _ = io.Copy(io.Discard, response.Body)
			live.Add(-1)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	}
}
