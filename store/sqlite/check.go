package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"gobridge"
)

// checkTimeout is how long a lock may be held before Check speaks of it.
const checkTimeout = time.Second

// Check implements [gobridge.Checker]: it looks at the disk, and takes the
// write lock for an instant. Where the disk has next to nothing left, or a write
// has found it full, it sees whether anything can be written.
func (s *Store) Check(ctx context.Context) error {
	const op = "check"
	if err := s.place.left(); err != nil {
		return fail(op, "", err)
	}
	over := s.disk.check(ctx)
	waiting, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := s.tryWrite(waiting)
	switch {
	case s.isFull(err):
		return &gobridge.Error{Op: op, Err: &stuckError{s.file, err}, Hint: stuckHint}
	case over != nil: // whatever else there is comes up once there is room
		return fullError(op, "", over)
	case err == nil:
		return nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		locked := &lockedError{}
		locked.pid, locked.name = lockHolder(s.file)
		return &gobridge.Error{Op: op, Err: locked, Hint: locked.hint()}
	}
	return fail(op, "", err)
}

// tryWrite takes the write lock, and writes what is there already if it is doubtful
// that anything can be written.
func (s *Store) tryWrite(ctx context.Context) error {
	if !s.writer.full.Load() && !s.disk.empty() {
		return s.write(ctx, urgent, func(*txn) error { return nil })
	}
	err := s.write(ctx, urgent, func(t *txn) error { return writeAgain(t.ctx, t) })
	if err == nil && s.leases.path != "" {
		err = s.leases.write(ctx, func(tx *sql.Tx) error { return writeAgain(ctx, tx) })
	}
	if err == nil {
		s.writer.full.Store(false)
	}
	return err
}

// writeAgain writes a database's first page as it is.
func writeAgain(ctx context.Context, q Execer) error {
	var version int32
	if _, err := queryOne(ctx, q, "PRAGMA user_version", nil, &version); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
	return err
}

// isFull reports whether err says that the disk is full.
func (s *Store) isFull(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return s.disk.empty()
	}
	return false
}

// stuckHint is what is left to do where nothing can be written.
const stuckHint = "make room on the disk, by what is not the outbox's: until there is some, messages can't be discarded either"

// stuckError is a [gobridge.ErrOutboxFull] on a disk that takes nothing at all, not
// even what would make room.
type stuckError struct {
	file string
	err  error
}

func (e *stuckError) Error() string {
	return fmt.Sprintf("%v: the disk of %s is full: %v", gobridge.ErrOutboxFull, e.file, e.err)
}

// Is makes it match [gobridge.ErrOutboxFull].
func (e *stuckError) Is(target error) bool { return target == gobridge.ErrOutboxFull }

func (e *stuckError) Unwrap() error { return e.err }

// Stuck reports that nothing can be written until somebody else makes room.
func (e *stuckError) Stuck() bool { return true }

// lockedError is a [gobridge.ErrLocked] that knows who holds the write lock, so
// far as the system tells.
type lockedError struct {
	pid  int
	name string
}

func (e *lockedError) Error() string { return gobridge.ErrLocked.Error() }

// Is makes it match [gobridge.ErrLocked].
func (e *lockedError) Is(target error) bool { return target == gobridge.ErrLocked }

// Holder returns the process that holds the lock, zero if it is not known.
func (e *lockedError) Holder() (pid int, name string) { return e.pid, e.name }

func (e *lockedError) hint() string {
	if e.pid <= 0 {
		return "a transaction of another process holds the write lock; it must commit, roll back or end"
	}
	return fmt.Sprintf("a transaction of process %d (%s) holds the write lock; it must commit, roll back or end", e.pid, e.name)
}
