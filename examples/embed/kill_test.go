package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/store/sqlite"
)

// placed are the orders of the test, in the order of placing.
var placed = []Order{
	{"o-1", "ann", 100}, {"o-2", "bob", 200}, {"o-3", "ann", 300},
}

// lastStep is the environment variable that makes this test's binary the
// service instead: the step before which it is killed, zero for never.
const lastStep = "ORDERS_LAST_STEP"

func TestMain(m *testing.M) {
	last, err := strconv.Atoi(os.Getenv(lastStep))
	if err != nil {
		os.Exit(m.Run())
	}
	if err := serveOnce(last); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveOnce is a life of the service in the working directory: it places the
// orders that it has not said it has, and delivers what there is. Each mail is a
// line of the file mails.
func serveOnce(last int) error {
	ctx := context.Background()
	var killer steps
	db, err := openSteps("orders.db", &killer)
	if err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	mails, err := os.OpenFile("mails", os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	send := func(_ context.Context, d gobridge.Delivery) error {
		killer.before("write the mail")
		err := json.NewEncoder(mails).Encode(mail{d.Envelope.ID, d.Envelope.OrderingKey, d.Attempt})
		killer.before("return from sending the mail")
		return err
	}
	b, err := bridge.New(store, bridge.Options{Routes: routes(send), LeaseTerm: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	service := &Service{store: store, orders: b.Route("orders")}

	killer.arm(last)
	for _, o := range placed {
		if err := service.Place(ctx, o); err != nil {
			return err
		}
		killer.before("tell the customer")
		fmt.Println(o.ID)
	}
	return errors.Join(b.Drain(ctx), store.Close(), db.Close())
}

type mail struct {
	ID       string
	Customer string
	Attempt  int
}

// TestKilledBetweenAnyTwoSteps kills the service before each of its steps: each
// statement, commit and mail. Whenever that is, an order and its message are
// there both or neither, all that a customer was told of is, and after a restart
// every mail has been sent, in order per customer, repeats numbered.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	ready := prepare(t)
	// An interrupted life and an uninterrupted one wait for a lease now and
	// then; run a few side by side.
	const width = 4
	var killed [width]int
	t.Run("lives", func(t *testing.T) {
		for lane := range width {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				for step := lane + 1; killedBefore(t, ready, step); step += width {
					killed[lane]++
				}
			})
		}
	})
	total := 0
	for _, n := range killed {
		total += n
	}
	t.Logf("killed before each of %d steps", total)
	if total < 30 {
		t.Errorf("only %d steps: the test does not see what the service does", total)
	}
}

// prepare returns a folder with a database that has its tables.
func prepare(t *testing.T) string {
	dir := t.TempDir()
	db, err := open(t.Context(), filepath.Join(dir, "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// killedBefore runs a life that is killed before a step, looks at what it left,
// and runs another one to its end. It reports false if there was no such step.
func killedBefore(t *testing.T, ready string, step int) bool {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(ready)); err != nil {
		t.Fatal(err)
	}
	told, where := live(t, dir, step)
	if where == "" {
		checkMails(t, dir, "never")
		return false
	}
	checkTables(t, dir, told, where)
	if again, where := live(t, dir, 0); where != "" || len(again) != len(placed) {
		t.Fatalf("%s: the next life told of %v", where, again)
	}
	checkTables(t, dir, ids(placed), where)
	checkMails(t, dir, where)
	return true
}

func ids(orders []Order) []string {
	var out []string
	for _, o := range orders {
		out = append(out, o.ID)
	}
	return out
}

// live runs a life, and returns the orders that it told of and what it was
// killed before.
func live(t *testing.T, dir string, step int) (told []string, where string) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", lastStep, step))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	where = strings.TrimSpace(errs.String())
	if err != nil && !strings.HasPrefix(where, "killed before") {
		t.Fatalf("step %d: %v\n%s", step, err, where)
	}
	return strings.Fields(out.String()), where
}

// checkTables compares orders and messages.
func checkTables(t *testing.T, dir string, told []string, where string) {
	t.Helper()
	db, err := open(t.Context(), filepath.Join(dir, "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, o := range placed {
		var rows int
		if err := db.QueryRow(`SELECT count(*) FROM orders WHERE id = ?`, o.ID).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		_, err := store.Get(t.Context(), gobridge.Ref{
			Partition: gobridge.NewPartition("orders", "mail", 0), EnvelopeID: "order-placed-" + o.ID, Binding: "mail",
		})
		if err != nil && !errors.Is(err, gobridge.ErrNotFound) {
			t.Fatal(err)
		}
		if message := err == nil; message != (rows == 1) {
			t.Errorf("%s: order %s has %d rows, and a message: %v", where, o.ID, rows, message)
		}
		if rows == 0 && slices.Contains(told, o.ID) {
			t.Errorf("%s: the customer was told of %s, which is not there", where, o.ID)
		}
	}
}

// checkMails sees that every mail was sent, in order per customer.
func checkMails(t *testing.T, dir, where string) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "mails"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	first := map[string][]string{} // by customer, without repeats
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var m mail
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatalf("%s: mail %q: %v", where, lines.Text(), err)
		}
		switch {
		case !slices.Contains(first[m.Customer], m.ID):
			first[m.Customer] = append(first[m.Customer], m.ID)
		case m.Attempt < 2:
			t.Errorf("%s: mail %s came again as attempt %d", where, m.ID, m.Attempt)
		}
	}
	want := map[string][]string{"ann": {"order-placed-o-1", "order-placed-o-3"}, "bob": {"order-placed-o-2"}}
	for customer, mails := range want {
		if !slices.Equal(first[customer], mails) {
			t.Errorf("%s: %s got %v, want %v", where, customer, first[customer], mails)
		}
	}
}
