//go:build unix

package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gobridge"
	"gobridge/internal/testbroker"
	"gobridge/store/sqlite"
)

// leaseVersion looks into the store for the version of a lease, 0 for none.
func (d *daemon) leaseVersion(p gobridge.Partition) int64 {
	d.Helper()
	store, err := sqlite.OpenFile(d.Context(), filepath.Join(filepath.Dir(d.path), "o.db"), sqlite.Options{})
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	leases, err := store.Leases().Leases(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	for _, l := range leases {
		if l.Partition == p {
			return l.Token.Version
		}
	}
	return 0
}

// TestReloadExchangesSources consumes from a broker while its connection, its route
// and its destinations change.
func TestReloadExchangesSources(t *testing.T) {
	broker, one, other := testbroker.StartNATS(t), newHook(t), newHook(t)
	broker.Make(t, "S")
	connection := func(prefix string) string {
		return fmt.Sprintf("connections: { n: { nats: { servers: nats://%s, inbox_prefix: %s } } }\n", broker.Address(), prefix)
	}
	route := func(url string) string {
		return fmt.Sprintf(`  r:
    source: { nats: { connection: n, stream: S, consumer: c, declare: true } }
    bindings: { b: { webhook: { url: %q } } }
`, url)
	}
	kept := webhookRoute("kept", "b", other.URL)
	d := startDaemon(t, kept+route(one.URL+"/1")+connection("A"))
	var want []string
	consume := func() {
		t.Helper()
		next := fmt.Sprint(len(want))
		want = append(want, next)
		broker.Put(t, "S", testbroker.Message{Key: "k", Body: []byte(next)})
	}
	consume()
	d.arrive(one, want...)

	// The route changes, its source does not.
	before := broker.Proxy().Counts()
	d.configure(kept + route(one.URL+"/2") + connection("A"))
	d.want(d.reload(), `changed="routes changed: r"`)
	consume()
	d.arrive(one, want...)
	if after := broker.Proxy().Counts(); after.Accepted != before.Accepted {
		t.Errorf("%d connections were made", after.Accepted-before.Accepted)
	}
	if v := d.leaseVersion("~source/r"); v != 1 {
		t.Errorf("the source was stopped and started again: its lease has version %d", v)
	}

	// The connection changes, and the route with it.
	d.configure(kept + route(one.URL+"/2") + connection("B"))
	d.want(d.reload(), `changed="routes changed: r; connections: n"`)
	consume()
	d.arrive(one, want...)
	if v := d.leaseVersion("~source/r"); v != 2 {
		t.Errorf("the source was not stopped and started again: its lease has version %d", v)
	}

	// The route can't go while its messages wait, and its source goes on.
	one.down.Store(true)
	consume()
	eventually(t, "a message is in the outbox", func() bool {
		unread, unacknowledged := broker.Unread(t, "S", "c")
		return unread == 0 && unacknowledged == 0
	})
	d.configure(kept)
	d.want(d.reload(), "r/b/0 (")
	consume()
	one.down.Store(false)
	d.arrive(one, want...)

	// Then it goes, and what comes stays in the stream.
	var answer string
	eventually(t, "nothing waits any more", func() bool {
		answer = d.reload()
		return !strings.Contains(answer, "r/b/0 (")
	})
	d.want(answer, `changed="routes removed: r; connections: n"`)
	broker.Put(t, "S", testbroker.Message{Key: "k", Body: []byte("last")})
	d.accepted("/kept", "1")
	d.arrive(other, "1")
	if unread, _ := broker.Unread(t, "S", "c"); unread != 1 {
		t.Errorf("%d messages are unread, want the one since the route is gone", unread)
	}
	// It comes back, where it was.
	d.configure(kept + route(one.URL+"/3") + connection("B"))
	d.want(d.reload(), `changed="routes added: r; connections: n"`)
	d.arrive(one, append(slices.Clone(want), "last")...)
	if status, answer := post(t, d.url+"/kept", "2"); status != http.StatusAccepted {
		t.Errorf("status %d: %s", status, answer)
	}
}
