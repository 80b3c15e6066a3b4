package faults

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"gobridge"
	"gobridge/admin"
	"gobridge/admin/console"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/sqlite"
	"gobridge/telemetry"
)

// The outbox that is looked at has two bindings of four partitions each, and a
// thousand keys.
const (
	costShards     = 4
	costPartitions = 2 * costShards
	costKeys       = 1000
)

// counting is a store that counts what is asked of it: calls, and the rows that they
// brought.
type counting struct {
	*sqlite.Store
	calls, rows atomic.Int64
}

func (c *counting) count(rows int) {
	c.calls.Add(1)
	c.rows.Add(int64(rows))
}

func (c *counting) Stats(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error) {
	out, err := c.Store.Stats(ctx, partitions...)
	c.count(len(out))
	return out, err
}

func (c *counting) Get(ctx context.Context, ref gobridge.Ref) (gobridge.Record, error) {
	c.count(1)
	return c.Store.Get(ctx, ref)
}

func (c *counting) Explain(ctx context.Context, q gobridge.ExplainQuery) (gobridge.Explanation, error) {
	c.count(2) // a record and its head
	return c.Store.Explain(ctx, q)
}

func (c *counting) QueryPending(ctx context.Context, p gobridge.Partition, limit int) ([]gobridge.Record, error) {
	out, err := c.Store.QueryPending(ctx, p, limit)
	c.count(len(out))
	return out, err
}

func (c *counting) CountPending(ctx context.Context, p gobridge.Partition, limit int) (int, error) {
	n, err := c.Store.CountPending(ctx, p, limit)
	c.count(n)
	return n, err
}

func (c *counting) QueryDead(ctx context.Context, q gobridge.DeadQuery) (gobridge.DeadPage, error) {
	out, err := c.Store.QueryDead(ctx, q)
	c.count(len(out.Records))
	return out, err
}

func (c *counting) Redrive(ctx context.Context, r gobridge.BulkRequest) (gobridge.BulkResult, error) {
	out, err := c.Store.Redrive(ctx, r)
	c.count(len(out.Items))
	return out, err
}

func (c *counting) Discard(ctx context.Context, r gobridge.BulkRequest) (gobridge.BulkResult, error) {
	out, err := c.Store.Discard(ctx, r)
	c.count(len(out.Items))
	return out, err
}

func (c *counting) ListControls(ctx context.Context) ([]gobridge.Control, error) {
	out, err := c.Store.ListControls(ctx)
	c.count(len(out))
	return out, err
}

func (c *counting) ListAudit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	out, err := c.Store.ListAudit(ctx, limit)
	c.count(len(out))
	return out, err
}

func (c *counting) Leases() gobridge.LeaseStore { return countedLeases{c.Store.Leases(), c} }

type countedLeases struct {
	gobridge.LeaseStore
	counting *counting
}

func (l countedLeases) Leases(ctx context.Context) ([]gobridge.Lease, error) {
	out, err := l.LeaseStore.Leases(ctx)
	l.counting.count(len(out))
	return out, err
}

// fill makes an outbox with so many pending messages and dead letters.
func fill(t *testing.T, path string, pending, dead int) {
	t.Helper()
	store, err := sqlite.OpenFile(t.Context(), path, sqlite.Options{MaxDead: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	const batch = 1000
	records := make([]gobridge.Record, 0, batch)
	for i := range pending + dead {
		binding := []string{"crm", "billing"}[i%2]
		r := gobridge.Record{
			Partition: gobridge.NewShard("orders", binding, i/2%costShards, costShards), Binding: binding,
			Envelope: messaging.Envelope{ID: fmt.Sprintf("m-%d", i), OrderingKey: fmt.Sprintf("k-%d", i%costKeys), Payload: make([]byte, 100)},
		}
		if i >= pending {
			r.State, r.Reason, r.Error = gobridge.StateDead, gobridge.ReasonExhausted, fmt.Sprintf("500 of %d", i)
		}
		if records = append(records, r); len(records) == batch || i == pending+dead-1 {
			if err := store.Persist(t.Context(), records); err != nil {
				t.Fatal(err)
			}
			records = records[:0]
		}
	}
}

// look is one request of somebody who has logged in.
type look struct {
	path   string
	stream bool
	// most rows that it may bring beside those of the partitions, and search how many
	// the store may look at instead where it looks for what no index has.
	most, search int64
}

// looks are everything that can be looked at, when m-last is the newest message.
func looks(last int) []look {
	id, key := fmt.Sprintf("m-%d", last), fmt.Sprintf("k-%d", last%costKeys)
	var out []look
	for _, path := range []string{"/", "/binding?target=orders/crm", "/partitions", "/keys", "/holds"} {
		out = append(out, look{path: path}, look{path: path, stream: true})
	}
	for _, path := range []string{
		"/explain?q=orders", "/explain?q=" + key, "/explain?q=" + id, "/record?target=orders/billing&id=" + id, "/config",
		"/act?do=retry&target=orders/crm", "/act?do=pause&target=orders/crm", "/act?do=discard&target=orders/crm&id=" + id,
		"/api/v1/status", "/api/v1/delivery", "/api/v1/explain?q=orders", "/api/v1/explain?q=" + key, "/api/v1/explain?q=" + id,
		"/api/v1/record?target=orders/billing&id=" + id, "/api/v1/waiting?target=orders/crm", "/api/v1/holding?target=orders/crm",
		"/api/v1/config", "/metrics", "/health/ready",
	} {
		out = append(out, look{path: path})
	}
	const page, dryRun, largest = 100, 1000, 1000
	return append(out,
		look{path: "/dead", most: page}, look{path: "/dead?target=orders/crm", most: page}, look{path: "/audit", most: page},
		look{path: "/api/v1/dead?limit=100", most: page}, look{path: "/api/v1/audit", most: page},
		look{path: "/act?do=redrive&target=orders/crm", most: dryRun},
		look{path: "/act?do=discard&target=orders/crm&key=" + key, most: dryRun},
		look{path: "/dead?key=" + key, most: page, search: largest}, look{path: "/dead?error=no+such*", most: page, search: largest},
		look{path: "/dead?cause=permanent", most: page, search: largest}, look{path: "/api/v1/dead?error=no+such*", most: page, search: largest},
	)
}

// TestLookingCostsNoBacklog: whatever can be looked at reads as much as the partitions
// and a page of rows need, however much waits. Rows are counted where the desk asks the
// store; what the store itself reads is counted in bytes, with nothing in its cache.
func TestLookingCostsNoBacklog(t *testing.T) {
	pending, dead := 20_000, 4_000
	if os.Getenv("GOBRIDGE_COST") != "" {
		pending, dead = 1_000_000, 100_000
	}
	path := filepath.Join(t.TempDir(), "outbox.db")
	fill(t, path, pending, dead)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pending, %d dead letters, %d MiB", pending, dead, info.Size()>>20)
	for _, l := range looks(pending - 1) {
		calls, rows, bytes := measure(t, path, l)
		name := l.path
		if l.stream {
			name += " (stream)"
		}
		t.Logf("%-50s %3d calls %5d rows %6d KiB", name, calls, rows, bytes>>10)
		if most := 8*costPartitions + l.most; rows > most {
			t.Errorf("%s brought %d rows, at most %d are needed", name, rows, most)
		}
		// A row may cost a page of the file for itself and some of its indexes.
		most := (8*costPartitions + 2*max(l.most, l.search)) * 8 << 10
		if bytes > most {
			t.Errorf("%s read %d KiB, at most %d are needed", name, bytes>>10, most>>10)
		}
	}
}

// measure makes a request of a process that has just begun, and returns what it cost.
func measure(t *testing.T, path string, l look) (calls, rows, bytes int64) {
	t.Helper()
	inside, err := sqlite.OpenFile(t.Context(), path, sqlite.Options{MaxDead: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inside.Close() }()
	store := &counting{Store: inside}
	server, stop := serve(t, store)
	defer stop()
	before := readBytes(t)
	ask(t, server, l)
	return store.calls.Load(), store.rows.Load(), readBytes(t) - before
}

// serve is the admin listener of a bridge on the store.
func serve(t *testing.T, store *counting) (url string, stop func()) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	plan := &operate.Plan{Bindings: []operate.PlannedBinding{
		{Route: "orders", Binding: "crm", Partitions: costShards}, {Route: "orders", Binding: "billing", Partitions: costShards},
	}}
	exporters, err := telemetry.Start(t.Context(), telemetry.Options{})
	must(err)
	observer, err := telemetry.NewObserver(exporters.Meters)
	must(err)
	_, err = observer.Watch(telemetry.Watched{Stats: store.Stats, Controls: store.ListControls, Status: func() bridge.Status { return bridge.Status{} }})
	must(err)
	server, err := admin.New(admin.Options{
		Address: "127.0.0.1:0", Operate: func() ([]string, error) { return []string{token}, nil },
		Desk: operate.New(store, operate.Options{Plan: plan}), Console: console.New, Metrics: exporters.Scrape,
		Config: func() string { return "version: 1\n" },
		Ready:  func(ctx context.Context) error { _, err := store.Stats(ctx); return err },
	})
	must(err)
	must(server.Listen(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	return server.URL(), func() {
		cancel()
		must(<-ended)
		must(exporters.Shutdown(context.Background()))
	}
}

// ask makes a request, and reads the answer, or the first look of a stream.
func ask(t *testing.T, server string, l look) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: patience}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+l.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	if strings.HasPrefix(l.path, "/api/") || l.path == "/metrics" {
		request.Header.Set("Authorization", "Bearer "+token)
	} else if err := logIn(t.Context(), client, server); err != nil {
		t.Fatal(err)
	}
	if l.stream {
		request.Header.Set("Accept", "text/event-stream")
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s: status %d", l.path, response.StatusCode)
	}
	var text []byte
	piece := make([]byte, 4096)
	for err == nil && (!l.stream || !strings.Contains(string(text), "event: head")) {
		var n int
		n, err = response.Body.Read(piece)
		text = append(text, piece[:n]...)
	}
	if len(text) == 0 {
		t.Errorf("%s: nothing came", l.path)
	}
}

// logIn gets a session of the console at an address with its scheme.
func logIn(ctx context.Context, client *http.Client, server string) error {
	form := url.Values{"token": {token}, "by": {"ann"}, "next": {"/static/icon.svg"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/login", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", server)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("login: status %d", response.StatusCode)
	}
	return nil
}

var readChars = regexp.MustCompile(`rchar: (\d+)`)

// readBytes is what this process has read ever, from files and connections
// (proc_pid_io(5)).
func readBytes(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(string(readChars.FindSubmatch(text)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
