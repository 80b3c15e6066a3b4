package storetest

import (
	"errors"
	"fmt"
	"time"

	"gobridge"
)

func persistCases() []testCase {
	return []testCase{
		{name: "NothingToPersistIsNoOp", run: nothingToPersistIsNoOp,
			why: "A route whose filters leave nothing over persists nothing, and that is no error."},
		{name: "EnvelopeIsStoredAllOrNone", run: envelopeIsStoredAllOrNone,
			why: "A message that only some of its bindings have would never reach the others, for its repeat looks like a duplicate."},
		{name: "RepeatingAFailedPersistIsSafe", run: repeatingAFailedPersistIsSafe,
			why: "A source that was told of an error hands the batch over again; everything is then stored, and once."},
		{name: "CallKeepsTheOrderOfItsKeys", run: callKeepsTheOrderOfItsKeys,
			why: "The records of one key in one call are delivered in their order."},
		{name: "DuplicateInTheMiddleKeepsTheOrder", run: duplicateInTheMiddleKeepsTheOrder,
			why: "A duplicate or a redriven record in the middle of a call must not open a gap that a younger sibling slips through."},
		{name: "InvalidRecordRefusesTheWholeCall", run: invalidRecordRefusesTheWholeCall,
			why: "What can never be stored is refused before anything of its call is, with the field to blame."},
		{name: "PersistStraightToTheDead", run: persistStraightToTheDead,
			why: "What a full binding or a failing expression rejects goes to the dead letters with its reason and holds up nobody."},
		{name: "StoreKeepsNothingItWasHanded", run: storeKeepsNothingItWasHanded,
			why: "Callers reuse their buffers; a store that shares them changes messages behind everyone's back."},
	}
}

func nothingToPersistIsNoOp(f *fixture) {
	if err := f.store.Persist(f.Context(), nil); err != nil {
		f.Fatalf("Persist of no records: %v, want nil", err)
	}
	if all, err := f.store.Stats(f.Context()); err != nil || len(all) != 0 {
		f.Fatalf("Stats of an empty store returned %+v, %v", all, err)
	}
}

// fanOut returns the records of envelopes, each for three bindings.
func fanOut(ids ...string) []gobridge.Record {
	var out []gobridge.Record
	for _, id := range ids {
		for _, b := range []string{"mail", "crm", "lake"} {
			out = append(out, record(id, key("k"), in(gobridge.NewPartition(route, b, 0))))
		}
	}
	return out
}

// stored counts the records that the store knows.
func (f *fixture) stored(records []gobridge.Record) int {
	f.Helper()
	n := 0
	for _, r := range records {
		_, err := f.store.Get(f.Context(), r.Ref())
		if err == nil {
			n++
		} else if !errors.Is(err, gobridge.ErrNotFound) {
			f.Fatalf("Get of %s: %v", r.Ref(), err)
		}
	}
	return n
}

func envelopeIsStoredAllOrNone(f *fixture) {
	for n := range 40 {
		call := fanOut(fmt.Sprintf("e-%d", n))
		err := f.store.Persist(f.interrupted(n), call)
		got := f.stored(call)
		if err == nil && got != len(call) {
			f.Fatalf("Persist returned nil with %d of %d records stored", got, len(call))
		}
		if got != 0 && got != len(call) {
			f.Fatalf("Persist interrupted at look %d (error %v) stored %d of the envelope's %d records", n, err, got, len(call))
		}
	}
	// A record of the envelope that is invalid takes the others with it.
	call := fanOut("invalid")
	call[2].Binding = ""
	f.wantFieldError(f.store.Persist(f.Context(), call), "Binding")
	if got := f.stored(call[:2]); got != 0 {
		f.Fatalf("%d records of an envelope are stored whose third was refused", got)
	}
	// And so does one whose identity is in use, wherever in the envelope it stands.
	f.persist(record("used", payload("original")))
	used := fanOut("used")
	used[0], used[2] = used[2], used[0]
	f.wantErr("Persist of a used ID", f.store.Persist(f.Context(), used), gobridge.ErrIdentityReused)
	if got := f.stored(used); got != 1 {
		f.Fatalf("%d records of the refused envelope are stored, want only the one that was", got)
	}
}

func repeatingAFailedPersistIsSafe(f *fixture) {
	var want []string
	for n := range 30 {
		envelopes := numbered(fmt.Sprintf("e%d", n), 3)
		call := fanOut(envelopes...)
		err := f.store.Persist(f.interrupted(n), call)
		if err != nil {
			err = f.store.Persist(f.Context(), call)
		}
		if err != nil && !errors.Is(err, gobridge.ErrDuplicateRecord) {
			f.Fatalf("Persist after an interrupted one: %v", err)
		}
		want = append(want, envelopes...)
	}
	for _, b := range []string{"mail", "crm", "lake"} {
		p := gobridge.NewPartition(route, b, 0)
		got := f.claimBy(gobridge.ClaimRequest{Partition: p, Token: token(1), Limit: 1000, HeldKnown: true})
		f.wantIDs(got, want...)
	}
}

func callKeepsTheOrderOfItsKeys(f *fixture) {
	var call []gobridge.Record
	want := map[string][]string{}
	for i := range 60 {
		k := fmt.Sprintf("k%d", i%7)
		id := fmt.Sprintf("%d-%s", 99-i, k)
		call = append(call, record(id, key(k)))
		want[k] = append(want[k], id)
	}
	f.persist(call...)
	got := map[string][]string{}
	for range 60 {
		for _, r := range f.claim(1, 4) {
			got[r.Envelope.OrderingKey] = append(got[r.Envelope.OrderingKey], r.Envelope.ID)
			f.complete(1, r.Envelope.ID)
		}
	}
	for k := range want {
		if fmt.Sprint(got[k]) != fmt.Sprint(want[k]) {
			f.Fatalf("key %s came as %q, persisted as %q", k, got[k], want[k])
		}
	}
}

func duplicateInTheMiddleKeepsTheOrder(f *fixture) {
	f.persistEach("k", "middle")
	f.persist(record("first", key("k")), record("middle", key("k")), record("last", key("k")))
	f.claimExactly(1, 1, "middle")
	f.wantIDs(f.claim(1, 10, "middle"))
	f.bury(1, "middle")
	f.redrive(gobridge.Filter{EnvelopeID: "middle"})
	f.claimExactly(1, 1, "first")
	f.wantIDs(f.claim(1, 10, "first"))
	f.complete(1, "first")
	// The call comes again: nothing of it moves.
	f.wantErr("Persist of the call again", f.store.Persist(f.Context(),
		[]gobridge.Record{record("first", key("k")), record("middle", key("k")), record("last", key("k"))}),
		gobridge.ErrDuplicateRecord)
	f.claimExactly(1, 10, "last", "middle")
}

func invalidRecordRefusesTheWholeCall(f *fixture) {
	tests := []struct {
		field string
		spoil with
	}{
		{"Partition", func(r *gobridge.Record) { r.Partition = "" }},
		{"Binding", func(r *gobridge.Record) { r.Binding = "" }},
		{"Envelope.ID", func(r *gobridge.Record) { r.Envelope.ID = "" }},
		{"Envelope.Headers", headers("", "value")},
		{"Envelope.Headers", headers("Gobridge-Ordering-Key", "k")},
		{"State", func(r *gobridge.Record) { r.State = gobridge.StateDelivered }},
		{"State", func(r *gobridge.Record) { r.State = gobridge.StateClaimed }},
		{"CreatedAt", createdAt(time.Date(1066, 1, 1, 0, 0, 0, 0, time.UTC))},
		{"Envelope.NotBefore", notBefore(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))},
		{"Envelope.ExpiresAt", expiresAt(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))},
	}
	for _, tt := range tests {
		call := []gobridge.Record{record("good"), record("bad", tt.spoil), record("other")}
		f.wantFieldError(f.store.Persist(f.Context(), call), tt.field)
		f.wantGone("good")
		f.wantGone("other")
	}
}

func persistStraightToTheDead(f *fixture) {
	dead := record("dead", key("k"))
	dead.State, dead.Reason, dead.Error = gobridge.StateDead, gobridge.ReasonFull, "10,000 records are waiting"
	f.persist(dead, record("next", key("k")))
	got := f.get("dead")
	if got.State != gobridge.StateDead || got.Reason != dead.Reason || got.Error != dead.Error {
		f.Fatalf("the record is %s for %q: %q, want dead for %q: %q", got.State, got.Reason, got.Error, dead.Reason, dead.Error)
	}
	if string(got.Envelope.Payload) != "payload of dead" {
		f.Fatalf("the dead letter has payload %q", got.Envelope.Payload)
	}
	f.wantTime("EndedAt of the dead letter", got.EndedAt, start)
	if n := f.stats(part).Dead; n != 1 {
		f.Fatalf("Stats counts %d dead letters, want 1", n)
	}
	f.wantErr("Persist of it again", f.store.Persist(f.Context(), []gobridge.Record{record("dead", key("k"))}),
		gobridge.ErrDuplicateRecord)
	f.claimExactly(1, 10, "next")
	f.redrive(gobridge.Filter{})
	f.wantIDs(f.claim(1, 10, "next"))
	f.complete(1, "next")
	f.claimExactly(1, 10, "dead")
}

func storeKeepsNothingItWasHanded(f *fixture) {
	call := []gobridge.Record{record("a", payload("original"), headers("name", "original"))}
	f.persist(call...)
	if call[0].Seq != 0 || !call[0].CreatedAt.IsZero() || !call[0].StoredAt.IsZero() {
		f.Fatalf("Persist changed the caller's record: %+v", call[0])
	}
	copy(call[0].Envelope.Payload, "changed!")
	call[0].Envelope.Headers["name"] = "changed"
	check := func(what string, r gobridge.Record) {
		f.Helper()
		if string(r.Envelope.Payload) != "original" || r.Envelope.Headers["name"] != "original" {
			f.Fatalf("%s: payload %q, headers %q", what, r.Envelope.Payload, r.Envelope.Headers)
		}
	}
	got := f.get("a")
	check("after the caller changed what it had persisted", got)
	copy(got.Envelope.Payload, "changed!")
	got.Envelope.Headers["name"] = "changed"
	pending, err := f.store.QueryPending(f.Context(), part, 1)
	if err != nil || len(pending) != 1 {
		f.Fatalf("QueryPending returned %d records and error %v, want 1", len(pending), err)
	}
	check("after the caller changed what Get had returned", pending[0])
	copy(pending[0].Envelope.Payload, "changed!")
	claimed := f.claim(1, 1)[0]
	check("after the caller changed what QueryPending had returned", claimed)
	copy(claimed.Envelope.Payload, "changed!")
	claimed.Envelope.Headers["name"] = "changed"
	check("after the caller changed what Claim had returned", f.get("a"))
}
