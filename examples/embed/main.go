// Command orders is a small service that embeds gobridge: an order and the
// message that it has been placed are committed together, in the service's own
// SQLite database, and the message is delivered afterwards, at least once and in
// order per customer, whenever the process may have died.
//
//	go run . -db orders.db
//	curl -i http://127.0.0.1:8081/orders -d '{"id":"o-1","customer":"ann","cents":1250}'
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/store/sqlite"
)

func main() {
	path := flag.String("db", "orders.db", "the database file")
	listen := flag.String("listen", "127.0.0.1:8081", "where to listen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *path, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path, listen string) (err error) {
	db, err := open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, store.Close()) }()

	b, err := bridge.New(store, bridge.Options{Routes: routes(printMail), Logger: slog.Default()})
	if err != nil {
		return err
	}
	service := &Service{store: store, orders: b.Route("orders")}
	server := &http.Server{Addr: listen, Handler: service.handler(), ReadHeaderTimeout: 5 * time.Second}

	// The drainer stops after the server, so that what the last requests placed
	// may still go out.
	draining, stopDraining := context.WithCancel(context.WithoutCancel(ctx))
	var drained error
	var running sync.WaitGroup
	running.Go(func() { drained = b.Run(draining) })
	err = serve(ctx, server)
	stopDraining()
	running.Wait()
	return cmp.Or(err, drained)
}

// serve serves until ctx ends.
func serve(ctx context.Context, server *http.Server) error {
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// printMail stands for sending a mail.
func printMail(_ context.Context, d gobridge.Delivery) error {
	fmt.Printf("mail to %s (attempt %d): %s\n", d.Envelope.OrderingKey, d.Attempt, d.Envelope.Payload)
	return nil
}
