package memory

import (
	"context"
	"fmt"
	"testing"

	"gobridge"
	"gobridge/messaging"
)

// TestRareMatchesComeInShortPages looks for few dead letters among so many that
// one page would hold up everybody else: it is cut short, and none is lost.
func TestRareMatchesComeInShortPages(t *testing.T) {
	ctx := context.Background()
	store := New(Options{})
	const total, every = 20 * largestPage, 7000
	want := 0
	records := make([]gobridge.Record, 0, total)
	for i := range total {
		r := gobridge.Record{Partition: "r/b/0", Binding: "b", State: gobridge.StateDead, Reason: "common"}
		r.Envelope = messaging.Envelope{ID: fmt.Sprint(i)}
		if i%every == 0 {
			r.Reason = "rare"
			want++
		}
		records = append(records, r)
	}
	if err := store.Persist(ctx, records); err != nil {
		t.Fatal(err)
	}
	query := gobridge.DeadQuery{Filter: gobridge.Filter{Reason: "rare"}}
	found, pages := 0, 0
	for more := true; more; more = query.Cursor != "" {
		page, err := store.QueryDead(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		found += len(page.Records)
		pages++
		query.Cursor = page.Cursor
	}
	if found != want || pages < 3 {
		t.Errorf("found %d of %d in %d pages; want all, in more than two", found, want, pages)
	}
}
