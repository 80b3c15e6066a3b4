package browser

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/admin"
	"gobridge/admin/console"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/memory"
)

// The tokens of the tests.
const (
	readToken    = "a-token-that-reads"
	operateToken = "a-token-that-operates"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// world is a store with a console on it.
type world struct {
	*testing.T
	store *memory.Store
	url   string
	stop  func() // ends the server
}

const configText = `version: 1
store: { sqlite: { path: data/outbox.db } }
admin: { listen: 127.0.0.1:9090, tokens: { read: "(secret)", operate: "(secret)" } }
routes:
  orders:
    source: { http: { path: /orders } }
    ordering_key: payload.customer_id
    on_failure: halt_key
    bindings:
      billing: { webhook: { url: "https://billing.example.com/hook", secrets: ["(secret)"] } }
      crm: { webhook: { url: "https://crm.example.com/h", secrets: ["(secret)"] } }
`

// newWorld starts a console on a store with the bindings of two routes, all of them
// with an owner. Now is the desk's clock, time.Now when nil.
func newWorld(t *testing.T, now func() time.Time) *world {
	t.Helper()
	w := &world{T: t, store: memory.New(memory.Options{})}
	plan := &operate.Plan{Bindings: []operate.PlannedBinding{
		{Route: "orders", Binding: "billing", Destination: "webhook https://billing.example.com/hook", Partitions: 4, MaxOutboxDepth: 20000, RejectsWhenFull: true},
		{Route: "orders", Binding: "crm", Destination: "webhook https://crm.example.com/h"},
		{Route: "telemetry", Binding: "lake", Destination: "kafka topic telemetry"},
		{Route: "telemetry", Binding: "alarms", Destination: "webhook https://ops.example.com/a"},
	}}
	w.serve(operate.New(w.store, operate.Options{Plan: plan, Now: now}))
	for shard := range 4 {
		w.own(gobridge.NewShard("orders", "billing", shard, 4), "web-1-4711-K7QX2MNP")
	}
	for _, p := range []gobridge.Partition{"orders/crm/0", "telemetry/lake/0", "telemetry/alarms/0"} {
		w.own(p, "web-1-4711-K7QX2MNP")
	}
	return w
}

// serve starts the admin listener.
func (w *world) serve(desk admin.Desk) {
	w.Helper()
	server, err := admin.New(admin.Options{
		Address: "127.0.0.1:0",
		Read:    func() ([]string, error) { return []string{readToken}, nil },
		Operate: func() ([]string, error) { return []string{operateToken}, nil },
		Desk:    desk,
		Config:  func() string { return configText },
		Console: console.New,
	})
	w.must(err)
	w.must(server.Listen(w.Context()))
	w.url = server.URL()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("the server ended with %v", err)
		}
	})
	w.Cleanup(w.stop)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func token(owner string) gobridge.Token { return gobridge.Token{Owner: owner, Version: 1} }

func (w *world) own(p gobridge.Partition, owner string) {
	w.Helper()
	_, err := w.store.Leases().Acquire(w.Context(), gobridge.AcquireRequest{Partition: p, Owner: owner, Term: time.Hour})
	w.must(err)
}

// persist stores messages, the state and error of each as change says.
func (w *world) persist(p gobridge.Partition, n int, prefix string, change func(i int, r *gobridge.Record)) {
	w.Helper()
	_, binding, _, _ := p.Split()
	for from := 0; from < n; from += 500 {
		var batch []gobridge.Record
		for i := from; i < min(n, from+500); i++ {
			r := gobridge.Record{Partition: p, Binding: binding, Envelope: messaging.Envelope{
				ID: fmt.Sprintf("%s-%05d", prefix, i), OrderingKey: fmt.Sprintf("cust-%d", i%97), ContentType: "application/json",
				Subject: "order.placed", Headers: messaging.Headers{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
				Payload: fmt.Appendf(nil, `{"order":%d,"customer":"cust-%d","lines":[{"sku":"A-17","count":2},{"sku":"B-4","count":1}],"total":"129.90"}`, i, i%97),
			}}
			if change != nil {
				change(i, &r)
			}
			batch = append(batch, r)
		}
		w.must(w.store.Persist(w.Context(), batch))
	}
}

func died(reason, text string) func(int, *gobridge.Record) {
	return func(_ int, r *gobridge.Record) {
		r.State, r.Reason, r.Error = gobridge.StateDead, reason, text
		r.Attempts = 20
	}
}

// down makes a destination take nothing, as its owner reports it.
func (w *world) down(p gobridge.Partition, text string) {
	w.Helper()
	now := time.Now()
	owner := token("web-1-4711-K7QX2MNP")
	_, err := w.store.Claim(w.Context(), gobridge.ClaimRequest{Partition: p, Token: owner, Limit: 1, HeldKnown: true})
	w.must(err)
	w.must(w.store.Report(w.Context(), p, owner, gobridge.Condition{Down: true, Since: now.Add(-42 * time.Minute), Error: text, NextProbe: now.Add(14 * time.Second)}))
}

// trouble makes a bad night: a destination that is down, halted keys, a removed
// binding, a partition without an owner, and dead letters.
func (w *world) trouble() {
	w.Helper()
	w.persist("orders/crm/0", 1214, "ord", nil)
	w.down("orders/crm/0", "POST https://crm.example.com/h: 401 Unauthorized")
	for shard := range 4 {
		w.persist(gobridge.NewShard("orders", "billing", shard, 4), 120, fmt.Sprintf("bill-%d", shard), nil)
	}
	who := gobridge.Control{Kind: gobridge.Halt, Route: "orders", Binding: "billing", By: "", Reason: "permanent: 422 Unprocessable: unknown sku B-4"}
	for i := range 3 {
		who.OrderingKey = fmt.Sprintf("cust-%d", i+7)
		w.must(w.store.SetControl(w.Context(), who))
	}
	w.persist("telemetry/lake/0", 40, "tel", died(gobridge.ReasonExhausted, "kafka: topic telemetry: not enough replicas"))
	w.persist("telemetry/lake/0", 12, "old", died(gobridge.ReasonPermanent, "kafka: message too large: 1200034 bytes"))
	w.must(w.store.SetControl(w.Context(), gobridge.Control{Kind: gobridge.Pause, Route: "telemetry", Binding: "alarms", By: "ann (operate token)", Reason: "ops moves its webhook, until 4 o'clock"}))
	w.persist("telemetry/alarms/0", 9, "alarm", nil)
}

// fullNight is ten thousand dead letters and three hundred halted keys, and traffic
// that goes on.
func (w *world) fullNight() {
	w.Helper()
	w.persist("telemetry/lake/0", 8800, "tel", died(gobridge.ReasonExhausted, "kafka: topic telemetry: not enough replicas"))
	w.persist("orders/billing/1of4", 1200, "bill", died(gobridge.ReasonPermanent, "422 Unprocessable: unknown sku B-4"))
	for i := range 300 {
		w.must(w.store.SetControl(w.Context(), gobridge.Control{
			Kind: gobridge.Halt, Route: "orders", Binding: "billing", OrderingKey: fmt.Sprintf("cust-%d", i), Reason: "permanent: 422 Unprocessable: unknown sku B-4",
		}))
	}
	w.must(w.store.SetControl(w.Context(), gobridge.Control{Kind: gobridge.Pause, Route: "telemetry", By: "bo (operate token)", Reason: "the plant is being moved"}))
	w.persist("orders/crm/0", 4000, "ord", nil)
}

// traffic delivers some messages and stores some.
func (w *world) traffic(round int) {
	w.Helper()
	came := []int{120, 90, 160, 240, 200, 60}[round%6]
	w.persist("orders/crm/0", came, fmt.Sprintf("new-%d", round), nil)
	owner := token("web-1-4711-K7QX2MNP")
	claimed, err := w.store.Claim(w.Context(), gobridge.ClaimRequest{Partition: "orders/crm/0", Token: owner, Limit: []int{200, 320, 280, 90, 150, 380}[round%6], HeldKnown: true})
	w.must(err)
	var completions []gobridge.Completion
	for i := range claimed {
		completions = append(completions, gobridge.Completion{Ref: claimed[i].Ref()})
	}
	w.must(w.store.Complete(w.Context(), owner, completions))
}
