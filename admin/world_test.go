package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"go.uber.org/goleak"

	"gobridge"
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

const crm = gobridge.Partition("orders/crm/0")

// logBook is a log that can be read while it is written.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// world is a running admin listener on a store.
type world struct {
	*testing.T
	store  *memory.Store
	server *Server
	url    string
	log    *logBook
	api    *openapi3.T
	http   *http.Client
	stop   func()
}

func optionsOf(store gobridge.Store) Options {
	plan := &operate.Plan{Bindings: []operate.PlannedBinding{
		{Route: "orders", Binding: "crm", Destination: "webhook"}, {Route: "orders", Binding: "billing"},
	}}
	return Options{
		Address: "127.0.0.1:0",
		Read:    func() ([]string, error) { return []string{readToken}, nil },
		Operate: func() ([]string, error) { return []string{operateToken}, nil },
		Desk:    operate.New(store, operate.Options{Plan: plan}),
		Config:  func() string { return "version: 1\n" },
	}
}

// newWorld starts a listener; change, unless nil, changes its options.
func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := &world{T: t, store: memory.New(memory.Options{}), log: &logBook{}, http: &http.Client{Transport: &http.Transport{}}}
	options := optionsOf(w.store)
	options.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if change != nil {
		change(&options)
	}
	var err error
	if w.api, err = openapi3.NewLoader().LoadFromData(description); err != nil {
		t.Fatal(err)
	}
	if w.server, err = New(options); err != nil {
		t.Fatal(err)
	}
	if err := w.server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.url = w.server.URL()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		w.http.CloseIdleConnections()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the server ended with %v", err)
			}
		case <-time.After(patience):
			t.Errorf("the server does not end")
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// fill stores messages of a partition: two pending, three dead, and one dead whose
// texts are no UTF-8.
func (w *world) fill() {
	w.Helper()
	var all []gobridge.Record
	for i := range 6 {
		r := gobridge.Record{Partition: crm, Binding: "crm", Envelope: messaging.Envelope{
			ID: fmt.Sprintf("m-%d", i), OrderingKey: "k", Payload: fmt.Appendf(nil, "the payload of m-%d", i),
			Headers: messaging.Headers{"x": "y"}, ContentType: "text/plain", Subject: "s",
		}}
		if i >= 2 {
			r.State, r.Reason, r.Error = gobridge.StateDead, gobridge.ReasonExhausted, "500 was down"
		}
		if i == 5 {
			r.Envelope.OrderingKey, r.Envelope.Payload, r.Envelope.ID = "k\xff", []byte("payload \xff"), "m-\xff"
		}
		all = append(all, r)
	}
	w.must(w.store.Persist(w.Context(), all))
}

func (w *world) client(token string) *Client {
	w.Helper()
	c, err := NewClient(ClientOptions{URL: w.url, Token: token})
	w.must(err)
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// call is a request of a test.
type call struct {
	method, path string // path with its query
	body         string
	header       []string // names and values by turns
	host         string
}

// answer is what came.
type answer struct {
	status int
	header http.Header
	body   string
}

// problem returns the answer's problem.
func (a *answer) problem(t testing.TB) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != a.status || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("no problem: %d %s", a.status, a.body)
	}
	return p
}

// ask sends a request with a token, empty for none, and holds the answer against
// the description of the API.
func (w *world) ask(token string, c call) answer {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), c.method, w.url+c.path, strings.NewReader(c.body))
	w.must(err)
	if c.method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(c.header); i += 2 {
		request.Header.Set(c.header[i], c.header[i+1])
	}
	request.Host = c.host
	response, err := w.http.Do(request)
	w.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	w.must(err)
	out := answer{response.StatusCode, response.Header, string(body)}
	path, _, _ := strings.Cut(c.path, "?")
	w.described(c.method, path, &out)
	return out
}

// described holds an answer against the description. Paths that are not in it
// answer with problems, but for those of a console.
func (w *world) described(method, path string, a *answer) {
	w.Helper()
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	item := w.api.Paths.Find(path)
	if item == nil || item.GetOperation(method) == nil {
		if strings.HasPrefix(path, apiPrefix) {
			a.problem(w)
		}
		return
	}
	operation := item.GetOperation(method)
	response := operation.Responses.Status(a.status)
	if response == nil {
		response = operation.Responses.Default()
	}
	if response == nil {
		if operation.Security != nil && (a.status == http.StatusMisdirectedRequest) { // health, by a wrong name
			return
		}
		w.Fatalf("%s %s: status %d is not described", method, path, a.status)
	}
	content := response.Value.Content[media]
	if content == nil {
		w.Fatalf("%s %s: status %d with %q is not described: %s", method, path, a.status, media, a.body)
	}
	if media == "application/yaml" {
		return
	}
	for _, line := range strings.SplitAfter(a.body, "\n") {
		if line != "" {
			w.fits(content.Schema.Value, line)
		}
	}
}

func (w *world) fits(schema *openapi3.Schema, text string) {
	w.Helper()
	var v any
	w.must(json.Unmarshal([]byte(text), &v))
	if err := schema.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
		reason, _, _ := strings.Cut(err.Error(), "\n")
		w.Errorf("%s\nis not as described: %s", text, reason)
	}
}

// good are requests that succeed after fill, one for each endpoint.
func good() []call {
	const why = `"by":"ann","reason":"because"`
	letter, err := operate.EncodeLetter(&gobridge.Record{Partition: crm, Binding: "crm", Envelope: messaging.Envelope{ID: "new", Payload: []byte("p")}})
	if err != nil {
		panic(err) // a constant
	}
	return []call{
		{method: "GET", path: "/openapi.yaml"},
		{method: "GET", path: "/status"},
		{method: "GET", path: "/delivery"},
		{method: "GET", path: "/explain?q=m-0"},
		{method: "GET", path: "/known?target=orders"},
		{method: "GET", path: "/removed?route=orders&binding=crm"},
		{method: "GET", path: "/record?target=orders/crm&id=m-2"},
		{method: "GET", path: "/waiting?target=orders/crm"},
		{method: "GET", path: "/config"},
		{method: "GET", path: "/dead?route=orders&limit=2"},
		{method: "GET", path: "/dead/export?route=orders"},
		{method: "POST", path: "/dead/import?by=ann&reason=because", body: string(letter) + "\n", header: []string{"Content-Type", "application/x-ndjson"}},
		{method: "POST", path: "/pause", body: `{"target":"orders",` + why + `}`},
		{method: "GET", path: "/holding?target=orders"},
		{method: "POST", path: "/resume", body: `{"target":"orders",` + why + `}`},
		{method: "POST", path: "/halt", body: `{"target":"orders/crm","key":{"base64":"/w=="},` + why + `}`},
		{method: "POST", path: "/retry", body: `{"filter":{"route":"orders","binding":"crm"},` + why + `}`},
		{method: "POST", path: "/jobs", body: `{"kind":"redrive","filter":{"route":"orders","ended_from":"2020-01-01T00:00:00Z"},"max":2,` + why + `}`},
		{method: "POST", path: "/move", body: `{"from":"old/crm","to":"orders/crm",` + why + `}`},
		{method: "POST", path: "/end-removed", body: `{"target":"old",` + why + `}`},
		{method: "GET", path: "/audit?limit=20"},
		{method: "POST", path: "/reload", body: `{` + why + `}`},
	}
}

// old stores what a removed binding holds.
func (w *world) old() {
	w.Helper()
	w.must(w.store.Persist(w.Context(), []gobridge.Record{
		{Partition: "old/crm/0", Binding: "crm", Envelope: messaging.Envelope{ID: "o-1", Payload: []byte("p")}},
		{Partition: "old/crm/0", Binding: "crm", Envelope: messaging.Envelope{ID: "o-2", Payload: []byte("p")}, State: gobridge.StateDead, Reason: gobridge.ReasonPermanent},
	}))
}

func reloading(o *Options) {
	o.Reload = func(context.Context) (string, error) { return "nothing", nil }
}

// eventually waits until condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func pathsOf(calls []call) (out []string) {
	for _, c := range calls {
		path, _, _ := strings.Cut(c.path, "?")
		out = append(out, c.method+" "+path)
	}
	slices.Sort(out)
	return out
}
