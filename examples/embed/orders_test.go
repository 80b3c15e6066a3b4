package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/bridgetest"
	"gobridge/store/sqlite"
)

// newService returns the service on a new database, with its routes in the
// test's hands.
func newService(t *testing.T) (*Service, *bridgetest.Harness, *sql.DB) {
	db, err := open(t.Context(), filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	clock := bridgetest.NewClock()
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(store.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	h := bridgetest.NewWithClock(t, store, routes(nil), clock)
	return &Service{store: store, orders: h.Route("orders")}, h, db
}

func TestMailIsSentAgain(t *testing.T) {
	service, h, _ := newService(t)
	if err := service.Place(t.Context(), Order{ID: "o-1", Customer: "ann", Cents: 100}); err != nil {
		t.Fatal(err)
	}
	h.Fail("mail", errors.New("mailbox busy"))
	h.Drain()
	h.RequireDelivered("mail", 0)
	h.Advance(time.Minute)
	h.RequireDelivered("mail", 1)
}

func TestAnOrderThatCannotBeStoredIsNotMailed(t *testing.T) {
	service, h, db := newService(t)
	if _, err := db.Exec(`CREATE TRIGGER no BEFORE INSERT ON orders BEGIN SELECT raise(ABORT, 'no'); END`); err != nil {
		t.Fatal(err)
	}
	if err := service.Place(t.Context(), Order{ID: "o-1", Customer: "ann"}); err == nil {
		t.Error("the order was placed")
	}
	h.Drain()
	h.RequireAttempts("mail", 0)
	h.RequireEmpty()
}

func TestHTTP(t *testing.T) {
	service, h, _ := newService(t)
	handler := service.handler()
	for _, c := range []struct {
		body string
		want int
	}{
		{`{"id":"o-1","customer":"ann","cents":100}`, http.StatusCreated},
		{`{"id":"o-1","customer":"ann","cents":100}`, http.StatusCreated}, // once more
		{`{"id":"o-1","customer":"ann","cents":999}`, http.StatusConflict},
		{`{"id":"o-2"}`, http.StatusBadRequest},
		{`{`, http.StatusBadRequest},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader(c.body)))
		if w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.body, w.Code, w.Body, c.want)
		}
	}
	h.Drain()
	h.RequireDelivered("mail", 1)
}

// TestRun places orders while the whole service runs, and stops it.
func TestRun(t *testing.T) {
	db, err := open(t.Context(), filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mails := make(chan gobridge.Delivery)
	b, err := bridge.New(store, bridge.Options{Routes: routes(func(_ context.Context, d gobridge.Delivery) error {
		mails <- d
		return nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	service := &Service{store: store, orders: b.Route("orders")}
	for _, o := range placed {
		if err := service.Place(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if d := <-mails; d.Envelope.ID != "order-placed-"+o.ID {
			t.Errorf("mail about %s, want %s", d.Envelope.ID, o.ID)
		}
	}
	stop()
	if err := errors.Join(<-ran, store.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}
