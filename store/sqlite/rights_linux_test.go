package sqlite

import (
	"context"
	"database/sql"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gobridge"
)

// wantRights checks the rights of files.
func wantRights(t *testing.T, want fs.FileMode, files ...string) {
	t.Helper()
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Error(err)
		} else if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has the rights %#o, want %#o", filepath.Base(file), got, want)
		}
	}
}

// family returns the files of an outbox that is open.
func family(path string) []string {
	return []string{path, path + "-wal", path + "-shm", path + "-leases", path + "-leases-wal", path + "-leases-shm"}
}

// TestNobodyElseCanReadANewOutbox: it holds payloads.
func TestNobodyElseCanReadANewOutbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := open1(t, path, Options{})
	if err := s.Persist(t.Context(), []gobridge.Record{one("a", "")}); err != nil {
		t.Fatal(err)
	}
	wantRights(t, 0o600, family(path)...)
	backup := path + ".backup"
	if err := s.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	wantRights(t, 0o600, backup)
}

// TestAnOutboxKeepsItsRights, for others may rely on them, and what comes to be beside
// it gets the same.
func TestAnOutboxKeepsItsRights(t *testing.T) {
	for _, rights := range []fs.FileMode{0o644, 0o660} {
		path := filepath.Join(t.TempDir(), "outbox.db")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, rights); err != nil {
			t.Fatal(err)
		}
		s := open1(t, path, Options{})
		if err := s.Persist(t.Context(), []gobridge.Record{one("a", "")}); err != nil {
			t.Fatal(err)
		}
		wantRights(t, rights, family(path)...)
	}
}

// ownPool is the database of a service.
func ownPool(t *testing.T, path, more string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+settings+more)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestAServicesDatabaseHasTheRightsItGave, and the leases beside it have them too.
func TestAServicesDatabaseHasTheRightsItGave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), ownPool(t, path, ""), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	wantRights(t, 0o640, path, path+"-wal", path+"-leases", path+"-leases-wal")
}

// TestAReadOnlyDatabaseOfAServiceIsRefused.
func TestAReadOnlyDatabaseOfAServiceIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service.db")
	s, err := OpenFile(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), ownPool(t, path, "&mode=ro"), Options{}); err == nil {
		_ = s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), path+" is opened only to be read") {
		t.Errorf("Open of a database that is opened to be read says %v", err)
	}
}

// asAnother runs the test as a user who may not do everything: in a process of its own
// if this one is root.
func asAnother(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		body(t)
		return
	}
	command := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

func TestAMissingRightIsNamed(t *testing.T) {
	asAnother(t, func(t *testing.T) {
		for _, tt := range []struct {
			name string
			take func(path string) error // takes a right away
			want []string
		}{
			{"the file is read-only", func(path string) error { return os.Chmod(path, 0o400) }, []string{"no right to write ", "outbox.db: permission denied"}},
			{"the file can't be read", func(path string) error { return os.Chmod(path, 0) }, []string{"no right to read ", "outbox.db: permission denied"}},
			{"the leases are read-only", func(path string) error { return os.Chmod(path+"-leases", 0o400) }, []string{"no right to write ", "outbox.db-leases: permission denied"}},
			{"the folder is read-only", func(path string) error { return os.Chmod(filepath.Dir(path), 0o500) }, []string{"no right to make files in "}},
			{"the folder is read-only and empty", func(path string) error {
				for _, file := range []string{path, path + "-leases"} {
					if err := os.Remove(file); err != nil {
						return err
					}
				}
				return os.Chmod(filepath.Dir(path), 0o500)
			}, []string{"no right to make files in "}},
			{"the folder can't be entered", func(path string) error { return os.Chmod(filepath.Dir(path), 0) }, []string{"can't enter the folder "}},
			{"a folder", func(path string) error {
				if err := os.Remove(path); err != nil {
					return err
				}
				return os.Mkdir(path, 0o700)
			}, []string{"outbox.db is a folder"}},
		} {
			folder := filepath.Join(t.TempDir(), "folder")
			path := filepath.Join(folder, "outbox.db")
			s, err := OpenFile(context.Background(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := tt.take(path); err != nil {
				t.Fatal(err)
			}
			if s, err = OpenFile(context.Background(), path, Options{}); err == nil {
				_ = s.Close()
			}
			for _, want := range append(tt.want, path) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: OpenFile says %v, want it to contain %q", tt.name, err, want)
				}
			}
			if err := os.Chmod(folder, 0o700); err != nil { //nolint:gosec // so that it can be removed
				t.Error(err)
			}
		}
	})
}
