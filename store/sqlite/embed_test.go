package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gobridge"
	"gobridge/store/sqlite"
)

// dsnIn cuts the advice out of an error.
func dsnIn(err error) string {
	_, rest, _ := strings.Cut(err.Error(), `open it as "`)
	dsn, _, _ := strings.Cut(rest, `"`)
	return dsn
}

func TestOpenPrintsADSNThatWorks(t *testing.T) {
	for _, settings := range []string{"", "?_pragma=journal_mode(WAL)", "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"} {
		path := filepath.Join(t.TempDir(), "my service.db")
		db, err := sql.Open("sqlite", "file:"+path+settings)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sqlite.Open(t.Context(), db, sqlite.Options{})
		if err == nil {
			t.Fatalf("a database opened with %q was taken", settings)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		told := dsnIn(err)
		db, err = sql.Open("sqlite", told)
		if err != nil {
			t.Fatal(err)
		}
		store, err := sqlite.Open(t.Context(), db, sqlite.Options{})
		if err != nil {
			t.Fatalf("opened as told, %q: %v", told, err)
		}
		if _, err := os.Stat(path + "-leases"); err != nil {
			t.Errorf("%q is not the same file: %v", told, err)
		}
		if err := errors.Join(store.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	}
}

// mangling is a handle that has placeholders of its own.
type mangling struct{ *sql.Tx }

func (m mangling) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return m.Tx.QueryContext(ctx, strings.ReplaceAll(query, "?2", "?1"), args...)
}

func (m mangling) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return m.Tx.ExecContext(ctx, strings.ReplaceAll(query, "?5", "?25"), args...)
}

func TestPublishTxOnAHandleWithItsOwnPlaceholders(t *testing.T) {
	p := newPublisher(t)
	tx, err := p.db.BeginTx(t.Context(), nil)
	p.must(err)
	err = p.store.PublishTx(t.Context(), mangling{tx}, p.route, order("1"))
	if err == nil || !strings.Contains(err.Error(), "*sql.Tx") || !strings.Contains(err.Error(), "mangling") {
		t.Errorf("PublishTx returned %v, want a hint to hand over the *sql.Tx", err)
	}
	p.must(tx.Rollback())
}

func TestMigrationsOfTheServicesOwn(t *testing.T) {
	path := newPath(t)
	db := foreignDB(t, path)
	files := sqlite.Migrations()
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), string(text)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	before := schema(t, db)
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Persist(t.Context(), []gobridge.Record{{Partition: "r/b/0", Binding: "b", Envelope: order("1")}}); err != nil {
		t.Fatal(err)
	}
	if after := schema(t, db); !slices.Equal(before, after) {
		t.Errorf("Open changed a schema that was there:\n%s", strings.Join(after, "\n"))
	}
	other := foreignDB(t, newPath(t))
	alone, err := sqlite.Open(t.Context(), other, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alone.Close() }()
	if by := schema(t, other); !slices.Equal(before, by) {
		t.Errorf("the migrations make\n%s\nOpen makes\n%s", strings.Join(before, "\n"), strings.Join(by, "\n"))
	}
}

// schema returns what a database consists of, and the versions it has.
func schema(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT type || ' ' || name FROM sqlite_schema
		UNION ALL SELECT name || ' ' || major || '.' || minor FROM gobridge_schema ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(s, "table orders") && !strings.Contains(s, "gobridge_") && !strings.HasPrefix(s, "outbox ") &&
			!strings.Contains(s, "sqlite_") {
			t.Errorf("%s has no prefix", s)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
