package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gobridge"
)

// beginTx begins a transaction, and waits for a lock that others hold as long
// as ctx allows, whatever the busy time-out of the connection.
func beginTx(ctx context.Context, db *sql.DB) (tx *sql.Tx, err error) {
	err = whileLocked(ctx, func() error {
		tx, err = db.BeginTx(ctx, nil)
		return err
	})
	return tx, err
}

// whileLocked repeats f as long as it fails for a lock that others hold, and
// ctx allows.
func whileLocked(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !locked(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(maxLockPause):
		}
	}
}

// ignoreDone drops the error of a rollback that was not needed.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// InTx runs f in a transaction of its own and commits it, unless f fails. After
// the commit the drainers are woken for what f has persisted with [Store.PersistTx].
//
// The transaction holds the database's write lock from its beginning: keep it
// short, for nothing else is stored, claimed or settled meanwhile. Don't call
// the store's other methods in f. It gets its turn between the store's own
// transactions; one that the service begins by itself has to find the lock free.
func (s *Store) InTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	select {
	case s.writer.turn <- struct{}{}:
		defer func() { <-s.writer.turn }()
	case <-ctx.Done():
		return fail("begin", "", ctx.Err())
	}
	tx, err := beginTx(ctx, s.db)
	if err != nil {
		return fail("begin", "", err)
	}
	defer func() { _ = tx.Rollback() }() // without effect once committed; the way out of a panic in f
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fail("commit", "", err)
	}
	s.writer.lookNow()
	return nil
}

const (
	savepoint        = "SAVEPOINT gobridge_persist"
	releaseSavepoint = "RELEASE gobridge_persist"
	rollbackTo       = "ROLLBACK TO gobridge_persist"
)

// PersistTx is Persist inside the caller's own transaction: the records are
// stored if, and only if, that commits. It is a savepoint of its own; if it
// fails, nothing of the call is left in the transaction, which may go on.
//
// Two kinds of answers are outcomes, not failures, and leave in the transaction
// what could be stored: [gobridge.ErrDuplicateRecord] and
// [gobridge.ErrIdentityReused].
//
// Begin the transaction immediate. One that began deferred and has read
// already gets SQLITE_BUSY when another connection has written since, and has
// to be begun again. The share of the disk is not looked at: a destination that
// is down must not stop the business that the transaction is about. Drainers
// notice the commit within a few milliseconds, or at once with [Store.InTx].
func (s *Store) PersistTx(ctx context.Context, tx Execer, records []gobridge.Record) error {
	const op = "persist"
	if len(records) == 0 {
		return nil
	}
	if _, ok := tx.(*sql.DB); ok {
		return fail(op, records[0].Partition, errors.New("a *sql.DB is no transaction: hand over the *sql.Tx"))
	}
	call, err := s.newPersistCall(records)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, savepoint); err != nil {
		return fail(op, records[0].Partition, err)
	}
	s.disk.spend(call.cost())
	err = s.persist(&txn{ctx: ctx, Execer: tx, touched: map[gobridge.Partition]struct{}{}}, []*persistCall{call})
	if err == nil {
		_, err = tx.ExecContext(ctx, releaseSavepoint)
	}
	if err != nil {
		return failTx(ctx, tx, records[0].Partition, err)
	}
	return call.result()
}

// failTx undoes the savepoint, as far as SQLite has not undone everything.
func failTx(ctx context.Context, tx Execer, p gobridge.Partition, err error) error {
	ctx = context.WithoutCancel(ctx)
	if _, undo := tx.ExecContext(ctx, rollbackTo); undo == nil {
		_, _ = tx.ExecContext(ctx, releaseSavepoint) // the rollback has undone what matters
	}
	out := &gobridge.Error{Op: "persist", Partition: p, Err: err}
	switch {
	case locked(err):
		out.Hint = "the transaction began deferred and has read already: begin it immediate (_txlock=immediate), or again"
	case code(err) == 0 && !keepsPlaceholders(ctx, tx):
		out.Hint = fmt.Sprintf("a %T does not pass on placeholders like ?1 as they are: hand over the *sql.Tx in it", tx)
	}
	return out
}

// keepsPlaceholders reports whether a query reaches SQLite as it is. Some
// libraries put arguments into the text of a query, by rules of their own.
func keepsPlaceholders(ctx context.Context, tx Execer) bool {
	var first, second int
	_, err := queryOne(ctx, tx, "SELECT ?2, ?1", []any{1, 2}, &first, &second)
	return err == nil && first == 2 && second == 1
}
