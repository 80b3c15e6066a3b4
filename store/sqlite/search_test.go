package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"gobridge"
	"gobridge/messaging"
)

// TestSearchOfABindingBesideALargeOne: what other bindings of the route hold does not
// use up the effort of a page.
func TestSearchOfABindingBesideALargeOne(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	dead := func(binding string, n int) (records []gobridge.Record) {
		for i := range n {
			records = append(records, gobridge.Record{
				Partition: gobridge.NewShard("orders", binding, 0, 1), Binding: binding, State: gobridge.StateDead, Reason: gobridge.ReasonExhausted,
				Envelope: messaging.Envelope{ID: fmt.Sprint(i), OrderingKey: "k", Payload: []byte("x")},
			})
		}
		return records
	}
	must(t, s.Persist(t.Context(), dead("billing", largestPage+1)))
	must(t, s.Persist(t.Context(), dead("crm", 3)))
	page, err := s.QueryDead(t.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{Route: "orders", Binding: "crm"}, Limit: 2})
	must(t, err)
	if len(page.Records) != 2 || page.Records[0].Binding != "crm" {
		t.Errorf("the page has %d records", len(page.Records))
	}
	page, err = s.QueryDead(t.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{Route: "orders", Binding: "crm"}, Limit: 2, Cursor: page.Cursor})
	must(t, err)
	if len(page.Records) != 1 || page.Cursor != "" {
		t.Errorf("the next page has %d records, and then %q", len(page.Records), page.Cursor)
	}
}

// TestDiscardOfAKeyGoesPageByPage, oldest first, and takes what waits of that key and
// nothing else, however much else waits.
func TestDiscardOfAKeyGoesPageByPage(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	partition := gobridge.NewShard("orders", "crm", 0, 1)
	var records []gobridge.Record
	for i := range 50 {
		records = append(records, gobridge.Record{Partition: partition, Binding: "crm", Envelope: messaging.Envelope{
			ID: fmt.Sprintf("m-%02d", 99-i), OrderingKey: fmt.Sprint("k", i%5), Payload: []byte("x"),
		}})
	}
	must(t, s.Persist(t.Context(), records))
	request := gobridge.BulkRequest{
		Filter: gobridge.Filter{Route: "orders", OrderingKey: "k3", States: []gobridge.State{gobridge.StatePending}}, Limit: 4, Reason: "x",
	}
	var got []string
	for range 10 {
		result, err := s.Discard(t.Context(), request)
		must(t, err)
		for _, it := range result.Items {
			got = append(got, it.Ref.EnvelopeID)
		}
		if request.Cursor = result.Cursor; request.Cursor == "" {
			break
		}
	}
	if want := "[m-96 m-91 m-86 m-81 m-76 m-71 m-66 m-61 m-56 m-51]"; fmt.Sprint(got) != want {
		t.Errorf("discarded %v, want %s", got, want)
	}
	stats, err := s.Stats(t.Context(), partition)
	must(t, err)
	if stats[0].Pending != 40 {
		t.Errorf("%d wait still", stats[0].Pending)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
