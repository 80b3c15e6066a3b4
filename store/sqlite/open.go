package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"gobridge"
)

// Store is an outbox in a SQLite database: a [gobridge.Store], a
// [gobridge.Notifier] and a [gobridge.Leaser].
type Store struct {
	options Options
	db      *sql.DB
	owned   bool   // db is closed with the store
	file    string // empty for a database in memory
	place   place
	read    *prepared
	writer  *writer
	notify  *notifier
	disk    *disk
	leases  *leases
	names   map[gobridge.Partition]*names // of the writer's goroutine
}

var (
	_ gobridge.Store    = (*Store)(nil)
	_ gobridge.Notifier = (*Store)(nil)
	_ gobridge.Leaser   = (*Store)(nil)
	_ gobridge.Checker  = (*Store)(nil)
)

// settings are the pragmas of every connection to a file of our own. A locked
// database is waited for until the caller's context ends, so the time-out is as
// long as it can be.
const settings = "?_txlock=immediate&_pragma=busy_timeout(2147483647)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" +
	"&_pragma=cache_size(-2048)&_pragma=journal_size_limit(67108864)&_pragma=temp_store(MEMORY)"

// writerCache is the size of the writer's page cache in KiB.
const writerCache = 16384

// OpenFile opens the database file at path, which is made if it is not there,
// folder included, and sees to every setting: WAL mode, synchronous FULL (with
// fdatasync, where the system has it), immediate transactions, waiting for
// locks. Leases are kept in a file beside it, path + "-leases".
//
// A new file can be read and written by the process's user only. The files beside
// it get the rights that it has, so that others can be given rights to them all.
//
// To restore a backup, stop every process, put the copy in the place of path,
// and remove path + "-wal" and path + "-shm". The file with the leases may stay.
// What was delivered since the backup is delivered again. A process whose file is
// taken away all the same stores nothing more and says so.
func OpenFile(ctx context.Context, path string, options Options) (*Store, error) {
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return nil, fail("open", "", err)
	}
	db, err := openOwn(path, "", ownRights)
	if err != nil {
		return nil, fail("open", "", fmt.Errorf("%s: %w", path, err))
	}
	s, err := open(ctx, db, true, options, func(ctx context.Context) (*sql.Conn, error) {
		return ownWriter(ctx, db)
	})
	if err != nil {
		_ = db.Close()
		return nil, fail("open", "", fmt.Errorf("%s: %w", path, because(path, err)))
	}
	return s, nil
}

// openOwn opens a pool of connections with our settings and more. A new file gets
// these rights.
func openOwn(path, more string, rights fs.FileMode) (*sql.DB, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return nil, err
	}
	if err := makeFile(full, rights); err != nil {
		if why := obstacle(full); why != nil {
			err = why
		}
		return nil, err
	}
	name := url.URL{Path: filepath.ToSlash(full)}
	connector, err := sqlite.NewConnector("file:" + name.EscapedPath() + settings + more)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// ownWriter takes a connection for the writer. It looks at locks itself,
// more often than SQLite does.
func ownWriter(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	pragmas := fmt.Sprintf("PRAGMA busy_timeout = 0; PRAGMA cache_size = -%d", writerCache)
	if _, err := conn.ExecContext(ctx, pragmas); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// open puts a store on a database.
func open(ctx context.Context, db *sql.DB, owned bool, options Options, connect func(context.Context) (*sql.Conn, error)) (*Store, error) {
	s := &Store{options: options.withDefaults(), db: db, owned: owned, read: newPrepared(db), notify: &notifier{},
		names: map[gobridge.Partition]*names{}}
	s.writer = newWriter(connect, s.persist, s.notify)
	s.writer.undone = func() { clear(s.names) }
	file, err := databaseFile(ctx, db)
	if err != nil {
		return nil, err
	}
	s.file = file
	if file != "" {
		if err := refuseReadOnly(ctx, db, file); err != nil {
			return nil, err
		}
	}
	if err := s.migrate(ctx, outboxSchema); err != nil {
		s.writer.drop()
		return nil, err
	}
	if s.leases, err = s.openLeases(ctx, file); err != nil {
		s.writer.drop()
		return nil, err
	}
	s.place = placeOf(file)
	s.disk = &disk{file: file, share: s.options.MaxDiskShare, every: time.Second, size: s.size, free: freeSpace(file)}
	go s.writer.run(context.WithoutCancel(ctx))
	return s, nil
}

// migrate brings a schema up to date on the writer's connection. One that is up
// to date needs no lock, so that a store can be looked at while somebody else's
// transaction holds it.
func (s *Store) migrate(ctx context.Context, schema string) error {
	if done, err := upToDate(ctx, s.db, migrations, schema); err != nil || done {
		return err
	}
	w := s.writer
	err := w.beginWhile(ctx, func() bool { return ctx.Err() == nil })
	if errors.Is(err, errNobody) {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if err = migrate(ctx, w.conn, migrations, schema); err == nil {
		_, err = w.conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		w.rollback(context.WithoutCancel(ctx))
	}
	return err
}

// databaseFile returns the path of a database, empty for one in memory. It is
// the first to connect, and so the one that waits for locks that SQLite does not
// wait for when it switches a new file to WAL mode.
func databaseFile(ctx context.Context, db *sql.DB) (file string, err error) {
	err = whileLocked(ctx, func() error {
		_, err := queryOne(ctx, db, `SELECT file FROM pragma_database_list WHERE name = 'main'`, nil, &file)
		return err
	})
	return file, err
}

// Close ends the store: calls that wait in its queue fail with
// [gobridge.ErrClosed]. A database that was handed to [Open] stays open.
func (s *Store) Close() error {
	s.writer.close()
	s.read.Close()
	err := s.leases.close()
	if s.owned {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

// Limits implements [gobridge.Outbox].
func (s *Store) Limits() gobridge.Limits {
	out := limits
	out.Retention = s.options.Retention
	out.MaxDead, out.MaxDeadBytes = s.options.MaxDead, s.options.MaxDeadBytes
	return out
}

// WriterStats returns the writer's counters.
func (s *Store) WriterStats() WriterStats { return s.writer.stats() }

// write runs a request in the writer.
func (s *Store) write(ctx context.Context, c class, run func(*txn) error) error {
	return s.writer.do(ctx, &request{class: c, run: run})
}
