// Package ncruces runs the proof on github.com/ncruces/go-sqlite3.
package ncruces

import (
	"database/sql"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"

	"gobridge/tools/ormtest/drivers"
)

func TestDriver(t *testing.T) {
	drivers.Run(t, func(dsn string) (*sql.DB, error) { return driver.Open(dsn) })
}
