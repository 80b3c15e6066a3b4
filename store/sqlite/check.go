package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gobridge"
)

// checkTimeout is how long a lock may be held before Check speaks of it.
const checkTimeout = time.Second

// Check implements [gobridge.Checker]: it looks at the disk, and takes the
// write lock for an instant.
func (s *Store) Check(ctx context.Context) error {
	const op = "check"
	if err := s.place.left(); err != nil {
		return fail(op, "", err)
	}
	if err := s.disk.check(ctx); err != nil {
		return fullError(op, "", err)
	}
	waiting, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := s.write(waiting, urgent, func(*txn) error { return nil })
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		locked := &lockedError{}
		locked.pid, locked.name = lockHolder(s.file)
		return &gobridge.Error{Op: op, Err: locked, Hint: locked.hint()}
	}
	return fail(op, "", err)
}

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
