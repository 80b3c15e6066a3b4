package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
)

// brokenStore is a store with some of its methods replaced. Every handle has
// one of its own, so that what it remembers is what one process remembers.
type brokenStore struct {
	gobridge.Store
	now func() time.Time

	persist    func(context.Context, []gobridge.Record) error
	claim      func(context.Context, gobridge.ClaimRequest) ([]gobridge.Record, error)
	complete   func(context.Context, gobridge.Token, []gobridge.Completion) error
	release    func(context.Context, gobridge.Token, []gobridge.Release) error
	deadLetter func(context.Context, gobridge.Token, []gobridge.Burial) error
	sweep      func(context.Context, gobridge.SweepRequest) (gobridge.SweepResult, error)
	queryPend  func(context.Context, gobridge.Partition, int) ([]gobridge.Record, error)
	countPend  func(context.Context, gobridge.Partition, int) (int, error)
	queryDead  func(context.Context, gobridge.DeadQuery) (gobridge.DeadPage, error)
	redrive    func(context.Context, gobridge.BulkRequest) (gobridge.BulkResult, error)
	discard    func(context.Context, gobridge.BulkRequest) (gobridge.BulkResult, error)
	stats      func(context.Context, ...gobridge.Partition) ([]gobridge.Stats, error)
	get        func(context.Context, gobridge.Ref) (gobridge.Record, error)
	explain    func(context.Context, gobridge.ExplainQuery) (gobridge.Explanation, error)
	setControl func(context.Context, gobridge.Control) error
	clear      func(context.Context, gobridge.Control) error
	list       func(context.Context) ([]gobridge.Control, error)
	retry      func(context.Context, gobridge.RetryRequest) (int, error)
	listAudit  func(context.Context, int) ([]gobridge.AuditEntry, error)
	report     func(context.Context, gobridge.Partition, gobridge.Token, gobridge.Condition) error
}

func newBrokenStore(store gobridge.Store, now func() time.Time, breakIt func(*brokenStore)) *brokenStore {
	b := &brokenStore{
		Store: store, now: now,
		persist: store.Persist, claim: store.Claim, complete: store.Complete, release: store.Release,
		deadLetter: store.DeadLetter, sweep: store.Sweep, queryPend: store.QueryPending, countPend: store.CountPending,
		queryDead: store.QueryDead, redrive: store.Redrive, discard: store.Discard, stats: store.Stats, get: store.Get,
		explain: store.Explain, setControl: store.SetControl, clear: store.ClearControl, list: store.ListControls, retry: store.Retry,
		listAudit: store.ListAudit, report: store.Report,
	}
	if breakIt != nil {
		breakIt(b)
	}
	return b
}

func (b *brokenStore) Persist(ctx context.Context, records []gobridge.Record) error {
	return b.persist(ctx, records)
}
func (b *brokenStore) Claim(ctx context.Context, r gobridge.ClaimRequest) ([]gobridge.Record, error) {
	return b.claim(ctx, r)
}
func (b *brokenStore) Complete(ctx context.Context, t gobridge.Token, s []gobridge.Completion) error {
	return b.complete(ctx, t, s)
}
func (b *brokenStore) Release(ctx context.Context, t gobridge.Token, s []gobridge.Release) error {
	return b.release(ctx, t, s)
}
func (b *brokenStore) DeadLetter(ctx context.Context, t gobridge.Token, s []gobridge.Burial) error {
	return b.deadLetter(ctx, t, s)
}
func (b *brokenStore) Sweep(ctx context.Context, r gobridge.SweepRequest) (gobridge.SweepResult, error) {
	return b.sweep(ctx, r)
}
func (b *brokenStore) QueryPending(ctx context.Context, p gobridge.Partition, n int) ([]gobridge.Record, error) {
	return b.queryPend(ctx, p, n)
}
func (b *brokenStore) CountPending(ctx context.Context, p gobridge.Partition, n int) (int, error) {
	return b.countPend(ctx, p, n)
}
func (b *brokenStore) QueryDead(ctx context.Context, q gobridge.DeadQuery) (gobridge.DeadPage, error) {
	return b.queryDead(ctx, q)
}
func (b *brokenStore) Redrive(ctx context.Context, r gobridge.BulkRequest) (gobridge.BulkResult, error) {
	return b.redrive(ctx, r)
}
func (b *brokenStore) Discard(ctx context.Context, r gobridge.BulkRequest) (gobridge.BulkResult, error) {
	return b.discard(ctx, r)
}
func (b *brokenStore) Stats(ctx context.Context, p ...gobridge.Partition) ([]gobridge.Stats, error) {
	return b.stats(ctx, p...)
}
func (b *brokenStore) Get(ctx context.Context, ref gobridge.Ref) (gobridge.Record, error) {
	return b.get(ctx, ref)
}
func (b *brokenStore) Explain(ctx context.Context, q gobridge.ExplainQuery) (gobridge.Explanation, error) {
	return b.explain(ctx, q)
}
func (b *brokenStore) SetControl(ctx context.Context, c gobridge.Control) error {
	return b.setControl(ctx, c)
}
func (b *brokenStore) ClearControl(ctx context.Context, c gobridge.Control) error {
	return b.clear(ctx, c)
}
func (b *brokenStore) ListControls(ctx context.Context) ([]gobridge.Control, error) {
	return b.list(ctx)
}
func (b *brokenStore) Retry(ctx context.Context, r gobridge.RetryRequest) (int, error) {
	return b.retry(ctx, r)
}
func (b *brokenStore) ListAudit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	return b.listAudit(ctx, limit)
}
func (b *brokenStore) Report(ctx context.Context, p gobridge.Partition, t gobridge.Token, c gobridge.Condition) error {
	return b.report(ctx, p, t, c)
}

// defect is a way in which a store breaks a rule.
type defect struct {
	// name says what the store does wrong.
	name string
	// fails are the cases that are there to notice.
	fails []string
	// breakIt replaces methods, breakRestored those of a restored database;
	// settings changes the database's options.
	breakIt       func(*brokenStore)
	breakRestored func(*brokenStore)
	settings      func(*Options)
}

func defects() []defect {
	return slices.Concat(persistDefects(), claimDefects(), orderDefects(), settleDefects(), deadDefects(), lookDefects())
}

// backend is the memory store with the defect.
func (d defect) backend() Backend {
	healthy := memoryBackend()
	return Backend{Open: func(tb testing.TB, options Options) Database {
		if d.settings != nil {
			d.settings(&options)
		}
		return brokenDatabase{healthy.Open(tb, options), d}
	}}
}

type brokenDatabase struct {
	Database
	defect defect
}

func (b brokenDatabase) Store(tb testing.TB, now func() time.Time) gobridge.Store {
	return newBrokenStore(b.Database.Store(tb, now), now, b.defect.breakIt)
}

func (b brokenDatabase) Snapshot(tb testing.TB) func(testing.TB) Database {
	restore := b.Database.(Snapshotter).Snapshot(tb)
	restored := b.defect
	if restored.breakRestored != nil {
		restored.breakIt = restored.breakRestored
	}
	return func(tb testing.TB) Database { return brokenDatabase{restore(tb), restored} }
}

// recorder is a testing.TB that keeps a failure to itself.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	skipped  bool
	lines    []string
	cleanups []func()
}

// recorded runs f as a test of its own and returns how it went.
func recorded(outer testing.TB, f func(testing.TB)) *recorder {
	r := &recorder{TB: outer}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		f(r)
	}()
	<-done
	for _, clean := range slices.Backward(r.cleanups) {
		clean()
	}
	return r
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Helper()          {}
func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}
func (r *recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(args...))
}
func (r *recorder) Logf(format string, args ...any) { r.Log(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any) {
	r.Log(args...)
	r.Fail()
}
func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any) {
	r.Log(args...)
	r.FailNow()
}
func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }
func (r *recorder) Skip(args ...any) {
	r.Log(args...)
	r.SkipNow()
}
func (r *recorder) Skipf(format string, args ...any) { r.Skip(fmt.Sprintf(format, args...)) }
func (r *recorder) SkipNow() {
	r.skipped = true
	runtime.Goexit()
}
func (r *recorder) Skipped() bool { return r.skipped }

// TestEveryCaseCatchesItsDefect runs each case against the stores that it is
// there to catch.
func TestEveryCaseCatchesItsDefect(t *testing.T) {
	byName := map[string]testCase{}
	for _, c := range cases() {
		if _, twice := byName[c.name]; twice {
			t.Errorf("two cases are named %s", c.name)
		}
		if !strings.HasSuffix(c.why, ".") {
			t.Errorf("case %s is explained by %q, which is no sentence", c.name, c.why)
		}
		byName[c.name] = c
	}
	caught := map[string]bool{}
	for _, d := range defects() {
		for _, name := range d.fails {
			c, ok := byName[name]
			if !ok {
				t.Errorf("defect %q is to be caught by %s, and there is no such case", d.name, name)
				continue
			}
			r := recorded(t, func(tb testing.TB) { c.check(tb, d.backend()) })
			switch out := strings.Join(r.lines, "\n"); {
			case !r.failed:
				t.Errorf("a store with the defect %q passes %s", d.name, name)
			case !strings.Contains(out, c.why):
				t.Errorf("%s fails without its explanation:\n%s", name, out)
			default:
				caught[name] = true
				t.Logf("%s: %s", d.name, out)
			}
		}
	}
	for name := range byName {
		if !caught[name] {
			t.Errorf("no defect is caught by %s: does it check anything?", name)
		}
	}
}

// TestSoundCasesPassQuietly makes sure that the recorder itself fails nothing.
func TestSoundCasesPassQuietly(t *testing.T) {
	for _, c := range cases() {
		r := recorded(t, func(tb testing.TB) { c.check(tb, defect{}.backend()) })
		if r.failed || r.skipped {
			t.Errorf("%s on a sound store: failed %v, skipped %v: %s", c.name, r.failed, r.skipped, strings.Join(r.lines, "\n"))
		}
	}
}

// TestModelCatchesDefects runs the model against stores with defects of all kinds.
func TestModelCatchesDefects(t *testing.T) {
	byName := map[string]defect{}
	for _, d := range defects() {
		byName[d.name] = d
	}
	for _, name := range modelDefects() {
		d, ok := byName[name]
		if !ok {
			t.Errorf("there is no defect %q", name)
			continue
		}
		caught := false
		for seed := uint64(1); seed <= 8 && !caught; seed++ {
			r := recorded(t, func(tb testing.TB) { runModel(tb, d.backend(), seed, 300) })
			caught = r.failed
			if out := strings.Join(r.lines, "\n"); caught && !strings.Contains(out, fmt.Sprintf("STORETEST_SEED=%d", seed)) {
				t.Errorf("the failure of the model does not tell its seed:\n%s", out)
			}
		}
		if !caught {
			t.Errorf("the model passes a store with the defect %q", name)
		}
	}
}

// TestModelRepeats makes sure that a seed is a run.
func TestModelRepeats(t *testing.T) {
	d := defect{breakIt: func(b *brokenStore) {
		claims := 0
		b.claim = func(ctx context.Context, r gobridge.ClaimRequest) ([]gobridge.Record, error) {
			if claims++; claims > 20 {
				return nil, nil
			}
			return b.Store.Claim(ctx, r)
		}
	}}
	var first string
	for range 3 {
		r := recorded(t, func(tb testing.TB) { runModel(tb, d.backend(), 5, 300) })
		out := strings.Join(r.lines, "\n")
		if first == "" {
			first = out
		}
		if !r.failed || out != first {
			t.Fatalf("one seed gave two runs:\n%s\n%s", first, out)
		}
	}
}
