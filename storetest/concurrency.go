package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"gobridge"
)

func concurrencyCases() []testCase {
	return []testCase{
		{name: "ConcurrentClaimersShareNothing", run: concurrentClaimersShareNothing,
			why: "Two claims of one owner at once, from whatever goroutines, must not both get a record."},
		{name: "TakeoversUnderLoadKeepTheOrder", run: takeoversUnderLoadKeepTheOrder,
			why: "While many persist and owners take over from each other, nothing is lost and every key is delivered in order."},
		{name: "ConcurrentDuplicatesAreStoredOnce", run: concurrentDuplicatesAreStoredOnce,
			why: "A message that two processes persist at once is one message."},
	}
}

// failures collects errors of goroutines, which must not fail a test themselves.
type failures struct {
	mu   sync.Mutex
	errs []error
}

func (f *failures) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, fmt.Errorf(format, args...))
}

func (f *failures) report(fixture *fixture) {
	fixture.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errs) > 0 {
		fixture.Fatalf("%d failures, the first: %v", len(f.errs), f.errs[0])
	}
}

func concurrentClaimersShareNothing(f *fixture) {
	const total, claimers = 200, 6
	call := make([]gobridge.Record, total)
	for i := range call {
		call[i] = record(fmt.Sprintf("r-%d", i))
	}
	f.persist(call...)
	second, _ := f.another(0)
	handles := []gobridge.Store{f.store, second}
	var failed failures
	var mu sync.Mutex
	claimed := map[string]int{}
	var wg sync.WaitGroup
	for c := range claimers {
		wg.Go(func() {
			for range total {
				// Not told what is held, for the claimers don't know of each other.
				got, err := handles[c%2].Claim(f.Context(), gobridge.ClaimRequest{Partition: part, Token: token(1), Limit: 7})
				if err != nil {
					failed.add("Claim: %w", err)
					return
				}
				if len(got) == 0 {
					return
				}
				mu.Lock()
				for _, id := range ids(got) {
					claimed[id]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	failed.report(f)
	for _, r := range call {
		if n := claimed[r.Envelope.ID]; n != 1 {
			f.Fatalf("record %q was claimed %d times under one version", r.Envelope.ID, n)
		}
	}
}

// load is many producers, each of one key, and claimers that take over from
// each other under ever higher versions.
type load struct {
	*fixture
	failed    failures
	version   atomic.Int64
	ended     atomic.Int64
	producing atomic.Int64 // producers that are not done
	mu        sync.Mutex
	first     map[string][]string // first claims of a key, in the order of claims
	versions  map[string]int64    // of a record's newest claim
}

const (
	loadKeys    = 6
	loadPerKey  = 40
	loadRecords = loadKeys * loadPerKey
)

func (l *load) produce(store gobridge.Store, k int) {
	defer l.producing.Add(-1)
	for i := range loadPerKey {
		err := store.Persist(l.Context(), []gobridge.Record{record(fmt.Sprintf("k%d-%d", k, i), key(fmt.Sprintf("k%d", k)))})
		if err != nil {
			l.failed.add("Persist: %w", err)
			return
		}
	}
}

// own claims under versions of its own until all has ended: some batches it
// completes, some it leaves behind.
func (l *load) own(store gobridge.Store, until int64) {
	late := 0
	for round := 0; l.ended.Load() < until; round++ {
		if l.producing.Load() == 0 {
			late++
		}
		if late > 20*loadRecords {
			l.failed.add("%d claims after the last record came, only %d are completed", late, l.ended.Load())
			return
		}
		// The version is taken and the claim made by one owner at a time, as a
		// lease sees to it, so that claims come in the order of versions.
		l.mu.Lock()
		v := l.version.Add(1)
		got, err := store.Claim(l.Context(), gobridge.ClaimRequest{Partition: part, Token: token(v), Limit: 9, HeldKnown: true})
		if err == nil {
			l.note(v, got)
		}
		l.mu.Unlock()
		if err != nil {
			l.failed.add("Claim: %w", err)
			return
		}
		if round%4 == 3 {
			continue // died with it
		}
		err = store.Complete(l.Context(), token(v), completions(ids(got)...))
		var settle *gobridge.SettleError
		switch {
		case err == nil:
			l.ended.Add(int64(len(got)))
		case errors.As(err, &settle) && errors.Is(err, gobridge.ErrStaleFencingToken):
			l.ended.Add(int64(len(got) - len(settle.Failed)))
		default:
			l.failed.add("Complete: %w", err)
			return
		}
	}
}

// note checks a claim and remembers it. The caller holds mu.
func (l *load) note(version int64, got []gobridge.Record) {
	for _, r := range got {
		id, k := r.Envelope.ID, r.Envelope.OrderingKey
		if l.versions[id] >= version {
			l.failed.add("record %s was claimed under version %d after %d", id, version, l.versions[id])
		}
		l.versions[id] = version
		if r.ReplayCount == 1 {
			l.first[k] = append(l.first[k], id)
		}
	}
}

func takeoversUnderLoadKeepTheOrder(f *fixture) {
	second, _ := f.another(-1)
	third, _ := f.another(1)
	handles := []gobridge.Store{f.store, second, third}
	l := &load{fixture: f, first: map[string][]string{}, versions: map[string]int64{}}
	l.producing.Store(loadKeys)
	var producers, owners sync.WaitGroup
	for k := range loadKeys {
		producers.Go(func() { l.produce(handles[k%3], k) })
	}
	for o := range 3 {
		owners.Go(func() { l.own(handles[o], loadRecords/2) })
	}
	producers.Wait()
	owners.Wait()
	l.failed.report(f)
	l.own(f.store, loadRecords)
	l.failed.report(f)
	if n := l.ended.Load(); n != loadRecords {
		f.Fatalf("%d records were completed, want %d", n, loadRecords)
	}
	for k := range loadKeys {
		want := make([]string, loadPerKey)
		for i := range want {
			want[i] = fmt.Sprintf("k%d-%d", k, i)
		}
		if got := l.first[fmt.Sprintf("k%d", k)]; !slices.Equal(got, want) {
			f.Fatalf("key k%d was first claimed in the order %q", k, got)
		}
		f.wantState(gobridge.StateDelivered, want...)
	}
	if s := f.stats(part); s.Pending != 0 || s.Claimed != 0 {
		f.Fatalf("with all completed, Stats is %+v", s)
	}
}

func concurrentDuplicatesAreStoredOnce(f *fixture) {
	const total, callers = 20, 6
	second, _ := f.another(0)
	handles := []gobridge.Store{f.store, second}
	var failed failures
	var fresh atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range total {
				err := handles[c%2].Persist(f.Context(), []gobridge.Record{record(fmt.Sprintf("r-%d", i))})
				if err == nil {
					fresh.Add(1)
				} else if !errors.Is(err, gobridge.ErrDuplicateRecord) {
					failed.add("Persist: %w", err)
				}
			}
		})
	}
	wg.Wait()
	failed.report(f)
	if n := fresh.Load(); n != total {
		f.Fatalf("%d calls were told that they stored something new, want %d", n, total)
	}
	if got := f.claim(1, 10*total); len(got) != total {
		f.Fatalf("claimed %d records, want %d", len(got), total)
	}
}
