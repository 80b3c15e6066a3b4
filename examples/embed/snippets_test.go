package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/bridgetest"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// mailServer stands for somebody else's system.
type mailServer struct {
	sent map[string]Order
	err  error
}

var (
	errNoSuchMailbox = errors.New("no such mailbox")
	errLoginRefused  = errors.New("login refused")
	errTooManyMails  = errors.New("too many mails")
)

func (m *mailServer) send(_ context.Context, id string, o Order) error {
	if m.err == nil {
		m.sent[id] = o
	}
	return m.err
}

// sender returns a handler with every outcome.
func sender(server *mailServer) gobridge.HandlerFunc {
	return func(ctx context.Context, d gobridge.Delivery) error {
		var o Order
		if err := json.Unmarshal(d.Envelope.Payload, &o); err != nil {
			return gobridge.Permanent(err) // it will never be an order
		}
		err := server.send(ctx, d.DedupeID(), o)
		switch {
		case errors.Is(err, errNoSuchMailbox):
			return gobridge.Permanent(err) // this message will never get through
		case errors.Is(err, errLoginRefused):
			return gobridge.Unavailable(err) // nothing gets through until somebody mends it
		case errors.Is(err, errTooManyMails):
			return gobridge.RetryAfter(time.Minute, err) // the whole binding waits
		}
		return err // nil: delivered; anything else is tried again
	}
}

func TestOutcomes(t *testing.T) {
	service, _, _ := newService(t)
	server := &mailServer{sent: map[string]Order{}}
	h := bridgetest.New(t, service.store, routes(sender(server)))
	if err := service.Place(t.Context(), Order{ID: "o-1", Customer: "ann"}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{errLoginRefused, errTooManyMails} {
		server.err = err
		h.Drain()
		for _, r := range h.RequirePending("mail", 1) {
			if r.Attempts != 0 {
				t.Errorf("%v was counted as an attempt of the message", err)
			}
		}
	}
	server.err = errNoSuchMailbox
	h.Advance(time.Minute)
	h.RequireDead("mail", 1)
	if len(server.sent) != 0 {
		t.Errorf("sent %v", server.sent)
	}
}

// sweepOutbox delivers what there is and returns: for a cron job or a function.
func sweepOutbox(ctx context.Context, b *bridge.Bridge) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
	defer cancel()
	return b.Drain(ctx)
}

func TestDrain(t *testing.T) {
	service, _, _ := newService(t)
	server := &mailServer{sent: map[string]Order{}}
	b, err := bridge.New(service.store, bridge.Options{Routes: routes(sender(server))})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range placed {
		if err := service.Place(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweepOutbox(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(server.sent) != len(placed) {
		t.Errorf("sent %v", server.sent)
	}
}

// remind sends a reminder a day later, unless that takes longer than a week.
func remind(ctx context.Context, store *sqlite.Store, tx *sql.Tx, orders sqlite.Route, o Order, now time.Time) error {
	msg, err := messaging.JSON("order.reminder", o)
	if err != nil {
		return err
	}
	msg.ID = "order-reminder-" + o.ID
	msg.NotBefore = now.Add(24 * time.Hour)
	msg.ExpiresAt = now.Add(7 * 24 * time.Hour)
	return store.PublishTx(ctx, tx, orders, msg)
}

func TestRemind(t *testing.T) {
	service, h, _ := newService(t)
	err := service.store.InTx(t.Context(), func(tx *sql.Tx) error {
		return remind(t.Context(), service.store, tx, service.orders, placed[0], h.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Advance(24*time.Hour - 1)
	h.RequireDelivered("mail", 0)
	h.Advance(1)
	h.RequireDelivered("mail", 1)
}

// inbox takes each message once: what it does and the note that it has done it
// are one transaction.
func inbox(db *sql.DB, do func(tx *sql.Tx, d gobridge.Delivery) error) gobridge.HandlerFunc {
	return func(ctx context.Context, d gobridge.Delivery) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // without effect once committed
		result, err := tx.ExecContext(ctx, `INSERT INTO inbox (id) VALUES (?) ON CONFLICT DO NOTHING`, d.DedupeID())
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return err // it was here before
		}
		if err := do(tx, d); err != nil {
			return err
		}
		return tx.Commit()
	}
}

func TestInbox(t *testing.T) {
	service, _, db := newService(t)
	if _, err := db.Exec(`CREATE TABLE inbox (id TEXT PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	done := 0
	h := bridgetest.New(t, service.store, routes(inbox(db, func(*sql.Tx, gobridge.Delivery) error {
		done++
		return nil
	})))
	if err := service.Place(t.Context(), placed[0]); err != nil {
		t.Fatal(err)
	}
	h.LoseAnswer("mail")
	h.Drain()
	if n, err := service.store.Retry(t.Context(), gobridge.RetryRequest{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	h.Drain()
	if h.RequireDelivered("mail", 1); done != 1 {
		t.Errorf("done %d times, want once", done)
	}
}

// TestDocumentsAreTested sees that every piece of Go in the document on embedding
// and in the README stands, line by line, in code that is compiled and run.
func TestDocumentsAreTested(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"*.go", "../../tools/ormtest/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, flat(string(source)))
		}
	}
	for _, document := range []string{"../../docs/embedding.md", "../../README.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		pieces := strings.Split(string(text), "```go\n")[1:]
		if len(pieces) == 0 {
			t.Errorf("%s has no Go in it", document)
		}
		for _, piece := range pieces {
			piece, _, _ = strings.Cut(piece, "```")
			if !slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, flat(piece)) }) {
				t.Errorf("%s: this stands in no tested code:\n%s", document, piece)
			}
		}
	}
}

// flat takes the indentation off.
func flat(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimSpace(line) + "\n")
	}
	return out.String()
}
