package sqlite

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// migrations has a folder for each schema, with a file "MAJOR.MINOR.sql" for
// each step. Within a major version the steps are additive.
//
//go:embed migration
var migrations embed.FS

// Migrations returns the SQL that makes the outbox's tables, for services that
// run all migrations of their database themselves: files named
// "MAJOR.MINOR.sql", to be run once each, in the order of their versions, before
// [Open], which then finds nothing to do. Open runs what is missing otherwise.
func Migrations() fs.FS {
	files, _ := fs.Sub(migrations, path.Join("migration", outboxSchema)) // fails for invalid paths only
	return files
}

// The schemas.
const (
	outboxSchema = "outbox"
	leaseSchema  = "lease"
)

const (
	createSchemaTable = `CREATE TABLE IF NOT EXISTS gobridge_schema (
		name TEXT NOT NULL, major INTEGER NOT NULL, minor INTEGER NOT NULL,
		PRIMARY KEY (name, major, minor)) WITHOUT ROWID`
	selectSchemaTable = `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'gobridge_schema'`
	selectSchema      = `SELECT major, minor FROM gobridge_schema WHERE name = ?1 ORDER BY major DESC, minor DESC LIMIT 1`
	// A step of the outbox notes its own version, for services that run it themselves.
	insertSchema = `INSERT INTO gobridge_schema (name, major, minor) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING`
)

// version is a version of a schema.
type version struct{ major, minor int }

func (v version) compare(w version) int {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor))
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// migrate brings a schema up to the newest version in files, inside the
// caller's write transaction. It leaves one with a newer minor version alone,
// and refuses one with a newer major version.
func migrate(ctx context.Context, q Execer, files fs.FS, schema string) error {
	steps, err := readSteps(files, schema)
	if err != nil {
		return err
	}
	if _, err := q.ExecContext(ctx, createSchemaTable); err != nil {
		return fmt.Errorf("create the table of schema versions: %w", err)
	}
	have, err := readVersion(ctx, q, steps, schema)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if step.compare(have) <= 0 {
			continue
		}
		text, err := fs.ReadFile(files, step.file)
		if err != nil {
			return err
		}
		if _, err := q.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("bring the %s schema to version %s: %w", schema, step.version, err)
		}
		if _, err := q.ExecContext(ctx, insertSchema, schema, step.major, step.minor); err != nil {
			return fmt.Errorf("note version %s of the %s schema: %w", step.version, schema, err)
		}
	}
	return nil
}

// readVersion returns the version of a schema, zero for none. One of a newer
// major version is an error.
func readVersion(ctx context.Context, q Execer, steps []step, schema string) (have version, err error) {
	if _, err := queryOne(ctx, q, selectSchema, []any{schema}, &have.major, &have.minor); err != nil {
		return have, fmt.Errorf("read the version of the %s schema: %w", schema, err)
	}
	if newest := steps[len(steps)-1].version; have.major > newest.major {
		return have, fmt.Errorf("the database has version %s of the %s schema, this program knows up to %s: "+
			"use the program that wrote it, or a newer one", have, schema, newest)
	}
	return have, nil
}

// upToDate reports whether migrate would do nothing. It only reads.
func upToDate(ctx context.Context, q Execer, files fs.FS, schema string) (bool, error) {
	steps, err := readSteps(files, schema)
	if err != nil {
		return false, err
	}
	var one int
	found, err := queryOne(ctx, q, selectSchemaTable, nil, &one)
	if err != nil || !found {
		return false, err
	}
	have, err := readVersion(ctx, q, steps, schema)
	return err == nil && have.compare(steps[len(steps)-1].version) >= 0, err
}

// step is one migration.
type step struct {
	version
	file string
}

func readSteps(files fs.FS, schema string) ([]step, error) {
	names, err := fs.Glob(files, path.Join("migration", schema, "*.sql"))
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, name := range names {
		s := step{file: name}
		base := strings.TrimSuffix(path.Base(name), ".sql")
		if _, err := fmt.Sscanf(base, "%d.%d", &s.major, &s.minor); err != nil {
			return nil, fmt.Errorf("migration %s: its name is not MAJOR.MINOR.sql", name)
		}
		steps = append(steps, s)
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("no migrations for the %s schema", schema)
	}
	slices.SortFunc(steps, func(a, b step) int { return a.compare(b.version) })
	return steps, nil
}
