package telemetry_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"gobridge/bridge"
	"gobridge/telemetry"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

func eventually(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("still not so: %s", what)
		}
	}
}

// collector is an OTLP/HTTP receiver.
type collector struct {
	*httptest.Server

	mu      sync.Mutex
	down    bool
	asked   int
	headers http.Header
	spans   []*tracepb.Span
	metrics map[string]*metricspb.Metric // the newest of each name
	process map[string]string            // the resource's attributes
}

func newCollector(tb testing.TB) *collector {
	c := &collector{metrics: map[string]*metricspb.Metric{}, process: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.take))
	tb.Cleanup(c.Close)
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.down || err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	c.headers = r.Header
	var bad error
	switch r.URL.Path {
	case "/v1/traces":
		var in traces.ExportTraceServiceRequest
		bad = proto.Unmarshal(body, &in)
		for _, resource := range in.GetResourceSpans() {
			for _, s := range resource.GetScopeSpans() {
				c.spans = append(c.spans, s.GetSpans()...)
			}
		}
	case "/v1/metrics":
		var in metrics.ExportMetricsServiceRequest
		bad = proto.Unmarshal(body, &in)
		for _, resource := range in.GetResourceMetrics() {
			for _, a := range resource.GetResource().GetAttributes() {
				c.process[a.GetKey()] = a.GetValue().GetStringValue()
			}
			for _, s := range resource.GetScopeMetrics() {
				for _, m := range s.GetMetrics() {
					c.metrics[m.GetName()] = m
				}
			}
		}
	default:
		bad = fmt.Errorf("path %s", r.URL.Path)
	}
	if bad != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// seen runs f while nothing is taken.
func (c *collector) seen(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *collector) setDown(down bool) { c.seen(func() { c.down = down }) }

// log is a log that can be read while it is written.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestMetricsReachACollector(t *testing.T) {
	c := newCollector(t)
	_, o := began(t, telemetry.Options{
		Version: "v1", Instance: "one", Host: "web-1", Endpoint: c.URL + "/", Interval: 10 * time.Millisecond,
		Headers: map[string]string{"Authorization": "Bearer hush"},
	})
	o.Observe(t.Context(), bridge.Event{Kind: bridge.EventAccepted, Route: "orders", Count: 3, Took: time.Millisecond})
	eventually(t, "the collector has the counter", func() (has bool) {
		c.seen(func() { has = c.metrics["gobridge.messages_accepted"] != nil })
		return has
	})
	c.seen(func() {
		if v := c.metrics["gobridge.messages_accepted"].GetSum().GetDataPoints()[0].GetAsDouble(); v != 3 {
			t.Errorf("it is %v, want 3", v)
		}
		if a := c.headers.Get("Authorization"); a != "Bearer hush" {
			t.Errorf("the header is %q", a)
		}
		for name, want := range map[string]string{"service.name": "gobridge", "service.version": "v1", "service.instance.id": "one", "host.name": "web-1"} {
			if c.process[name] != want {
				t.Errorf("%s is %q, want %q", name, c.process[name], want)
			}
		}
	})
}

// TestACollectorThatIsDown: it is said once that it is, once that it is back, with no
// secret, and what was counted meanwhile is there then.
func TestACollectorThatIsDown(t *testing.T) {
	c := newCollector(t)
	c.setDown(true)
	var out log
	_, o := began(t, telemetry.Options{
		Endpoint: c.URL, Interval: 5 * time.Millisecond, Headers: map[string]string{"Authorization": "Bearer hush"}, Logger: out.logger(),
	})
	o.Observe(t.Context(), bridge.Event{Kind: bridge.EventAccepted, Route: "orders", Count: 3})
	eventually(t, "it was tried several times", func() (often bool) {
		c.seen(func() { often = c.asked > 3 })
		return often
	})
	c.setDown(false)
	eventually(t, "its return is said", func() bool { return out.count("takes what it is sent again") == 1 })
	if n := out.count("takes nothing"); n != 1 {
		t.Errorf("that it is down was said %d times", n)
	}
	if out.count("hush") != 0 {
		t.Error("a secret was logged")
	}
	c.seen(func() {
		if v := c.metrics["gobridge.messages_accepted"].GetSum().GetDataPoints()[0].GetAsDouble(); v != 3 {
			t.Errorf("the counter is %v, want 3", v)
		}
	})
}

// TestACollectorThatHangsHoldsUpNobody: far more spans than the queue has room for
// are made while the collector answers nothing at all, and the end is bounded.
func TestACollectorThatHangsHoldsUpNobody(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	exporters, err := telemetry.Start(t.Context(), telemetry.Options{Endpoint: server.URL, Interval: time.Hour, Traces: 1})
	if err != nil {
		t.Fatal(err)
	}
	tracer := exporters.Tracer()
	publish := tracer.Publish("orders", accepts)
	for range 10_000 {
		if _, err := publish(t.Context(), message("m")); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := exporters.Shutdown(ctx); err == nil {
		t.Error("it claims that all was sent")
	}
}
