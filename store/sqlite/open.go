package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"gobridge"
)

// Store is an outbox in a SQLite database. It is a [gobridge.Notifier] and a
// [gobridge.Leaser] too.
type Store struct{ gobridge.Store }

// OpenFile opens the database file at path, which is made if it is not there,
// folder included.
func OpenFile(ctx context.Context, path string, options Options) (*Store, error) {
	return nil, errors.New("sqlite: under construction")
}

// Open puts the store into a service's own database.
func Open(ctx context.Context, db *sql.DB, options Options) (*Store, error) {
	return nil, errors.New("sqlite: under construction")
}

// Close ends the store.
func (s *Store) Close() error { return nil }

// Leases returns the leases.
func (s *Store) Leases() gobridge.LeaseStore { return nil }

// Notify calls f when there may be work.
func (s *Store) Notify(f func(gobridge.Partition)) (stop func()) { return func() {} }
