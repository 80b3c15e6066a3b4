//go:build unix && !solaris && !illumos && !aix

package jsonlines

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is the wait between two attempts: about a sync of another's batch.
const lockPoll = 5 * time.Millisecond

// lock keeps others from writing, or from taking back what they wrote, until
// unlock or until the file is closed. The lock belongs to this opening of the
// file, not to the process.
func lock(ctx context.Context, f file) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

func unlock(f file) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
