//go:build unix

package sqlite

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// freeSpace returns a function for the bytes that the disk of a file has left.
func freeSpace(file string) func() (int64, error) {
	if file == "" {
		return nil
	}
	return func() (int64, error) {
		var st unix.Statfs_t
		if err := unix.Statfs(filepath.Dir(file), &st); err != nil {
			return 0, err
		}
		return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between systems
	}
}

// access returns an error if this process has no such right to a file.
func access(path string, right int) error {
	mode := []uint32{toRead: unix.R_OK, toWrite: unix.W_OK, toEnter: unix.X_OK}[right]
	return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
}
