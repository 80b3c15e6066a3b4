//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/store/sqlite"
)

// TestRedriveOfThousands redrives 5,000 dead letters of 50 keys, with a newer
// message of each key waiting: bounded, then at a pace and interrupted, then
// killed, and then the rest. Everything arrives once, in the order of its key:
// what waited first, then the dead letters in their old order.
func TestRedriveOfThousands(t *testing.T) {
	const keys, each = 50, 100
	n := newNight(t, "", "", "")
	n.seed(0, func(ctx context.Context, s *sqlite.Store) error {
		for i := range each {
			var batch []gobridge.Record
			for k := range keys {
				r := stored(crm, fmt.Sprintf("k%02d-%03d", k, i), fmt.Sprintf("k%02d", k))
				r.State, r.Reason, r.Error = gobridge.StateDead, gobridge.ReasonExhausted, "500 was down"
				batch = append(batch, r)
			}
			if err := s.Persist(ctx, batch); err != nil {
				return err
			}
		}
		for k := range keys {
			if err := s.Persist(ctx, []gobridge.Record{stored(crm, fmt.Sprintf("k%02d-new", k), fmt.Sprintf("k%02d", k))}); err != nil {
				return err
			}
		}
		return nil
	})
	const redrive = "gobridge dead redrive orders/crm --error '500*' --yes --reason mended"
	n.says(0, "gobridge dead redrive orders/crm --error '500*'", "", "would redrive 5,000 of orders/crm", "50 keys", "k00-000 key k00 exhausted: 500 was down")
	n.says(0, redrive+" --max 1000", "", "redrove 1,000 of orders/crm", "more are left")

	dead := func() int64 { return n.figures().Dead }
	interrupted := n.shell(redrive+" --pace 1000", "")
	var out buffer
	interrupted.Stdout, interrupted.Stderr = &out, &out
	if err := interrupted.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a part is redriven", func() bool { return dead() < 3800 })
	if err := interrupted.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := interrupted.Wait(); err == nil || !strings.Contains(out.String(), "run it again for the rest") {
		t.Fatalf("interrupted: %v: %s", err, out.String())
	}
	if d := dead(); d == 0 || d >= 3800 {
		t.Fatalf("interrupted, it left %d dead letters", d)
	}

	killed := n.shell(redrive+" --pace 4000", "")
	before := dead()
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a part is redriven", func() bool { return dead() < before })
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	if s := n.figures(); s.Pending+s.Dead != keys*(each+1) {
		t.Fatalf("after the kill there are %d pending and %d dead", s.Pending, s.Dead)
	}
	n.says(0, redrive, "", "redrove")
	n.says(0, "gobridge dead list orders/crm", "", "no dead letters")
	n.says(2, "gobridge dead list orders/crm --cursor nonsense", "", "invalid cursor")

	n.start()
	eventually(t, "everything arrives", func() bool { return len(n.dest.taken()) >= keys*(each+1) })
	byKey := map[string][]string{}
	for _, id := range n.dest.taken() {
		key, rest, _ := strings.Cut(id, "-")
		byKey[key] = append(byKey[key], rest)
	}
	for key, got := range byKey {
		if len(got) != each+1 || got[0] != "new" || !slices.IsSorted(got[1:]) || len(slices.Compact(slices.Clone(got))) != each+1 {
			t.Errorf("key %s arrived as %v", key, got)
		}
	}
	n.well()
	n.says(0, "gobridge audit", "", "redrive orders/crm error \"500*\" before", "by ", "mended")
}

// TestDeadLettersThatFewMatch: a list reads on until it is full, and what it prints
// for the next page has the same filters.
func TestDeadLettersThatFewMatch(t *testing.T) {
	n := newNight(t, "", "", "")
	n.seed(0, func(ctx context.Context, s *sqlite.Store) error {
		var all []gobridge.Record
		for i := range 5000 {
			r := stored(crm, fmt.Sprintf("m-%04d", i), "")
			r.State, r.Reason, r.Error = gobridge.StateDead, gobridge.ReasonExhausted, "500 was down"
			if i == 4000 || i == 4990 || i == 4995 {
				r.Reason, r.Error = gobridge.ReasonPermanent, "422 it's not valid"
			}
			all = append(all, r)
		}
		return s.Persist(ctx, all)
	})
	first := n.says(0, "gobridge dead list orders/crm --cause permanent --error '*it'\\''s*' --limit 2", "", "m-4000", "m-4990", "more:")
	next := n.printed(first, "gobridge dead list")
	if out := n.says(0, next, "", "m-4995"); strings.Count(out, "m-") != 1 || strings.Contains(out, "more:") {
		t.Errorf("%s says\n%s", next, out)
	}
	n.says(0, "gobridge dead list orders/crm --cause expired", "", "no dead letters")
	n.says(0, "gobridge dead list orders/crm --cause expired --json", "", `"dead_letters": []`)
}

// figures are the partition's, read as a stranger would.
func (n *night) figures() (s gobridge.Stats) {
	n.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := n.database().QueryRow(`SELECT pending, claimed, dead FROM gobridge_partition`).Scan(&s.Pending, &s.Claimed, &s.Dead)
		if err == nil {
			return s
		}
		if time.Now().After(deadline) {
			n.Fatal(err)
		}
	}
}
