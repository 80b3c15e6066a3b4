package gobridge_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// rooms says which rooms each room may import, the standard library aside, and
// whether it may import other modules. A room is the longest prefix of a folder.
// Tests may import whatever they like.
var rooms = map[string]struct {
	may     []string
	modules bool
}{
	"messaging":     {},
	".":             {may: []string{"messaging"}},
	"storetest":     {may: []string{".", "messaging"}},
	"leasetest":     {may: []string{"."}},
	"transporttest": {may: []string{".", "messaging"}},
	"protocol":      {},
	"bridgetest":    {may: []string{".", "messaging", "bridge", "store"}},
	"bridge":        {may: []string{".", "messaging"}, modules: true},
	"store":         {may: []string{".", "messaging", "internal"}, modules: true},
	"transport":     {may: []string{".", "messaging", "internal"}, modules: true},
	"internal":      {may: []string{".", "messaging", "internal"}, modules: true},
	"operate":       {may: []string{".", "messaging", "bridge"}},
	"admin":         {may: []string{".", "messaging", "bridge", "operate", "internal"}, modules: true},
	"telemetry":     {may: []string{".", "messaging", "bridge"}, modules: true},
	"config":        {may: []string{".", "messaging", "bridge", "internal"}, modules: true},
	"bench":         {may: []string{".", "messaging", "bridge", "store"}, modules: true},
	"cmd":           {may: []string{".", "messaging", "bridge", "operate", "internal", "config", "store", "transport", "admin", "telemetry"}, modules: true},
}

// TestImportsPointDown keeps the arrows of the room map: a room imports only
// rooms below it, and no store or transport imports another.
func TestImportsPointDown(t *testing.T) {
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && file != "." && (strings.HasPrefix(name, ".") || name == "testdata" || ownModule(file)) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := path.Dir(filepath.ToSlash(file))
		room, known := rooms[roomOf(folder)]
		if !known {
			t.Errorf("%s: folder %q is in no room; name it in rooms", file, folder)
			return nil
		}
		for _, spec := range parsed.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if reason := refuse(folder, room.may, room.modules, imported); reason != "" {
				t.Errorf("%s imports %q: %s", file, imported, reason)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// modules with a go.mod of their own are no rooms of this one.
func ownModule(folder string) bool {
	found, _ := filepath.Glob(filepath.Join(folder, "go.mod"))
	return len(found) > 0
}

func roomOf(folder string) string {
	first, _, _ := strings.Cut(folder, "/")
	return first
}

func refuse(folder string, may []string, modules bool, imported string) string {
	own, inside := strings.CutPrefix(imported, "gobridge/")
	switch {
	case imported == "gobridge":
		own = "."
	case !inside:
		if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") && !modules {
			return "this room has the standard library only"
		}
		return ""
	}
	room := roomOf(own)
	if room == roomOf(folder) && room != "." {
		if (room == "store" || room == "transport") && twoDeep(own) != twoDeep(folder) {
			return "stores and transports do not import each other"
		}
		return ""
	}
	for _, m := range may {
		if m == room {
			return ""
		}
	}
	return "the arrow would point up"
}

// twoDeep is the folder of one store or transport.
func twoDeep(folder string) string {
	parts := strings.SplitN(folder, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

func TestRefuseKnowsUpFromDown(t *testing.T) {
	for _, c := range []struct {
		folder, imported string
		allowed          bool
	}{
		{"store/sqlite", "gobridge", true},
		{"store/sqlite", "gobridge/messaging", true},
		{"store/sqlite", "gobridge/bridge", false},
		{"store/sqlite", "gobridge/store/memory", false},
		{"store/sqlite", "gobridge/store/sqlite/migration", true},
		{"store/sqlite", "modernc.org/sqlite", true},
		{"messaging", "gobridge", false},
		{"messaging", "example.com/x", false},
		{"messaging", "encoding/json", true},
		{"bridge", "gobridge/store/memory", false},
		{"cmd/gobridge", "gobridge/store/memory", true},
	} {
		room := rooms[roomOf(c.folder)]
		if reason := refuse(c.folder, room.may, room.modules, c.imported); (reason == "") != c.allowed {
			t.Errorf("%s imports %s: %q", c.folder, c.imported, reason)
		}
	}
}
