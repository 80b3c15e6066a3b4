package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"strings"
	"sync"

	"modernc.org/sqlite"
)

// steps counts what a process does to the outside, and kills it before one of
// those steps.
type steps struct {
	mu    sync.Mutex
	armed bool
	n     int
	last  int // the step that is not done any more
}

// arm begins to count; zero never kills.
func (s *steps) arm(last int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.n, s.last = true, 0, last
}

// before is called before each step. Nobody takes one while the process dies.
func (s *steps) before(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.armed || strings.HasPrefix(what, "PRAGMA data_version") { // a look, made again and again
		return
	}
	if s.n++; s.n != s.last {
		return
	}
	what = strings.Join(strings.Fields(what), " ")
	fmt.Fprintf(os.Stderr, "killed before step %d, %.50q\n", s.n, what)
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill() // SIGKILL: nothing is cleaned up
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// openSteps opens a database each of whose statements is a step.
func openSteps(path string, s *steps) (*sql.DB, error) {
	inner, err := sqlite.NewConnector("file:" + path + settings)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{inner, s}), nil
}

type connector struct {
	driver.Connector
	steps *steps
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return conn{inner.(fullConn), c.steps}, nil
}

// fullConn is what the driver's connections can do.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type conn struct {
	fullConn
	steps *steps
}

func (c conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	c.steps.before("begin")
	inner, err := c.fullConn.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return tx{inner, c.steps}, nil
}

func (c conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.steps.before(query)
	return c.fullConn.ExecContext(ctx, query, args)
}

func (c conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.steps.before(query)
	return c.fullConn.QueryContext(ctx, query, args)
}

func (c conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	inner, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt{inner.(fullStmt), c.steps, query}, nil
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type stmt struct {
	fullStmt
	steps *steps
	query string
}

func (s stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.steps.before(s.query)
	return s.fullStmt.ExecContext(ctx, args)
}

func (s stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.steps.before(s.query)
	return s.fullStmt.QueryContext(ctx, args)
}

type tx struct {
	driver.Tx
	steps *steps
}

func (t tx) Commit() error {
	t.steps.before("commit")
	return t.Tx.Commit()
}

func (t tx) Rollback() error {
	t.steps.before("rollback")
	return t.Tx.Rollback()
}
