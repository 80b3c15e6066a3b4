package mill_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
	mill "gobridge/watermill"
)

// settings are what gobridge asks of a database that it shares.
const settings = "?_txlock=immediate&_pragma=busy_timeout(10000)" +
	"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"

// A service writes an order and publishes with Watermill in one transaction: the
// message goes out if, and only if, the order is there.
func Example() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
	// Output: order-placed o-1 for ann: {"id":"o-1"}
}

func run() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	folder, err := os.MkdirTemp("", "mill")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := sql.Open("sqlite", filepath.Join(folder, "orders.db")+settings)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY)"); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()

	// Where it goes: any publisher of Watermill.
	channel := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	defer func() { _ = channel.Close() }()
	arrived, err := channel.Subscribe(ctx, "order-placed")
	if err != nil {
		return err
	}
	sender, err := mill.NewSender(channel, mill.SenderOptions{})
	if err != nil {
		return err
	}
	b, err := bridge.New(store, bridge.Options{
		Routes: []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{Name: "channel", Sender: sender}}}},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()

	err = store.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('o-1')"); err != nil {
			return err
		}
		publisher, err := mill.NewPublisher(func(ctx context.Context, all ...messaging.Envelope) error {
			return store.PublishTx(ctx, tx, b.Route("orders"), all...)
		}, mill.PublisherOptions{})
		if err != nil {
			return err
		}
		m := message.NewMessage("o-1", []byte(`{"id":"o-1"}`))
		m.Metadata.Set("gobridge-ordering-key", "ann")
		return publisher.Publish("order-placed", m)
	})
	if err != nil {
		return err
	}
	m := <-arrived
	fmt.Printf("order-placed %s for %s: %s\n", m.UUID, m.Metadata.Get("gobridge-ordering-key"), m.Payload)
	m.Ack()
	stop()
	return <-ended
}
