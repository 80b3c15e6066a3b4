package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// committers is how many goroutines commit the service's transactions.
const committers = 16

// shop is a service with transactions of its own.
type shop struct {
	db     *sql.DB
	store  *sqlite.Store
	bridge *bridge.Bridge
	orders *bridge.RouteHandle
	n      atomic.Int64
}

func newShop(tb testing.TB) *shop {
	s := &shop{db: foreignDB(tb, filepath.Join(tb.TempDir(), "shop.db"))}
	var err error
	if s.store, err = sqlite.Open(context.Background(), s.db, sqlite.Options{}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			tb.Error(err)
		}
	})
	s.bridge, err = bridge.New(s.store, bridge.Options{Routes: []bridge.Route{{Name: "orders", Bindings: []bridge.Binding{{
		Name: "mail", Sender: gobridge.HandlerFunc(func(context.Context, gobridge.Delivery) error { return nil }),
	}}}}})
	if err != nil {
		tb.Fatal(err)
	}
	s.orders = s.bridge.Route("orders")
	return s
}

// place commits an order and its message, in a transaction of the store's or of
// the service's own making.
func (s *shop) place(ctx context.Context, own bool) error {
	n := s.n.Add(1)
	f := func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", n); err != nil {
			return err
		}
		return s.store.PublishTx(ctx, tx, s.orders, messaging.Envelope{
			ID: messaging.NewID(), OrderingKey: fmt.Sprint("customer-", n%1000), Payload: make([]byte, 256),
		})
	}
	if !own {
		return s.store.InTx(ctx, f)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect once committed
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// placeMany has the committers place n orders, and returns how many a second.
func (s *shop) placeMany(tb testing.TB, n int, own bool) float64 {
	began := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	for range committers {
		all.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := s.place(context.Background(), own); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(n) / time.Since(began).Seconds()
}

// waiting is how many records have not ended.
func (s *shop) waiting(tb testing.TB) float64 {
	stats, err := s.store.Stats(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	var n int64
	for _, p := range stats {
		n += p.Pending + p.Claimed
	}
	return float64(n)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkUserTransactions has 16 goroutines commit transactions of a service
// that publish a message each, by turns with nobody draining and with a drainer
// in the process. It reports the rates of both, their ratio, and how many
// messages wait halfway through the drained turns and at their end: medians of
// the turns.
//
//	go test -run '^$' -bench UserTransactions -benchtime 20000x ./store/sqlite
func BenchmarkUserTransactions(b *testing.B) {
	b.Run("InTx", func(b *testing.B) { userTransactions(b, false) })
	b.Run("BeginTx", func(b *testing.B) { userTransactions(b, true) })
}

func userTransactions(b *testing.B, own bool) {
	const turns = 10
	n := max(b.N/turns, committers)
	alone, drained := newShop(b), newShop(b)
	var rates, drainedRates, ratios, half, end []float64
	b.ResetTimer()
	for range turns {
		one := alone.placeMany(b, n, own)

		ctx, stop := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- drained.bridge.Run(ctx) }()
		first := drained.placeMany(b, n/2, own)
		half = append(half, drained.waiting(b))
		second := drained.placeMany(b, n/2, own)
		end = append(end, drained.waiting(b))
		stop()
		if err := <-ran; err != nil {
			b.Fatal(err)
		}
		both := 2 / (1/first + 1/second)
		rates, drainedRates, ratios = append(rates, one), append(drainedRates, both), append(ratios, both/one)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(rates), "alone-tx/s")
	b.ReportMetric(median(drainedRates), "drained-tx/s")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(half), "waiting-half")
	b.ReportMetric(median(end), "waiting-end")
}

// BenchmarkForeignCommit measures how long after the commit of another process
// the drainers of this one are told.
//
//	go test -run '^$' -bench ForeignCommit -benchtime 1000x ./store/sqlite
func BenchmarkForeignCommit(b *testing.B) {
	path := filepath.Join(b.TempDir(), "shop.db")
	here := openStore(b, path, sqlite.Options{})
	there := openStore(b, path, sqlite.Options{})
	told := make(chan time.Time, 1)
	defer here.Notify(func(gobridge.Partition) {
		select {
		case told <- time.Now():
		default:
		}
	})()
	time.Sleep(20 * time.Millisecond) // the first look
	var waits []float64
	for i := range b.N {
		for len(told) > 0 {
			<-told
		}
		record := gobridge.Record{Partition: "orders/mail/0", Binding: "mail", Envelope: messaging.Envelope{ID: fmt.Sprint(i)}}
		if err := there.Persist(context.Background(), []gobridge.Record{record}); err != nil {
			b.Fatal(err)
		}
		committed := time.Now()
		waits = append(waits, max(0, float64((<-told).Sub(committed).Microseconds())/1000))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(waits), "median-ms")
	b.ReportMetric(waits[len(waits)*99/100], "p99-ms")
	b.ReportMetric(waits[len(waits)-1], "max-ms")
}
