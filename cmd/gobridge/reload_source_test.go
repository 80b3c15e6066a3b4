//go:build unix

package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gobridge/internal/testbroker"
)

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
	if after := broker.Proxy().Counts(); after.Accepted != before.Accepted || strings.Count(d.stderr.String(), "consum") > 1 {
		t.Errorf("the source was restarted, %d connections were made: %s", after.Accepted-before.Accepted, d.stderr.String())
	}

	// The connection changes, and the route with it.
	d.configure(kept + route(one.URL+"/2") + connection("B"))
	d.want(d.reload(), `changed="routes changed: r; connections: n"`)
	consume()
	d.arrive(one, want...)

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
