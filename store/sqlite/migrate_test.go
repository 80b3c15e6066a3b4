package sqlite

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"gobridge"
	"gobridge/messaging"
)

// later returns the migrations with further steps.
func later(t *testing.T, steps map[string]string) fs.FS {
	t.Helper()
	out := fstest.MapFS{}
	err := fs.WalkDir(migrations, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(migrations, path)
		out[path] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range steps {
		out["migration/outbox/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// raise brings a database to a later version than this program knows.
func raise(t *testing.T, path string, files fs.FS) {
	t.Helper()
	db, err := openOwn(path, "", ownRights)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate(t.Context(), tx, files, outboxSchema); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// one is a record to store.
func one(id, key string) gobridge.Record {
	return gobridge.Record{Partition: "r/b/0", Binding: "b",
		Envelope: messaging.Envelope{ID: id, OrderingKey: key, Payload: []byte(id)}}
}

// open1 opens a store that is closed and checked at the end of the test.
func open1(t *testing.T, path string, options Options) *Store {
	t.Helper()
	s, err := OpenFile(t.Context(), path, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, problem := range CheckConsistency(context.Background(), path) {
			t.Error(problem)
		}
	})
	return s
}

var token1 = gobridge.Token{Owner: "o", Version: 1}

// drain1 claims and completes everything that is claimable, and returns the IDs.
func drain1(t *testing.T, s *Store, limit int) (ids []string) {
	t.Helper()
	for {
		got, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: "r/b/0", Token: token1, Limit: limit, HeldKnown: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return ids
		}
		done := make([]gobridge.Completion, len(got))
		for i := range got {
			done[i].Ref = got[i].Ref()
			ids = append(ids, got[i].Envelope.ID)
		}
		if err := s.Complete(t.Context(), token1, done); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewerMajorSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	open1(t, path, Options{})
	raise(t, path, later(t, map[string]string{"2.0.sql": "CREATE TABLE gobridge_later (x)"}))
	_, err := OpenFile(t.Context(), path, Options{})
	if err == nil || !strings.Contains(err.Error(), "version 2.0") || !strings.Contains(err.Error(), "up to 1.") {
		t.Fatalf("opening a database of schema 2.0 returned %v, want an error that names both versions", err)
	}
}

func TestOldProcessGoesOnUnderANewerMinorSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	before := open1(t, path, Options{})
	if err := before.Persist(t.Context(), []gobridge.Record{one("a", "")}); err != nil {
		t.Fatal(err)
	}
	raise(t, path, later(t, map[string]string{
		"1.1000.sql": "ALTER TABLE gobridge_record ADD COLUMN later INTEGER NOT NULL DEFAULT 7; CREATE TABLE gobridge_later (x)",
		"1.1001.sql": "ALTER TABLE gobridge_ended ADD COLUMN later INTEGER NOT NULL DEFAULT 7",
	}))
	// One that was open, and one that comes later: neither knows the new columns.
	for i, s := range []*Store{before, open1(t, path, Options{})} {
		id := []string{"b", "c"}[i]
		if err := s.Persist(t.Context(), []gobridge.Record{one(id, "k")}); err != nil {
			t.Fatal(err)
		}
		want := []string{"ab", "c"}[i]
		if got := strings.Join(drain1(t, s, 10), ""); got != want {
			t.Fatalf("handle %d drained %q, want %q", i, got, want)
		}
	}
}

// TestFirstSchemaIsMigrated has a database as the first version left it.
func TestFirstSchemaIsMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	first, err := fs.ReadFile(migrations, "migration/outbox/1.0.sql")
	if err != nil {
		t.Fatal(err)
	}
	raise(t, path, fstest.MapFS{"migration/outbox/1.0.sql": {Data: first}})
	db, err := openOwn(path, "", ownRights)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(t.Context(), `
		INSERT INTO gobridge_partition (id, name, route, binding, seq, stamp, pending)
			VALUES (1, CAST('r/b/0' AS BLOB), CAST('r' AS BLOB), CAST('b' AS BLOB), 1, 1000, 1);
		INSERT INTO gobridge_record (partition, status, ready, due_at, created_at, seq, size, ordering_key, envelope_id, binding,
				not_before, expires_at, stored_at, content_hash, sent_at, subject, content_type, headers, payload)
			VALUES (1, 0, 1, 0, 1000, 1, 1, x'', CAST('old' AS BLOB), CAST('b' AS BLOB), 0, 0, 1000, zeroblob(32), 0, x'', x'', x'', x'41')`)
	if err != nil {
		t.Fatal(err)
	}
	if got := drain1(t, open1(t, path, Options{}), 10); len(got) != 1 || got[0] != "old" {
		t.Fatalf("drained %v from a database of the first version, want its record", got)
	}
}

func TestMigrationIsAllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	open1(t, path, Options{})
	db, err := openOwn(path, "", ownRights)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	broken := later(t, map[string]string{"1.1000.sql": "CREATE TABLE gobridge_later (x); CREATE TABLE nonsense"})
	if err := migrate(t.Context(), tx, broken, outboxSchema); err == nil || !strings.Contains(err.Error(), "1.1000") {
		t.Fatalf("a broken step returned %v, want an error that names it", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	open1(t, path, Options{})
}
