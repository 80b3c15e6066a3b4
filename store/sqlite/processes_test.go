package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
)

func TestHandlesOnOneFileShareEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	handles := []*Store{open1(t, path, Options{}), open1(t, path, Options{}), open1(t, path, Options{})}
	const each = 100
	var wg sync.WaitGroup
	for h, s := range handles {
		for p := range 4 {
			wg.Go(func() {
				for i := range each {
					id := fmt.Sprintf("%d-%d-%03d", h, p, i)
					if err := s.Persist(t.Context(), []gobridge.Record{one(id, id[:3])}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	var order []gobridge.Record
	for h := 0; len(order) < len(handles)*4*each && !t.Failed(); h = (h + 1) % len(handles) { // takeovers all the time
		token := gobridge.Token{Owner: fmt.Sprint("h", h), Version: int64(len(order) + h + 1)}
		token.Version = max(token.Version, 1) * 10
		token.Version += int64(h)
		got, err := handles[h].Claim(t.Context(), gobridge.ClaimRequest{Partition: "r/b/0", Token: token, Limit: 50, HeldKnown: true})
		if err != nil {
			continue // an older token than the last one's
		}
		done := make([]gobridge.Completion, len(got))
		for i := range got {
			done[i].Ref = got[i].Ref()
		}
		if err := handles[h].Complete(t.Context(), token, done); err != nil {
			t.Error(err)
		}
		order = append(order, got...)
	}
	wg.Wait()
	last := map[string]string{}
	for _, r := range order {
		key := r.Envelope.OrderingKey
		if r.Envelope.ID <= last[key] {
			t.Errorf("%s came after %s", r.Envelope.ID, last[key])
		}
		last[key] = r.Envelope.ID
	}
	seqs := make([]int64, len(order))
	for i := range order {
		seqs[i] = order[i].Seq
	}
	slices.Sort(seqs)
	if unique := len(slices.Compact(slices.Clone(seqs))); unique != len(handles)*4*each {
		t.Errorf("%d records have %d different Seq", len(order), unique)
	}
}

func TestNotifyTellsOfOwnAndForeignCommits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	here, there := open1(t, path, Options{}), open1(t, path, Options{})
	heard := make(chan gobridge.Partition, 1000)
	stop := here.Notify(func(p gobridge.Partition) { heard <- p })
	if err := here.Persist(t.Context(), []gobridge.Record{one("own", "")}); err != nil {
		t.Fatal(err)
	}
	for p := range heard {
		if p == "r/b/0" {
			break // the first look at the database may have told of any before
		}
	}
	for i := range 3 {
		if err := there.Persist(t.Context(), []gobridge.Record{one(fmt.Sprint("foreign", i), "")}); err != nil {
			t.Fatal(err)
		}
		select {
		case p := <-heard:
			if p != "" {
				t.Fatalf("a commit of another process was told as of partition %q, want any", p)
			}
			clear1(heard)
		case <-time.After(10 * time.Second):
			t.Fatal("a commit of another process was not noticed")
		}
	}
	stop()
	clear1(heard)
	if err := here.Persist(t.Context(), []gobridge.Record{one("after", "")}); err != nil {
		t.Fatal(err)
	}
	if len(heard) > 0 {
		t.Fatalf("told of partition %q after the stop", <-heard)
	}
}

// clear1 takes what is waiting.
func clear1(heard chan gobridge.Partition) {
	for len(heard) > 0 {
		<-heard
	}
}

// TestNotifyOfAHandleThatNeverWrites has one that only listens.
func TestNotifyOfAHandleThatNeverWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	there := open1(t, path, Options{})
	here := open1(t, path, Options{})
	heard := make(chan gobridge.Partition, 1000)
	defer here.Notify(func(p gobridge.Partition) { heard <- p })()
	for i := range 2 { // the first may be told by the first look
		if err := there.Persist(t.Context(), []gobridge.Record{one(fmt.Sprint(i), "")}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
		case <-time.After(10 * time.Second):
			t.Fatal("a commit of another process was not noticed")
		}
	}
}

func TestOwnCommitsAreNotTakenForForeignOnes(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	var mu sync.Mutex
	told := map[gobridge.Partition]int{}
	defer s.Notify(func(p gobridge.Partition) {
		mu.Lock()
		defer mu.Unlock()
		told[p]++
	})()
	for i := range 50 {
		if err := s.Persist(t.Context(), []gobridge.Record{one(fmt.Sprint(i), "")}); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if told[""] > 1 { // the first look finds what came before the registration
		t.Errorf("50 own commits were told %d times as foreign ones", told[""])
	}
}

func TestNoClaimWaitsBehindMoreThanTwoCommits(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	var wg sync.WaitGroup
	for p := range 32 {
		wg.Go(func() {
			for i := range 60 {
				if err := s.Persist(t.Context(), []gobridge.Record{one(fmt.Sprint(p, "-", i), "")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	drained := 0
	for drained < 32*60 && !t.Failed() {
		drained += len(drain1(t, s, 50))
	}
	wg.Wait()
	stats := s.WriterStats()
	if stats.MaxClaimWait > 2 {
		t.Errorf("a claim or settle waited for %d commits", stats.MaxClaimWait)
	}
	if stats.Commits >= stats.Requests {
		t.Errorf("%d requests took %d commits, want shared ones", stats.Requests, stats.Commits)
	}
}

// TestManyDueAtOnce has more records come due than one claim looks at.
func TestManyDueAtOnce(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{Now: func() time.Time { return now }})
	const n = 2500
	var call []gobridge.Record
	for i := range n {
		r := one(fmt.Sprintf("%04d", i), []string{"", "k"}[i%2])
		r.Envelope.NotBefore = now.Add(time.Hour)
		call = append(call, r)
	}
	if err := s.Persist(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if got := drain1(t, s, 100); len(got) != 0 {
		t.Fatalf("%d records were claimed before their time", len(got))
	}
	now = now.Add(time.Hour)
	if got := drain1(t, s, 100); len(got) != n || !slices.IsSorted(got) {
		t.Fatalf("drained %d records, sorted %v, want %d in order", len(got), slices.IsSorted(got), n)
	}
}

func TestRestoreOfAnOlderCopy(t *testing.T) {
	folder := t.TempDir()
	path, copied := filepath.Join(folder, "outbox.db"), filepath.Join(folder, "backup.db")
	s := open1(t, path, Options{})
	if err := s.Persist(t.Context(), []gobridge.Record{one("a", "k"), one("b", "k")}); err != nil {
		t.Fatal(err)
	}
	claim := func(s *Store) (gobridge.Lease, []gobridge.Record) {
		t.Helper()
		stats, err := s.Stats(t.Context(), "r/b/0")
		if err != nil {
			t.Fatal(err)
		}
		request := gobridge.AcquireRequest{Partition: "r/b/0", Owner: "o", Term: time.Second, MinVersion: stats[0].Fence.Version}
		lease, err := s.Leases().Acquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: "r/b/0", Token: lease.Token, Limit: 10, HeldKnown: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Leases().Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		return lease, got
	}
	for range 3 { // the backup's fence is at 3
		claim(s)
	}
	if err := s.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), copied); err == nil || !strings.Contains(err.Error(), "exist") {
		t.Fatalf("a backup onto an existing file returned %v", err)
	}
	// The copy in a new place, where there are no leases: the fence decides. And
	// beside leases that are ahead of it: the leases decide.
	elsewhere := open1(t, copied, Options{})
	lease, got := claim(elsewhere)
	if lease.Token.Version != 4 || len(got) != 2 || got[0].Envelope.ID != "a" || string(got[0].Envelope.Payload) != "a" {
		t.Fatalf("the restored copy gave version %d and %d records", lease.Token.Version, len(got))
	}
	for range 3 {
		claim(s)
	}
	if err := s.Persist(t.Context(), []gobridge.Record{one("c", "k")}); err != nil {
		t.Fatal(err)
	}
	if lease, _ = claim(s); lease.Token.Version != 7 {
		t.Fatalf("the leases are at version %d, want 7", lease.Token.Version)
	}
	old := filepath.Join(folder, "old.db")
	if err := elsewhere.Backup(t.Context(), old); err != nil { // its fence is at 4
		t.Fatal(err)
	}
	beside := open1(t, old, Options{})
	for range 2 {
		if _, err := beside.leases.db.ExecContext(t.Context(), "UPDATE gobridge_lease SET version = 9"); err != nil {
			t.Fatal(err)
		}
		lease, got = claim(beside)
	}
	if lease.Token.Version != 10 || len(got) != 2 {
		t.Fatalf("beside newer leases the copy gave version %d and %d records, want 10 and 2", lease.Token.Version, len(got))
	}
}
