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
		return &gobridge.Error{Op: op, Err: gobridge.ErrLocked, Hint: lockHint(s.file)}
	}
	return fail(op, "", err)
}

// lockHint says who holds the write lock of a file, so far as the system tells.
func lockHint(file string) string {
	pid, name := lockHolder(file)
	if pid <= 0 {
		return "a transaction of another process holds the write lock; it must commit, roll back or end"
	}
	return fmt.Sprintf("a transaction of process %d (%s) holds the write lock; it must commit, roll back or end", pid, name)
}
