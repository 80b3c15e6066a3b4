//go:build cgo

// Package mattn runs the proof on github.com/mattn/go-sqlite3, which is in C.
package mattn

import (
	"database/sql"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"gobridge/tools/ormtest/drivers"
)

func TestDriver(t *testing.T) {
	drivers.Run(t, func(dsn string) (*sql.DB, error) { return sql.Open("sqlite3", dsn) })
}
