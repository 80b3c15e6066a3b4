package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"gobridge"
)

const (
	leaseColumns = `partition, owner, version, term, revision, released, renewed_at,
		iif(noted = version, acquired_at, 0), iif(noted = version, last_error, x''), iif(noted = version, last_error_at, 0)`
	selectLease  = `SELECT ` + leaseColumns + ` FROM gobridge_lease WHERE partition = ?1`
	selectLeases = `SELECT ` + leaseColumns + ` FROM gobridge_lease ORDER BY partition`
	upsertLease  = `INSERT INTO gobridge_lease (partition, owner, version, term, revision, released, renewed_at, noted, acquired_at)
		VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?3, ?6)
		ON CONFLICT (partition) DO UPDATE SET owner = ?2, version = ?3, term = ?4, revision = ?5, released = 0, renewed_at = ?6,
			noted = ?3, acquired_at = ?6, last_error = x'', last_error_at = 0`
	renewLease = `UPDATE gobridge_lease SET revision = revision + 1, renewed_at = ?4,
			acquired_at = iif(noted = version, acquired_at, 0), noted = version, last_error = ?5, last_error_at = ?6
		WHERE partition = ?1 AND owner = ?2 AND version = ?3 AND released = 0 RETURNING ` + leaseColumns
	releaseLease = `UPDATE gobridge_lease SET revision = revision + 1, released = 1
		WHERE partition = ?1 AND owner = ?2 AND version = ?3 AND released = 0`
)

// leases keeps leases in a database of their own, so that a long transaction of
// a user can't hold up a renewal. It implements [gobridge.LeaseStore].
type leases struct {
	path   string // empty where the outbox's own database has them
	outbox string // the outbox's file
	now    func() time.Time

	mu     sync.Mutex
	db     *sql.DB
	place  place
	closed bool
}

// openLeases opens the leases beside a database file, and those of a database
// in memory in that database itself.
func (s *Store) openLeases(ctx context.Context, file string) (*leases, error) {
	l := &leases{db: s.db, now: s.options.Now}
	if file == "" {
		return l, s.migrate(ctx, leaseSchema)
	}
	l.path, l.outbox = file+"-leases", file
	l.db = nil
	_, err := l.database(ctx)
	return l, err
}

// Leases implements [gobridge.Leaser].
func (s *Store) Leases() gobridge.LeaseStore { return s.leases }

// database returns the database. If its file has been deleted or replaced, it
// opens what is there now, so that all processes have the same leases again.
func (l *leases) database(ctx context.Context) (*sql.DB, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, gobridge.ErrClosed
	case l.path == "" || l.db != nil && l.place.left() == nil:
		return l.db, nil
	}
	db, err := openOwn(l.path, fmt.Sprintf("&_pragma=wal_autocheckpoint(%d)", leaseLogPages), rightsOf(l.outbox))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	err = writeIn(ctx, db, func(tx *sql.Tx) error { return migrate(ctx, tx, migrations, leaseSchema) })
	if err == nil {
		err = refuseReadOnly(ctx, db, l.path)
	}
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("%s: %w", l.path, because(l.path, err))
	}
	if l.db != nil {
		_ = l.db.Close() // of a file that is gone
	}
	l.db, l.place = db, placeOf(l.path)
	return db, nil
}

func (l *leases) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || l.closed {
		return nil
	}
	l.closed = true
	return l.db.Close()
}

// lookEvery is the pause between two looks whether others have changed a lease.
const lookEvery = 10 * time.Millisecond

// Notify implements [gobridge.Notifier]: it tells of what others have changed,
// renewals too, while somebody wants to know. In memory there are no others.
func (l *leases) Notify(f func(gobridge.Partition)) (stop func()) {
	if l.path == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		var last int64
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			db, err := l.database(ctx)
			if err != nil {
				continue // whoever wants a lease will be told
			}
			// There is one connection, so its own commits don't count.
			var version int64
			if db.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version) == nil && version != last {
				last = version
				f("")
			}
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
}

// write runs f in a transaction.
func (l *leases) write(ctx context.Context, f func(*sql.Tx) error) error {
	db, err := l.database(ctx)
	if err != nil {
		return err
	}
	return writeIn(ctx, db, f)
}

func writeIn(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := beginTx(ctx, db)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}

// Acquire implements [gobridge.LeaseStore].
func (l *leases) Acquire(ctx context.Context, request gobridge.AcquireRequest) (lease gobridge.Lease, err error) {
	const op = "acquire lease"
	switch {
	case request.Owner == "":
		return lease, fail(op, request.Partition, errors.New("the owner is empty"))
	case request.Term <= 0:
		return lease, fail(op, request.Partition, fmt.Errorf("the term is %s; it must be above zero", request.Term))
	case request.MinVersion == math.MaxInt64:
		return lease, fail(op, request.Partition, fmt.Errorf("no version is above %d", request.MinVersion))
	}
	var held error
	err = l.write(ctx, func(tx *sql.Tx) error {
		old, exists, err := readLease(ctx, tx, request.Partition)
		if err != nil {
			return err
		}
		if exists && !old.Released && old.Revision != request.Observed {
			held = &gobridge.Error{Op: op, Partition: request.Partition, Err: gobridge.ErrLeaseHeld,
				Hint: fmt.Sprintf("held by %s, revision %d", old.Token, old.Revision)}
			return nil
		}
		lease = gobridge.Lease{
			Partition: request.Partition,
			Token:     gobridge.Token{Owner: request.Owner, Version: max(old.Token.Version, request.MinVersion) + 1},
			Term:      request.Term,
			Revision:  old.Revision + 1,
			RenewedAt: moment(nanos(l.now())),
		}
		lease.AcquiredAt = lease.RenewedAt
		_, err = tx.ExecContext(ctx, upsertLease, blob(lease.Partition), blob(lease.Token.Owner), lease.Token.Version,
			int64(lease.Term), lease.Revision, nanos(lease.RenewedAt))
		return err
	})
	if err != nil {
		return gobridge.Lease{}, fail(op, request.Partition, err)
	}
	return lease, held
}

func readLease(ctx context.Context, q Execer, p gobridge.Partition) (lease gobridge.Lease, found bool, err error) {
	err = queryAll(ctx, q, selectLease, []any{blob(p)}, func(rows *sql.Rows) error {
		found = true
		lease, err = scanLease(rows)
		return err
	})
	return lease, found, err
}

func scanLease(rows *sql.Rows) (lease gobridge.Lease, err error) {
	var term, renewed, acquired, failed int64
	err = rows.Scan(&lease.Partition, &lease.Token.Owner, &lease.Token.Version, &term, &lease.Revision, &lease.Released, &renewed,
		&acquired, &lease.LastError, &failed)
	lease.Term, lease.RenewedAt, lease.AcquiredAt, lease.LastErrorAt = time.Duration(term), moment(renewed), moment(acquired), moment(failed)
	return lease, err
}

// Renew implements [gobridge.LeaseStore].
func (l *leases) Renew(ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
	var out []gobridge.Lease
	now := nanos(l.now())
	err := l.write(ctx, func(tx *sql.Tx) error {
		for _, lease := range leases {
			args := []any{blob(lease.Partition), blob(lease.Token.Owner), lease.Token.Version, now,
				blob(lease.LastError), nanos(lease.LastErrorAt)}
			err := queryAll(ctx, tx, renewLease, args, func(rows *sql.Rows) error {
				renewed, err := scanLease(rows)
				out = append(out, renewed)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fail("renew leases", "", err)
	}
	return out, nil
}

// Release implements [gobridge.LeaseStore].
func (l *leases) Release(ctx context.Context, lease gobridge.Lease) error {
	lost := false
	err := l.write(ctx, func(tx *sql.Tx) error {
		n, err := changed(ctx, tx, releaseLease, blob(lease.Partition), blob(lease.Token.Owner), lease.Token.Version)
		if err != nil || n > 0 {
			return err
		}
		// One that its own holder has released before, perhaps without learning of it, is fine.
		old, found, err := readLease(ctx, tx, lease.Partition)
		lost = !found || old.Token != lease.Token
		return err
	})
	switch {
	case err != nil:
		return fail("release lease", lease.Partition, err)
	case lost:
		return fail("release lease", lease.Partition, gobridge.ErrLeaseLost)
	}
	return nil
}

// Leases implements [gobridge.LeaseStore].
func (l *leases) Leases(ctx context.Context) ([]gobridge.Lease, error) {
	db, err := l.database(ctx)
	if err != nil {
		return nil, fail("list leases", "", err)
	}
	var out []gobridge.Lease
	err = queryAll(ctx, db, selectLeases, nil, func(rows *sql.Rows) error {
		lease, err := scanLease(rows)
		out = append(out, lease)
		return err
	})
	if err != nil {
		return nil, fail("list leases", "", err)
	}
	return out, nil
}
