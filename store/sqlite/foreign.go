package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"gobridge"
)

// minConnections is what the store needs of a pool: the writer's connection, one
// for reading, and one for the service's own transaction.
const minConnections = 3

// Open puts the store into a service's own database, in tables whose names
// begin with "gobridge_". It checks what the guarantees rest on and is not the
// store's to set: WAL mode, synchronous FULL or EXTRA, and that transactions
// begin immediate, so that they wait for their turn instead of failing half-way.
// It keeps one of the pool's connections for itself.
//
// Leases are kept in a file beside the database's, its path + "-leases"; those of
// a database in memory, which connections must share (cache=shared), in the
// database itself.
func Open(ctx context.Context, db *sql.DB, options Options) (*Store, error) {
	if err := check(ctx, db); err != nil {
		return nil, fail("open", "", err)
	}
	s, err := open(ctx, db, false, options, func(ctx context.Context) (*sql.Conn, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	})
	if err != nil {
		return nil, fail("open", "", err)
	}
	return s, nil
}

// check says what has to change in how a service opens its database.
func check(ctx context.Context, db *sql.DB) error {
	if n := db.Stats().MaxOpenConnections; n > 0 && n < minConnections {
		return fmt.Errorf("the pool has at most %d connections, and the store keeps one for itself: call SetMaxOpenConns with %d or more",
			n, minConnections)
	}
	file, err := databaseFile(ctx, db)
	if err != nil {
		return err
	}
	if file == "" {
		return checkShared(ctx, db)
	}
	if err := refuseReadOnly(ctx, db, file); err != nil {
		return err
	}
	var mode string
	var synchronous int
	if _, err := queryOne(ctx, db, "PRAGMA journal_mode", nil, &mode); err != nil {
		return err
	}
	if _, err := queryOne(ctx, db, "PRAGMA synchronous", nil, &synchronous); err != nil {
		return err
	}
	var wrong []error
	if !strings.EqualFold(mode, "wal") {
		wrong = append(wrong, fmt.Errorf("journal_mode is %s, and must be WAL", mode))
	}
	if synchronous < 2 {
		wrong = append(wrong, fmt.Errorf("synchronous is %d, and must be FULL (2) or EXTRA (3), or a commit is not on disk "+
			"when it returns", synchronous))
	}
	if len(wrong) == 0 {
		err := checkImmediate(ctx, db)
		if err == nil || !errors.Is(err, errDeferred) {
			return err
		}
		wrong = append(wrong, err)
	}
	return fmt.Errorf("%w; %s", errors.Join(wrong...), advice(db, file))
}

// advice says how to open a database so that it passes, in the words of its
// driver.
func advice(db *sql.DB, file string) string {
	const pragmas = "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	name := url.URL{Path: filepath.ToSlash(file)}
	driver, settings := "", pragmas
	switch fmt.Sprintf("%T", db.Driver()) {
	case "*sqlite.Driver", "*driver.SQLite": // modernc.org/sqlite, github.com/ncruces/go-sqlite3
	case "*sqlite3.SQLiteDriver": // github.com/mattn/go-sqlite3
		settings = "_txlock=immediate&_busy_timeout=10000&_journal_mode=WAL&_synchronous=FULL"
	default:
		driver = " (in the words of modernc.org/sqlite; a wrapped driver has those of the one it wraps)"
	}
	return fmt.Sprintf("open it as \"file:%s?%s\"%s", name.EscapedPath(), settings, driver)
}

// checkShared sees that all connections see one database in memory.
func checkShared(ctx context.Context, db *sql.DB) error {
	first, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer giveBack(first)
	second, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer giveBack(second)
	if _, err := first.ExecContext(ctx, createSchemaTable); err != nil {
		return err
	}
	if _, err := second.ExecContext(ctx, "SELECT 1 FROM gobridge_schema"); err != nil {
		return fmt.Errorf("each connection has a database in memory of its own: open it as file:NAME?mode=memory&cache=shared (%w)", err)
	}
	return nil
}

var errDeferred = errors.New("transactions begin deferred, and must begin immediate")

// checkImmediate sees that transactions of the pool take the write lock when
// they begin: while one is open, no other connection gets it.
func checkImmediate(ctx context.Context, db *sql.DB) error {
	tx, err := beginTx(ctx, db)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	other, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer giveBack(other)
	var timeout int
	if _, err := queryOne(ctx, other, "PRAGMA busy_timeout", nil, &timeout); err != nil {
		return err
	}
	if _, err := other.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	_, got := other.ExecContext(ctx, "BEGIN IMMEDIATE")
	if got == nil {
		if _, err := other.ExecContext(ctx, "ROLLBACK"); err != nil {
			return err
		}
	}
	if _, err := other.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", timeout)); err != nil {
		return err
	}
	switch {
	case got == nil:
		return errDeferred
	case !locked(got):
		return got
	}
	return nil
}

var _ Execer = (*txn)(nil)

var _ gobridge.LeaseStore = (*leases)(nil)
