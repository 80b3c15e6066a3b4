package ormtest

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite"

	"gobridge"
	"gobridge/bridge"
	"gobridge/bridgetest"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// Order is the business row.
type Order struct {
	ID string `gorm:"primaryKey" bun:"id,pk"`
}

// transaction is one of a library's, begun.
type transaction struct {
	handle     sqlite.Execer
	insert     func(id string) error
	savepoint  func() error
	rollbackTo func() error
	commit     func() error
	rollback   func() error
}

// raw are savepoints by statement.
func raw(tx transaction) transaction {
	exec := func(query string) func() error {
		return func() error {
			_, err := tx.handle.ExecContext(context.Background(), query)
			return err
		}
	}
	tx.savepoint, tx.rollbackTo = exec("SAVEPOINT mine"), exec("ROLLBACK TO mine")
	return tx
}

// libraries begin a transaction each.
var libraries = map[string]func(ctx context.Context, db *sql.DB) (transaction, error){
	"database/sql": func(ctx context.Context, db *sql.DB) (transaction, error) {
		tx, err := db.BeginTx(ctx, nil)
		return raw(transaction{
			handle: tx,
			insert: func(id string) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", id)
				return err
			},
			commit: tx.Commit, rollback: tx.Rollback,
		}), err
	},
	"sql.Conn": func(ctx context.Context, db *sql.DB) (transaction, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return transaction{}, err
		}
		exec := func(query string, args ...any) error {
			_, err := conn.ExecContext(ctx, query, args...)
			return err
		}
		end := func(query string) func() error {
			return func() error { return errors.Join(exec(query), conn.Close()) }
		}
		return raw(transaction{
			handle: conn,
			insert: func(id string) error { return exec("INSERT INTO orders (id) VALUES (?)", id) },
			commit: end("COMMIT"), rollback: end("ROLLBACK"),
		}), exec("BEGIN IMMEDIATE")
	},
	"sqlx": func(ctx context.Context, db *sql.DB) (transaction, error) {
		tx, err := sqlx.NewDb(db, "sqlite").BeginTxx(ctx, nil)
		return raw(transaction{
			handle: tx,
			insert: func(id string) error {
				_, err := tx.NamedExecContext(ctx, "INSERT INTO orders (id) VALUES (:id)", Order{ID: id})
				return err
			},
			commit: tx.Commit, rollback: tx.Rollback,
		}), err
	},
	"gorm":          gormOf(&gorm.Config{}),
	"gorm prepared": gormOf(&gorm.Config{PrepareStmt: true}),
	"bun": func(ctx context.Context, db *sql.DB) (transaction, error) {
		tx, err := bun.NewDB(db, sqlitedialect.New()).BeginTx(ctx, nil)
		var nested bun.Tx
		return transaction{
			handle: tx.Tx, // not tx itself, which has placeholders of its own
			insert: func(id string) error {
				_, err := tx.NewInsert().Model(&Order{ID: id}).Exec(ctx)
				return err
			},
			savepoint:  func() (err error) { nested, err = tx.BeginTx(ctx, nil); return err },
			rollbackTo: func() error { return nested.Rollback() },
			commit:     tx.Commit, rollback: tx.Rollback,
		}, err
	},
}

func gormOf(config *gorm.Config) func(ctx context.Context, db *sql.DB) (transaction, error) {
	return func(ctx context.Context, db *sql.DB) (transaction, error) {
		orm, err := gorm.Open(gormsqlite.Dialector{Conn: db}, config)
		if err != nil {
			return transaction{}, err
		}
		tx := orm.WithContext(ctx).Begin()
		return transaction{
			handle:     tx.Statement.ConnPool,
			insert:     func(id string) error { return tx.Create(&Order{ID: id}).Error },
			savepoint:  func() error { return tx.SavePoint("mine").Error },
			rollbackTo: func() error { return tx.RollbackTo("mine").Error },
			commit:     func() error { return tx.Commit().Error },
			rollback:   func() error { return tx.Rollback().Error },
		}, tx.Error
	}
}

// world is a service's database with a store in it.
type world struct {
	*testing.T
	db    *sql.DB
	store *sqlite.Store
	h     *bridgetest.Harness
}

func newWorld(t *testing.T) *world {
	path := filepath.Join(t.TempDir(), "service.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY)"); err != nil {
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
	routes := []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{Name: "mail"}, {Name: "bill"}}}}
	return &world{t, db, store, bridgetest.NewWithClock(t, store, routes, clock)}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// message has every byte that a library might mistake for something of its own.
func message(id string) messaging.Envelope {
	return messaging.Envelope{
		ID: id, OrderingKey: "k?1 $1 :id '", Subject: "order.placed ?", ContentType: "text/plain",
		Headers: messaging.Headers{"a?": "\x00'\"{}"}, Payload: []byte("?1 \x00\xff ' \" :x $2 @p {}"),
	}
}

// publish inserts an order and publishes the message about it.
func (w *world) publish(tx transaction, id string) {
	w.Helper()
	w.must(tx.insert(id))
	w.must(w.store.PublishTx(w.Context(), tx.handle, w.h.Route("orders"), message(id)))
}

// want checks which orders are there, and that the same messages arrive, whole.
func (w *world) want(ids ...string) {
	w.Helper()
	var orders string
	w.must(w.db.QueryRow("SELECT coalesce(group_concat(id), '') FROM (SELECT id FROM orders ORDER BY id)").Scan(&orders))
	if want := strings.Join(ids, ","); orders != want {
		w.Errorf("the orders are %q, want %q", orders, want)
	}
	w.h.Drain()
	for i, d := range w.h.RequireDelivered("mail", len(ids)) {
		want := message(ids[i])
		got := d.Envelope
		if got.ID != want.ID || got.OrderingKey != want.OrderingKey || got.Subject != want.Subject ||
			string(got.Payload) != string(want.Payload) || got.Headers["a?"] != want.Headers["a?"] {
			w.Errorf("delivered %+v, want %+v", got, want)
		}
	}
	w.h.RequireDelivered("bill", len(ids))
	w.h.RequireEmpty()
}

func TestPublishTxInTheTransactionsOfLibraries(t *testing.T) {
	for name, begin := range libraries {
		start := func(t *testing.T) (*world, transaction) {
			w := newWorld(t)
			tx, err := begin(t.Context(), w.db)
			w.must(err)
			return w, tx
		}
		t.Run(name+"/commit", func(t *testing.T) {
			w, tx := start(t)
			w.publish(tx, "1")
			w.publish(tx, "2")
			w.must(tx.commit())
			w.want("1", "2")
		})
		t.Run(name+"/rollback", func(t *testing.T) {
			w, tx := start(t)
			w.publish(tx, "1")
			w.must(tx.rollback())
			w.want()
		})
		t.Run(name+"/savepoint", func(t *testing.T) {
			w, tx := start(t)
			w.publish(tx, "1")
			w.must(tx.savepoint())
			w.publish(tx, "2")
			w.must(tx.rollbackTo())
			w.publish(tx, "3")
			w.must(tx.commit())
			w.want("1", "3")
		})
		t.Run(name+"/failure leaves the rest", func(t *testing.T) {
			w, tx := start(t)
			w.publish(tx, "1")
			reused := message("1")
			reused.Payload = []byte("something else")
			if err := w.store.PublishTx(t.Context(), tx.handle, w.h.Route("orders"), reused); !errors.Is(err, gobridge.ErrIdentityReused) {
				t.Errorf("other content under the same ID: %v", err)
			}
			w.must(w.store.PublishTx(t.Context(), tx.handle, w.h.Route("orders"), message("1"))) // again
			w.must(tx.commit())
			w.want("1")
		})
	}
}

// A handle that puts arguments into the text of a query is refused, and what is
// said then is what to hand over instead.
func TestHandleWithPlaceholdersOfItsOwn(t *testing.T) {
	w := newWorld(t)
	tx, err := bun.NewDB(w.db, sqlitedialect.New()).BeginTx(t.Context(), nil)
	w.must(err)
	err = w.store.PublishTx(t.Context(), tx, w.h.Route("orders"), message("1"))
	t.Log(err)
	if err == nil || !strings.Contains(err.Error(), "*sql.Tx") {
		t.Errorf("a bun.Tx itself: %v", err)
	}
	w.must(tx.Rollback())
	w.want()
}
