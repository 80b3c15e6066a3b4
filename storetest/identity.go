package storetest

import (
	"errors"
	"fmt"
	"time"

	"gobridge"
	"gobridge/messaging"
)

func identityCases() []testCase {
	return []testCase{
		{name: "IdentitiesWithOddBytesNeverMeet", run: identitiesWithOddBytesNeverMeet,
			why: "Two messages whose identities are mistaken for each other mean that one of them is swallowed as a duplicate."},
		{name: "KeysWithOddBytesNeverMeet", run: keysWithOddBytesNeverMeet,
			why: "Two ordering keys that are mistaken for each other hold each other up."},
		{name: "DuplicateIsSkippedAndNewIsStored", run: duplicateIsSkippedAndNewIsStored,
			why: "A source that sends a batch again, with new messages in it, must not lose the new ones."},
		{name: "OnlyDuplicatesIsErrDuplicateRecord", run: onlyDuplicatesIsErrDuplicateRecord,
			why: "The caller learns that nothing was new, and only then."},
		{name: "DuplicateWithinOneCallIsStoredOnce", run: duplicateWithinOneCallIsStoredOnce,
			why: "A batch may hold the same message twice; it is delivered once."},
		{name: "EveryStateCountsAsDuplicate", run: everyStateCountsAsDuplicate,
			why: "A redelivery of what is in flight, delivered, expired, discarded or dead must not be delivered again while the store remembers it."},
		{name: "IdentityIsFreeAfterRetention", run: identityIsFreeAfterRetention,
			why: "The dedupe window ends with the retention, whichever way the record ended."},
		{name: "ReusedIdentityIsRefusedByName", run: reusedIdentityIsRefusedByName,
			why: "Another message under a used ID must be refused, not swallowed as a duplicate, and must not take the others of the call with it."},
		{name: "ReuseIsToldApartAfterTheEnd", run: reuseIsToldApartAfterTheEnd,
			why: "The content hash stays for the retention, so that reuse is told apart when the payload is gone."},
		{name: "RedeliveryHeadersAreNoReuse", run: redeliveryHeadersAreNoReuse,
			why: "Trace, delivery-count and receive-time headers differ between redeliveries of one message."},
		{name: "ContentHashOfTheSourceDecides", run: contentHashOfTheSourceDecides,
			why: "A changed transform of the route must not make redeliveries look like reuse."},
	}
}

// oddParts are parts of names that meet when joined, escaped, folded or
// normalised carelessly.
func oddParts() []string {
	return []string{
		"a", "A", "a#", "#a", "a#b", "a##b", "a/b", "a//b", "/", "#", "a\x00", "\x00a", "\x00", "a\x00b",
		" a", "a ", "%23", "a%23b", `a\b`, `a'b`, `a"b`, "a%", "a_", "a*",
		"\u00e9", "e\u0301", "日本", "\xff", "\xff\xfe", "\xc3\x28", "OUTBOX#a#b", "null", "0", "00",
	}
}

func identitiesWithOddBytesNeverMeet(f *fixture) {
	var records []gobridge.Record
	add := func(p gobridge.Partition, id, binding string) {
		r := record(id, payload(fmt.Sprintf("%q %q %q", p, id, binding)))
		r.Partition, r.Binding = p, binding
		records = append(records, r)
	}
	for _, odd := range oddParts() {
		add("p", odd, "b")
		add("p", "i", odd)
		add(gobridge.Partition(odd), "i", "b")
	}
	for _, cut := range []string{"#", "/", "\x00", "##", "a", "%23", "\xff"} {
		add("p", "x"+cut+"y", "z")
		add("p", "x", "y"+cut+"z")
		add(gobridge.Partition("p"+cut+"x"), "y", "z")
		add("p", cut, cut+cut)
		add("p", cut+cut, cut)
	}
	count := map[gobridge.Partition]int{}
	for _, r := range records {
		if err := f.store.Persist(f.Context(), []gobridge.Record{r}); err != nil {
			f.Fatalf("Persist of %q, %q, %q: %v", r.Partition, r.Envelope.ID, r.Binding, err)
		}
		count[r.Partition]++
	}
	for _, r := range records {
		got := f.getRef(r.Ref())
		if got.Ref() != r.Ref() || string(got.Envelope.Payload) != string(r.Envelope.Payload) {
			f.Fatalf("Get of %q returned %q with payload %s", r.Ref(), got.Ref(), got.Envelope.Payload)
		}
	}
	for p, n := range count {
		got := f.claimBy(gobridge.ClaimRequest{Partition: p, Token: token(1), Limit: len(records), HeldKnown: true})
		if len(got) != n {
			f.Fatalf("partition %q gave %d records, want %d", p, len(got), n)
		}
		for _, r := range got {
			if want := fmt.Sprintf("%q %q %q", p, r.Envelope.ID, r.Binding); string(r.Envelope.Payload) != want {
				f.Fatalf("partition %q gave the record of %s as %s", p, r.Envelope.Payload, want)
			}
		}
	}
}

func keysWithOddBytesNeverMeet(f *fixture) {
	keys := oddParts()
	for i, k := range keys {
		f.persist(record(fmt.Sprintf("head-%d", i), key(k)))
	}
	heads := f.claim(1, len(keys)+1)
	if len(heads) != len(keys) {
		f.Fatalf("claimed %d heads of %d keys", len(heads), len(keys))
	}
	held := ids(heads)
	for i, k := range keys {
		if heads[i].Envelope.OrderingKey != k {
			f.Fatalf("key %q came back as %q", k, heads[i].Envelope.OrderingKey)
		}
	}
	// One key after the other is let go: only its own tail may come.
	for i, k := range keys {
		f.persist(record(fmt.Sprintf("tail-%d", i), key(k)))
	}
	f.wantIDs(f.claim(1, 100, held...))
	for i := range keys {
		f.complete(1, fmt.Sprintf("head-%d", i))
		tail := f.claim(1, 100, held...)
		f.wantIDs(tail, fmt.Sprintf("tail-%d", i))
		held = append(held, ids(tail)...)
	}
}

func duplicateIsSkippedAndNewIsStored(f *fixture) {
	f.persist(record("a"))
	before := f.get("a")
	f.clock.Advance(time.Minute)
	f.persist(record("new-1"), record("a"), record("new-2"))
	after := f.get("a")
	if after.Seq != before.Seq || !after.CreatedAt.Equal(before.CreatedAt) {
		f.Fatalf("the duplicate changed the age of the record: %v, %d before, %v, %d after",
			before.CreatedAt, before.Seq, after.CreatedAt, after.Seq)
	}
	f.claimExactly(1, 10, "a", "new-1", "new-2")
}

func onlyDuplicatesIsErrDuplicateRecord(f *fixture) {
	f.persist(record("a"), record("b"))
	f.wantErr("Persist of duplicates only",
		f.store.Persist(f.Context(), []gobridge.Record{record("b"), record("a")}), gobridge.ErrDuplicateRecord)
	if err := f.store.Persist(f.Context(), []gobridge.Record{record("b"), record("c")}); err != nil {
		f.Fatalf("Persist of a duplicate beside a new record: %v, want nil", err)
	}
	f.claimExactly(1, 10, "a", "b", "c")
}

func duplicateWithinOneCallIsStoredOnce(f *fixture) {
	f.persist(record("a"), record("b"), record("a"))
	f.claimExactly(1, 10, "a", "b")
}

func everyStateCountsAsDuplicate(f *fixture) {
	f.persist(record("pending"))
	f.persist(record("claimed"), record("delivered"), record("expired"), record("discarded"), record("dead"))
	f.persist(record("aside"))
	f.claim(1, 10)
	f.release(1, "pending", gobridge.Untried, f.clock.Now().Add(time.Hour))
	f.settleAs("delivered", gobridge.StateDelivered)
	f.settleAs("expired", gobridge.StateExpired)
	f.settleAs("discarded", gobridge.StateDiscarded)
	f.bury(1, "dead")
	f.clock.Advance(f.options.Retention - time.Minute)
	f.sweep(1, 100)
	for _, state := range []gobridge.State{
		gobridge.StatePending, gobridge.StateClaimed, gobridge.StateDelivered,
		gobridge.StateExpired, gobridge.StateDiscarded, gobridge.StateDead,
	} {
		err := f.store.Persist(f.Context(), []gobridge.Record{record(state.String())})
		if !errors.Is(err, gobridge.ErrDuplicateRecord) {
			f.Fatalf("Persist of a %s record again, within the retention: error %v, want ErrDuplicateRecord", state, err)
		}
		f.wantState(state, state.String())
	}
}

// settleAs ends one record of part that token(1) has claimed.
func (f *fixture) settleAs(id string, as gobridge.State) {
	f.Helper()
	completion := gobridge.Completion{Ref: ref(id), As: as, Reason: "test", Error: "test of " + as.String()}
	if err := f.store.Complete(f.Context(), token(1), []gobridge.Completion{completion}); err != nil {
		f.Fatalf("Complete of %q as %s: %v", id, as, err)
	}
}

func identityIsFreeAfterRetention(f *fixture) {
	f.persist(record("delivered"), record("expired"), record("discarded"))
	f.claim(1, 10)
	f.settleAs("delivered", gobridge.StateDelivered)
	f.settleAs("expired", gobridge.StateExpired)
	f.settleAs("discarded", gobridge.StateDiscarded)
	f.clock.Advance(f.options.Retention + time.Second)
	f.sweep(1, 100)
	for _, id := range []string{"delivered", "expired", "discarded"} {
		f.wantGone(id)
		f.persist(record(id, payload("another message")))
	}
	f.claimExactly(1, 10, "delivered", "expired", "discarded")
}

func reusedIdentityIsRefusedByName(f *fixture) {
	other := gobridge.NewPartition(route, "crm", 0)
	f.persist(record("a"))
	call := []gobridge.Record{
		record("before"),
		record("a", payload("other content")),
		record("a", payload("other content"), in(other)),
		record("after"),
	}
	err := f.store.Persist(f.Context(), call)
	f.wantErr("Persist of a used ID with other content", err, gobridge.ErrIdentityReused)
	var e *gobridge.Error
	if errors.As(err, &e); e.Ref != ref("a") {
		f.Fatalf("the error names the record %q, want %q: %v", e.Ref, ref("a"), err)
	}
	f.wantGoneRef(gobridge.Ref{Partition: other, EnvelopeID: "a", Binding: "crm"})
	if got := f.get("a"); string(got.Envelope.Payload) != "payload of a" {
		f.Fatalf("the stored record now has payload %q", got.Envelope.Payload)
	}
	f.claimExactly(1, 10, "a", "before", "after")
}

func reuseIsToldApartAfterTheEnd(f *fixture) {
	f.persist(record("delivered"), record("dead"))
	f.claim(1, 10)
	f.complete(1, "delivered")
	f.bury(1, "dead")
	for _, id := range []string{"delivered", "dead"} {
		err := f.store.Persist(f.Context(), []gobridge.Record{record(id, payload("other content"))})
		f.wantErr("Persist of other content under the ID of a "+id+" record", err, gobridge.ErrIdentityReused)
	}
}

func redeliveryHeadersAreNoReuse(f *fixture) {
	f.persist(record("a", headers("kind", "x", messaging.HeaderTraceParent, "00-1", messaging.HeaderDeliveryCount, "1")))
	again := record("a", headers("kind", "x", messaging.HeaderTraceParent, "00-2", messaging.HeaderDeliveryCount, "2",
		messaging.HeaderReceivedAt, "later", messaging.HeaderTraceState, "s", messaging.HeaderBaggage, "b"))
	f.wantErr("Persist of a redelivery", f.store.Persist(f.Context(), []gobridge.Record{again}), gobridge.ErrDuplicateRecord)
	other := record("a", headers("kind", "y"))
	f.wantErr("Persist with another header", f.store.Persist(f.Context(), []gobridge.Record{other}), gobridge.ErrIdentityReused)
}

func contentHashOfTheSourceDecides(f *fixture) {
	hashed := func(text, source string) gobridge.Record {
		r := record("a", payload(text))
		r.ContentHash = messaging.ContentHash(&messaging.Envelope{Payload: []byte(source)})
		return r
	}
	f.persist(hashed("transformed", "source"))
	if got := f.get("a").ContentHash; got != hashed("", "source").ContentHash {
		f.Fatalf("the record has content hash %x, want the one it was persisted with", got)
	}
	f.wantErr("Persist of the same source, transformed in another way",
		f.store.Persist(f.Context(), []gobridge.Record{hashed("transformed anew", "source")}), gobridge.ErrDuplicateRecord)
	f.wantErr("Persist of another source with the same result",
		f.store.Persist(f.Context(), []gobridge.Record{hashed("transformed", "other source")}), gobridge.ErrIdentityReused)
	f.persist(record("b"))
	b := record("b")
	if got := f.get("b").ContentHash; got != messaging.ContentHash(&b.Envelope) {
		f.Fatal("a record persisted without a content hash does not get that of its envelope")
	}
}
