//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

const (
	body = `{"n":1}`
	crm  = gobridge.Partition("orders/crm/0")
)

// TestNights has one awkward night after the other. In each, status and explain
// must name the cause and print the command that helps, and the command must help.
func TestNights(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"destination down":                destinationDown,
		"credential refused":              credentialRefused,
		"poisoned head":                   poisonedHead,
		"halted key":                      haltedKey,
		"paused and forgotten":            pausedAndForgotten,
		"due later":                       dueLater,
		"expired":                         expired,
		"dead owner":                      deadOwner,
		"other process owns it":           otherProcessOwnsIt,
		"full depth":                      fullDepth,
		"full dead letters":               fullDeadLetters,
		"locked by a stranger":            lockedByAStranger,
		"newer schema":                    newerSchema,
		"route removed":                   routeRemoved,
		"clock jumped":                    clockJumped,
		"duplicate ID":                    duplicateID,
		"reused ID":                       reusedID,
		"filter dropped it":               filterDroppedIt,
		"already delivered":               alreadyDelivered,
		"the outbox is not there":         noOutbox,
		"dead letters to another machine": deadLettersElsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func destinationDown(t *testing.T) {
	n := newNight(t, "", "", "")
	address := freePort(t)
	n.configure(fmt.Sprintf(nightConfig, "", "", "http://"+address, ""))
	n.start()
	n.post(202, "m-1", "a", body)
	n.post(202, "m-2", "b", body)
	out := n.says(1, "gobridge status", "", "orders/crm DOWN 2 pending", "next probe", "down since", "connection refused", "→ start the destination")
	n.says(0, "gobridge explain m-1", "", "message m-1 to orders/crm waits: orders/crm is down since", "connection refused")
	n.dest.listen(t, address)
	n.does(out, "gobridge retry orders/crm")
	n.arrives("m-1", "m-2")
	n.well()
}

func credentialRefused(t *testing.T) {
	n := newNight(t, "", "", "")
	n.dest.answers(401)
	n.start()
	n.post(202, "m-1", "a", body)
	n.post(202, "m-2", "a", body)
	n.says(1, "gobridge status", "", "orders/crm DOWN 2 pending", "401", "→ it refuses our credential")
	out := n.says(0, "gobridge explain orders/crm", "", "orders/crm: 2 wait", "down since", "401", "→ it refuses our credential")
	n.dest.answers(200)
	n.does(out, "gobridge retry orders/crm")
	n.arrives("m-1", "m-2")
	n.well()
}

func poisonedHead(t *testing.T) {
	n := newNight(t, "", "", "")
	n.dest.answers(500, "m-1")
	n.start()
	n.post(202, "good", "b", body)
	n.arrives("good")
	n.post(202, "m-1", "a", body)
	n.post(202, "m-2", "a", body)
	n.says(0, "gobridge explain m-1", "", "did not get through", "500")
	n.post(202, "good-2", "b", body) // what gets through tells that the destination is up
	n.arrives("good", "good-2")
	n.says(1, "gobridge status", "", "orders/crm FAILING 2 pending", "the oldest message, m-1, failed", "500")
	out := n.says(0, "gobridge explain m-2", "", "message m-2 to orders/crm waits behind message m-1 of its key, which failed", "500", "is tried again at")
	n.does(out, "gobridge discard orders/crm --id m-1")
	n.arrives("good", "good-2", "m-2")
	n.well()
}

func haltedKey(t *testing.T) {
	n := newNight(t, "", "\n    on_failure: halt_key", "")
	n.dest.answers(400, "m-1")
	n.start()
	n.post(202, "m-1", "cust 7", body)
	n.post(202, "m-2", "cust 7", body)
	n.post(202, "m-3", "b", body)
	n.says(1, "gobridge status", "", "orders/crm HALTED 2 pending", "key cust 7 is halted since", "permanent", "400")
	out := n.says(0, "gobridge explain 'cust 7'", "", "message m-1, the next of key cust 7, to orders/crm waits: key cust 7 is halted since")
	n.arrives("m-3")
	n.dest.answers(200)
	n.does(out, "gobridge resume orders/crm --key 'cust 7'")
	n.arrives("m-3", "m-1", "m-2")
	n.well()
}

func pausedAndForgotten(t *testing.T) {
	n := newNight(t, "", "", "")
	n.start()
	n.says(0, "gobridge pause orders --yes --by ann --reason 'crm is moving'", "", "paused orders")
	n.post(202, "m-1", "a", body)
	out := n.says(1, "gobridge status", "", "orders/crm PAUSED 1 pending", "orders is paused since", "by ann: crm is moving")
	n.says(0, "gobridge explain m-1", "", "message m-1 to orders/crm waits: orders is paused since", "by ann: crm is moving")
	n.does(out, "gobridge resume orders")
	n.arrives("m-1")
	n.well()
}

func dueLater(t *testing.T) {
	n := newNight(t, "", "", "")
	n.start()
	n.post(202, "later", "a", body, "Gobridge-Not-Before", "2100-01-02T03:04:05Z")
	n.post(202, "m-2", "b", body)
	n.says(0, "gobridge status", "", "orders/crm OK 1 pending")
	out := n.says(0, "gobridge explain later", "", "is not due before 2100-01-02 03:04: whoever sent it set that time")
	n.does(out, "gobridge discard orders/crm --id later")
	n.says(0, "gobridge explain later", "", "message later to orders/crm was discarded at", "a bad night")
	n.arrives("m-2")

	n.dest.answers(500, "m-3")
	n.post(202, "m-3", "c", body)
	out = n.says(0, "gobridge explain m-3", "", "did not get through", "and is tried again at")
	n.dest.answers(200)
	n.does(out, "gobridge retry orders/crm --id m-3")
	n.arrives("m-2", "m-3")
	n.well()
}

func expired(t *testing.T) {
	n := newNight(t, "", "\n    on_expire: dead_letter", "")
	n.dest.answers(401)
	n.start()
	n.post(202, "m-1", "a", body, "Gobridge-Expires-At", time.Now().Add(500*time.Millisecond).UTC().Format(time.RFC3339Nano))
	n.says(1, "gobridge status", "", "orders/crm DOWN", "1 dead", "1 dead letter waits for a person")
	out := n.says(0, "gobridge explain m-1", "", "message m-1 to orders/crm is a dead letter since", "expired", "it has expired, and is not delivered any more")
	_, line := n.run(n.printed(out, "gobridge dead export orders/crm --id m-1"), "")
	if !strings.Contains(line, `"payload":"{\"n\":1}"`) {
		t.Errorf("exported: %s", line)
	}
	n.does(out, "gobridge dead discard orders/crm --id m-1")
	n.says(0, "gobridge dead list orders/crm", "", "no dead letters")
}

func deadOwner(t *testing.T) {
	n := newNight(t, "", "", "")
	n.dest.answers(401)
	first := n.start()
	n.post(202, "m-1", "a", body)
	n.says(1, "gobridge status", "", "DOWN")
	n.kill(first)
	n.says(1, "gobridge status", "", "orders/crm STALE OWNER 1 pending", "has ended or does not reach the store: it gave no sign since", "→ start it again as it was started before")
	out := n.says(0, "gobridge explain m-1", "", "message m-1 to orders/crm waits: the process that delivered it", "has ended")
	n.dest.answers(200)
	n.bridge(n.printed(out, "gobridge run b.yaml"))
	n.arrives("m-1")
	n.well()
}

func otherProcessOwnsIt(t *testing.T) {
	n := newNight(t, "", "", "")
	first := n.start()
	n.says(0, "gobridge status", "", "orders/crm OK")
	n.start()
	n.post(202, "m-1", "a", body) // to the second, and the first delivers it
	n.arrives("m-1")
	pid := strconv.Itoa(first.Process.Pid)
	if out := n.says(0, "gobridge explain orders/crm", "", "-"+pid+"-", "drains it"); strings.Contains(out, "kill") {
		t.Errorf("nothing is wrong: %s", out)
	}
	if status, text := n.run("kill "+pid, ""); status != 0 {
		t.Fatalf("kill: %s", text)
	}
	n.says(0, "gobridge explain orders/crm", "", fmt.Sprintf("-%d-", n.newed.Process.Pid), "drains it")
	n.post(202, "m-2", "a", body)
	n.arrives("m-1", "m-2")
	n.well()
}

func fullDepth(t *testing.T) {
	n := newNight(t, "", "", "\n        max_outbox_depth: 2")
	n.dest.answers(403)
	n.start()
	n.post(202, "m-1", "a", body)
	n.post(202, "m-2", "b", body)
	n.says(1, "gobridge status", "", "orders/crm DOWN 2 pending")
	n.post(503, "m-3", "c", body)
	n.says(1, "gobridge status", "", "403", "full: 2 of 2 wait, and new messages are refused for the whole route")
	out := n.says(0, "gobridge explain orders", "", "full: 2 of 2 wait", "down since", "→ it refuses our credential", "raise max_outbox_depth")
	n.dest.answers(200)
	n.does(out, "gobridge retry orders/crm")
	n.arrives("m-1", "m-2")
	n.well()
	n.post(202, "m-3", "c", body)
	n.arrives("m-1", "m-2", "m-3")
}

func fullDeadLetters(t *testing.T) {
	n := newNight(t, ", max_dead_letters: 2", "", "")
	n.dest.answers(422)
	n.start()
	n.post(202, "m-1", "a", body)
	n.post(202, "m-2", "b", body)
	n.says(1, "gobridge status", "", "2 dead")
	n.post(202, "m-3", "c", body)
	out := n.says(1, "gobridge status", "", "orders/crm DEAD LETTERS FULL 1 pending", "2 dead",
		"it is at its limit of 2 dead letters (max_dead_letters)", "key c is halted since", "dead letters full")
	n.says(0, "gobridge explain m-3", "", "message m-3 to orders/crm waits: key c is halted", "422", "dead letters full")
	n.dest.answers(200)
	n.does(out, "gobridge dead redrive orders/crm")
	n.arrives("m-1", "m-2")
	out = n.says(0, "gobridge explain c", "", "is halted since")
	n.does(out, "gobridge resume orders/crm --key c")
	n.arrives("m-1", "m-2", "m-3")
	n.well()
}

func lockedByAStranger(t *testing.T) {
	n := newNight(t, "", "", "")
	n.start()
	n.post(202, "m-1", "a", body)
	n.arrives("m-1")
	stranger := n.holder()
	pid := strconv.Itoa(stranger.Process.Pid)
	out := n.says(1, "gobridge status", "", "STORE store locked", "a transaction of")
	n.says(0, "gobridge explain m-1", "", "was delivered at") // looking needs no lock
	if !strings.Contains(out, "process "+pid) {
		t.Skipf("this system does not tell who holds a lock: %s", out)
	}
	if status, text := n.run(n.printed(out, "kill "+pid), ""); status != 0 {
		t.Fatalf("kill: %s", text)
	}
	n.well()
	n.post(202, "m-2", "a", body)
	n.arrives("m-1", "m-2")
}

func newerSchema(t *testing.T) {
	n := newNight(t, "", "", "")
	n.kill(n.start())
	db := n.database()
	if _, err := db.Exec(`INSERT INTO gobridge_schema (name, major, minor) VALUES ('outbox', 99, 0)`); err != nil {
		t.Fatal(err)
	}
	out := n.says(2, "gobridge status", "", "UNREACHABLE", "the database has version 99.0 of the outbox schema", "a newer gobridge wrote this outbox")
	n.says(2, "gobridge explain m-1", "", "the database has version 99.0")
	if status, text := n.run(n.printed(out, "gobridge version"), ""); status != 0 || !strings.HasPrefix(text, "gobridge ") {
		t.Errorf("version: status %d: %s", status, text)
	}
	if _, err := db.Exec(`DELETE FROM gobridge_schema WHERE major = 99`); err != nil { // the newer program, so to speak
		t.Fatal(err)
	}
	n.start()
	n.well()
}

// database opens the outbox as a stranger would.
func (n *night) database() *sql.DB {
	n.Helper()
	if n.db != nil {
		return n.db
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(n.dir, "outbox.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = db.Close() })
	n.db = db
	return db
}

// seed puts things into the outbox as a program of another clock would have.
func (n *night) seed(ahead time.Duration, f func(context.Context, *sqlite.Store) error) {
	n.Helper()
	now := func() time.Time { return time.Now().Add(ahead) }
	store, err := sqlite.OpenFile(n.Context(), filepath.Join(n.dir, "outbox.db"), sqlite.Options{Now: now})
	if err != nil {
		n.Fatal(err)
	}
	if err := f(n.Context(), store); err != nil {
		n.Fatal(err)
	}
	if err := store.Close(); err != nil {
		n.Fatal(err)
	}
}

func stored(p gobridge.Partition, id, key string) gobridge.Record {
	_, binding, _, _ := p.Split()
	return gobridge.Record{Partition: p, Binding: binding, Envelope: messaging.Envelope{ID: id, OrderingKey: key, Payload: []byte(body)}}
}

func routeRemoved(t *testing.T) {
	n := newNight(t, "", "", "")
	n.seed(0, func(ctx context.Context, s *sqlite.Store) error {
		return s.Persist(ctx, []gobridge.Record{stored("old/x/0", "m-1", "a"), stored("old/x/0", "m-2", "a")})
	})
	n.says(1, "gobridge status", "", "old/x REMOVED 2 pending", "the configuration has no binding old/x", "or list old/x under parked:")
	out := n.says(0, "gobridge explain m-1", "", "message m-1 to old/x waits: the configuration has no binding old/x")
	if status, text := n.run("gobridge run b.yaml", ""); status == 0 || !strings.Contains(text, "old/x/0 (2 pending") {
		t.Errorf("run: status %d: %s", status, text)
	}
	n.does(out, "gobridge move old/x orders/crm")
	n.start()
	n.arrives("m-1", "m-2")
	n.well()
}

func clockJumped(t *testing.T) {
	n := newNight(t, "", "", "")
	n.seed(365*24*time.Hour, func(ctx context.Context, s *sqlite.Store) error {
		if err := s.Persist(ctx, []gobridge.Record{stored(crm, "m-1", "a"), stored(crm, "m-2", "a")}); err != nil {
			return err
		}
		token := gobridge.Token{Owner: "fast", Version: 1}
		claimed, err := s.Claim(ctx, gobridge.ClaimRequest{Partition: crm, Token: token, Limit: 2})
		if err != nil || len(claimed) != 2 {
			return fmt.Errorf("%d claimed: %w", len(claimed), err)
		}
		return s.Release(ctx, token, []gobridge.Release{
			{Ref: claimed[0].Ref(), NotBefore: time.Now().Add(365 * 24 * time.Hour), Tried: gobridge.Failed, Reason: "failed", Error: "500"},
			{Ref: claimed[1].Ref()},
		})
	})
	n.start()
	out := n.says(1, "gobridge status", "", "the newest message of orders/crm is dated 20", ", 364d ahead of this machine's clock")
	n.says(0, "gobridge explain m-2", "", "waits behind message m-1 of its key, which failed once (500) and is tried again at")
	n.post(202, "m-3", "a", body)
	n.does(out, "gobridge retry orders/crm")
	n.arrives("m-1", "m-2", "m-3")
	n.well()
}

func duplicateID(t *testing.T) {
	n := newNight(t, "", "", "")
	n.start()
	n.post(202, "m-1", "a", body)
	n.arrives("m-1")
	n.post(200, "m-1", "a", body) // and where is it?
	n.says(0, "gobridge status", "", "orders/crm OK 0 pending")
	n.says(0, "gobridge explain m-1", "", "was delivered at", "a repeat under its ID is a duplicate and goes nowhere", "→ to have it delivered once more, post it under another ID")
	n.says(0, "gobridge try b.yaml --id m-1 --key a", body, "duplicate", "message m-1 already", "delivered")
	n.post(202, "m-1b", "a", body)
	n.arrives("m-1", "m-1b")
}

func reusedID(t *testing.T) {
	n := newNight(t, "", "", "")
	n.start()
	n.post(202, "m-1", "a", body)
	n.arrives("m-1")
	n.post(422, "m-1", "a", `{"n":2}`)
	n.says(0, "gobridge status", "", "orders/crm OK")
	n.says(0, "gobridge explain m-1", "", "was delivered at")
	n.says(1, "gobridge try b.yaml --id m-1 --key a", `{"n":2}`, "refused", "message ID reused with other content", "m-1")
	n.says(0, "gobridge try b.yaml --id m-2 --key a", `{"n":2}`, "accepted as m-2")
	n.post(202, "m-2", "a", `{"n":2}`)
	n.arrives("m-1", "m-2")
}

func filterDroppedIt(t *testing.T) {
	n := newNight(t, "", "", "\n        filter: payload.n > 5")
	n.start()
	n.post(202, "m-1", "a", body)
	n.says(0, "gobridge status", "", "orders/crm OK 0 pending")
	out := n.says(0, "gobridge explain m-1", "", "no route, binding, message or waiting key is named m-1", "every filter left it out: orders/crm takes payload.n > 5")
	line := n.printed(out, "gobridge try b.yaml --id m-1")
	n.says(0, line, body, "crm: left out by its filter, payload.n > 5")
	n.says(0, line, `{"n":6}`, "crm: webhook to", "in orders/crm/0")
	n.post(202, "m-2", "a", `{"n":6}`)
	n.arrives("m-2")
}

func alreadyDelivered(t *testing.T) {
	n := newNight(t, "", "", "")
	n.dest.answers(401)
	n.start()
	n.post(202, "m-1", "a", body)
	n.says(1, "gobridge status", "", "DOWN")
	n.dest.answers(200)
	n.does(n.says(1, "gobridge status", ""), "gobridge retry orders/crm")
	n.arrives("m-1")
	n.says(0, "gobridge explain m-1", "", "message m-1 to orders/crm was delivered at", "with attempt")
	n.says(0, "gobridge explain --id m-1 --json", "", `"cause": "ended"`, `"state": "delivered"`)
	n.well()
}

func noOutbox(t *testing.T) {
	n := newNight(t, "", "", "")
	n.says(2, "gobridge status", "", "UNREACHABLE", "no outbox", "it is made by the first run of the bridge")
	n.says(2, "gobridge status --json", "", `"level": "unreachable"`)
	n.says(2, "gobridge explain x", "", "no outbox")
	if _, err := os.Stat(filepath.Join(n.dir, "outbox.db")); err == nil {
		t.Error("looking has made one")
	}
	n.start()
	n.well()
}

func deadLettersElsewhere(t *testing.T) {
	n := newNight(t, "", "", "")
	n.dest.answers(400)
	n.start()
	n.post(202, "m-1", "a", body)
	n.post(202, "m-2", "a", body)
	n.says(0, "gobridge status", "", "2 dead")
	n.says(0, "gobridge dead export orders/crm --out dead.jsonl", "", "exported 2 to dead.jsonl, where 0 were already")
	n.says(0, "gobridge dead export orders/crm --out dead.jsonl", "", "exported 0 to dead.jsonl, where 2 were already")

	other := newNight(t, "", "", "")
	other.start()
	data, err := os.ReadFile(filepath.Join(n.dir, "dead.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	other.file("dead.jsonl", string(data))
	other.says(0, "gobridge dead import dead.jsonl", "", "would import 2 dead letters", "0 are here already")
	other.says(0, "gobridge dead import dead.jsonl --yes --reason moved", "", "imported 2 dead letters")
	other.says(0, "gobridge dead import dead.jsonl --yes --reason again", "", "imported 0 dead letters", "2 are here already")
	other.says(0, "gobridge dead show orders/crm m-1", "", "state dead", "reason permanent", body)
	out := other.says(0, "gobridge explain m-1", "", "is a dead letter since", "permanent")
	other.says(0, "gobridge dead redrive orders/crm --yes --reason moved", "", "redrove 2")
	other.printed(out, "gobridge dead redrive orders/crm --id m-1")
	other.arrives("m-1", "m-2")
	other.well()
}

// TestActsOnlySayWhatTheyWouldDo until they are given --yes and a reason.
func TestActsOnlySayWhatTheyWouldDo(t *testing.T) {
	n := newNight(t, "", "", "")
	n.seed(0, func(ctx context.Context, s *sqlite.Store) error {
		dead := stored(crm, "dead", "a")
		dead.State, dead.Reason = gobridge.StateDead, gobridge.ReasonExhausted
		return s.Persist(ctx, []gobridge.Record{dead, stored(crm, "m-1", "a")})
	})
	for _, act := range []string{
		"pause orders", "halt orders/crm --key a", "retry orders/crm", "discard orders/crm", "dead redrive orders/crm", "dead discard orders/crm",
	} {
		n.says(0, "gobridge "+act, "", "would ", "to do it:", "gobridge "+act, `--yes --reason "..."`)
		n.says(0, "gobridge "+act+" --json", "", `"done": false`)
		n.says(2, "gobridge "+act+" --yes", "", `--yes wants --reason "..."`)
	}
	if s := n.figures(); s.Pending != 1 || s.Dead != 1 {
		t.Errorf("they have changed something: %+v", s)
	}
	n.says(0, "gobridge audit --json", "", "[]")
	n.says(2, "gobridge pause orderz", "", "not found: orderz; there is orders/crm")
	n.says(0, "gobridge halt orders/crm --key a --yes --reason x --json", "", `"done": true`)
}
