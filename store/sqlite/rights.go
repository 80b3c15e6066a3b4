package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	sqlite3 "modernc.org/sqlite/lib"
)

// The rights that access asks for.
const (
	toRead = iota
	toWrite
	toEnter // a folder
)

// making is held while a file is made: to close a file ends the locks that the
// process has on it, so SQLite must not have opened it meanwhile.
var making sync.Mutex

// makeFile makes an empty file at path with these rights, unless there is one.
// SQLite gives its files beside it the same rights.
func makeFile(path string, rights fs.FileMode) error {
	making.Lock()
	defer making.Unlock()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // whatever is wrong with it, opening it tells
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, rights)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(rights), f.Close())
}

// ownRights are those of a new file: payloads are nobody else's business.
const ownRights fs.FileMode = 0o600

// rightsOf returns the rights of a file, for one beside it.
func rightsOf(path string) fs.FileMode {
	info, err := os.Stat(path)
	if err != nil {
		return ownRights
	}
	return info.Mode().Perm()
}

// refuseReadOnly returns an error if a database can't be written. SQLite opens it all
// the same, and says so only when something is written.
func refuseReadOnly(ctx context.Context, db *sql.DB, file string) error {
	if err := unwritable(file); err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer giveBack(conn)
	readOnly := false
	err = conn.Raw(func(driver any) error {
		if c, ok := driver.(interface{ IsReadOnly(string) (bool, error) }); ok {
			readOnly, err = c.IsReadOnly("main")
			return err
		}
		return nil
	})
	if readOnly && err == nil {
		err = fmt.Errorf("%s is opened only to be read, and must be opened to be written", file)
	}
	return err
}

// unwritable says which of a database's files can't be read or written.
func unwritable(path string) error {
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		for _, right := range []int{toRead, toWrite} {
			if err := access(file, right); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("this process (user %d) has no right to %s %s: %w", os.Geteuid(), []string{"read", "write"}[right], file, err)
			}
		}
	}
	return nil
}

// because adds to an error of opening a database what keeps it from being opened,
// where SQLite's words leave it open.
func because(path string, err error) error {
	if c := code(err); c != sqlite3.SQLITE_CANTOPEN && c != sqlite3.SQLITE_READONLY {
		return err
	}
	why := obstacle(path)
	if why == nil {
		return err
	}
	return fmt.Errorf("%w: %w", why, err)
}

// obstacle says what keeps a database from being opened, nil if nothing is seen.
func obstacle(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder, and must be a file", path)
	}
	folder := filepath.Dir(path)
	if err := access(folder, toEnter); err != nil {
		return fmt.Errorf("this process (user %d) can't enter the folder %s: %w", os.Geteuid(), folder, err)
	}
	if err := unwritable(path); err != nil {
		return err
	}
	if err := access(folder, toWrite); err != nil {
		return fmt.Errorf("this process (user %d) has no right to make files in %s, where SQLite keeps some beside the database: %w", os.Geteuid(), folder, err)
	}
	return nil
}
