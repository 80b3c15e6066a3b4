// Package drivers proves the store on SQLite drivers other than its own. Each
// has a package for itself, for two of them claim the same name.
package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// Run opens a database without any settings and then with those that the error
// says, and has goroutines publish in transactions while a bridge drains.
func Run(t *testing.T, open func(dsn string) (*sql.DB, error)) {
	path := filepath.Join(t.TempDir(), "service.db")
	db := must(open("file:" + path))(t)
	_, err := sqlite.Open(t.Context(), db, sqlite.Options{})
	if err == nil {
		t.Fatal("a database without settings was taken")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	_, dsn, _ := strings.Cut(err.Error(), `open it as "`)
	dsn, _, _ = strings.Cut(dsn, `"`)
	if dsn == "" {
		t.Fatalf("the error says nothing of how to open it: %v", err)
	}
	t.Logf("told to open it as %s", dsn)
	db = must(open(dsn))(t)
	defer func() { _ = db.Close() }()
	store := must(sqlite.Open(t.Context(), db, sqlite.Options{}))(t)
	defer func() { _ = store.Close() }()
	publishWhileDraining(t, store)
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func publishWhileDraining(t *testing.T, store *sqlite.Store) {
	const publishers, each, payload = 8, 20, "\x00\xff'"
	var mu sync.Mutex
	got := map[string]int{} // by key, the last one
	send := func(_ context.Context, d gobridge.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if string(d.Envelope.Payload) != payload {
			t.Errorf("payload %q, want %q", d.Envelope.Payload, payload)
		}
		if want := fmt.Sprint(d.Envelope.OrderingKey, "-", got[d.Envelope.OrderingKey]); d.Envelope.ID != want {
			t.Errorf("delivered %s, want %s", d.Envelope.ID, want)
		}
		got[d.Envelope.OrderingKey]++
		return nil
	}
	b := must(bridge.New(store, bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{
		{Name: "b", Sender: gobridge.HandlerFunc(send)},
	}}}}))(t)
	publish := func(key string, i int, text string) error {
		return store.InTx(t.Context(), func(tx *sql.Tx) error {
			return store.PublishTx(t.Context(), tx, b.Route("r"),
				messaging.Envelope{ID: fmt.Sprint(key, "-", i), OrderingKey: key, Payload: []byte(text)})
		})
	}
	var all sync.WaitGroup
	for g := range publishers {
		all.Go(func() {
			for i := range each {
				if err := publish(fmt.Sprint(g), i, payload); err != nil {
					t.Error(err)
				}
			}
		})
	}
	drain := func() {
		if err := b.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
	drain()
	all.Wait()
	drain()
	for g := range publishers {
		if n := got[fmt.Sprint(g)]; n != each {
			t.Errorf("%d messages of key %d arrived, want %d", n, g, each)
		}
	}
	if err := publish("0", 0, "other"); !errors.Is(err, gobridge.ErrIdentityReused) {
		t.Errorf("other content under a used ID: %v", err)
	}
}
