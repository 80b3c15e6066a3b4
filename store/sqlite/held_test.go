package sqlite_test

import (
	"context"
	"fmt"
	"testing"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/sqlite"
)

// What a process has lost sight of is claimable at once, however long it has
// claimed beside what it holds.
func TestWhatIsNoLongerHeldIsClaimedAtOnce(t *testing.T) {
	s, err := sqlite.OpenFile(t.Context(), t.TempDir()+"/outbox.db", sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	const partition = gobridge.Partition("r/b/0")
	token := gobridge.Token{Owner: "o", Version: 3}
	persist := func(name string, n int) {
		t.Helper()
		records := make([]gobridge.Record, n)
		for i := range records {
			records[i] = gobridge.Record{Partition: partition, Binding: "b", Envelope: messaging.Envelope{ID: fmt.Sprint(name, i)}}
		}
		if err := s.Persist(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(limit int, held []gobridge.Ref) (refs []gobridge.Ref) {
		t.Helper()
		records, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: partition, Token: token, Limit: limit, HeldKnown: true, Held: held})
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			refs = append(refs, records[i].Ref())
		}
		return refs
	}
	complete := func(refs []gobridge.Ref) {
		t.Helper()
		list := make([]gobridge.Completion, len(refs))
		for i := range refs {
			list[i].Ref = refs[i]
		}
		if err := s.Complete(context.Background(), token, list); err != nil {
			t.Fatal(err)
		}
	}
	persist("held", 10)
	held := claim(10, nil)
	for i := range 30 {
		persist(fmt.Sprint("passing", i, "-"), 100)
		complete(claim(100, held))
		if i%7 != 0 {
			continue
		}
		// One that this process has claimed and does not know of, and one that it has settled.
		if got := claim(10, held[1:]); len(got) != 1 || got[0] != held[0] {
			t.Fatalf("round %d: claimed %v, want %v", i, got, held[0])
		}
		if got := claim(10, held); len(got) != 0 {
			t.Fatalf("round %d: claimed %v, which is held", i, got)
		}
	}
	gone := held[0]
	complete(held[:1])
	if got := claim(10, held); len(got) != 0 {
		t.Fatalf("claimed %v", got)
	}
	if got := claim(10, append([]gobridge.Ref{gone}, held[2:]...)); len(got) != 1 || got[0] != held[1] {
		t.Fatalf("claimed %v, want %v", got, held[1])
	}
}
