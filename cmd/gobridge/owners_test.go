package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/sqlite"
)

// shared is an outbox whose binding is spread over four partitions, with a
// record and an owner each, empty for none. With released the last is given up.
func shared(t *testing.T, owners [4]string, released bool) (config string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	store, err := sqlite.OpenFile(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	var records []gobridge.Record
	for shard, owner := range owners {
		p := gobridge.NewShard("orders", "crm", shard, 4)
		records = append(records, gobridge.Record{
			Partition: p, Binding: "crm", Envelope: messaging.Envelope{ID: fmt.Sprint(shard), Payload: []byte("x")},
		})
		if owner == "" {
			continue
		}
		lease, err := store.Leases().Acquire(t.Context(), gobridge.AcquireRequest{Partition: p, Owner: owner, Term: time.Hour})
		if err == nil && owner[0] == 'b' {
			lease.LastError, lease.LastErrorAt = claimFailed, lease.AcquiredAt
			_, err = store.Leases().Renew(t.Context(), []gobridge.Lease{lease})
		}
		if err == nil && shard == 3 && released {
			err = store.Leases().Release(t.Context(), lease)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Persist(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	return write(t, fmt.Sprintf(`
version: 1
store: { sqlite: { path: %q } }
http: { listen: "127.0.0.1:0" }
routes: { orders: { partitions: 4, source: { http: { path: /orders } }, bindings: { crm: { stdout: {} } } } }
`, path))
}

// claimFailed is what went wrong for owners whose names begin with b.
const claimFailed = "claim failed: the disk that holds the outbox is\nfull, and so on for more than a line has room for"

// ages are how long ago something was, spans how long it has been so.
var (
	ages  = regexp.MustCompile(`[0-9]+s ago`)
	spans = regexp.MustCompile(`since [0-9]+s`)
)

func TestStatusSaysHowProcessesShareABinding(t *testing.T) {
	path := shared(t, [4]string{"a-1-AAAAAAAA", "b-2-BBBBBBBB", "a-1-AAAAAAAA", "a-1-AAAAAAAA"}, false)
	status, stdout, stderr := command(t, "status", "--config", path)
	want := "   2 processes share its 4 partitions: a-1-AAAAAAAA has 3, b-2-BBBBBBBB has 1\n"
	if status != 0 || !strings.Contains(stdout, want) || strings.Contains(stdout, "version") {
		t.Errorf("status %d, want %q in\n%s%s", status, want, stdout, stderr)
	}
	status, stdout, stderr = command(t, "explain", "orders/crm", "--config", path)
	if sentence := strings.Join(strings.Fields(stdout), " "); status != 0 || strings.Contains(stdout, "kill") ||
		!strings.Contains(sentence, "and 2 processes share its 4 partitions: a-1-AAAAAAAA has 3, b-2-BBBBBBBB has 1.") {
		t.Errorf("explain: status %d\n%s%s", status, stdout, stderr)
	}
	one := shared(t, [4]string{"a-1-AAAAAAAA", "a-1-AAAAAAAA", "a-1-AAAAAAAA", "a-1-AAAAAAAA"}, false)
	if status, stdout, _ := command(t, "status", "--config", one); status != 0 || strings.Contains(stdout, "AAAAAAAA") {
		t.Errorf("with one owner: status %d\n%s", status, stdout)
	}
	if status, stdout, _ := command(t, "explain", "orders/crm", "--config", one); status != 0 ||
		!strings.Contains(stdout, "a-1-AAAAAAAA drains it") || strings.Contains(stdout, "kill") {
		t.Errorf("with one owner: explain: status %d\n%s", status, stdout)
	}
}

// untimed puts N in the place of every age.
func untimed(text string) string {
	return spans.ReplaceAllString(ages.ReplaceAllString(text, "N ago"), "since N")
}

func TestStatusSaysWhoOwnsWhat(t *testing.T) {
	path := shared(t, [4]string{"a-1-AAAAAAAA", "", "b-2-BBBBBBBB", "a-1-AAAAAAAA"}, true)
	status, stdout, stderr := command(t, "status", "--owners", "--config", path)
	want := `   0of4  a-1-AAAAAAAA  version 1 since N, renewed N ago
   1of4  nobody        never owned
   2of4  b-2-BBBBBBBB  version 1 since N, renewed N ago
         N ago: claim failed: the disk that holds the outbox is full, and so o…
   3of4  nobody        version 1, last renewed N ago
`
	if status != 1 || !strings.Contains(stdout, "no process drains its partition orders/crm/1of4") ||
		!strings.HasSuffix(untimed(stdout), want) {
		t.Errorf("status %d, want at the end\n%s\ngot\n%s%s", status, want, stdout, stderr)
	}
}

func TestLongNamesOfOwnersFitTheTerminal(t *testing.T) {
	long := strings.Repeat("a-long-name-", 8)
	path := shared(t, [4]string{long + "17-CCCCCCCC", long + "18-DDDDDDDD", long + "17-CCCCCCCC", long + "18-DDDDDDDD"}, false)
	for _, args := range [][]string{{"status", "--config", path}, {"status", "--owners", "--config", path}} {
		status, stdout, stderr := command(t, args...)
		if status != 0 || !strings.Contains(stdout, "-17-CCCCCCCC") || !strings.Contains(stdout, "-18-DDDDDDDD") {
			t.Errorf("%v: status %d\n%s%s", args, status, stdout, stderr)
		}
		for _, line := range strings.Split(stdout, "\n") {
			if n := len([]rune(line)); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}

func TestJSONAlwaysSaysWhoOwnsWhat(t *testing.T) {
	path := shared(t, [4]string{"a-1-AAAAAAAA", "", "b-2-BBBBBBBB", "a-1-AAAAAAAA"}, true)
	_, stdout, _ := command(t, "status", "--json", "--config", path)
	var s operate.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || len(s.Bindings) != 1 || len(s.Bindings[0].Owners) != 4 {
		t.Fatalf("%v in\n%s", err, stdout)
	}
	b := s.Bindings[0]
	if b.Owner != "a-1-AAAAAAAA, b-2-BBBBBBBB" {
		t.Errorf("owner %q", b.Owner)
	}
	for i, want := range []struct {
		owner   string
		version int64
	}{{"a-1-AAAAAAAA", 1}, {"", 0}, {"b-2-BBBBBBBB", 1}, {"", 1}} {
		o := b.Owners[i]
		if o.Partition != gobridge.NewShard("orders", "crm", i, 4) || o.Owner != want.owner || o.Version != want.version ||
			o.RenewedAt.IsZero() != (want.version == 0) || o.AcquiredAt.IsZero() != (want.version == 0) ||
			(o.LastError == claimFailed) != strings.HasPrefix(want.owner, "b") || o.LastErrorAt.IsZero() != (o.LastError == "") {
			t.Errorf("partition %d is %+v, want %+v", i, o, want)
		}
	}
}

func TestSignOfLifeOfAWrongClock(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := operate.Ownership{Owner: "a", Version: 2, RenewedAt: now.Add(3 * time.Minute)}
	if got := signOfLife(&o, now); got != "version 2, renewed 3m ahead of this clock" {
		t.Errorf("says %q", got)
	}
	o.AcquiredAt = now.Add(-2 * time.Hour)
	if got := signOfLife(&o, now); got != "version 2 since 2h, renewed 3m ahead of this clock" {
		t.Errorf("says %q", got)
	}
}
