package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGeneratorReachesReceiver(t *testing.T) {
	j := newJournal(200)
	r, err := newReceiver(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = produce(ctx, j, r.listener.Addr().String(), 4, 0)
	if err == nil || !strings.Contains(err.Error(), "has room for") {
		t.Fatalf("producers that ran out of room ended with %v", err)
	}
	if accepted, delivered := j.acceptedCount.Load(), j.deliveredCount.Load(); accepted != 200 || delivered != 200 {
		t.Errorf("accepted %d, delivered %d, want 200 each", accepted, delivered)
	}
	for n := range j.delivered {
		if j.sent[n] == 0 || j.accepted[n] < j.sent[n] || j.delivered[n].Load() < j.sent[n] {
			t.Errorf("message %d has times %d, %d, %d", n, j.sent[n], j.accepted[n], j.delivered[n].Load())
		}
	}
	if n := j.repeats.Load(); n != 0 {
		t.Errorf("%d repeats", n)
	}
}

func TestReceiverCountsRepeats(t *testing.T) {
	j := newJournal(1)
	r, err := newReceiver(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for range 2 {
		j.next.Store(0)
		_ = produce(context.Background(), j, r.listener.Addr().String(), 1, 0)
	}
	if delivered, repeats := j.deliveredCount.Load(), j.repeats.Load(); delivered != 1 || repeats != 1 {
		t.Errorf("delivered %d, repeats %d, want 1 and 1", delivered, repeats)
	}
}

func TestTableShowsMedianAndAim(t *testing.T) {
	table := &table{part: "part"}
	for _, v := range []float64{3, 1, 2} {
		table.atMost("few", "count", 2, v)
		table.atLeast("many", "ratio", 2.5, v)
		table.add("told", "ms", v/1000)
	}
	var b bytes.Buffer
	if err := table.print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"few", "2       count  1 .. 3", "at most 2: reached", "at least 2.50: MISSED", "0.002"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}
