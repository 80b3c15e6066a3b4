package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	_ "modernc.org/sqlite" // the driver

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// settings are what gobridge asks of a database that it shares.
const settings = "?_txlock=immediate&_pragma=busy_timeout(10000)" +
	"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"

const (
	createOrders = `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL)`
	insertOrder  = `INSERT INTO orders (id, customer, cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
)

// open opens the service's database.
func open(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+settings)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, createOrders)
	return db, err
}

// Order is what customers place.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// routes are the service's: who is told of an order.
func routes(sendMail gobridge.HandlerFunc) []bridge.Route {
	return []bridge.Route{{
		Name: "orders",
		Bindings: []bridge.Binding{{
			Name:   "mail",
			Sender: sendMail,
			Retry:  bridge.Retry{Attempts: 20, MinBackoff: time.Second, MaxBackoff: time.Hour},
		}},
	}}
}

// Service takes orders.
type Service struct {
	store  *sqlite.Store
	orders sqlite.Route
}

// Place stores an order and the message about it, both or neither. Placing the
// same order again changes nothing.
func (s *Service) Place(ctx context.Context, o Order) error {
	return s.store.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertOrder, o.ID, o.Customer, o.Cents); err != nil {
			return err
		}
		msg, err := messaging.JSON("order.placed", o)
		if err != nil {
			return err
		}
		msg.ID = "order-placed-" + o.ID // the same whenever this order is placed again
		msg.OrderingKey = o.Customer
		return s.store.PublishTx(ctx, tx, s.orders, msg)
	})
}

func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o Order
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&o)
		if err != nil || o.ID == "" || o.Customer == "" {
			http.Error(w, "an order has id, customer and cents", http.StatusBadRequest)
			return
		}
		switch err := s.Place(r.Context(), o); {
		case errors.Is(err, gobridge.ErrIdentityReused):
			http.Error(w, "another order has this id", http.StatusConflict)
		case err != nil:
			http.Error(w, "the order could not be stored; try again", http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	})
	return mux
}
