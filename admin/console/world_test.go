package console

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/admin"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tokens of the tests.
const (
	readToken    = "a-token-that-reads"
	operateToken = "a-token-that-operates"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

const (
	crm     = gobridge.Partition("orders/crm/0")
	billing = gobridge.Partition("orders/billing/0")
	owner   = "host-123-ABCDEFGH"
)

// world is a console on a store.
type world struct {
	*testing.T
	store *memory.Store
	desk  *operate.Desk
	url   string
	stop  func()

	mu  sync.Mutex
	now time.Time // of sessions
}

// newWorld starts a console; change, unless nil, changes its options.
func newWorld(t *testing.T, change func(*world, *admin.Options)) *world {
	t.Helper()
	w := &world{T: t, store: memory.New(memory.Options{}), now: time.Now()}
	plan := &operate.Plan{Bindings: []operate.PlannedBinding{
		{Route: "orders", Binding: "crm", Destination: "webhook https://crm.example.com/h"}, {Route: "orders", Binding: "billing"},
	}}
	w.desk = operate.New(w.store, operate.Options{Plan: plan})
	options := admin.Options{
		Address: "127.0.0.1:0",
		Read:    func() ([]string, error) { return []string{readToken}, nil },
		Operate: func() ([]string, error) { return []string{operateToken}, nil },
		Desk:    w.desk,
		Config:  func() string { return "version: 1 # <b>\n" },
		Console: New,
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
	}
	if change != nil {
		change(w, &options)
	}
	server, err := admin.New(options)
	w.must(err)
	w.must(server.Listen(t.Context()))
	w.url = server.URL()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the server ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
	})
	t.Cleanup(w.stop)
	for _, p := range []gobridge.Partition{crm, billing} {
		_, err := w.store.Leases().Acquire(t.Context(), gobridge.AcquireRequest{Partition: p, Owner: owner, Term: time.Hour})
		w.must(err)
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// later lets time go by for sessions.
func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func message(p gobridge.Partition, id, key string) gobridge.Record {
	_, binding, _, _ := p.Split()
	return gobridge.Record{Partition: p, Binding: binding, Envelope: messaging.Envelope{ID: id, OrderingKey: key, Payload: []byte("payload of " + id)}}
}

func dead(r gobridge.Record, text string) gobridge.Record {
	r.State, r.Reason, r.Error = gobridge.StateDead, gobridge.ReasonExhausted, text
	return r
}

func (w *world) persist(records ...gobridge.Record) {
	w.Helper()
	w.must(w.store.Persist(w.Context(), records))
}

func (w *world) state(p gobridge.Partition, id string) gobridge.State {
	w.Helper()
	_, binding, _, _ := p.Split()
	r, err := w.store.Get(w.Context(), gobridge.Ref{Partition: p, EnvelopeID: id, Binding: binding})
	w.must(err)
	return r.State
}

// browser is a client with cookies that follows redirects.
type browser struct {
	*world
	client *http.Client
	csrf   string
}

func (w *world) browser() *browser {
	w.Helper()
	jar, err := cookiejar.New(nil)
	w.must(err)
	b := &browser{world: w, client: &http.Client{Jar: jar, Transport: &http.Transport{}}}
	w.Cleanup(b.client.CloseIdleConnections)
	return b
}

// login opens a session.
func (w *world) login(token string) *browser {
	w.Helper()
	b := w.browser()
	status, body := b.post("/login", url.Values{"token": {token}, "by": {"ann"}, "next": {"/help"}})
	if status != http.StatusOK || !strings.Contains(body, "What the words mean") {
		w.Fatalf("login: %d %s", status, body)
	}
	b.csrf = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`).FindStringSubmatch(body)[1]
	return b
}

func (b *browser) do(request *http.Request) (int, string) {
	b.Helper()
	answer, err := b.client.Do(request)
	b.must(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	b.must(err)
	return answer.StatusCode, string(body)
}

func (b *browser) get(path string) (int, string) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.url+path, nil)
	b.must(err)
	return b.do(request)
}

// page gets a page that must be there.
func (b *browser) page(path string) string {
	b.Helper()
	status, body := b.get(path)
	if status != http.StatusOK {
		b.Fatalf("GET %s: %d %s", path, status, body)
	}
	return body
}

// post sends a form as a page of the console does.
func (b *browser) post(path string, form url.Values) (int, string) {
	b.Helper()
	sent := url.Values{"csrf": {b.csrf}}
	maps.Copy(sent, form)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.url+path, strings.NewReader(sent.Encode()))
	b.must(err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", b.url)
	return b.do(request)
}

// has checks that a page says everything.
func has(t testing.TB, body string, want ...string) {
	t.Helper()
	text := textOf(body)
	for _, one := range want {
		if !strings.Contains(text, one) && !strings.Contains(body, one) {
			t.Errorf("the page does not say %q:\n%s", one, text)
		}
	}
}

func hasNot(t testing.TB, body string, unwanted ...string) {
	t.Helper()
	for _, one := range unwanted {
		if strings.Contains(body, one) {
			t.Errorf("the page has %q", one)
		}
	}
}

// ownerToken is that of the owner of a partition.
func ownerToken() gobridge.Token { return gobridge.Token{Owner: owner, Version: 1} }

// bad makes a bad night.
func (w *world) bad() {
	w.Helper()
	for i := range 5 {
		w.persist(message(crm, fmt.Sprintf("m-%d", i), "cust-7"), message(billing, fmt.Sprintf("m-%d", i), "cust-7"), dead(message(billing, fmt.Sprintf("d-%d", i), "cust-8"), "500 was down"))
	}
	_, err := w.store.Claim(w.Context(), gobridge.ClaimRequest{Partition: crm, Token: ownerToken(), Limit: 1, HeldKnown: true})
	w.must(err)
	now := time.Now()
	w.must(w.store.Report(w.Context(), crm, ownerToken(), gobridge.Condition{Down: true, Since: now.Add(-42 * time.Minute), Error: "POST https://crm.example.com/h: 401 Unauthorized", NextProbe: now.Add(time.Hour)}))
	w.must(w.store.SetControl(w.Context(), gobridge.Control{Kind: gobridge.Halt, Route: "orders", Binding: "billing", OrderingKey: "cust-7", Reason: "422 unknown sku"}))
}

// eventually waits for what must happen.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("it never happens that %s", what)
}
