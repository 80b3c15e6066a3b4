package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"gobridge"
)

// Execer is what records can be persisted through: a *sql.Tx, or whatever a
// library has in its place.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// preparer prepares statements: a connection, or a pool of them.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// prepared is an Execer that prepares each statement once. The queries are
// constants, so there are only so many.
type prepared struct {
	on    preparer
	mu    sync.Mutex
	stmts map[string]*sql.Stmt // nil once closed
}

func newPrepared(on preparer) *prepared {
	return &prepared{on: on, stmts: map[string]*sql.Stmt{}}
}

func (p *prepared) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stmts == nil {
		return nil, gobridge.ErrClosed
	}
	if s := p.stmts[query]; s != nil {
		return s, nil
	}
	s, err := p.on.PrepareContext(ctx, query) //nolint:sqlclosecheck // kept until Close
	if err != nil {
		return nil, err
	}
	p.stmts[query] = s
	return s, nil
}

// ExecContext implements [Execer].
func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := p.stmt(ctx, query) //nolint:sqlclosecheck // kept until Close
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

// QueryContext implements [Execer].
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := p.stmt(ctx, query) //nolint:sqlclosecheck // kept until Close
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// Close gives the statements up.
func (p *prepared) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stmts {
		_ = s.Close() // nothing can be done about a statement that won't close
	}
	p.stmts = nil
}

// queryOne scans the first row into dest and reports whether there was one.
func queryOne(ctx context.Context, q Execer, query string, args []any, dest ...any) (bool, error) {
	found := false
	err := queryAll(ctx, q, query, args, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(dest...)
	})
	return found && err == nil, err
}

// queryAll calls scan for each row.
func queryAll(ctx context.Context, q Execer, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err says what went wrong
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// changed runs a statement and returns how many rows it changed.
func changed(ctx context.Context, q Execer, query string, args ...any) (int64, error) {
	result, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// blob returns s as SQLite should keep it: bytes, never null.
func blob[T ~string](s T) []byte {
	if s == "" {
		return []byte{}
	}
	return []byte(s)
}

// code returns SQLite's primary result code for err, and 0 if it has none.
func code(err error) int {
	var native *sqlite.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &native):
		return native.Code() & 0xff
	case strings.Contains(err.Error(), "database is locked"), strings.Contains(err.Error(), "table is locked"):
		return sqlite3.SQLITE_BUSY // in the words of every driver
	case strings.Contains(err.Error(), "database or disk is full"):
		return sqlite3.SQLITE_FULL
	}
	return 0
}

// locked reports whether err says that another connection has the lock.
func locked(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// fail makes the error of an operation, with a hint where SQLite's own words
// leave an operator guessing.
func fail(op string, p gobridge.Partition, err error) error {
	out := &gobridge.Error{Op: op, Partition: p, Err: err}
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		out.Hint = "the disk or the database's page limit is full: make room; until then what needs room can't be stored, delivered or discarded, " +
			"nothing that was accepted is lost, and the store goes on by itself"
	case sqlite3.SQLITE_IOERR:
		out.Hint = "the disk failed or is full: see the system's log; an open store goes on by itself once it works"
	case sqlite3.SQLITE_READONLY:
		out.Hint = "the database can't be written: check the rights of the file and its folder"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		out.Hint = "the database is damaged: restore a backup"
	}
	return out
}

// failRecord makes the error of an operation on one record.
func failRecord(op string, ref gobridge.Ref, err error) *gobridge.Error {
	return &gobridge.Error{Op: op, Partition: ref.Partition, Ref: ref, Err: err}
}

// giveBack returns a connection to its pool.
func giveBack(conn *sql.Conn) { _ = conn.Close() } // fails only if it was given back before
