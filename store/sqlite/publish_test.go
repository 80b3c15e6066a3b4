package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// foreignDB opens a service's own database as the store wants it, with a table
// of orders.
func foreignDB(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	if _, err := db.ExecContext(context.Background(), "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)"); err != nil {
		tb.Fatal(err)
	}
	return db
}

// publisher is a store in a service's database, and a route.
type publisher struct {
	*testing.T
	path  string
	db    *sql.DB
	store *sqlite.Store
	route *bridge.RouteHandle
}

func newPublisher(t *testing.T) *publisher {
	path := newPath(t)
	p := &publisher{T: t, path: path, db: foreignDB(t, path)}
	p.store = p.open(p.db)
	p.route = p.bridge(p.store).Route("orders")
	return p
}

func (p *publisher) open(db *sql.DB) *sqlite.Store {
	p.Helper()
	store, err := sqlite.Open(p.Context(), db, sqlite.Options{})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := store.Close(); err != nil {
			p.Error(err)
		}
	})
	return store
}

// bridge has a route with two bindings, of which other takes only what is urgent.
func (p *publisher) bridge(store *sqlite.Store) *bridge.Bridge {
	p.Helper()
	take := gobridge.HandlerFunc(func(context.Context, gobridge.Delivery) error { return nil })
	b, err := bridge.New(store, bridge.Options{Routes: []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{
		{Name: "mail", Sender: take},
		{Name: "other", Sender: take, Filter: func(e *messaging.Envelope) (bool, error) {
			if e.Subject == "broken" {
				return false, errors.New("no such field")
			}
			return e.Subject == "urgent", nil
		}},
	}}}})
	if err != nil {
		p.Fatal(err)
	}
	return b
}

func order(id string) messaging.Envelope {
	return messaging.Envelope{ID: id, OrderingKey: "ann", Payload: []byte("order " + id)}
}

// has reports whether the store has a message for a binding.
func (p *publisher) has(id, binding string) bool {
	p.Helper()
	_, err := p.store.Get(p.Context(), gobridge.Ref{
		Partition: gobridge.NewPartition("orders", binding, 0), EnvelopeID: id, Binding: binding})
	if err != nil && !errors.Is(err, gobridge.ErrNotFound) {
		p.Fatal(err)
	}
	return err == nil
}

// want checks which of the messages 1 to 9 the store has for mail, and that the
// orders of the same numbers are there.
func (p *publisher) want(ids string) {
	p.Helper()
	var orders string
	if err := p.db.QueryRowContext(p.Context(),
		"SELECT coalesce(group_concat(id, ''), '') FROM (SELECT id FROM orders ORDER BY id)").Scan(&orders); err != nil {
		p.Fatal(err)
	}
	messages := ""
	for _, id := range strings.Split("123456789", "") {
		if p.has(id, "mail") {
			messages += id
		}
	}
	if orders != ids || messages != ids {
		p.Errorf("orders %q and messages %q, want %q of both", orders, messages, ids)
	}
}

// place inserts an order and publishes its message.
func (p *publisher) place(tx sqlite.Execer, id string) error {
	if _, err := tx.ExecContext(p.Context(), "INSERT INTO orders (id) VALUES (?)", id); err != nil {
		return err
	}
	return p.store.PublishTx(p.Context(), tx, p.route, order(id))
}

func (p *publisher) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func TestPublishTxSharesTheFateOfTheTransaction(t *testing.T) {
	p := newPublisher(t)
	refused := errors.New("refused")
	p.must(p.store.InTx(t.Context(), func(tx *sql.Tx) error { return p.place(tx, "1") }))
	err := p.store.InTx(t.Context(), func(tx *sql.Tx) error {
		p.must(p.place(tx, "2"))
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("the error of the function came back as %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic in the function was swallowed")
			}
		}()
		_ = p.store.InTx(t.Context(), func(tx *sql.Tx) error {
			p.must(p.place(tx, "3"))
			panic("half-way")
		})
	}()
	p.want("1")

	tx, err := p.db.BeginTx(t.Context(), nil)
	p.must(err)
	p.must(p.place(tx, "4"))
	p.must(tx.Rollback())
	tx, err = p.db.BeginTx(t.Context(), nil)
	p.must(err)
	exec := func(query string) {
		t.Helper()
		if _, err := tx.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	p.must(p.place(tx, "5"))
	exec("SAVEPOINT mine")
	p.must(p.place(tx, "6"))
	exec("ROLLBACK TO mine")
	p.must(p.place(tx, "7"))
	exec("RELEASE mine")
	p.must(p.place(tx, "8"))
	p.must(tx.Commit())
	p.want("1578")
}

// What was rolled back must not leave a gap that later messages fall into.
func TestPublishTxKeepsOrderAcrossRollbacks(t *testing.T) {
	p := newPublisher(t)
	for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
		err := p.store.InTx(t.Context(), func(tx *sql.Tx) error {
			p.must(p.place(tx, id))
			if id == "1" || id == "4" {
				return errors.New("no")
			}
			return nil
		})
		if (err != nil) != (id == "1" || id == "4") {
			t.Fatal(err)
		}
	}
	got, err := p.store.Claim(t.Context(), gobridge.ClaimRequest{
		Partition: gobridge.NewPartition("orders", "mail", 0), Token: gobridge.Token{Owner: "me", Version: 1}, Limit: 10})
	p.must(err)
	ids := ""
	for _, r := range got {
		ids += r.Envelope.ID
	}
	if ids != "2356" {
		t.Errorf("claimed %q, want 2356", ids)
	}
}

func TestPublishTxAsksTheRoute(t *testing.T) {
	p := newPublisher(t)
	urgent := order("2")
	urgent.Subject = "urgent"
	p.must(p.store.InTx(t.Context(), func(tx *sql.Tx) error {
		return p.store.PublishTx(t.Context(), tx, p.route, order("1"), urgent)
	}))
	if p.has("1", "other") || !p.has("2", "other") || !p.has("1", "mail") || !p.has("2", "mail") {
		t.Error("the messages did not go to the bindings that take them")
	}
	broken := order("3")
	broken.Subject = "broken"
	err := p.store.InTx(t.Context(), func(tx *sql.Tx) error {
		return p.store.PublishTx(t.Context(), tx, p.route, order("4"), broken)
	})
	if !errors.Is(err, gobridge.ErrRejected) || p.has("4", "mail") {
		t.Errorf("with a message that the route rejects: %v, and the one beside it is there: %v", err, p.has("4", "mail"))
	}
	p.must(p.store.InTx(t.Context(), func(tx *sql.Tx) error { return p.store.PublishTx(t.Context(), tx, p.route) }))
}

func TestPublishTxOfARepeat(t *testing.T) {
	p := newPublisher(t)
	for range 2 { // the second time a repeat of all
		p.must(p.store.InTx(t.Context(), func(tx *sql.Tx) error {
			return p.store.PublishTx(t.Context(), tx, p.route, order("1"), order("2"))
		}))
	}
	p.must(p.store.InTx(t.Context(), func(tx *sql.Tx) error { // one of two is new
		return p.store.PublishTx(t.Context(), tx, p.route, order("2"), order("3"))
	}))
	if !p.has("3", "mail") {
		t.Error("a new message beside a repeat was not stored")
	}
	other := order("1")
	other.Payload = []byte("another order")
	tx, err := p.db.BeginTx(t.Context(), nil)
	p.must(err)
	if err := p.store.PublishTx(t.Context(), tx, p.route, other); !errors.Is(err, gobridge.ErrIdentityReused) {
		t.Errorf("other content under a used ID: %v", err)
	}
	p.must(p.place(tx, "4")) // the transaction is good for more
	p.must(tx.Commit())
	if !p.has("4", "mail") {
		t.Error("what followed a refusal was not stored")
	}
}

// Watchers hear of a commit through InTx, of one that the store knows nothing
// of, and of one by another process; of a rollback they need not.
func TestCommitsAreNoticed(t *testing.T) {
	p := newPublisher(t)
	heard := make(chan gobridge.Partition, 100)
	stop := p.store.Notify(func(partition gobridge.Partition) {
		select {
		case heard <- partition:
		default:
		}
	})
	defer stop()
	another := foreignDB(t, p.path)
	anotherStore := p.open(another)

	commits := []struct {
		name   string
		commit func() error
	}{
		{"InTx", func() error {
			return p.store.InTx(t.Context(), func(tx *sql.Tx) error { return p.place(tx, "1") })
		}},
		{"the service's own transaction", func() error {
			tx, err := p.db.BeginTx(t.Context(), nil)
			p.must(err)
			p.must(p.place(tx, "2"))
			return tx.Commit()
		}},
		{"another process", func() error {
			records, err := p.route.Records(order("3"))
			p.must(err)
			return anotherStore.Persist(t.Context(), records)
		}},
		{"another process's transaction", func() error {
			tx, err := another.BeginTx(t.Context(), nil)
			p.must(err)
			p.must(p.place(tx, "4"))
			return tx.Commit()
		}},
	}
	for _, c := range commits {
		for len(heard) > 0 {
			<-heard
		}
		p.must(c.commit())
		select {
		case <-heard:
		case <-time.After(time.Minute):
			t.Fatalf("%s: nobody was told", c.name)
		}
	}
}

func TestPublishTxIsDelivered(t *testing.T) {
	p := newPublisher(t)
	got := make(chan string)
	b, err := bridge.New(p.store, bridge.Options{
		Routes: []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{
			Name: "mail",
			Sender: gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
				got <- d.Envelope.ID
				return nil
			}),
		}}}},
	})
	p.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	for _, id := range []string{"1", "2", "3"} {
		p.must(p.store.InTx(t.Context(), func(tx *sql.Tx) error { return p.place(tx, id) }))
		if delivered := <-got; delivered != id {
			t.Errorf("delivered %s, want %s", delivered, id)
		}
	}
	cancel()
	p.must(<-ran)
}

var _ sqlite.Route = (*bridge.RouteHandle)(nil)
