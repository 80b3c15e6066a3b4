package sqlite

import (
	"fmt"
	"maps"
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
			break
		}
	}
	clear1(heard)
	for i := range 3 {
		if err := there.Persist(t.Context(), []gobridge.Record{one(fmt.Sprint("foreign", i), "")}); err != nil {
			t.Fatal(err)
		}
		select {
		case p := <-heard:
			if p != "r/b/0" {
				t.Fatalf("a commit of another process was told as of partition %q", p)
			}
			clear1(heard)
		case <-time.After(time.Minute):
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
		case <-time.After(time.Minute):
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
	// The first look finds what came before the registration.
	if own := told["r/b/0"]; int64(own) > s.WriterStats().Commits+1 || len(told) > 1 {
		t.Errorf("%d commits of its own were told as %v, want each once", s.WriterStats().Commits, told)
	}
}

// told returns what says of which partitions watchers were told since it was last
// asked, by the store's own commits.
func told(t *testing.T, s *Store) (since func() []gobridge.Partition) {
	t.Helper()
	var all []gobridge.Partition
	t.Cleanup(s.Notify(func(p gobridge.Partition) { all = append(all, p) }))
	commit := func(*txn) error { return nil } // comes after what was told of the one before
	since = func() (out []gobridge.Partition) {
		for range 2 {
			if err := s.write(t.Context(), urgent, commit); err != nil {
				t.Fatal(err)
			}
		}
		s.notify.mu.Lock()
		defer s.notify.mu.Unlock()
		out, all = all, nil
		return out
	}
	s.writer.lookNow() // the first look finds what there was
	since()
	return since
}

// A settling call after which nothing waits wakes nobody, for who is woken pays for a
// claim that finds nothing.
func TestASettleTellsOfWhatItHasMadeClaimable(t *testing.T) {
	s := open1(t, filepath.Join(t.TempDir(), "outbox.db"), Options{})
	claim := func(id, key string) gobridge.Ref {
		t.Helper()
		if err := s.Persist(t.Context(), []gobridge.Record{one(id, key)}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Claim(t.Context(), gobridge.ClaimRequest{Partition: "r/b/0", Token: token1, Limit: 9})
		if err != nil || len(got) != 1 {
			t.Fatalf("claimed %d: %v", len(got), err)
		}
		return got[0].Ref()
	}
	alone, back, dead, first := claim("alone", ""), claim("back", ""), claim("dead", "d"), claim("first", "k")
	if err := s.Persist(t.Context(), []gobridge.Record{one("second", "k")}); err != nil {
		t.Fatal(err)
	}
	since := told(t, s)
	for _, c := range []struct {
		name   string
		settle func() error
		want   int // notices
	}{
		{"one completed", func() error { return s.Complete(t.Context(), token1, []gobridge.Completion{{Ref: alone}}) }, 0},
		{"one buried", func() error { return s.DeadLetter(t.Context(), token1, []gobridge.Burial{{Ref: dead}}) }, 0},
		{"one completed that another waited for", func() error {
			return s.Complete(t.Context(), token1, []gobridge.Completion{{Ref: first}})
		}, 1},
		{"one released", func() error { return s.Release(t.Context(), token1, []gobridge.Release{{Ref: back}}) }, 1},
	} {
		if err := c.settle(); err != nil {
			t.Fatal(err)
		}
		if got := since(); len(got) != c.want {
			t.Errorf("%s: told of %q, want %d", c.name, got, c.want)
		}
	}
}

// TestOnlyPartitionsWithSomethingReadyAreToldOf: of a commit of somebody else a drainer
// hears only if there is something for it, for there may be hundreds of them.
func TestOnlyPartitionsWithSomethingReadyAreToldOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	here, there := open1(t, path, Options{}), open1(t, path, Options{})
	persist := func(p gobridge.Partition, id, key string, notBefore time.Time) {
		t.Helper()
		r := one(id, key)
		r.Partition, r.Envelope.NotBefore = p, notBefore
		if err := there.Persist(t.Context(), []gobridge.Record{r}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(p gobridge.Partition) {
		t.Helper()
		got, err := there.Claim(t.Context(), gobridge.ClaimRequest{Partition: p, Token: token1, Limit: 1})
		if err != nil || len(got) != 1 {
			t.Fatalf("claimed %d: %v", len(got), err)
		}
	}
	want := func(after string, want ...gobridge.Partition) {
		t.Helper()
		var got []gobridge.Partition
		err := here.write(t.Context(), urgent, func(x *txn) error {
			ready, err := readyPartitions(x.ctx, x)
			got = slices.Sorted(maps.Keys(ready))
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("after %s %q are told of (%v), want %q", after, got, err, want)
		}
	}
	want("nothing")
	persist("r/later/0", "1", "", time.Now().Add(time.Hour))
	want("one that is not due")
	persist("r/b/0", "1", "k", time.Time{})
	persist("r/c/0", "1", "", time.Time{})
	want("two that are", "r/b/0", "r/c/0")
	claim("r/b/0")
	want("a claim", "r/c/0")
	persist("r/b/0", "2", "k", time.Time{})
	want("one behind what is claimed", "r/c/0")
	ref := gobridge.Ref{Partition: "r/b/0", EnvelopeID: "1", Binding: "b"}
	if err := there.Complete(t.Context(), token1, []gobridge.Completion{{Ref: ref}}); err != nil {
		t.Fatal(err)
	}
	want("its end", "r/b/0", "r/c/0")
	claim("r/c/0")
	claim("r/b/0")
	want("claims of all")
	halt := gobridge.Control{Route: "r", Binding: "b", Kind: gobridge.Halt, OrderingKey: "k", By: "test", Reason: "test"}
	if err := there.SetControl(t.Context(), halt); err != nil {
		t.Fatal(err)
	}
	heir := gobridge.ClaimRequest{Partition: "r/b/0", Token: gobridge.Token{Owner: "heir", Version: 2}, Limit: 1, HeldKnown: true}
	if got, err := here.Claim(t.Context(), heir); err != nil || len(got) != 0 {
		t.Fatalf("claimed %d of a halted key: %v", len(got), err)
	}
	want("a halt of what a dead owner had claimed")
	if err := there.ClearControl(t.Context(), halt); err != nil {
		t.Fatal(err)
	}
	want("its end", "r/b/0")
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
