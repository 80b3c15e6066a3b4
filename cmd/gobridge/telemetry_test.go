package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"gobridge/telemetry"
)

// spanCollector is a collector that keeps spans by name, and counts what it gets of
// metrics.
type spanCollector struct {
	mu      sync.Mutex
	spans   map[string]*tracepb.Span
	metrics int
	token   string
}

func (c *spanCollector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var in traces.ExportTraceServiceRequest
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = r.Header.Get("X-Token")
	if r.URL.Path == "/v1/metrics" {
		c.metrics++
		return
	}
	if proto.Unmarshal(body, &in) != nil {
		return
	}
	for _, resource := range in.GetResourceSpans() {
		for _, s := range resource.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				c.spans[span.GetName()] = span
			}
		}
	}
}

const readToken = "a-token-to-read-with"

// TestWhatARunningBridgeTells runs a bridge with an admin listener and a collector:
// a message that comes with a trace context is in its trace on the whole way, and
// what happened to it is in /metrics.
func TestWhatARunningBridgeTells(t *testing.T) {
	collector := &spanCollector{spans: map[string]*tracepb.Span{}}
	otlp := httptest.NewServer(collector)
	defer otlp.Close()
	var mu sync.Mutex
	var arrived string
	destination := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived = r.Header.Get("Traceparent")
	}))
	defer destination.Close()
	p := start(t, fmt.Sprintf(`
version: 1
store: { memory: {} }
http: { listen: "127.0.0.1:0" }
admin: { listen: "127.0.0.1:0", tokens: { read: %q } }
telemetry: { otlp: { endpoint: %q, headers: { X-Token: hush }, interval: 1s, traces: 1%% } }
routes:
  orders:
    source: { http: { path: /orders } }
    bindings:
      crm: { webhook: { url: %q } }
`, readToken, otlp.URL, destination.URL))
	const id = "0af7651916cd43dd8448eb211c80319c"
	if status, answer := post(t, p.address()+"/orders", `{}`, "Traceparent", "00-"+id+"-b7ad6b7169203331-01"); status/100 != 2 {
		t.Fatalf("status %d: %s", status, answer)
	}
	admin := p.admin()
	var scraped string
	eventually(t, "the delivery is in /metrics", func() bool {
		scraped = scrapeOf(t, admin, readToken)
		return strings.Contains(scraped, `gobridge_records_delivered_total{binding="crm",route="orders"} 1`)
	})
	for _, want := range []string{
		`gobridge_messages_accepted_total{route="orders"} 1`, `gobridge_outbox_depth{binding="crm",partition="orders/crm/0",route="orders"} 0`,
		"gobridge_store_readable 1", "gobridge_partitions_owned", "go_goroutines", "process_cpu_seconds_total",
		`gobridge_delivery_attempts_count{binding="crm",route="orders"} 1`,
	} {
		if !strings.Contains(scraped, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	if status := p.stop(); status != 0 { // which sends what is left
		t.Fatalf("status %d: %s", status, p.stderr.String())
	}
	collector.mu.Lock()
	defer collector.mu.Unlock()
	accept, send := collector.spans["accept orders"], collector.spans["send orders/crm"]
	if accept == nil || send == nil {
		t.Fatalf("the collector has the spans %v", collector.spans)
	}
	if hex.EncodeToString(accept.GetTraceId()) != id || string(send.GetTraceId()) != string(accept.GetTraceId()) || string(send.GetParentSpanId()) != string(accept.GetSpanId()) {
		t.Errorf("accept %v and send %v are not one trace", accept, send)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := "00-" + id + "-" + hex.EncodeToString(send.GetSpanId()) + "-01"; arrived != want {
		t.Errorf("the destination got %q, want %q", arrived, want)
	}
	if collector.metrics == 0 || collector.token != "hush" {
		t.Errorf("%d exports of metrics, token %q", collector.metrics, collector.token)
	}
	if strings.Contains(p.stderr.String(), "hush") {
		t.Error("a secret was logged")
	}
}

// admin waits until the admin listener listens and returns where.
func (p *process) admin() string {
	p.t.Helper()
	listening := regexp.MustCompile(`msg="admin listening" address=(\S+)`)
	var found []string
	eventually(p.t, "the admin listener listens", func() bool {
		found = listening.FindStringSubmatch(p.stderr.String())
		return found != nil
	})
	return found[1]
}

// scrapeOf returns /metrics of an admin listener.
func scrapeOf(t *testing.T, address, token string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", response.StatusCode, err, body)
	}
	return string(body)
}

// TestMetricsPageIsTheList: the page of the documentation has the table of the code.
// With GOBRIDGE_WRITE_DOCS set it is written anew.
func TestMetricsPageIsTheList(t *testing.T) {
	const path, begin = "../../docs/metrics.md", "<!-- the list: written by `make docs` -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s lacks %q", path, begin)
	}
	want := head + begin + "\n" + telemetry.Markdown()
	if os.Getenv("GOBRIDGE_WRITE_DOCS") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a page for everybody
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not as the code has it; write it with GOBRIDGE_WRITE_DOCS=1 go test -run %s ./cmd/gobridge", path, t.Name())
	}
}
